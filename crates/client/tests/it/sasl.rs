//! SASL against a scripted broker: what is said, what becomes of a refusal, and how a session is renewed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::{
    ApiKey, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use kafka_protocol::protocol::{Decodable as _, StrBytes};
use parking_lot::Mutex;
use tidegate_client::{
    AuthenticationError, Cluster, ClusterConfig, ConnectError, ConnectStage, RequestError, RequestFailure, Sasl,
    Secret, Security,
};

use crate::fake::{FakeBroker, FakeTopic, FetchAnswer, Log, Reply, Request, proper};
use crate::support::{batch, config, eventually, options, slice};

const PASSWORD: &str = "correct-horse-battery";

fn topic() -> FakeTopic {
    FakeTopic::new("t", 1).with_version(ApiKey::SaslHandshake, 0, 1).with_version(ApiKey::SaslAuthenticate, 0, 2)
}

fn plain(bootstrap: String) -> ClusterConfig {
    let sasl = Sasl::Plain { username: "alice".to_owned(), password: Secret::new(PASSWORD) };
    ClusterConfig { security: Security { tls: None, sasl: Some(sasl) }, ..config(bootstrap) }
}

async fn refused(config: ClusterConfig) -> RequestError {
    match Cluster::connect(config).await {
        Err(ConnectError::Unreachable { mut failures }) => failures.remove(0),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("connected"),
    }
}

fn handshake(request: &Request, mechanisms: &[&'static str]) -> Reply {
    let asked = SaslHandshakeRequest::decode(&mut request.body.clone(), request.version).unwrap();
    let code = if mechanisms.contains(&asked.mechanism.as_str()) { 0 } else { 33 };
    let mechanisms = mechanisms.iter().map(|name| StrBytes::from_static_str(name)).collect();
    request.respond(&SaslHandshakeResponse::default().with_error_code(code).with_mechanisms(mechanisms))
}

fn said(request: &Request) -> Bytes {
    SaslAuthenticateRequest::decode(&mut request.body.clone(), request.version).unwrap().auth_bytes
}

#[tokio::test]
async fn who_we_are_is_said_after_the_versions_and_before_anything_else() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&heard);
    let broker = FakeBroker::start(move |request, addr| {
        noted.lock().push((request.connection, request.api));
        match request.api {
            ApiKey::SaslHandshake => handshake(request, &["PLAIN"]),
            ApiKey::SaslAuthenticate => {
                assert_eq!(said(request), format!("\0alice\0{PASSWORD}"));
                request.respond(&SaslAuthenticateResponse::default())
            }
            _ => proper(request, addr, &topic()).unwrap(),
        }
    })
    .await;
    Cluster::connect(plain(broker.bootstrap())).await.unwrap();
    let apis = [ApiKey::ApiVersions, ApiKey::SaslHandshake, ApiKey::SaslAuthenticate, ApiKey::Metadata];
    assert_eq!(*heard.lock(), apis.map(|api| (0, api)));
}

#[tokio::test]
async fn a_refusal_is_final_has_the_brokers_words_and_hides_the_password_in_them() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&attempts);
    let broker = FakeBroker::start(move |request, addr| match request.api {
        ApiKey::SaslHandshake => handshake(request, &["PLAIN"]),
        ApiKey::SaslAuthenticate => {
            count.fetch_add(1, Ordering::SeqCst);
            let words = StrBytes::from_string(format!("no user with {PASSWORD}"));
            request.respond(&SaslAuthenticateResponse::default().with_error_code(58).with_error_message(Some(words)))
        }
        _ => proper(request, addr, &topic()).unwrap(),
    })
    .await;
    let error = refused(plain(broker.bootstrap())).await;
    let RequestFailure::Authentication(cause) = &error.failure else { panic!("{error}") };
    assert!(matches!(&**cause, AuthenticationError::Refused { mechanism: "PLAIN", .. }), "{error}");
    assert!(error.to_string().ends_with("authentication failed (SASL PLAIN): no user with ***"), "{error}");
    assert!(!error.is_transient());
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
    assert!(!format!("{error:?}").contains(PASSWORD));
}

