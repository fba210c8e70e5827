//! The OpenAPI document and the handlers say the same.

use http::{Method, StatusCode};
use serde_json::Value;
use tidegate_client::RecordToSend;

use crate::support::{Answer, Call, World};

async fn document(world: &World) -> Value {
    let answer = world.get("/v1/openapi.json").await;
    assert_eq!((answer.status, answer.header("content-type")), (StatusCode::OK, Some("application/json")));
    answer.json()
}

/// One operation of the document.
struct Operation<'d> {
    method: Method,
    path: String,
    described: &'d Value,
}

/// A path with a topic that exists in place of `{topic}`.
fn operations(document: &Value) -> Vec<Operation<'_>> {
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, described) in item.as_object().unwrap() {
            let method = method.to_uppercase().parse().unwrap();
            operations.push(Operation { method, path: path.replace("{topic}", "documents"), described });
        }
    }
    operations
}

impl Operation<'_> {
    async fn call(&self, world: &World, query: &str) -> Answer {
        let path = format!("{}{query}", self.path);
        let call = match self.method {
            Method::POST => Call::post(&path, "").header("content-type", "application/x-ndjson"),
            _ => Call::new(self.method.clone(), &path, bytes::Bytes::new()),
        };
        call.send(world.addr()).await
    }

    fn parameters(&self, place: &str) -> Vec<&Value> {
        let all = self.described["parameters"].as_array().map_or(&[][..], Vec::as_slice);
        all.iter().filter(|parameter| parameter["in"] == place).collect()
    }
}

fn name(parameter: &Value) -> &str {
    parameter["name"].as_str().unwrap()
}

/// Values that the document allows for a parameter.
fn allowed(parameter: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Some(example) = parameter.get("example") {
        return example.as_array().map_or_else(|| vec![text(example)], |examples| examples.iter().map(text).collect());
    }
    let schema = &parameter["schema"];
    // An optional word is one of several schemas, null among them.
    let mut schemas = vec![schema];
    schemas.extend(schema["oneOf"].as_array().into_iter().flatten());
    let words: Vec<String> =
        schemas.iter().filter_map(|schema| schema["enum"].as_array()).flatten().map(text).collect();
    if !words.is_empty() {
        return words;
    }
    let types = match &schema["type"] {
        Value::Array(types) => types.iter().map(text).collect(),
        one => vec![text(one)],
    };
    match types.iter().find(|kind| *kind != "null").map(String::as_str) {
        Some("integer") => vec![schema["minimum"].as_i64().unwrap_or(1).max(0).to_string(), "3".to_owned()],
        Some("boolean") => vec!["true".to_owned(), "false".to_owned()],
        other => panic!("the document gives no example for {}, a {other:?}", name(parameter)),
    }
}

#[tokio::test]
async fn it_is_openapi_3_1_and_names_every_path() {
    let world = World::start().await;
    let document = document(&world).await;
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
    let mut named: Vec<String> =
        operations(&document).iter().map(|operation| format!("{} {}", operation.method, operation.path)).collect();
    named.sort();
    assert_eq!(
        named,
        [
            "GET /v1/clusters",
            "GET /v1/openapi.json",
            "GET /v1/topics",
            "GET /v1/topics/documents",
            "GET /v1/topics/documents/records",
            "POST /v1/topics/documents/records",
        ]
    );
    for operation in operations(&document) {
        assert!(operation.described["operationId"].is_string() && operation.described["summary"].is_string());
        assert_eq!(operation.path.contains("documents"), operation.parameters("path").len() == 1);
    }
}

#[tokio::test]
async fn every_operation_answers_and_takes_every_parameter_it_documents_and_no_other() {
    let world = World::start().await;
    world.write("documents", &[RecordToSend { value: Some(b"{}"), ..RecordToSend::default() }]).await;
    let document = document(&world).await;
    for operation in operations(&document) {
        let at = format!("{} {}", operation.method, operation.path);
        assert_eq!(operation.call(&world, "").await.status, StatusCode::OK, "{at}");
        for parameter in operation.parameters("query") {
            assert_ne!(parameter["required"], true, "{at}: {}", name(parameter));
            assert!(parameter["description"].is_string(), "{at}: {}", name(parameter));
            for value in allowed(parameter) {
                let query = format!("?{}={value}", name(parameter));
                let answer = operation.call(&world, &query).await;
                assert_eq!((answer.status, &answer.failure), (StatusCode::OK, &None), "{at}{query}: {}", answer.text());
            }
        }
        for undocumented in ["zzz", "From", "cursor", "topic"] {
            let answer = operation.call(&world, &format!("?{undocumented}=1")).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{at} must refuse {undocumented}");
            check(&document, &schema_of(&document, &operation, "4XX", "application/json"), &answer.json(), &at);
        }
    }
}

/// The schema of a response in one of its media types.
fn schema_of(document: &Value, operation: &Operation<'_>, status: &str, media_type: &str) -> Value {
    let _ = document;
    let content = &operation.described["responses"][status]["content"];
    let schema = content[media_type]["schema"].clone();
    assert!(!schema.is_null(), "{} {} documents no {status} in {media_type}", operation.method, operation.path);
    schema
}

