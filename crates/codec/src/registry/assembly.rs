//! From a registry's answers to a compiled schema: which references are still to be fetched, and what they amount to.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;

use super::{CompiledSchema, SchemaKey};

/// The kinds of schema that registries hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SchemaType {
    /// Apache Avro; what a registry means that does not say.
    #[default]
    Avro,
    /// Protocol Buffers.
    Protobuf,
    /// JSON Schema.
    Json,
}

impl SchemaType {
    /// As registries write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Avro => "AVRO",
            Self::Protobuf => "PROTOBUF",
            Self::Json => "JSON",
        }
    }

    /// The type of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Avro, Self::Protobuf, Self::Json].into_iter().find(|kind| kind.name() == name)
    }
}

/// A schema as a registry holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredSchema {
    /// Its kind.
    pub kind: SchemaType,
    /// Its text.
    pub text: String,
    /// The other schemas that it uses.
    pub references: Vec<SchemaReference>,
}

impl RegisteredSchema {
    /// What it takes of [`AssemblyLimits::max_text_bytes`].
    fn text_bytes(&self) -> usize {
        let texts = self.references.iter().map(|reference| reference.name.len() + reference.at.subject.len());
        self.text.len() + texts.sum::<usize>()
    }
}

/// That one schema uses another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaReference {
    /// What the text calls it: with Protobuf the imported file, with Avro the full name of the type.
    pub name: String,
    /// Where it is registered.
    pub at: SubjectVersion,
}

/// A version of a subject.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubjectVersion {
    /// The subject.
    pub subject: String,
    /// The version, from 1.
    pub version: i32,
}

impl fmt::Display for SubjectVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} version {}", self.subject, self.version)
    }
}

/// What the parts of one schema may take together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssemblyLimits {
    /// How many schemas it may reach by reference. Default: 500.
    pub max_references: usize,
    /// The bytes of text of all of them, with the names and subjects that they refer to. Default: 8 MiB.
    pub max_text_bytes: usize,
}

impl Default for AssemblyLimits {
    fn default() -> Self {
        Self { max_references: 500, max_text_bytes: 8 << 20 }
    }
}

/// Why a schema of a registry cannot be used. It stays so until somebody registers another one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaProblem {
    /// It is not valid Protobuf.
    #[error("{message}")]
    Protobuf {
        /// What is wrong, with file, line and column where the compiler tells them.
        message: String,
    },
    /// A file that it imports is nowhere.
    #[error("{importer} imports {import:?}, which is neither among its references nor a file that every client has")]
    MissingImport {
        /// The file that is missing.
        import: String,
        /// The file that imports it.
        importer: String,
    },
    /// It is not valid Avro.
    #[error("{0}")]
    Avro(#[from] super::avro::AvroSchemaError),
    /// It uses itself.
    #[error("its references go in a circle: {circle}")]
    Circle {
        /// The way round.
        circle: String,
    },
    /// A reference leads to a schema of another kind.
    #[error("it refers to {at}, which is of type {found}, not {expected}")]
    Kind {
        /// What it refers to.
        at: SubjectVersion,
        /// The kind of that.
        found: &'static str,
        /// Its own kind.
        expected: &'static str,
    },
    /// It reaches more than is allowed.
    #[error("it and its references are too large: more than {limit} {what}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much there may be.
        limit: usize,
    },
}

/// A schema whose references are being fetched.
///
/// Ask for [`Assembly::next`], fetch that, [`supply`](Assembly::supply) it, and [`compile`](Assembly::compile) when nothing is
/// left to ask for. Each version of a subject is asked for once, however often it is referred to.
#[derive(Debug)]
pub struct Assembly {
    key: SchemaKey,
    root: RegisteredSchema,
    parts: HashMap<SubjectVersion, RegisteredSchema>,
    waiting: VecDeque<SubjectVersion>,
    asked: HashSet<SubjectVersion>,
    /// Which version stands for each name. The first one that is found counts, breadth first: whoever wrote the schema had
    /// one version of each file and registered the schema itself with that, while what it refers to may have been
    /// registered with an older one.
    names: HashMap<String, SubjectVersion>,
    text_bytes: usize,
    limits: AssemblyLimits,
}