#[tokio::test]
async fn a_mechanism_that_is_not_offered_is_told_with_those_that_are() {
    let broker = FakeBroker::start(|request, addr| match request.api {
        ApiKey::SaslHandshake => handshake(request, &["GSSAPI", "SCRAM-SHA-512"]),
        _ => proper(request, addr, &topic()).unwrap(),
    })
    .await;
    let error = refused(plain(broker.bootstrap())).await;
    assert!(error.to_string().contains("does not offer SASL PLAIN; it offers GSSAPI, SCRAM-SHA-512"), "{error}");
}

#[tokio::test]
async fn a_broker_without_sasl_and_one_with_the_oldest_are_told_apart() {
    let without = FakeBroker::start(|request, addr| proper(request, addr, &FakeTopic::new("t", 1)).unwrap()).await;
    let error = refused(plain(without.bootstrap())).await;
    assert!(error.to_string().contains("set security.protocol to PLAINTEXT"), "{error}");

    let wrong_port = FakeBroker::start(|request, addr| match request.api {
        ApiKey::SaslHandshake => request.respond(&SaslHandshakeResponse::default().with_error_code(34)),
        _ => proper(request, addr, &topic()).unwrap(),
    })
    .await;
    let error = refused(plain(wrong_port.bootstrap())).await;
    assert!(error.to_string().contains("does no SASL on this port"), "{error}");

    let old = FakeTopic::new("t", 1).with_version(ApiKey::SaslHandshake, 0, 0);
    let old = FakeBroker::start(move |request, addr| proper(request, addr, &old).unwrap()).await;
    let error = refused(plain(old.bootstrap())).await;
    assert!(error.to_string().contains("before Kafka 1.0"), "{error}");
}

#[tokio::test]
async fn a_client_that_says_nothing_of_itself_is_told_that_the_port_may_want_it() {
    let broker = FakeBroker::start(|request, addr| match request.api {
        ApiKey::ApiVersions => proper(request, addr, &topic()).unwrap(),
        // As Apache Kafka does at any request before SASL.
        _ => Reply::close(),
    })
    .await;
    let error = refused(config(broker.bootstrap())).await;
    assert!(matches!(error.failure, RequestFailure::ClosedAtOnce { .. }), "{error}");
    assert!(error.to_string().contains("SASL_PLAINTEXT"), "{error}");
}

#[tokio::test]
async fn silence_and_endless_talk_end_within_the_connect_timeout() {
    let silent = FakeBroker::start(|request, addr| match request.api {
        ApiKey::SaslHandshake => Reply::Silence,
        _ => proper(request, addr, &topic()).unwrap(),
    })
    .await;
    let began = Instant::now();
    let short = ClusterConfig { connect_timeout: Duration::from_secs(2), ..plain(silent.bootstrap()) };
    let error = refused(short).await;
    assert!(matches!(error.failure, RequestFailure::ConnectTimeout { stage: ConnectStage::Sasl, .. }), "{error}");
    assert!(began.elapsed() < Duration::from_secs(60));

    let talker = FakeBroker::start(|request, addr| match request.api {
        ApiKey::SaslHandshake => handshake(request, &["PLAIN"]),
        ApiKey::SaslAuthenticate => {
            request.respond(&SaslAuthenticateResponse::default().with_auth_bytes(Bytes::from_static(b"more")))
        }
        _ => proper(request, addr, &topic()).unwrap(),
    })
    .await;
    let error = refused(plain(talker.bootstrap())).await;
    assert!(error.to_string().contains("asks for more when all has been said"), "{error}");
}

/// What one connection has gone through.
#[derive(Default)]
struct Session {
    ends: Option<Instant>,
    shaken: bool,
    renewals: usize,
}

/// The sessions of each connection.
type Sessions = Arc<Mutex<HashMap<usize, Session>>>;

/// What was done against the rules.
type Wrong = Arc<Mutex<Vec<String>>>;

