//! A broker, an engine and a server of a test's own, and clients that see how an answer ends.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tidegate_api::error::ErrorBody;
use tidegate_api::rest;
use tidegate_broker::{Broker, BrokerConfig};
use tidegate_client::{
    Cluster, ClusterConfig, NewTopic, ProduceSummary, Producer, ProducerSettings, RecordToSend, RetryLimits,
};
use tidegate_codec::{MessageType, Schema};
use tidegate_model::TopicName;
use tidegate_server::engine::{Engine, EngineLimits, Payloads, TopicPayload};
use tidegate_server::rest::RestLimits;
use tidegate_server::{Server, ServerConfig};
use tokio::net::TcpSocket;

/// The message type of the topic `messages`.
pub const SCHEMA: &str = r#"
    syntax = "proto3";
    package test;
    message Message {
      int64 id = 1;
      string text = 2;
      Inner inner = 3 [json_name = "the-inner"];
      message Inner { double number = 1; }
    }
"#;

pub fn message_type() -> MessageType {
    Schema::from_proto_source("test.proto", SCHEMA).unwrap().message("test.Message").unwrap()
}

/// Everything that a request meets. Topics: `plain` and `wide` (three partitions) hold bytes, `documents` JSON, `messages`
/// Protobuf; all are empty. Records may have a mebibyte, in `documents` four.
pub struct World {
    pub broker: Broker,
    pub cluster: Cluster,
    pub producer: Producer,
    pub engine: Engine,
    pub server: Server,
    _data: tempfile::TempDir,
}

impl World {
    pub async fn start() -> Self {
        Self::with(EngineLimits::default(), RestLimits::default()).await
    }

    pub async fn with(engine_limits: EngineLimits, rest_limits: RestLimits) -> Self {
        Self::start_with(engine_limits, rest_limits, None).await
    }

    /// With one topic more, `framed`, which holds this.
    pub async fn with_framed(payload: TopicPayload) -> Self {
        Self::start_with(EngineLimits::default(), RestLimits::default(), Some(payload)).await
    }

    async fn start_with(engine_limits: EngineLimits, rest_limits: RestLimits, framed: Option<TopicPayload>) -> Self {
        let data = tempfile::tempdir().unwrap();
        let broker = Broker::start(BrokerConfig::new(data.path())).await.unwrap();
        let mut config = ClusterConfig::new([broker.addr().to_string()]);
        // A broker that is gone stays gone here: the tests need not wait for it as long as an operator would.
        config.connect_timeout = Duration::from_secs(2);
        config.retry = RetryLimits { attempts: 2, deadline: Duration::from_secs(2), ..RetryLimits::default() };
        let settings = ProducerSettings { message_max_bytes: 4 << 20, ..ProducerSettings::default() };
        let producer = Producer::new(&config, settings).unwrap();
        let cluster = Cluster::connect(config).await.unwrap();
        for (name, partitions) in [("plain", 1), ("wide", 3), ("documents", 1), ("messages", 1)] {
            let max_message_bytes = if name == "documents" { 4 << 20 } else { 1 << 20 };
            create_topic(&cluster, name, partitions, max_message_bytes).await;
        }
        let mut payloads = Payloads::default();
        if let Some(payload) = framed {
            create_topic(&cluster, "framed", 1, 1 << 20).await;
            payloads.insert(TopicName::new("framed").unwrap(), payload);
        }
        payloads.insert(TopicName::new("documents").unwrap(), TopicPayload::Json);
        payloads.insert(TopicName::new("messages").unwrap(), TopicPayload::Protobuf(message_type()));
        let engine = Engine::new(cluster.clone(), producer.clone(), payloads, engine_limits);
        let mut server_config = ServerConfig::default();
        server_config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        server_config.rest = rest_limits;
        let server = Server::start(server_config, engine.clone()).await.unwrap();
        Self { broker, cluster, producer, engine, server, _data: data }
    }

    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// Writes records past REST.
    pub async fn write(&self, topic: &str, records: &[RecordToSend<'_>]) -> ProduceSummary {
        let mut session = self.producer.session(&TopicName::new(topic).unwrap());
        for record in records {
            session.send(*record).await.unwrap();
        }
        session.finish().await.unwrap()
    }

    /// Writes values to one partition, one a millisecond from `first_ms` on.
    pub async fn write_values(&self, topic: &str, first_ms: i64, values: impl IntoIterator<Item = impl AsRef<[u8]>>) {
        let mut session = self.producer.session(&TopicName::new(topic).unwrap());
        for (timestamp_ms, value) in (first_ms..).zip(values) {
            let record = RecordToSend {
                partition: Some(0),
                value: Some(value.as_ref()),
                timestamp_ms: Some(timestamp_ms),
                ..RecordToSend::default()
            };
            session.send(record).await.unwrap();
        }
        session.finish().await.unwrap();
    }

    /// GET over HTTP/1.1, with `TE: trailers`.
    pub async fn get(&self, path: &str) -> Answer {
        Call::get(path).header("te", "trailers").send(self.addr()).await
    }

    /// GET over HTTP/1.1, of JSON that must come with 200.
    pub async fn get_json<T: serde::de::DeserializeOwned>(&self, path: &str) -> T {
        let answer = self.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        serde_json::from_slice(&answer.body).unwrap()
    }

    /// POST of NDJSON over HTTP/1.1.
    pub async fn post(&self, path: &str, body: impl Into<Bytes>) -> Answer {
        Call::post(path, body).header("content-type", "application/x-ndjson").send(self.addr()).await
    }

    /// The records of a topic by `format=json`.
    pub async fn records(&self, topic: &str) -> Vec<rest::Record> {
        let list: rest::RecordList = self.get_json(&format!("/v1/topics/{topic}/records?format=json&offset=0")).await;
        assert!(list.end.exhaustive);
        list.records
    }
}

pub async fn create_topic(cluster: &Cluster, name: &str, partitions: i32, max_message_bytes: usize) {
    let config = BTreeMap::from([
        ("retention.ms".to_owned(), "-1".to_owned()),
        ("max.message.bytes".to_owned(), max_message_bytes.to_string()),
    ]);
    let topic = NewTopic { name: TopicName::new(name).unwrap(), partitions, replication_factor: 1, config };
    cluster.create_topic(&topic).await.unwrap();
}

/// A request to come.
pub struct Call {
    request: Request<Full<Bytes>>,
    version: Version,
}

impl Call {
    pub fn get(path: &str) -> Self {
        Self::new(Method::GET, path, Bytes::new())
    }

