//! A stand-in for a schema registry: it answers to requests for schemas and remembers what it was asked, and it can fail.
//!
//! It is no registry: nothing can be registered, and it checks nothing. What a real one says is tested against a real one.

use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

/// A schema that the stand-in has.
#[derive(Debug, Clone)]
pub struct FakeSchema {
    /// Its id.
    pub id: u32,
    /// Its GUID, if it has one.
    pub guid: Option<String>,
    /// `AVRO`, `PROTOBUF` or `JSON`.
    pub kind: String,
    /// Its text.
    pub text: String,
    /// Name, subject and version of each schema that it refers to.
    pub references: Vec<(String, String, i32)>,
}

impl FakeSchema {
    /// A schema that refers to no other.
    pub fn new(id: u32, kind: &str, text: &str) -> Self {
        Self { id, guid: None, kind: kind.to_owned(), text: text.to_owned(), references: Vec::new() }
    }

    /// Refers to another one.
    #[must_use]
    pub fn refers_to(mut self, name: &str, subject: &str, version: i32) -> Self {
        self.references.push((name.to_owned(), subject.to_owned(), version));
        self
    }

    fn json(&self) -> Value {
        let references = self.references.iter();
        let references: Vec<Value> = references
            .map(|(name, subject, version)| json!({"name": name, "subject": subject, "version": version}))
            .collect();
        json!({"id": self.id, "schemaType": self.kind, "schema": self.text, "references": references})
    }
}

#[derive(Debug, Default)]
struct State {
    /// Subject, version, schema.
    schemas: Vec<(String, i32, FakeSchema)>,
    /// What the next requests get in place of an answer: status and body.
    failures: VecDeque<(u16, String)>,
    /// What it gets always.
    broken: Option<(u16, String)>,
    requests: Vec<String>,
    authorizations: Vec<Option<String>>,
    delay: Duration,
}

/// A stand-in that listens on loopback for as long as it lives.
#[derive(Debug)]
pub struct FakeRegistry {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
}

impl FakeRegistry {
    /// Starts one that has nothing.
    ///
    /// # Panics
    ///
    /// When loopback has no free port.
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of loopback");
        let address = listener.local_addr().expect("a bound listener has an address");
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::downgrade(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // The stand-in is gone: its last connection wakes this thread up to end.
                let Some(state) = shared.upgrade() else { return };
                std::thread::spawn(move || {
                    // A client that goes away in the middle is no business of the stand-in's.
                    let _ = serve(stream, &state);
                });
            }
        });
        Self { state, address }
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Gives it a schema.
    pub fn put(&self, subject: &str, version: i32, schema: FakeSchema) {
        self.state().schemas.push((subject.to_owned(), version, schema));
    }

    /// Lets the next request have this in place of an answer; may be called several times.
    pub fn fail_next(&self, status: u16, body: &str) {
        self.state().failures.push_back((status, body.to_owned()));
    }

    /// Lets every request have this in place of an answer; `None` ends that.
    pub fn fail(&self, with: Option<(u16, &str)>) {
        self.state().broken = with.map(|(status, body)| (status, body.to_owned()));
    }

    /// Lets every answer take so long.
    pub fn delay(&self, delay: Duration) {
        self.state().delay = delay;
    }

    /// What it was asked so far: `GET /schemas/ids/1`.
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    /// The `Authorization` of every request so far.
    pub fn authorizations(&self) -> Vec<Option<String>> {
        self.state().authorizations.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FakeRegistry {
    fn drop(&mut self) {
        self.state = Arc::default();
        // Wakes the listening thread up; it then finds that nobody needs it.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split_whitespace();
        let request = format!("{} {}", words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut authorization = None;
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header)? <= 2 {
                break;
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("authorization")
            {
                authorization = Some(value.trim().to_owned());
            }
        }
        let (delay, (status, body)) = {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.requests.push(request.clone());
            state.authorizations.push(authorization);
            let failure = state.failures.pop_front().or_else(|| state.broken.clone());
            (state.delay, failure.unwrap_or_else(|| answer(&state, &request)))
        };
        std::thread::sleep(delay);
        let head =
            format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
    }
}

fn answer(state: &State, request: &str) -> (u16, String) {
    let not_found = |code: i64, what: &str| (404, json!({"error_code": code, "message": what}).to_string());
    let parts: Vec<&str> = request.strip_prefix("GET /").unwrap_or_default().split('/').collect();
    let found = match parts.as_slice() {
        ["schemas", "ids", id] => state.schemas.iter().find(|(.., schema)| schema.id.to_string() == *id),
        ["schemas", "guids", guid] => state.schemas.iter().find(|(.., schema)| schema.guid.as_deref() == Some(*guid)),
        ["subjects", subject, "versions", "latest"] => {
            state.schemas.iter().filter(|(known, ..)| known == subject).max_by_key(|(_, version, _)| *version)
        }
        ["subjects", subject, "versions", version] => {
            state.schemas.iter().find(|(known, number, _)| known == subject && number.to_string() == *version)
        }
        _ => return (404, "no such page".to_owned()),
    };
    match (found, parts.first()) {
        (Some((.., schema)), _) => (200, schema.json().to_string()),
        (None, Some(&"schemas")) => not_found(40403, "Schema not found"),
        (None, _) => not_found(40401, "Subject not found"),
    }
}