/// Whether `value` is what `schema` describes, nothing less and nothing more.
fn matches(document: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.strip_prefix("#/components/schemas/").unwrap();
        let schema = &document["components"]["schemas"][name];
        assert!(!schema.is_null(), "{name} is referred to and not there");
        return matches(document, schema, value, at);
    }
    for keyword in ["oneOf", "anyOf"] {
        if let Some(schemas) = schema[keyword].as_array() {
            let tried: Vec<_> = schemas.iter().map(|schema| matches(document, schema, value, at)).collect();
            return if tried.iter().any(Result::is_ok) { Ok(()) } else { tried.into_iter().last().unwrap() };
        }
    }
    if let Some(words) = schema["enum"].as_array() {
        return if words.contains(value) { Ok(()) } else { Err(format!("{at}: {value} is not in {words:?}")) };
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        Value::String(one) => vec![one],
        // No type: any value.
        _ => return Ok(()),
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !types.contains(&kind) {
        return Err(format!("{at}: {value} is no {types:?}"));
    }
    match value {
        Value::Array(items) => {
            items.iter().try_for_each(|item| matches(document, &schema["items"], item, &format!("{at}[]")))
        }
        Value::Object(members) => {
            if let Some(of_all) = schema.get("additionalProperties").filter(|of_all| of_all.is_object()) {
                return members
                    .iter()
                    .try_for_each(|(name, value)| matches(document, of_all, value, &format!("{at}.{name}")));
            }
            let properties = schema["properties"].as_object().cloned().unwrap_or_default();
            for (name, value) in members {
                let property = properties.get(name).ok_or_else(|| format!("{at}.{name} is not documented"))?;
                matches(document, property, value, &format!("{at}.{name}"))?;
            }
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            for name in required {
                members.get(name).ok_or_else(|| format!("{at}.{name} is required and not there"))?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn check(document: &Value, schema: &Value, value: &Value, at: &str) {
    if let Err(difference) = matches(document, schema, value, at) {
        panic!("{difference} in {value}");
    }
}

#[tokio::test]
async fn every_body_has_exactly_the_documented_fields() {
    let world = World::start().await;
    let headers: [(&[u8], Option<&[u8]>); 3] = [(b"a", Some(b"1")), (b"b", None), (b"c", Some(b"\xff"))];
    for value in [None, Some(&b"{\"a\":1}"[..]), Some(b"no json"), Some(b"null")] {
        for key in [None, Some(&b"k"[..]), Some(b"\xff")] {
            world
                .write("documents", &[RecordToSend { key, value, headers: &headers, ..RecordToSend::default() }])
                .await;
        }
    }
    let document = document(&world).await;
    for operation in operations(&document) {
        let at = format!("{} {}", operation.method, operation.path);
        let json = schema_of(&document, &operation, "200", "application/json");
        match (operation.method.as_str(), operation.path.as_str()) {
            ("GET", "/v1/topics/documents/records") => {
                for query in ["?format=json", "?format=json&from=2013-01-01&until=2100-01-01", "?format=json&last=1"] {
                    check(&document, &json, &operation.call(&world, query).await.json(), &at);
                }
                let line = schema_of(&document, &operation, "200", "application/x-ndjson");
                let end = &document["components"]["schemas"]["EndLine"];
                let answer = operation.call(&world, "?format=ndjson").await;
                let lines = answer.lines();
                let (last, records) = lines.split_last().unwrap();
                assert_eq!(records.len(), 12);
                for record in records {
                    check(&document, &line, &serde_json::from_str(record).unwrap(), &at);
                }
                check(&document, end, &serde_json::from_str(last).unwrap(), &at);
                let trailer = &document["components"]["schemas"]["EndStatement"];
                let values = world.get("/v1/topics/documents/records?format=values").await;
                check(&document, trailer, &serde_json::to_value(values.end_trailer()).unwrap(), &at);
            }
            ("POST", _) => {
                let body = "{\"value\":1}\n{\"value\":2,\"timestamp\":\"2013-01-01T00:00:00Z\"}";
                check(&document, &json, &world.post(&operation.path, body).await.json(), &at);
            }
            (_, "/v1/openapi.json") => {}
            _ => check(&document, &json, &operation.call(&world, "").await.json(), &at),
        }
    }
    // Every field that a record of a request may have is documented, and taken.
    let schema = &document["components"]["schemas"]["PublishRecord"];
    let record = serde_json::json!({
        "key": "k", "value": 1, "headers": [{"name": "n", "value": null}], "timestamp": "2013-01-01T00:00:00Z",
        "partition": 0, "offset": 7, "timestamp_type": "CreateTime", "value_error": "why",
    });
    check(&document, schema, &record, "PublishRecord");
    let base64 = serde_json::json!({"key_base64": "", "value_base64": ""});
    check(&document, schema, &base64, "PublishRecord");
    let documented: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    let mut taken: Vec<&String> =
        record.as_object().unwrap().keys().chain(base64.as_object().unwrap().keys()).collect();
    taken.sort();
    let mut sorted = documented.clone();
    sorted.sort();
    assert_eq!(sorted, taken);
    let answer = world.post("/v1/topics/documents/records", format!("{record}\n{base64}")).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
}
