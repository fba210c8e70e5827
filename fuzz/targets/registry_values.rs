//! Values that name their schema, from a stranger: frames, Avro and Protobuf by a schema, what a registry answers, and JSON
//! that is to be written as Avro.

#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use tidegate_codec::registry::{
    Assembly, AssemblyLimits, CompiledSchema, Framed, RegisteredSchema, SchemaKey, SchemaType, ValueWriter,
    read_answer, write_id,
};
use tidegate_fuzz::within;

/// What any input may take, and what each of its bytes may. A byte of Avro can be a record of its own, whose text is as long
/// as its fields' names.
const MEMORY: usize = 4 * 1024 * 1024;
const PER_BYTE: usize = 1024;

const AVRO: &str = r#"{"type":"record","name":"R","fields":[
    {"name":"l","type":{"type":"array","items":{"type":"enum","name":"E","symbols":["A","B"]}}},
    {"name":"u","type":["null","int","E",{"type":"map","values":["null","R"]}]},
    {"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":3}},
    {"name":"t","type":{"type":"long","logicalType":"timestamp-nanos"}},
    {"name":"x","type":{"type":"array","items":["null","string","double",{"type":"fixed","name":"F","size":3}]}}]}"#;

const PROTOBUF: &str = r#"syntax = "proto3"; import "google/protobuf/any.proto";
    message M { map<string, M> m = 1; message N { repeated sint64 n = 1; google.protobuf.Any a = 2; } N n = 2; }"#;

/// Branches that hold each other, so that attempts at them multiply; fields that can be absent, and a long scale.
const WRITTEN: &str = r#"{"type":"record","name":"R","fields":[
    {"name":"a","type":["null","int","float",{"type":"record","name":"S","fields":[{"name":"a","type":["null","R","S"]},
        {"name":"b","type":["null","string"]},{"name":"c","type":["null","double"]}]},"R"]},
    {"name":"l","type":["null",{"type":"array","items":["null",{"type":"map","values":["long","double","R","S"]},"S"]}]},
    {"name":"d","type":["null",{"type":"bytes","logicalType":"decimal","precision":999,"scale":900},{"type":"fixed",
        "name":"F","size":12,"logicalType":"duration"},{"type":"enum","name":"E","symbols":["A","B"]}]},
    {"name":"t","type":["null",{"type":"long","logicalType":"timestamp-nanos"},{"type":"int","logicalType":"date"},
        {"type":"int","logicalType":"time-millis"},{"type":"string","logicalType":"uuid"}]}]}"#;

static WRITER: LazyLock<ValueWriter> = LazyLock::new(|| {
    let schema = RegisteredSchema { kind: SchemaType::Avro, text: WRITTEN.to_owned(), references: Vec::new() };
    ValueWriter::new(1, Arc::new(compile(schema).expect("a sound schema")), None).expect("Avro needs no message")
});

static SCHEMAS: LazyLock<[CompiledSchema; 2]> = LazyLock::new(|| {
    // The codec makes errors of prost-reflect's panics; libFuzzer's hook would end the process before.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.location().is_some_and(|place| place.file().contains("prost-reflect")) {
            hook(panic);
        }
    }));
    [(SchemaType::Avro, AVRO), (SchemaType::Protobuf, PROTOBUF)].map(|(kind, text)| {
        compile(RegisteredSchema { kind, text: text.to_owned(), references: Vec::new() }).expect("a sound schema")
    })
});

fn compile(root: RegisteredSchema) -> Option<CompiledSchema> {
    let limits = AssemblyLimits { max_references: 4, max_text_bytes: 4 * 1024 };
    let assembly = Assembly::new(SchemaKey::Id(1), root, limits).ok()?;
    // What it refers to is not to be had here.
    if assembly.next().is_none() { assembly.compile().ok() } else { None }
}

fuzz_target!(|bytes: &[u8]| {
    let (schemas, writer) = (&*SCHEMAS, &*WRITER);
    let [first, rest @ ..] = bytes else { return };
    within(MEMORY + PER_BYTE * bytes.len(), || match first % 5 {
        // The value as it is, frame and all.
        0 => {
            if let Ok(framed) = Framed::of_value(rest) {
                for schema in schemas {
                    show(schema, &framed);
                }
            }
        }
        // Behind a sound frame, so that every byte is payload.
        kind @ (1 | 2) => {
            let mut value = Vec::new();
            write_id(1, &mut value);
            value.extend_from_slice(rest);
            show(&schemas[usize::from(kind) - 1], &Framed::of_value(&value).expect("a sound frame"));
        }
        // JSON to Avro, which reads back.
        4 => write(writer, rest),
        // What a registry answers, and the schema in it.
        _ => {
            if let Ok(answer) = read_answer(rest)
                && let Some(schema) = answer.schema
            {
                let _ = compile(schema);
            }
        }
    });
});

fn show(schema: &CompiledSchema, framed: &Framed<'_>) {
    let mut json = Vec::new();
    if schema.to_json(framed, &mut json).is_err() {
        assert!(json.is_empty());
    }
}

fn write(writer: &ValueWriter, json: &[u8]) {
    let mut value = Vec::new();
    if writer.write(json, &mut value).is_err() {
        assert!(value.is_empty());
        return;
    }
    let framed = Framed::of_value(&value).expect("a sound frame");
    let mut shown = Vec::new();
    writer.schema().to_json(&framed, &mut shown).expect("what was written reads back");
}
