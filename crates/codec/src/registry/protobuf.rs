//! Protobuf schemas of a registry: compiled from memory, their messages found by index.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::prost_types::{DescriptorProto, FileDescriptorProto};
use protox::file::{File, FileResolver, GoogleFileResolver};

use super::known::known_file;
use super::{MessageIndexes, SchemaProblem};
use crate::{MessageType, Schema};

/// A `.proto` file, compiled, with its messages in order.
#[derive(Debug)]
pub(super) struct ProtobufFile {
    messages: Vec<Node>,
}

/// A message of the file.
#[derive(Debug)]
struct Node {
    message: MessageType,
    /// The compiler's own message for an entry of a map. Confluent's Java client does not count it among the messages.
    is_map_entry: bool,
    nested: Vec<Node>,
}

/// Gives the text of an imported file, if it is known.
pub(super) type Imports<'i> = dyn Fn(&str) -> Option<&'i str> + 'i;

impl ProtobufFile {
    /// Compiles `text` as the file `name`. What it imports comes from `imports`, or is one of the files that every client is
    /// expected to have.
    pub(super) fn compile(name: &str, text: &str, imports: &Imports<'_>) -> Result<Self, SchemaProblem> {
        let mut sources = Sources { name, text, imports, google: GoogleFileResolver::new(), files: Vec::new() };
        sources.collect()?;
        let resolver = Files(sources.files);
        let (schema, file) = Schema::from_resolver(resolver, name)
            .map_err(|error| SchemaProblem::Protobuf { message: error.to_string() })?;
        let package = file.package().to_owned();
        let messages = nodes(&schema, &package, &file.message_type)?;
        Ok(Self { messages })
    }

    /// The message type at a place of the file.
    pub(super) fn message(&self, indexes: &[u32]) -> Option<&MessageType> {
        let mut level = &self.messages;
        let mut found = None;
        for index in indexes {
            let index = usize::try_from(*index).ok()?;
            // Java counts the messages as they are written in the file, other clients count those of the descriptor, where
            // map entries stand among them. The two differ only for a message that is nested in one with a map, and there an
            // index can mean either of two messages: nothing in the value tells whose it is. Java's reading goes first, as
            // does its way of writing, so that the other one is found only where Java's leads nowhere. Of `message M {
            // message A {} map<string, int32> m = 1; message B {} message C {} }` the entry has index 1 to the others, so
            // that their B, at 2, is shown as C, and their C, at 3, is found.
            let declared = level.iter().filter(|node| !node.is_map_entry).nth(index);
            let node = declared.or_else(|| level.get(index).filter(|node| !node.is_map_entry))?;
            found = Some(&node.message);
            level = &node.nested;
        }
        found
    }

    /// Where a message stands in the file, by its full name; among the declared ones.
    pub(super) fn indexes(&self, full_name: &str) -> Option<MessageIndexes> {
        let mut path = Vec::new();
        find(&self.messages, full_name, &mut path).then(|| MessageIndexes::new(&path)).flatten()
    }

    /// The full names of its messages, outermost first.
    pub(super) fn message_names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        let mut levels = vec![&self.messages];
        while let Some(level) = levels.pop() {
            for node in level.iter().filter(|node| !node.is_map_entry) {
                names.push(node.message.full_name());
                levels.push(&node.nested);
            }
        }
        names
    }
}

fn find(level: &[Node], full_name: &str, path: &mut Vec<u32>) -> bool {
    for (index, node) in (0..).zip(level.iter().filter(|node| !node.is_map_entry)) {
        path.push(index);
        if node.message.full_name() == full_name || find(&node.nested, full_name, path) {
            return true;
        }
        path.pop();
    }
    false
}

fn nodes(schema: &Schema, parent: &str, messages: &[DescriptorProto]) -> Result<Vec<Node>, SchemaProblem> {
    let node = |message: &DescriptorProto| {
        let full_name =
            if parent.is_empty() { message.name().to_owned() } else { format!("{parent}.{}", message.name()) };
        let nested = nodes(schema, &full_name, &message.nested_type)?;
        let is_map_entry = message.options.as_ref().is_some_and(|options| options.map_entry());
        let message =
            schema.message(&full_name).map_err(|error| SchemaProblem::Protobuf { message: error.to_string() })?;
        Ok(Node { message, is_map_entry, nested })
    };
    messages.iter().map(node).collect()
}

/// Finds the files that a file imports, however deep.
struct Sources<'a, 'i> {
    name: &'a str,
    text: &'a str,
    imports: &'a Imports<'i>,
    google: GoogleFileResolver,
    files: Vec<File>,
}

impl Sources<'_, '_> {
    fn collect(&mut self) -> Result<(), SchemaProblem> {
        let root = parse(self.name, self.text)?;
        let mut waiting = vec![root];
        let mut seen = vec![self.name.to_owned()];
        while let Some(file) = waiting.pop() {
            for import in &file.file_descriptor_proto().dependency {
                if seen.contains(import) {
                    continue;
                }
                seen.push(import.clone());
                waiting.push(self.open(import, file.name())?);
            }
            self.files.push(file);
        }
        Ok(())
    }

    fn open(&self, name: &str, importer: &str) -> Result<File, SchemaProblem> {
        // The types with a JSON form of their own must be the genuine ones, also where a registry holds a copy.
        if let Ok(file) = self.google.open_file(name) {
            return Ok(file);
        }
        match (self.imports)(name).or_else(|| known_file(name)) {
            Some(text) => parse(name, text),
            None => Err(SchemaProblem::MissingImport { import: name.to_owned(), importer: importer.to_owned() }),
        }
    }
}

