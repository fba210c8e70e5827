//! Schemas: `.proto` files or descriptor sets, compiled once and shared.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prost_reflect::DescriptorPool;
use prost_reflect::prost_types::FileDescriptorProto;
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver};

use crate::table::Table;
use crate::{JsonOptions, ToJsonError, ToProtobufError, UnknownMode, to_json, to_protobuf};

/// Why a schema could not be loaded, or a message not be found in it.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// A `.proto` file, or one that it imports, cannot be found, read or compiled.
    ///
    /// `message` names the place in the field's usual form, `file:line:column: what is wrong`, where the compiler tells it.
    #[error("{message}")]
    Compile {
        /// What is wrong, and where.
        message: String,
    },
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The bytes are not a `google.protobuf.FileDescriptorSet`, or the set is not complete.
    #[error("not a usable descriptor set: {message}")]
    DescriptorSet {
        /// What is wrong.
        message: String,
    },
    /// The file name has neither the extension of a `.proto` file nor one of a descriptor set.
    #[error(
        "cannot tell what {} is: expected .proto, or .binpb, .pb, .bin, .desc, .protoset or .fds for a descriptor set",
        path.display()
    )]
    Extension {
        /// The file.
        path: PathBuf,
    },
    /// The schema has no such message.
    #[error("the schema has no message {name}{}", similar_suffix(similar))]
    UnknownMessage {
        /// The name that was asked for.
        name: String,
        /// Messages of the schema with the same last part, at most five.
        similar: Vec<String>,
    },
    /// The schema holds more than the compiled form can number.
    #[error("the schema is too large: more than {limit} {what}")]
    TooLarge {
        /// Of what there are too many.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
}

fn similar_suffix(similar: &[String]) -> String {
    if similar.is_empty() { String::new() } else { format!("; did you mean {}?", similar.join(" or ")) }
}

/// A set of message types, compiled. Cheap to clone.
///
/// Google's well-known types are always part of it, so that a `google.protobuf.Any` can hold them.
#[derive(Clone)]
pub struct Schema {
    table: Arc<Table>,
}

impl Schema {
    /// Compiles `.proto` files.
    ///
    /// Imports are looked up in `includes`, in order; the files under `google/protobuf/` are built in. A file that lies in
    /// none of `includes` is compiled as if its own folder were one of them.
    ///
    /// # Errors
    /// [`SchemaError::Compile`] with file, line and column.
    pub fn from_proto_files(files: &[PathBuf], includes: &[PathBuf]) -> Result<Self, SchemaError> {
        let mut folders = includes.to_vec();
        for file in files {
            if !folders.iter().any(|folder| IncludeFileResolver::new(folder.clone()).resolve_path(file).is_some()) {
                folders.push(match file.parent() {
                    Some(parent) if parent != Path::new("") => parent.to_path_buf(),
                    _ => PathBuf::from("."),
                });
            }
        }
        let mut compiler = Compiler::new(&folders).map_err(|error| compile_error(&error))?;
        for file in files {
            compiler.open_file(file).map_err(|error| compile_error(&error))?;
        }
        Self::compiled(compiler)
    }

    /// Compiles one `.proto` file from its text. `name` stands for it in errors, as in `flight.proto:3:1: …`.
    ///
    /// It can import the files under `google/protobuf/` and no others.
    ///
    /// # Errors
    /// [`SchemaError::Compile`] with line and column.
    pub fn from_proto_source(name: &str, text: &str) -> Result<Self, SchemaError> {
        let mut resolver = ChainFileResolver::new();
        resolver.add(OneSource { name: name.to_owned(), text: text.to_owned() });
        resolver.add(GoogleFileResolver::new());
        let mut compiler = Compiler::with_file_resolver(resolver);
        compiler.open_file(name).map_err(|error| compile_error(&error))?;
        Self::compiled(compiler)
    }

    /// Takes a serialized `google.protobuf.FileDescriptorSet`, as `protoc --include_imports -o` and `buf build` write it.
    ///
    /// The well-known types may be missing from it; other imports may not.
    ///
    /// # Errors
    /// [`SchemaError::DescriptorSet`].
    pub fn from_descriptor_set(bytes: &[u8]) -> Result<Self, SchemaError> {
        let unusable =
            |error: prost_reflect::DescriptorError| SchemaError::DescriptorSet { message: format!("{error:?}") };
        contained(|| match DescriptorPool::decode(bytes) {
            Ok(pool) => Self::from_pool(pool),
            // Without `--include_imports` the set relies on the reader for the well-known types.
            Err(first) => {
                let mut pool = DescriptorPool::global();
                match pool.decode_file_descriptor_set(bytes) {
                    Ok(()) => Self::from_pool(pool),
                    Err(_) => Err(unusable(first)),
                }
            }
        })
    }