impl Assembly {
    /// Begins with the schema itself.
    ///
    /// # Errors
    /// [`SchemaProblem::TooLarge`].
    pub fn new(key: SchemaKey, root: RegisteredSchema, limits: AssemblyLimits) -> Result<Self, SchemaProblem> {
        let references = root.references.clone();
        let text_bytes = root.text_bytes();
        let mut assembly = Self {
            key,
            root,
            parts: HashMap::new(),
            waiting: VecDeque::new(),
            asked: HashSet::new(),
            names: HashMap::new(),
            text_bytes,
            limits,
        };
        assembly.note(&references)?;
        Ok(assembly)
    }

    /// The schema to fetch next; `None` when all are there.
    pub fn next(&self) -> Option<&SubjectVersion> {
        self.waiting.front()
    }

    /// Takes the schema that [`Assembly::next`] asks for.
    ///
    /// # Errors
    /// [`SchemaProblem::TooLarge`] and [`SchemaProblem::Kind`].
    pub fn supply(&mut self, schema: RegisteredSchema) -> Result<(), SchemaProblem> {
        let Some(at) = self.waiting.pop_front() else { return Ok(()) };
        if schema.kind != self.root.kind {
            return Err(SchemaProblem::Kind { at, found: schema.kind.name(), expected: self.root.kind.name() });
        }
        self.text_bytes = self.text_bytes.saturating_add(schema.text_bytes());
        let references = schema.references.clone();
        self.parts.insert(at, schema);
        self.note(&references)
    }

    fn note(&mut self, references: &[SchemaReference]) -> Result<(), SchemaProblem> {
        let AssemblyLimits { max_references, max_text_bytes } = self.limits;
        if self.text_bytes > max_text_bytes {
            return Err(SchemaProblem::TooLarge { what: "bytes of text", limit: max_text_bytes });
        }
        for reference in references {
            if self.asked.insert(reference.at.clone()) {
                self.waiting.push_back(reference.at.clone());
            }
            self.names.entry(reference.name.clone()).or_insert_with(|| reference.at.clone());
            if self.asked.len() > max_references || self.names.len() > max_references {
                return Err(SchemaProblem::TooLarge { what: "references", limit: max_references });
            }
        }
        Ok(())
    }

    /// Compiles the schema with all that it refers to. This may take a moment: milliseconds for a usual schema.
    ///
    /// # Errors
    /// [`SchemaProblem`].
    pub fn compile(self) -> Result<CompiledSchema, SchemaProblem> {
        let chosen: HashSet<&SubjectVersion> = self.names.values().collect();
        let text = |at: &SubjectVersion| self.parts.get(at).map(|schema| schema.text.as_str());
        let in_order: Vec<&str> =
            self.in_order()?.into_iter().filter(|at| chosen.contains(at)).filter_map(text).collect();
        CompiledSchema::compile(self.key, &self.root, &|name| text(self.names.get(name)?), &in_order)
    }

