//! TLS against certificates of every kind, and the ways in which the two sides can disagree about a port.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tidegate_client::{
    Cluster, ClusterConfig, ConnectError, ConnectStage, RequestError, RequestFailure, Security, TlsIdentity,
    TlsSettings, Trust,
};
use tidegate_testkit::tls::{Authority, Identity, Validity};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::fake::{FakeBroker, FakeTopic, proper};
use crate::support::{config, eventually, name};

/// A port that speaks TLS in front of one that does not. Ends with its value.
struct TlsFront {
    addr: SocketAddr,
    _task: JoinSet<()>,
}

impl TlsFront {
    /// `clients`: the authority whose certificates callers must show.
    async fn start(identity: &Identity, clients: Option<&Path>, behind: SocketAddr) -> Self {
        let chain = vec![CertificateDer::from_pem_file(&identity.certificate).unwrap()];
        let key = PrivateKeyDer::from_pem_file(&identity.key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = rustls::RootCertStore::empty();
                roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
                let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let acceptor = TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    let Ok(mut front) = acceptor.accept(stream).await else { return };
                    let mut back = TcpStream::connect(behind).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut front, &mut back).await;
                });
            }
        });
        Self { addr, _task: task }
    }
}

/// A broker that tells everybody that it is at `front`, once that is known.
async fn broker_behind(identity: &Identity, clients: Option<&Path>) -> (FakeBroker, TlsFront) {
    let told = Arc::new(parking_lot::Mutex::new(None));
    let known = Arc::clone(&told);
    let broker = FakeBroker::start(move |request, addr| {
        let front: Option<SocketAddr> = *known.lock();
        proper(request, front.unwrap_or(addr), &FakeTopic::new("t", 1)).unwrap()
    })
    .await;
    let front = TlsFront::start(identity, clients, broker.addr).await;
    *told.lock() = Some(front.addr);
    (broker, front)
}

fn over_tls(addr: SocketAddr, tls: TlsSettings) -> ClusterConfig {
    ClusterConfig { security: Security { tls: Some(tls), sasl: None }, ..config(addr.to_string()) }
}

fn trusting(authority: &Authority) -> TlsSettings {
    TlsSettings { trust: Trust::PemFile(authority.certificate().to_owned()), ..TlsSettings::default() }
}

async fn refused(config: ClusterConfig) -> RequestError {
    match Cluster::connect(config).await {
        Err(ConnectError::Unreachable { mut failures }) => failures.remove(0),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("connected"),
    }
}

#[tokio::test]
async fn a_certificate_of_a_trusted_authority_for_the_right_name_is_taken() {
    let authority = Authority::new("ours");
    let (broker, front) = broker_behind(&authority.sign("b", &["127.0.0.1"], Validity::Good), None).await;
    let cluster = Cluster::connect(over_tls(front.addr, trusting(&authority))).await.unwrap();
    assert_eq!(cluster.topic(&name("t")).await.unwrap().partitions.len(), 1);
    drop(cluster);
    eventually("closing", || broker.open_connections() == 0).await;
}