/// A broker like Apache Kafka: a session of `lifetime`, nothing but SASL between SaslHandshake and SaslAuthenticate, and a
/// closed connection for whoever asks for anything after the end.
fn sessions(
    lifetime: Duration,
    mut answer: impl FnMut(&Request, std::net::SocketAddr) -> Reply + Send + 'static,
) -> (Sessions, Wrong, impl FnMut(&Request, std::net::SocketAddr) -> Reply) {
    let (seen, wrong) = (Sessions::default(), Wrong::default());
    let (noted, complaints) = (Arc::clone(&seen), Arc::clone(&wrong));
    let script = move |request: &Request, addr| {
        let mut sessions = noted.lock();
        let session = sessions.entry(request.connection).or_default();
        match request.api {
            ApiKey::ApiVersions => proper(request, addr, &topic()).unwrap(),
            ApiKey::SaslHandshake => {
                session.shaken = true;
                handshake(request, &["PLAIN"])
            }
            ApiKey::SaslAuthenticate => {
                if session.ends.is_some_and(|ends| Instant::now() > ends) {
                    complaints.lock().push("renewed too late".to_owned());
                }
                session.renewals += usize::from(session.ends.is_some());
                session.ends = Some(Instant::now() + lifetime);
                session.shaken = false;
                let ms = i64::try_from(lifetime.as_millis()).unwrap();
                request.respond(&SaslAuthenticateResponse::default().with_session_lifetime_ms(ms))
            }
            api => {
                if session.shaken {
                    complaints.lock().push(format!("{api:?} in the middle of SASL"));
                }
                if session.ends.is_none_or(|ends| Instant::now() > ends) {
                    complaints.lock().push(format!("{api:?} after the end of the session"));
                    return Reply::close();
                }
                drop(sessions);
                answer(request, addr)
            }
        }
    };
    (seen, wrong, script)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_renewed_on_its_connection_while_fetches_wait_and_none_fails_or_is_repeated() {
    let fetched = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&fetched);
    let log = Arc::new(Mutex::new(Log::of([batch(0, 1)])));
    let written = Arc::clone(&log);
    let (sessions, wrong, script) = sessions(Duration::from_secs(8), move |request, addr| match request.api {
        ApiKey::Fetch => {
            let asked = request.fetch();
            let log = log.lock();
            let offset = asked.topics[0].partitions[0].fetch_offset;
            noted.lock().push((request.connection, offset));
            if offset < log.end() {
                log.answer(request).to(request)
            } else {
                // A long poll that nothing comes of.
                FetchAnswer::records(Bytes::new(), log.end()).to(request).after(Duration::from_millis(200))
            }
        }
        _ => proper(request, addr, &topic()).unwrap(),
    });
    let broker = FakeBroker::start(script).await;
    let cluster = Cluster::connect(plain(broker.bootstrap())).await.unwrap();
    let mut reader = cluster.read(slice("t", 0, 0, 2), options());
    assert_eq!(reader.next().await.unwrap().unwrap().next_offset, 1);
    // A session of 8 s is renewed 2 s before its end, which is the most that there ever is.
    // The connections for questions, for what is there and for the end of the log; each is renewed twice although nobody uses
    // the first two any more.
    assert!(tokio::time::timeout(Duration::from_millis(12_500), reader.next()).await.is_err());
    eventually("the renewals", || sessions.lock().values().filter(|session| session.renewals >= 2).count() == 3).await;
    *written.lock() = Log::of([batch(0, 1), batch(1, 1)]);
    assert_eq!(reader.next().await.unwrap().unwrap().next_offset, 2);
    assert_eq!(*wrong.lock(), Vec::<String>::new());
    assert_eq!(sessions.lock().len(), 3);
    let fetched = fetched.lock();
    // One fetch brought each record, and all that waited went over one connection.
    assert!(fetched[2..].iter().all(|(connection, _)| *connection == fetched[1].0));
    assert_eq!(fetched.iter().filter(|(_, offset)| *offset == 0).count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_a_connection_that_nobody_uses_is_not_renewed_for_ever() {
    let (sessions, wrong, script) =
        sessions(Duration::from_millis(6_000), |request, addr| proper(request, addr, &topic()).unwrap());
    let broker = FakeBroker::start(script).await;
    let config = ClusterConfig { connection_max_idle: Duration::from_millis(5_900), ..plain(broker.bootstrap()) };
    let _cluster = Cluster::connect(config).await.unwrap();
    eventually("closing the idle connection", || broker.open_connections() == 0).await;
    assert_eq!(*wrong.lock(), Vec::<String>::new());
    // One before it was idle for so long; a second one at most, where that came in between.
    assert!((1..=2).contains(&sessions.lock()[&0].renewals));
}
