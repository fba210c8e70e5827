//! Schemas from files, from text and from descriptor sets, and what their errors say.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::path::{Path, PathBuf};

use common::{print, strict};
use tempfile::TempDir;
use tidegate_codec::{Schema, SchemaError};

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

const ORDER: &str = r#"
syntax = "proto3";
package shop;
import "common/money.proto";
message Order { common.Money price = 1; }
"#;
const MONEY: &str = r#"
syntax = "proto3";
package common;
import "common/unit.proto";
import "google/protobuf/timestamp.proto";
message Money { int64 amount = 1; Unit unit = 2; google.protobuf.Timestamp at = 3; }
"#;
const UNIT: &str = r#"
syntax = "proto3";
package common;
enum Unit { UNIT_NONE = 0; EUR = 1; }
"#;

fn shop() -> TempDir {
    folder(&[("api/shop/order.proto", ORDER), ("lib/common/money.proto", MONEY), ("lib/common/unit.proto", UNIT)])
}

#[test]
fn imports_are_found_in_the_include_folders_to_any_depth() {
    let folder = shop();
    let (api, lib) = (folder.path().join("api"), folder.path().join("lib"));
    let order = api.join("shop/order.proto");
    // With the file's own root among the includes, and without.
    for includes in [vec![api.clone(), lib.clone()], vec![lib.clone()]] {
        let schema = Schema::load(&order, &includes).unwrap();
        let names: Vec<_> = schema.message_names().collect();
        assert_eq!(names, ["common.Money", "shop.Order"]);
        let message = schema.message("shop.Order").unwrap();
        assert_eq!(message.full_name(), "shop.Order");
        let json = r#"{"price":{"amount":"5","unit":"EUR","at":"2024-05-01T00:00:00Z"}}"#;
        assert_eq!(print(&message, &strict(&message, json).unwrap()).unwrap(), json);
    }
}

#[test]
fn a_missing_import_names_the_file_the_line_and_the_import() {
    let folder = shop();
    let order = folder.path().join("api/shop/order.proto");
    let error = Schema::from_proto_files(std::slice::from_ref(&order), &[folder.path().join("api")]).unwrap_err();
    assert_eq!(error.to_string(), "shop/order.proto:4:1: import 'common/money.proto' not found");
    std::fs::remove_file(folder.path().join("lib/common/unit.proto")).unwrap();
    let includes = [folder.path().join("api"), folder.path().join("lib")];
    let error = Schema::from_proto_files(&[order], &includes).unwrap_err();
    assert_eq!(error.to_string(), "common/money.proto:4:1: import 'common/unit.proto' not found");
    let error = Schema::from_proto_source("own.proto", "syntax = \"proto3\";\nimport \"other.proto\";").unwrap_err();
    assert_eq!(error.to_string(), "own.proto:2:1: import 'other.proto' not found");
}

#[test]
fn errors_in_a_file_have_line_and_column() {
    let cases = [
        ("syntax = \"proto3\";\nmessage M {\n  int32 n = ;\n}", "m.proto:3:13: "),
        ("syntax = \"proto3\";\nmessage M {\n  Missing n = 1;\n}", "m.proto:3:3: "),
        ("syntax = \"proto3\";\nmessage M {\n  int32 a = 1;\n  int32 b = 1;\n}", "m.proto:4:"),
        ("syntax = \"proto9\";", "m.proto:1:10: "),
    ];
    for (text, place) in cases {
        let error = Schema::from_proto_source("m.proto", text).unwrap_err();
        assert!(matches!(error, SchemaError::Compile { .. }));
        assert!(error.to_string().starts_with(place), "{error}");

        let folder = folder(&[("m.proto", text)]);
        let error = Schema::load(&folder.path().join("m.proto"), &[]).unwrap_err();
        assert!(error.to_string().starts_with(place), "{error}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Schema::load(Path::new("/nowhere/m.proto"), &[]).unwrap_err();
    assert!(error.to_string().contains("/nowhere/m.proto"), "{error}");
    let error = Schema::load(Path::new("/nowhere/m.binpb"), &[]).unwrap_err();
    assert!(matches!(error, SchemaError::Read { .. }) && error.to_string().contains("/nowhere/m.binpb"), "{error}");
    let error = Schema::load(Path::new("m.txt"), &[]).unwrap_err();
    assert!(matches!(error, SchemaError::Extension { .. }), "{error}");
}

/// The descriptor set of the shop, as `protoc` would write it.
fn descriptor_set(include_imports: bool) -> Vec<u8> {
    let folder = shop();
    let includes: Vec<PathBuf> = vec![folder.path().join("api"), folder.path().join("lib")];
    let mut compiler = protox::Compiler::new(includes).unwrap();
    for file in ["common/unit.proto", "common/money.proto", "shop/order.proto"] {
        compiler.open_file(file).unwrap();
    }
    compiler.include_imports(include_imports).encode_file_descriptor_set()
}

#[test]
fn a_descriptor_set_gives_the_same_schema_with_the_well_known_types_in_it_or_not() {
    for include_imports in [true, false] {
        let folder = folder(&[]);
        let path = folder.path().join("shop.binpb");
        std::fs::write(&path, descriptor_set(include_imports)).unwrap();
        let schema = Schema::load(&path, &[]).unwrap();
        let message = schema.message("shop.Order").unwrap();
        let json = r#"{"price":{"at":"2024-05-01T00:00:00Z"}}"#;
        assert_eq!(print(&message, &strict(&message, json).unwrap()).unwrap(), json);
    }
}

#[test]
fn bytes_that_are_no_descriptor_set_are_an_error() {
    for bytes in [&b"not a descriptor set"[..], &descriptor_set(true)[..500]] {
        assert!(matches!(Schema::from_descriptor_set(bytes), Err(SchemaError::DescriptorSet { .. })));
    }
}

#[test]
fn a_message_that_is_not_there_is_named_with_those_that_it_may_be() {
    let schema = Schema::from_descriptor_set(&descriptor_set(true)).unwrap();
    let error = schema.message("Order").unwrap_err();
    assert_eq!(error.to_string(), "the schema has no message Order; did you mean shop.Order?");
    assert_eq!(schema.message("shop.Nothing").unwrap_err().to_string(), "the schema has no message shop.Nothing");
}