    pub fn post(path: &str, body: impl Into<Bytes>) -> Self {
        Self::new(Method::POST, path, body.into())
    }

    pub fn new(method: Method, path: &str, body: Bytes) -> Self {
        let request = Request::builder().method(method).uri(path).body(Full::new(body)).unwrap();
        Self { request, version: Version::HTTP_11 }
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.request.headers_mut().append(name, value.parse().unwrap());
        self
    }

    pub fn over(mut self, version: Version) -> Self {
        self.version = version;
        self
    }

    /// Sends it; the answer is there, but not read, when its head is.
    pub async fn open(self, addr: SocketAddr) -> Response<Incoming> {
        // A small window, so that an answer of many megabytes cannot hide in the system's buffers.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(64 << 10).unwrap();
        let io = TokioIo::new(socket.connect(addr).await.unwrap());
        let mut request = self.request;
        if self.version == Version::HTTP_2 {
            let uri = format!("http://{addr}{}", request.uri()).parse().unwrap();
            *request.uri_mut() = uri;
            let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
            let (mut sender, connection) = handshake.await.unwrap();
            // Ends with the connection, which lives as long as sender or answer do.
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        } else {
            request.headers_mut().insert("host", addr.to_string().parse().unwrap());
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        }
    }

    /// Sends it and reads the answer to its end, be it good or bad.
    pub async fn send(self, addr: SocketAddr) -> Answer {
        Answer::read(self.open(addr).await).await
    }
}

/// An answer as a client saw it.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub trailers: Option<HeaderMap>,
    /// Why the transfer broke off; `None`: it ended well.
    pub failure: Option<String>,
}

impl Answer {
    pub async fn read(response: Response<Incoming>) -> Self {
        let (head, mut incoming) = response.into_parts();
        let (mut body, mut trailers, mut failure) = (Vec::new(), None, None);
        while let Some(frame) = incoming.frame().await {
            match frame {
                Err(error) => {
                    failure = Some(error.to_string());
                    break;
                }
                Ok(frame) => match frame.into_data() {
                    Ok(data) => body.extend_from_slice(&data),
                    Err(frame) => trailers = frame.into_trailers().ok(),
                },
            }
        }
        Self { status: head.status, headers: head.headers, body, trailers, failure }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn lines(&self) -> Vec<&str> {
        self.text().split_terminator('\n').collect()
    }

    pub fn json<T: serde::de::DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The records and the end statement of a complete `ndjson` answer.
    pub fn ndjson(&self) -> (Vec<rest::Record>, rest::EndStatement) {
        assert_eq!((self.status, &self.failure), (StatusCode::OK, &None), "{}", self.text());
        assert!(self.text().ends_with('\n'));
        let lines = self.lines();
        let (last, records) = lines.split_last().unwrap();
        let end: rest::EndLine = serde_json::from_str(last).unwrap();
        (records.iter().map(|line| serde_json::from_str(line).unwrap()).collect(), end.end)
    }

    /// The end statement in the trailer.
    pub fn end_trailer(&self) -> rest::EndStatement {
        serde_json::from_slice(self.trailers.as_ref().unwrap()["tidegate-end"].as_bytes()).unwrap()
    }

    /// The error of an answer that is one.
    pub fn error(&self) -> ErrorBody {
        assert!(!self.status.is_success(), "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/json"));
        self.json()
    }

    /// Its code, its message and one of its details.
    pub fn error_with(&self, detail: &str) -> (&'static str, String, Option<String>) {
        let error = self.error().error;
        (error.code.name(), error.message, error.details.get(detail).cloned())
    }
}

/// A JSON document of about `bytes` bytes that does not compress well, different for every `number`.
pub fn noisy_document(number: u64, bytes: usize) -> String {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = format!("{{\"n\":{number},\"noise\":\"");
    while text.len() + 2 < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push(char::from(b'0' + (state % 75).to_le_bytes()[0]).to_ascii_lowercase());
        if text.ends_with('\\') {
            text.pop();
        }
    }
    text.push_str("\"}");
    text
}

/// The member `n` of a record's value.
pub fn number_of(value: &Value) -> u64 {
    value["n"].as_u64().unwrap()
}

#[test]
fn noise_is_json_and_its_own() {
    let documents: Vec<Value> =
        (0..100).map(|number| serde_json::from_str(&noisy_document(number, 300)).unwrap()).collect();
    assert!(documents.iter().zip(0..).all(|(document, number)| number_of(document) == number));
    assert_ne!(documents[1]["noise"], documents[2]["noise"]);
}