    /// Loads a `.proto` file or a descriptor set, by the file's extension.
    ///
    /// # Errors
    /// As [`Schema::from_proto_files`] and [`Schema::from_descriptor_set`], and [`SchemaError::Extension`] for neither.
    pub fn load(path: &Path, includes: &[PathBuf]) -> Result<Self, SchemaError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("proto") => Self::from_proto_files(&[path.to_path_buf()], includes),
            Some("binpb" | "pb" | "bin" | "desc" | "protoset" | "fds") => {
                let bytes =
                    std::fs::read(path).map_err(|source| SchemaError::Read { path: path.to_path_buf(), source })?;
                Self::from_descriptor_set(&bytes)
            }
            _ => Err(SchemaError::Extension { path: path.to_path_buf() }),
        }
    }

    /// The message type with this full name, such as `tidegate.examples.flights.v1.Flight`.
    ///
    /// # Errors
    /// [`SchemaError::UnknownMessage`].
    pub fn message(&self, full_name: &str) -> Result<MessageType, SchemaError> {
        match self.table.message_by_name(full_name) {
            Some(index) => Ok(MessageType { table: Arc::clone(&self.table), index }),
            None => {
                let last_part = |name: &str| name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
                let wanted = last_part(full_name);
                let similar = self.message_names().filter(|name| last_part(name) == wanted).take(5).map(str::to_owned);
                Err(SchemaError::UnknownMessage { name: full_name.to_owned(), similar: similar.collect() })
            }
        }
    }

    /// The full names of all message types but the well-known ones, sorted. Types nested in a message are among them.
    pub fn message_names(&self) -> impl Iterator<Item = &str> {
        self.table.message_names()
    }

    /// Compiles the file `name` from what `resolver` has. Answers also with the file's own descriptor.
    pub(crate) fn from_resolver(
        resolver: impl FileResolver + 'static,
        name: &str,
    ) -> Result<(Self, FileDescriptorProto), SchemaError> {
        let mut compiler = Compiler::with_file_resolver(resolver);
        contained(|| compiler.open_file(name).map(drop).map_err(|error| compile_error(&error)))?;
        let file = compiler.descriptor_pool().get_file_by_name(name);
        let file = file.map(|file| file.file_descriptor_proto().clone()).unwrap_or_default();
        Ok((Self::compiled(compiler)?, file))
    }

    fn compiled(mut compiler: Compiler) -> Result<Self, SchemaError> {
        // The compiler's own pool was built before the options of its files were known, so in it a list that is declared
        // `packed = false` is packed.
        Self::from_descriptor_set(&compiler.include_imports(true).encode_file_descriptor_set())
    }

    fn from_pool(mut pool: DescriptorPool) -> Result<Self, SchemaError> {
        // A schema that brings a well-known type under a file name of its own keeps it.
        for file in DescriptorPool::global().files() {
            let known = file.messages().any(|message| pool.get_message_by_name(message.full_name()).is_some());
            if !known && pool.get_file_by_name(file.name()).is_none() {
                // It can fail only where such a type is missing from a file that bears its name; then it stays missing.
                let _ = pool.add_file_descriptor_proto(file.file_descriptor_proto().clone());
            }
        }
        Ok(Self { table: Arc::new(Table::new(&pool)?) })
    }
}

/// Builds from descriptors that a stranger may have written.
///
/// `prost-reflect` panics in place of an error when a descriptor that no compiler wrote contradicts itself: to say where, it
/// looks the file up in a list that it is not in yet. What it was building is lost with the panic.
fn contained<T>(build: impl FnOnce() -> Result<T, SchemaError>) -> Result<T, SchemaError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(build)).unwrap_or_else(|_| {
        Err(SchemaError::DescriptorSet {
            message: "a descriptor contradicts itself: a name in it does not lead to what it must".to_owned(),
        })
    })
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.message_names()).finish()
    }
}

/// One message type of a [`Schema`]. Cheap to clone.
#[derive(Clone)]
pub struct MessageType {
    table: Arc<Table>,
    index: u32,
}

impl MessageType {
    /// The full name: package, enclosing messages, name.
    pub fn full_name(&self) -> &str {
        &self.table.message(self.index).full_name
    }

    /// Appends the Protobuf encoding of a JSON document to `out`.
    ///
    /// Fields are written in the order of their numbers, whatever the order of the keys. `json` may be as large as the caller
    /// allows; `out` grows by at most about seven times its length.
    ///
    /// # Errors
    /// [`ToProtobufError`], with the path of the trouble; `out` is then as it was.
    pub fn json_to_protobuf(&self, json: &[u8], mode: UnknownMode, out: &mut Vec<u8>) -> Result<(), ToProtobufError> {
        to_protobuf::convert(&self.table, self.index, json, mode, out)
    }

    /// Appends the JSON form of an encoded message to `out`, on one line.
    ///
    /// Fields are printed in the order of their numbers, entries of a map in the order in which they stand in `bytes`.
    ///
    /// # Errors
    /// [`ToJsonError`], with the path of the trouble; `out` is then as it was.
    pub fn protobuf_to_json(&self, bytes: &[u8], options: &JsonOptions, out: &mut Vec<u8>) -> Result<(), ToJsonError> {
        to_json::convert(&self.table, self.index, bytes, options, out)
    }
}

impl fmt::Debug for MessageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MessageType").field(&self.full_name()).finish()
    }
}

/// Resolves the one file of [`Schema::from_proto_source`].
struct OneSource {
    name: String,
    text: String,
}

impl FileResolver for OneSource {
    fn resolve_path(&self, path: &Path) -> Option<String> {
        (path == Path::new(&self.name)).then(|| self.name.clone())
    }

    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        if name == self.name { File::from_source(name, &self.text) } else { Err(protox::Error::file_not_found(name)) }
    }
}

/// The compiler's `Debug` form, unlike its `Display` form, begins with `file:line:column: `.
fn compile_error(error: &protox::Error) -> SchemaError {
    SchemaError::Compile { message: format!("{error:?}") }
}