#[tokio::test]
async fn each_certificate_that_is_not_taken_is_told_with_the_setting_that_helps() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let (_b, good) = broker_behind(&ours.sign("b", &["127.0.0.1"], Validity::Good), None).await;
    let unknown = refused(over_tls(good.addr, trusting(&other))).await;
    assert!(unknown.to_string().contains("ssl.ca.location"), "{unknown}");
    assert!(matches!(unknown.failure, RequestFailure::Tls { .. }) && !unknown.is_transient(), "{unknown}");

    let (_b, expired) = broker_behind(&ours.sign("e", &["127.0.0.1"], Validity::Expired), None).await;
    let error = refused(over_tls(expired.addr, trusting(&ours))).await;
    assert!(error.to_string().contains("has expired"), "{error}");

    let (_b, named) = broker_behind(&ours.sign("n", &["kafka.internal"], Validity::Good), None).await;
    let error = refused(over_tls(named.addr, trusting(&ours))).await;
    assert!(error.to_string().contains("kafka.internal") && error.to_string().contains("ssl.server.name"), "{error}");
    // Either remedy that it names works; an expired or unknown certificate is not let in by the second.
    let renamed = TlsSettings { server_name: Some("kafka.internal".to_owned()), ..trusting(&ours) };
    Cluster::connect(over_tls(named.addr, renamed)).await.unwrap();
    let any_name = TlsSettings { check_name: false, ..trusting(&ours) };
    Cluster::connect(over_tls(named.addr, any_name.clone())).await.unwrap();
    assert!(Cluster::connect(over_tls(expired.addr, any_name)).await.is_err());
    let any_name = TlsSettings { check_name: false, ..trusting(&other) };
    assert!(Cluster::connect(over_tls(good.addr, any_name)).await.is_err());
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_it_is_wanted_and_missed_by_name() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let server = ours.sign("b", &["127.0.0.1"], Validity::Good);
    let (_b, front) = broker_behind(&server, Some(ours.certificate())).await;
    let with = |identity: &Identity| {
        let identity = TlsIdentity { certificate: identity.certificate.clone(), key: identity.key.clone() };
        TlsSettings { identity: Some(identity), ..trusting(&ours) }
    };
    let client = ours.sign("client", &["client"], Validity::Good);
    Cluster::connect(over_tls(front.addr, with(&client))).await.unwrap();

    let error = refused(over_tls(front.addr, trusting(&ours))).await;
    assert!(error.to_string().contains("ssl.certificate.location"), "{error}");
    let error = refused(over_tls(front.addr, with(&other.sign("client", &["client"], Validity::Good)))).await;
    assert!(error.to_string().contains("does not accept the client certificate"), "{error}");

    let mixed = Identity { key: server.key.clone(), ..client };
    let Err(error) = Cluster::connect(over_tls(front.addr, with(&mixed))).await else { panic!("connected") };
    assert!(error.to_string().contains("the key is not that of the (first) certificate"), "{error}");
}

#[tokio::test]
async fn a_tls_client_on_a_port_without_tls_learns_it_whatever_the_port_does() {
    let authority = Authority::new("ours");
    for (answer, says) in [
        // What a web server would say, and a Kafka frame.
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "does not speak TLS"),
        (&[0, 0, 0, 4, 0, 0, 0, 0], "does not speak TLS"),
        // Kafka itself: the ClientHello is a frame that is too long.
        (b"", "without a word"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let peer = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4_096]).await;
            let _ = stream.write_all(answer).await;
        });
        let error = refused(over_tls(addr, trusting(&authority))).await;
        assert!(error.to_string().contains(says) && error.to_string().contains("security.protocol"), "{error}");
        peer.await.unwrap();
    }
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let short = ClusterConfig {
        connect_timeout: Duration::from_secs(2),
        ..over_tls(silent.local_addr().unwrap(), trusting(&authority))
    };
    let began = Instant::now();
    let error = refused(short).await;
    assert!(matches!(error.failure, RequestFailure::ConnectTimeout { stage: ConnectStage::Tls, .. }), "{error}");
    assert!(error.to_string().contains("security.protocol"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn a_plaintext_client_on_a_tls_port_is_told_to_speak_tls_however_large_answers_may_be() {
    let authority = Authority::new("ours");
    let (_b, front) = broker_behind(&authority.sign("b", &["127.0.0.1"], Validity::Good), None).await;
    // An alert reads as a frame of 336 MiB, which this allows.
    let large = ClusterConfig { max_response_bytes: 1 << 30, ..config(front.addr.to_string()) };
    let error = refused(large).await;
    assert!(matches!(error.failure, RequestFailure::Tls { .. }), "{error}");
    assert!(error.to_string().contains("security.protocol to SSL or SASL_SSL"), "{error}");
}
