//! Compressed answers and requests.

use std::io::Read as _;

use http::{StatusCode, Version};
use tidegate_api::rest;

use crate::support::{Answer, Call, World, noisy_document};

const DAY_MS: i64 = 1_714_521_600_000;

fn decompress(encoding: &str, body: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    match encoding {
        "gzip" => flate2::read::GzDecoder::new(body).read_to_end(&mut text).unwrap(),
        "zstd" => zstd::stream::read::Decoder::new(body).unwrap().read_to_end(&mut text).unwrap(),
        _ => panic!("{encoding}"),
    };
    text
}

async fn get(world: &World, path: &str, version: Version, encoding: &str) -> Answer {
    let call = Call::get(path).over(version).header("te", "trailers").header("accept-encoding", encoding);
    let answer = call.send(world.addr()).await;
    assert_eq!((answer.status, &answer.failure), (StatusCode::OK, &None));
    answer
}

#[tokio::test]
async fn a_compressed_answer_is_the_same_answer_trailer_included() {
    let world = World::start().await;
    world.write_values("documents", DAY_MS, (0..3_000).map(|number| noisy_document(number, 500))).await;
    for format in ["ndjson", "json", "values", "protobuf"] {
        let path = format!("/v1/topics/documents/records?from=2024-05-01&until=2024-06-01&format={format}");
        let plain = world.get(&path).await;
        assert_eq!((plain.header("content-encoding"), plain.header("vary")), (None, Some("accept-encoding")));
        for version in [Version::HTTP_11, Version::HTTP_2] {
            for encoding in ["gzip", "zstd"] {
                let compressed = get(&world, &path, version, encoding).await;
                assert_eq!(compressed.header("content-encoding"), Some(encoding));
                assert_eq!(compressed.header("vary"), Some("accept-encoding"));
                assert_eq!(compressed.header("content-type"), plain.header("content-type"));
                assert!(compressed.body.len() < plain.body.len());
                assert!(decompress(encoding, &compressed.body) == plain.body, "{format} {encoding}");
                assert_eq!(compressed.trailers, plain.trailers, "{format} {encoding}");
            }
        }
    }
}

#[tokio::test]
async fn small_and_unwanted_answers_are_not_compressed() {
    let world = World::start().await;
    let list = get(&world, "/v1/topics", Version::HTTP_11, "gzip, zstd").await;
    let small: rest::TopicList = list.json();
    assert_eq!((small.topics.len(), list.header("content-encoding")), (4, None));
    let document = get(&world, "/v1/openapi.json", Version::HTTP_11, "gzip").await;
    assert_eq!(document.header("content-encoding"), Some("gzip"));
    assert!(decompress("gzip", &document.body).starts_with(b"{"));
    let refused = get(&world, "/v1/openapi.json", Version::HTTP_11, "br, gzip;q=0, *;q=0").await;
    assert_eq!(refused.header("content-encoding"), None);
}

#[tokio::test]
async fn a_request_may_be_compressed() {
    let world = World::start().await;
    let body: String = (0..1_000).map(|number| format!("{{\"value\":{}}}\n", noisy_document(number, 200))).collect();
    let gzipped = {
        let mut encoder = flate2::read::GzEncoder::new(body.as_bytes(), flate2::Compression::default());
        let mut bytes = Vec::new();
        encoder.read_to_end(&mut bytes).unwrap();
        bytes
    };
    for (encoding, bytes) in [("gzip", gzipped), ("zstd", zstd::stream::encode_all(body.as_bytes(), 3).unwrap())] {
        let cut = bytes[..bytes.len() - 9].to_vec();
        let call = |bytes: Vec<u8>| {
            Call::post("/v1/topics/documents/records", bytes)
                .header("content-type", "application/x-ndjson")
                .header("content-encoding", encoding)
        };
        let answer = call(bytes).send(world.addr()).await;
        assert_eq!(answer.json::<rest::PublishAnswer>().records, 1_000, "{encoding}");
        let answer = call(cut).send(world.addr()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{encoding}");
        assert!(answer.error().error.message.contains("cannot be decompressed"), "{}", answer.text());
        let answer = call(b"no such thing".to_vec()).send(world.addr()).await;
        assert_eq!(answer.error_with("records_written").2.as_deref(), Some("0"), "{encoding}");
    }
    let answer = Call::post("/v1/topics/documents/records", "{}")
        .header("content-type", "application/x-ndjson")
        .header("content-encoding", "br")
        .send(world.addr())
        .await;
    assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}