    /// What the schema refers to, each after all that it refers to itself. Registries make circles impossible, and what
    /// says that it is a registry may still send one.
    fn in_order(&self) -> Result<Vec<&SubjectVersion>, SchemaProblem> {
        let mut order: Vec<&SubjectVersion> = Vec::new();
        let mut done: HashSet<&SubjectVersion> = HashSet::new();
        // The way from the schema to where the search stands: each step with the references left to follow there.
        let mut way: Vec<(Option<&SubjectVersion>, std::slice::Iter<'_, SchemaReference>)> =
            vec![(None, self.root.references.iter())];
        while let Some((at, references)) = way.last_mut() {
            let Some(reference) = references.next() else {
                if let Some(at) = *at
                    && done.insert(at)
                {
                    order.push(at);
                }
                way.pop();
                continue;
            };
            let target = &reference.at;
            if let Some(from) = way.iter().position(|(at, _)| *at == Some(target)) {
                let steps = way[from..].iter().filter_map(|(at, _)| *at).chain([target]).take(20);
                let circle = steps.map(ToString::to_string).collect::<Vec<_>>().join(" -> ");
                return Err(SchemaProblem::Circle { circle });
            }
            if !done.contains(target)
                && let Some(schema) = self.parts.get(target)
            {
                way.push((Some(target), schema.references.iter()));
            }
        }
        Ok(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn at(subject: &str, version: i32) -> SubjectVersion {
        SubjectVersion { subject: subject.to_owned(), version }
    }

    fn schema(text: &str, references: &[(&str, &str, i32)]) -> RegisteredSchema {
        let reference = |(name, subject, version): &(&str, &str, i32)| SchemaReference {
            name: (*name).to_owned(),
            at: at(subject, *version),
        };
        let text = format!("syntax = \"proto3\"; {text}");
        RegisteredSchema { kind: SchemaType::Protobuf, text, references: references.iter().map(reference).collect() }
    }

    /// Assembles from what a registry would have; answers also with what was asked, in order.
    fn assemble(
        root: RegisteredSchema,
        registry: &[(SubjectVersion, RegisteredSchema)],
    ) -> (Result<CompiledSchema, SchemaProblem>, Vec<String>) {
        let mut asked = Vec::new();
        let mut assembly = Assembly::new(SchemaKey::Id(7), root, AssemblyLimits::default()).unwrap();
        while let Some(next) = assembly.next() {
            asked.push(next.to_string());
            let found = registry.iter().find(|(at, _)| at == next).unwrap_or_else(|| panic!("{next} is not there"));
            if let Err(problem) = assembly.supply(found.1.clone()) {
                return (Err(problem), asked);
            }
        }
        (assembly.compile(), asked)
    }

    fn money() -> (RegisteredSchema, Vec<(SubjectVersion, RegisteredSchema)>) {
        let root = schema(
            "package t; import \"common/money.proto\"; import \"common/unit.proto\"; message Paid { common.Money m = 1; common.Unit u = 2; }",
            &[("common/money.proto", "common.money", 2), ("common/unit.proto", "common.unit", 1)],
        );
        let money = schema(
            "package common; import \"common/unit.proto\"; import \"google/protobuf/timestamp.proto\"; \
             message Money { Unit unit = 1; google.protobuf.Timestamp at = 2; }",
            &[("common/unit.proto", "common.unit", 1)],
        );
        let unit = schema("package common; message Unit { string name = 1; }", &[]);
        (root, vec![(at("common.money", 2), money), (at("common.unit", 1), unit)])
    }

    #[test]
    fn references_are_followed_and_each_is_asked_for_once() {
        let (root, registry) = money();
        let (compiled, asked) = assemble(root, &registry);
        assert_eq!(asked, ["common.money version 2", "common.unit version 1"]);
        let mut json = Vec::new();
        let value = b"\0\0\0\0\x07\0\x0a\x0b\x0a\x05\x0a\x03EUR\x12\x02\x08\x01";
        let framed = crate::registry::Framed::of_value(value).unwrap();
        compiled.unwrap().to_json(&framed, &mut json).unwrap();
        assert_eq!(String::from_utf8(json).unwrap(), r#"{"m":{"unit":{"name":"EUR"},"at":"1970-01-01T00:00:01Z"}}"#);
    }

    #[test]
    fn an_import_that_is_nowhere_is_named_with_the_file_that_wants_it() {
        let (mut root, mut registry) = money();
        registry[0].1.references.clear();
        root.references.pop();
        root.text = root.text.replace("import \"common/unit.proto\";", "").replace("common.Unit u = 2;", "");
        let (compiled, _) = assemble(root, &registry);
        let expected = SchemaProblem::MissingImport {
            import: "common/unit.proto".to_owned(),
            importer: "common/money.proto".to_owned(),
        };
        assert_eq!(compiled.unwrap_err(), expected);
        let (compiled, _) = assemble(schema("import \"nowhere.proto\";", &[]), &[]);
        let error = compiled.unwrap_err().to_string();
        assert!(error.starts_with("schema-7.proto imports \"nowhere.proto\""), "{error}");
    }

    #[test]
    fn an_any_prints_what_it_holds_and_one_of_an_unknown_type_is_an_error_of_its_own() {
        let root = schema(
            "package t; import \"google/protobuf/any.proto\"; message Box { google.protobuf.Any any = 1; } message Paid { int32 cents = 1; }",
            &[],
        );
        let (compiled, asked) = assemble(root, &[]);
        let compiled = compiled.unwrap();
        assert!(asked.is_empty());
        let boxed = |type_url: &str, value: &[u8]| {
            let mut any = Vec::new();
            if !type_url.is_empty() {
                any.extend([0x0a, type_url.len() as u8]);
                any.extend(type_url.as_bytes());
                any.extend([0x12, value.len() as u8]);
                any.extend(value);
            }
            let value = [&b"\x00\x00\x00\x00\x07\x00\x0a"[..], &[any.len() as u8], &any].concat();
            let mut json = Vec::new();
            let printed = compiled.to_json(&crate::registry::Framed::of_value(&value).unwrap(), &mut json);
            printed.map(|()| String::from_utf8(json).unwrap()).map_err(|error| error.to_string())
        };
        assert_eq!(
            boxed("type.googleapis.com/t.Paid", b"\x08\x07").as_deref(),
            Ok(r#"{"any":{"@type":"type.googleapis.com/t.Paid","cents":7}}"#)
        );
        assert_eq!(
            boxed("type.googleapis.com/google.protobuf.Duration", b"\x08\x01\x10\x80\xca\xb5\xee\x01").as_deref(),
            Ok(r#"{"any":{"@type":"type.googleapis.com/google.protobuf.Duration","value":"1.500s"}}"#)
        );
        assert_eq!(boxed("", b"").as_deref(), Ok(r#"{"any":{}}"#));
        let error = boxed("type.googleapis.com/not.Known", b"").unwrap_err();
        assert!(error.contains("t.Box of schema 7") && error.contains("not.Known"), "{error}");
    }

    #[test]
    fn a_place_without_a_message_is_named() {
        let (compiled, _) = assemble(schema("message M {}", &[]), &[]);
        let framed = crate::registry::Framed::of_value(b"\x00\x00\x00\x00\x07\x04\x00\x02").unwrap();
        let error = compiled.unwrap().to_json(&framed, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "schema 7 has no message at [0, 1]");
    }

    #[test]
    fn the_payload_of_a_json_schema_is_shown_as_it_is() {
        let root = RegisteredSchema { kind: SchemaType::Json, text: "{}".to_owned(), references: Vec::new() };
        let compiled = assemble(root, &[]).0.unwrap();
        let shown = |payload: &[u8]| {
            let value = [&b"\x00\x00\x00\x00\x07"[..], payload].concat();
            let mut out = Vec::new();
            let shown = compiled.to_json(&crate::registry::Framed::of_value(&value).unwrap(), &mut out);
            shown.map(|()| String::from_utf8(out).unwrap()).map_err(|error| error.to_string())
        };
        assert_eq!(shown(b"{\"a\": 1.10,\n\"b\":[]}").as_deref(), Ok("{\"a\":1.10,\"b\":[]}"));
        let error = shown(b"{\"a\":").unwrap_err();
        assert!(
            error.starts_with("schema 7 is a JSON Schema, and behind its id stands no JSON document: byte 5"),
            "{error}"
        );
    }

    #[test]
    fn values_are_written_with_the_schemas_id_and_read_back() {
        let text = "package t; message First { string s = 1; } message Outer { message Inner { int32 n = 1; } }";
        let compiled = std::sync::Arc::new(assemble(schema(text, &[]), &[]).0.unwrap());
        let write = |message: Option<&str>, json: &str| {
            let mut out = Vec::new();
            let writer = crate::registry::ValueWriter::new(42, std::sync::Arc::clone(&compiled), message).unwrap();
            let written = writer.write(json.as_bytes(), &mut out).map_err(|error| error.to_string());
            written.map(|()| out)
        };
        assert_eq!(write(None, r#"{"s":"hi"}"#).unwrap(), b"\x00\x00\x00\x00\x2a\x00\x0a\x02hi");
        assert_eq!(write(Some("t.Outer.Inner"), r#"{"n":1}"#).unwrap(), b"\x00\x00\x00\x00\x2a\x04\x02\x00\x08\x01");
        assert!(write(None, r#"{"z":1}"#).unwrap_err().starts_with("the value is no t.First: $.z"));
        let unknown = crate::registry::ValueWriter::new(42, compiled, Some("t.Nope")).unwrap_err().to_string();
        assert_eq!(unknown, "schema 7 has no message t.Nope; it has t.First, t.Outer, t.Outer.Inner");
    }

    #[test]
    fn avro_schemas_find_their_types_among_the_references_whatever_those_are_called() {
        let avro =
            |text: &str, references| RegisteredSchema { kind: SchemaType::Avro, text: text.to_owned(), references };
        let to = |name: &str, subject: &str| SchemaReference { name: name.to_owned(), at: at(subject, 1) };
        let root = avro(r#"{"type":"array","items":"c.Money"}"#, vec![to("money", "m")]);
        let money = avro(
            r#"{"type":"record","name":"c.Money","fields":[{"name":"u","type":"Unit"}]}"#,
            vec![to("c.Unit", "u")],
        );
        let unit = avro(r#"{"type":"enum","name":"c.Unit","symbols":["EUR"]}"#, Vec::new());
        let (compiled, _) = assemble(root, &[(at("m", 1), money), (at("u", 1), unit)]);
        let compiled = std::sync::Arc::new(compiled.unwrap());
        let mut out = Vec::new();
        let framed = crate::registry::Framed::of_value(b"\x00\x00\x00\x00\x07\x02\x00\x00").unwrap();
        compiled.to_json(&framed, &mut out).unwrap();
        assert_eq!(out, br#"[{"u":"EUR"}]"#);
        let writer = crate::registry::ValueWriter::new(7, compiled, None).unwrap();
        let mut value = Vec::new();
        writer.write(&out, &mut value).unwrap();
        assert_eq!(value, b"\x00\x00\x00\x00\x07\x02\x00\x00");
    }

    #[test]
    fn the_version_nearest_to_the_schema_stands_for_a_file() {
        let root = schema(
            "import \"b.proto\"; import \"u.proto\"; message R { B b = 1; U u = 2; }",
            &[("b.proto", "b", 1), ("u.proto", "u", 2)],
        );
        let b = schema("import \"u.proto\"; message B { U u = 1; }", &[("u.proto", "u", 1)]);
        let old = schema("message U { string old = 1; }", &[]);
        let new = schema("message U { string new = 1; }", &[]);
        let (compiled, asked) = assemble(root, &[(at("b", 1), b), (at("u", 1), old), (at("u", 2), new)]);
        assert_eq!(asked, ["b version 1", "u version 2", "u version 1"]);
        let framed = crate::registry::Framed::of_value(b"\0\0\0\0\x07\0\x12\x03\x0a\x01x").unwrap();
        let mut json = Vec::new();
        compiled.unwrap().to_json(&framed, &mut json).unwrap();
        assert_eq!(json, br#"{"u":{"new":"x"}}"#);
    }

    #[test]
    fn circles_are_found_and_shown() {
        let root = schema("import \"a.proto\";", &[("a.proto", "a", 1)]);
        let a = schema("import \"b.proto\";", &[("b.proto", "b", 1)]);
        let b = schema("import \"a.proto\";", &[("a.proto", "a", 1)]);
        let (compiled, asked) = assemble(root, &[(at("a", 1), a), (at("b", 1), b)]);
        assert_eq!(asked.len(), 2);
        let circle = "a version 1 -> b version 1 -> a version 1".to_owned();
        assert_eq!(compiled.unwrap_err(), SchemaProblem::Circle { circle });
    }

    #[test]
    fn a_registry_cannot_send_one_reference_after_the_other_for_ever() {
        let limits = AssemblyLimits { max_references: 5, max_text_bytes: 10_000 };
        let endless = |version: i32| schema("message M {}", &[("x.proto", "x", version + 1)]);
        let mut assembly = Assembly::new(SchemaKey::Id(1), endless(0), limits).unwrap();
        let mut version = 1;
        let problem = loop {
            assert_eq!(assembly.next(), Some(&at("x", version)));
            match assembly.supply(endless(version)) {
                Ok(()) => version += 1,
                Err(problem) => break problem,
            }
        };
        assert_eq!(problem, SchemaProblem::TooLarge { what: "references", limit: 5 });
        let large = schema(&"/".repeat(10_000), &[]);
        assert!(matches!(Assembly::new(SchemaKey::Id(1), large, limits), Err(SchemaProblem::TooLarge { .. })));
    }

    #[test]
    fn the_names_and_subjects_of_references_are_text_too() {
        let limits = AssemblyLimits { max_references: 5, max_text_bytes: 10_000 };
        let too_large = SchemaProblem::TooLarge { what: "bytes of text", limit: 10_000 };
        let long = "x".repeat(9_990);
        for (name, subject) in [(long.as_str(), "a"), ("a", long.as_str())] {
            let refers = schema("", &[(name, subject, 1)]);
            assert_eq!(Assembly::new(SchemaKey::Id(1), refers.clone(), limits).err(), Some(too_large.clone()));
            let mut assembly = Assembly::new(SchemaKey::Id(1), schema("", &[("b", "b", 1)]), limits).unwrap();
            assert_eq!(assembly.supply(refers), Err(too_large.clone()));
        }
        // The same few, named again and again.
        let again = schema("", &[("name", "subject", 1); 1_000]);
        assert_eq!(Assembly::new(SchemaKey::Id(1), again, limits).err(), Some(too_large));
    }

    #[test]
    fn a_reference_to_another_kind_of_schema_is_refused() {
        let root = schema("import \"a.proto\";", &[("a.proto", "a", 1)]);
        let avro = RegisteredSchema { kind: SchemaType::Avro, text: "\"int\"".to_owned(), references: Vec::new() };
        let (compiled, _) = assemble(root, &[(at("a", 1), avro)]);
        assert!(compiled.unwrap_err().to_string().contains("a version 1, which is of type AVRO"));
    }
}
