//! Every refusal has the one shape, the right status and says what to do.

use http::{Method, StatusCode};

use crate::support::{Call, World};

#[tokio::test]
async fn a_bad_query_is_refused_with_what_was_meant() {
    let world = World::start().await;
    let records = "/v1/topics/plain/records";
    for (query, code, hint) in [
        ("form=2013-02-01", "INVALID_ARGUMENT", "did you mean from?"),
        ("from=", "INVALID_ARGUMENT", "from is empty"),
        ("format=csv", "INVALID_ARGUMENT", "ndjson, json, values, protobuf"),
        ("from=1714521600", "INVALID_TIME", "1714521600s"),
        ("from=1714521600000", "INVALID_TIME", "1714521600000ms"),
        ("from=1714521600000000", "INVALID_TIME", "microseconds"),
        ("from=133589952000000000", "INVALID_TIME", "FILETIME"),
        ("from=-1", "INVALID_TIME", "protocol codes"),
        ("until=-2", "INVALID_TIME", "protocol codes"),
        ("from=2013-02-01T00:00:00+02:00", "INVALID_TIME", "%2B"),
        ("from=2013-02-01T00:00:00", "INVALID_TIME", "no offset"),
        ("from=2013-02-02&until=2013-02-01", "INVALID_RANGE", "before"),
        ("offset=5&end_offset=4", "INVALID_RANGE", "before"),
        ("offset=-1", "INVALID_ARGUMENT", "offset=-1"),
        ("from=now&offset=1", "INVALID_ARGUMENT", "from, offset do not go together"),
        ("last=1&until=now", "INVALID_ARGUMENT", "until, last do not go together"),
        ("limit=0", "INVALID_ARGUMENT", "limit=0"),
        ("from=%zz", "INVALID_ARGUMENT", "percent-encoded"),
    ] {
        let answer = world.get(&format!("{records}?{query}")).await;
        let (name, message, _) = answer.error_with("");
        assert_eq!((answer.status, name), (StatusCode::BAD_REQUEST, code), "{query}: {message}");
        assert!(message.contains(hint), "{query}: {message}");
    }
    // The plus of an offset works when it is written as it must be.
    let answer = world.get(&format!("{records}?from=2013-02-01T00:00:00%2B02:00")).await;
    assert_eq!(answer.ndjson().1.from.as_deref(), Some("2013-01-31T22:00:00.000Z"));
    let answer = world.get(&format!("{records}?from=0ms&until=%2B1h")).await;
    assert_eq!(answer.ndjson().1.until.as_deref(), Some("1970-01-01T01:00:00.000Z"));
}

#[tokio::test]
async fn what_is_not_there_is_said_in_the_shape_of_all_errors() {
    let world = World::start().await;
    for (path, code) in [
        ("/", "NOT_FOUND"),
        ("/v1", "NOT_FOUND"),
        ("/v1/topics/", "NOT_FOUND"),
        ("/v1/topics/plain/", "NOT_FOUND"),
        ("/v1/topics/none", "UNKNOWN_TOPIC"),
        ("/v1/topics/none/records", "UNKNOWN_TOPIC"),
    ] {
        let answer = world.get(path).await;
        assert_eq!((answer.status, answer.error_with("").0), (StatusCode::NOT_FOUND, code), "{path}");
    }
    for topic in ["a%2Fb", "..%2f", "%C3%A4", "%ff", &"x".repeat(250)] {
        for path in [format!("/v1/topics/{topic}"), format!("/v1/topics/{topic}/records")] {
            let answer = world.get(&path).await;
            assert_eq!(
                (answer.status, answer.error_with("").0),
                (StatusCode::BAD_REQUEST, "INVALID_ARGUMENT"),
                "{path}"
            );
        }
    }
    let answer = world.post("/v1/topics/none/records", "{}").await;
    assert_eq!((answer.status, answer.error_with("topic").2.as_deref()), (StatusCode::NOT_FOUND, Some("none")));
    // Asking did not create it.
    assert_eq!(world.get("/v1/topics/none").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_method_that_a_path_does_not_take_is_refused_with_those_it_takes() {
    let world = World::start().await;
    for (method, path, allowed) in [
        (Method::DELETE, "/v1/topics", "GET,HEAD"),
        (Method::POST, "/v1/topics/plain", "GET,HEAD"),
        (Method::PUT, "/v1/topics/plain/records", "GET,HEAD,POST"),
        (Method::POST, "/v1/openapi.json", "GET,HEAD"),
    ] {
        let answer = Call::new(method, path, bytes::Bytes::new()).send(world.addr()).await;
        assert_eq!((answer.status, answer.error_with("").0), (StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED"));
        assert_eq!(answer.header("allow"), Some(allowed), "{path}");
    }
}

#[tokio::test]
async fn a_cluster_that_is_gone_is_an_error_to_retry() {
    let world = World::start().await;
    let addr = world.addr();
    let World { broker, server: _server, .. } = world;
    broker.abort().await;
    for path in ["/v1/topics", "/v1/topics/plain", "/v1/topics/plain/records"] {
        let answer = Call::get(path).send(addr).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{path}: {}", answer.text());
        assert!(answer.error().error.retryable);
    }
}

#[tokio::test]
async fn the_cluster_of_a_request_is_one_of_those_that_are_listed() {
    let world = World::start().await;
    let list: tidegate_api::rest::ClusterList = world.get_json("/v1/clusters").await;
    assert_eq!((list.clusters, list.default.as_deref()), (vec!["default".to_owned()], Some("default")));
    for path in ["/v1/topics", "/v1/topics/plain", "/v1/topics/plain/records"] {
        assert_eq!(world.get(&format!("{path}?cluster=default")).await.status, StatusCode::OK, "{path}");
        let answer = world.get(&format!("{path}?cluster=lab")).await;
        assert_eq!((answer.status, answer.error_with("").0), (StatusCode::NOT_FOUND, "UNKNOWN_CLUSTER"), "{path}");
    }
    let answer = world.post("/v1/topics/plain/records?cluster=lab", "{\"value\":1}\n").await;
    assert_eq!((answer.status, answer.error_with("").0), (StatusCode::NOT_FOUND, "UNKNOWN_CLUSTER"));
}