/// Some registries keep what some clients register: not the text of the file but its descriptor, in base64.
fn parse(name: &str, text: &str) -> Result<File, SchemaProblem> {
    use prost_reflect::prost::Message as _;
    let wrong = |message| SchemaProblem::Protobuf { message };
    // No text of a file is base64: it needs a blank somewhere, or a semicolon.
    if let Ok(bytes) = STANDARD.decode(text.trim())
        && !bytes.is_empty()
    {
        let mut file = FileDescriptorProto::decode(&*bytes)
            .map_err(|error| wrong(format!("{name} is neither a .proto file nor a descriptor in base64: {error}")))?;
        file.name = Some(name.to_owned());
        return Ok(File::from_file_descriptor_proto(file));
    }
    File::from_source(name, text).map_err(|error| wrong(format!("{error:?}")))
}

/// The files that were found, by name.
struct Files(Vec<File>);

impl FileResolver for Files {
    fn resolve_path(&self, path: &Path) -> Option<String> {
        let name = path.to_str()?;
        self.0.iter().any(|file| file.name() == name).then(|| name.to_owned())
    }

    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        let found = self.0.iter().find(|file| file.name() == name);
        found.cloned().ok_or_else(|| protox::Error::file_not_found(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_that_contradicts_itself_is_an_error_and_no_panic() {
        // What one changed byte made of the descriptor of a sound file.
        let descriptor = "CgxzYW1wbGUucHJvdG8SAXQaH2dvb2dsZS9wcm90b2J1Zi90aW1lc3RhbXAucHJvdG8iPQoFRmlyc3QSDAoEdGV4dBgBIAEoCRImCgJhdBgCIAEoCzIaLmdvb2dsZS5wcm90b2J1Zi5UaW1lc3RhbXAiOAoFT3V0ZXIaGAoFSW5uZXISDwoHbnVtYmVycxgBIAMoAxoVCgZTZWNvbmQSCwoDeWVzGAEgASgIYgZwcm91bzM=";
        let compiled = ProtobufFile::compile("sample.proto", descriptor, &|_| None);
        assert!(matches!(compiled, Err(SchemaProblem::Protobuf { .. })), "{:?}", compiled.err());
    }

    const NESTED: &str = r#"
        syntax = "proto3";
        package t;
        enum E { ZERO = 0; }
        message First { string s = 1; }
        message Outer {
            map<string, int32> counts = 1;
            message Inner { message Innermost { bool b = 1; } int32 n = 1; }
            enum F { NONE = 0; }
            message Second {}
        }
    "#;

    fn names(file: &ProtobufFile, indexes: &[u32]) -> Option<String> {
        file.message(indexes).map(|message| message.full_name().to_owned())
    }

    #[test]
    fn a_message_is_found_by_its_place_and_its_place_by_its_name() {
        let file = ProtobufFile::compile("n.proto", NESTED, &|_| None).unwrap();
        for (indexes, name) in [
            (&[0][..], "t.First"),
            (&[1], "t.Outer"),
            (&[1, 0], "t.Outer.Inner"),
            (&[1, 0, 0], "t.Outer.Inner.Innermost"),
            (&[1, 1], "t.Outer.Second"),
        ] {
            assert_eq!(names(&file, indexes).as_deref(), Some(name));
            assert_eq!(file.indexes(name).unwrap().as_slice(), indexes);
        }
        // Clients that count the map's entry get there too, where Java's way of counting leads nowhere.
        assert_eq!(names(&file, &[1, 2]).as_deref(), Some("t.Outer.Second"));
        for nowhere in [&[2][..], &[0, 0], &[1, 3], &[u32::MAX], &[1, 0, 0, 0]] {
            assert_eq!(names(&file, nowhere), None, "{nowhere:?}");
        }
        assert_eq!(file.indexes("t.E"), None);
        assert_eq!(file.message_names().len(), 5);
    }

    #[test]
    fn a_descriptor_in_base64_is_taken_for_the_file() {
        use prost_reflect::prost::Message as _;
        let descriptor = File::from_source("x.proto", NESTED).unwrap().file_descriptor_proto().clone();
        let text = STANDARD.encode(descriptor.encode_to_vec());
        let file = ProtobufFile::compile("schema-1.proto", &text, &|_| None).unwrap();
        assert_eq!(names(&file, &[1, 0]).as_deref(), Some("t.Outer.Inner"));
        let error = ProtobufFile::compile("schema-1.proto", "aGVsbG8=", &|_| None).unwrap_err();
        assert!(error.to_string().contains("neither"), "{error}");
    }

    #[test]
    fn what_is_wrong_in_a_file_is_told_with_its_place() {
        let error = ProtobufFile::compile("schema-1.proto", "syntax = \"proto3\";\nmessage {", &|_| None).unwrap_err();
        assert!(error.to_string().contains("schema-1.proto:2:9"), "{error}");
        let error = ProtobufFile::compile("a.proto", "syntax = \"proto3\"; message M { N n = 1; }", &|_| None);
        assert!(error.unwrap_err().to_string().contains('N'));
    }

    #[test]
    fn messages_that_nest_without_end_are_an_error() {
        let text = format!("syntax = \"proto3\"; {}", "message M { ".repeat(100_000));
        assert!(ProtobufFile::compile("a.proto", &text, &|_| None).is_err());
        let text = format!("syntax = \"proto3\"; option (x) = {};", "{ a: ".repeat(100_000));
        assert!(ProtobufFile::compile("a.proto", &text, &|_| None).is_err());
    }
}
