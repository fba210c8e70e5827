//! The client of schema registries against a stand-in that misbehaves.

use std::time::Duration;

use tidegate_client::{RegistryAuth, RegistryClient, RegistryConfig, RegistryError, RetryLimits, SchemaName, Secret};
use tidegate_testkit::registry::{FakeRegistry, FakeSchema};

const AVRO: &str = r#""string""#;

fn config(urls: &[String]) -> RegistryConfig {
    let mut config = RegistryConfig::new(urls.iter().cloned());
    config.timeout = Duration::from_secs(5);
    config.retry = RetryLimits {
        attempts: 3,
        deadline: Duration::from_secs(20),
        backoff: Duration::from_millis(1),
        backoff_max: Duration::from_millis(5),
    };
    config
}

fn client(registry: &FakeRegistry) -> RegistryClient {
    RegistryClient::new(&config(&[registry.url()])).unwrap()
}

#[tokio::test]
async fn a_registry_that_stumbles_is_asked_again_and_what_is_not_there_is_not() {
    let registry = FakeRegistry::start();
    registry.put("s", 1, FakeSchema::new(7, "AVRO", AVRO));
    registry.fail_next(503, "");
    registry.fail_next(429, "");
    let client = client(&registry);
    assert!(client.schema(SchemaName::Id(7)).await.unwrap().starts_with(b"{"));
    assert_eq!(registry.requests().len(), 3);

    let error = client.schema(SchemaName::Id(8)).await.unwrap_err();
    assert!(matches!(error, RegistryError::NotFound { code: 40403, .. }), "{error}");
    let error = client.version("none", None).await.unwrap_err();
    assert!(matches!(error, RegistryError::NotFound { code: 40401, .. }), "{error}");
    assert_eq!(registry.requests()[3..], ["GET /schemas/ids/8", "GET /subjects/none/versions/latest"]);
}

#[tokio::test]
async fn a_registry_that_stays_away_is_given_up_with_what_happened() {
    let registry = FakeRegistry::start();
    registry.fail(Some((500, r#"{"error_code":50001,"message":"the store is away"}"#)));
    let error = client(&registry).schema(SchemaName::Id(7)).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unavailable { attempts: 3, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("/schemas/ids/7") && text.contains("500") && text.contains("the store is away"), "{text}");
    assert_eq!(registry.requests().len(), 3);
}

#[tokio::test]
async fn a_refusal_is_final_and_says_what_to_look_at() {
    let registry = FakeRegistry::start();
    let client = client(&registry);
    for (status, body, says) in [
        (401, r#"{"error_code":401,"message":"Unauthorized"}"#, "401"),
        (404, "<html>nothing here</html>", "is the address right?"),
        (302, "", "sends us elsewhere"),
    ] {
        registry.fail_next(status, body);
        let before = registry.requests().len();
        let error = client.schema(SchemaName::Id(7)).await.unwrap_err();
        assert!(matches!(error, RegistryError::Refused { .. }), "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(registry.requests().len(), before + 1);
    }
}

#[tokio::test]
async fn the_next_address_is_asked_when_one_is_away() {
    let registry = FakeRegistry::start();
    registry.put("s", 1, FakeSchema::new(7, "AVRO", AVRO));
    let gone = FakeRegistry::start();
    let urls = [gone.url(), registry.url()];
    drop(gone);
    let client = RegistryClient::new(&config(&urls)).unwrap();
    client.schema(SchemaName::Id(7)).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_does_not_end_or_has_no_end_is_cut_off() {
    let registry = FakeRegistry::start();
    registry.put("s", 1, FakeSchema::new(7, "AVRO", AVRO));
    registry.delay(Duration::from_secs(2));
    let mut impatient = config(&[registry.url()]);
    impatient.timeout = Duration::from_millis(50);
    impatient.retry.attempts = 2;
    let error = RegistryClient::new(&impatient).unwrap().schema(SchemaName::Id(7)).await.unwrap_err();
    assert!(matches!(error, RegistryError::Unavailable { attempts: 2, .. }), "{error}");

    registry.delay(Duration::ZERO);
    registry.put("s", 2, FakeSchema::new(8, "AVRO", &format!("{:5000}", AVRO)));
    let mut small = config(&[registry.url()]);
    small.max_answer_bytes = 1_000;
    let error = RegistryClient::new(&small).unwrap().schema(SchemaName::Id(8)).await.unwrap_err();
    assert!(error.to_string().contains("longer than 1000 bytes"), "{error}");
}

#[tokio::test]
async fn credentials_go_to_the_registry_and_into_no_error() {
    let registry = FakeRegistry::start();
    for (auth, sent) in [
        (RegistryAuth::Basic(Secret::new("me:hunter22")), "Basic bWU6aHVudGVyMjI="),
        (RegistryAuth::Bearer(Secret::new("token-hunter22")), "Bearer token-hunter22"),
    ] {
        let mut config = config(&[registry.url()]);
        config.auth = auth;
        let client = RegistryClient::new(&config).unwrap();
        // A registry that repeats what it was sent.
        registry.fail_next(403, &format!("no: hunter22 token-hunter22 {sent}"));
        let error = client.schema(SchemaName::Id(7)).await.unwrap_err();
        let shown = format!("{error} {error:?} {client:?} {config:?}");
        assert!(!shown.contains("token-hunter22") || sent.starts_with("Basic"), "{shown}");
        assert!(!shown.contains("bWU6aHVudGVyMjI=") || sent.starts_with("Bearer"), "{shown}");
        assert_eq!(registry.authorizations().last().unwrap().as_deref(), Some(sent));
    }
}
