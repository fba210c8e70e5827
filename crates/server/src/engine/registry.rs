//! The schemas of a registry: fetched once, compiled once, kept for as long as there is room.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_client::{NewSchema, RegistryClient, RegistryError, SchemaName};
use tidegate_codec::registry::{
    AnswerError, Assembly, AssemblyLimits, CompiledSchema, RegisteredSchema, RegistryAnswer, SchemaKey, SchemaProblem,
    SchemaType, ValueWriter, WriterError, read_answer,
};
use tidegate_model::TopicName;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// What is kept of a registry's schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaLimits {
    /// How many schemas are kept, the ones that were used last. Default: 1,000.
    pub max_schemas: usize,
    /// For how long a schema that is not there, or of no use, is not asked for again. Default: 30 s.
    pub unusable_for: Duration,
    /// What the parts of one schema may take.
    pub assembly: AssemblyLimits,
}

impl Default for SchemaLimits {
    fn default() -> Self {
        Self { max_schemas: 1_000, unusable_for: Duration::from_secs(30), assembly: AssemblyLimits::default() }
    }
}

/// A schema registry with the schemas that were needed so far. Cheap to clone; clones share them.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

struct Inner {
    client: RegistryClient,
    limits: SchemaLimits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    kept: HashMap<SchemaKey, Kept>,
    /// Counts the uses, to tell which was the last.
    uses: u64,
    /// The schemas that are being fetched: whoever needs one waits for the same answer, and those who wait keep it.
    flights: HashMap<SchemaKey, Weak<Fetching>>,
}

type Fetching = OnceCell<Result<Resolved, SchemaFetchError>>;

struct Kept {
    schema: Resolved,
    used: u64,
    /// When it was fetched.
    since: Instant,
}

/// What became of a schema.
#[derive(Clone, Debug)]
pub enum Resolved {
    /// It is there.
    Ready(Arc<CompiledSchema>),
    /// It is not, or it is of no use: the values written with it cannot be shown.
    Unusable(Arc<str>),
}

/// A schema could not be fetched. That says nothing about the schema, so whoever needs it cannot go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SchemaFetchError {
    /// The registry did not give it.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// Its answer makes no sense.
    #[error("the schema registry's answer for {what} makes no sense: {source}")]
    Answer {
        /// What was asked for.
        what: String,
        /// What is wrong with it.
        source: AnswerError,
    },
    /// The compiler ended without a result.
    #[error("compiling {what} failed: {reason}")]
    Compiler {
        /// What was compiled.
        what: String,
        /// What is known of it.
        reason: String,
    },
}

/// Why no value of a topic can be written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriterSetupError {
    /// The schema could not be fetched, or its id could not.
    #[error(transparent)]
    Fetch(#[from] SchemaFetchError),
    /// Nobody said under which subject the schema is registered.
    #[error(
        "the configuration does not tell the subject of the schema: its strategy needs the record's name; give the topic \
         its message, or its subject"
    )]
    NoSubject,
    /// The subject has no such schema.
    #[error("subject {subject} has no such schema: {reason}")]
    NoSchema {
        /// The subject.
        subject: String,
        /// The registry's words.
        reason: String,
    },
    /// The schema is of no use.
    #[error("the schema of subject {subject} cannot be used: {reason}")]
    Unusable {
        /// The subject.
        subject: String,
        /// Why not.
        reason: String,
    },
    /// Its message is not there.
    #[error(transparent)]
    Message(#[from] WriterError),
}

/// How values of a topic get their schema when JSON is published to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteSchema {
    /// Under which subject it is registered. Default: the topic's name with `-value` behind it.
    pub subject: Subject,
    /// With Protobuf, which message of the file the values are. Default: the first one.
    pub message: Option<String>,
    /// The schema's text. It must be registered under the subject already, unless `register` says otherwise. `None`: the
    /// latest one of the subject.
    pub text: Option<(SchemaType, String)>,
    /// Whether a text that is not registered yet is registered. Confluent's `auto.register.schemas`; default: false.
    pub register: bool,
}

/// Which subject: Confluent's strategies, of which one names the subject without a record's help.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Subject {
    /// `TopicNameStrategy`: `<topic>-value`.
    #[default]
    Topic,
    /// `RecordNameStrategy`: the record's full name.
    Record(String),
    /// `TopicRecordNameStrategy`: `<topic>-<the record's full name>`.
    TopicRecord(String),
    /// This one.
    Named(String),
    /// The strategy needs the record's name, and nobody gave it. Values can be read.
    Unknown,
}

impl Subject {
    /// The subject of a topic's values.
    pub fn of(&self, topic: &TopicName) -> Option<String> {
        match self {
            Self::Topic => Some(format!("{topic}-value")),
            Self::Record(record) => Some(record.clone()),
            Self::TopicRecord(record) => Some(format!("{topic}-{record}")),
            Self::Named(subject) => Some(subject.clone()),
            Self::Unknown => None,
        }
    }
}

impl Registry {
    /// The registry that `client` talks to.
    pub fn new(client: RegistryClient, limits: SchemaLimits) -> Self {
        Self { inner: Arc::new(Inner { client, limits, state: Mutex::default() }) }
    }

    /// A schema, from what is kept or from the registry. Callers who need the same one at the same time ask once.
    ///
    /// # Errors
    /// [`SchemaFetchError`] when it cannot be told; what is not there is [`Resolved::Unusable`].
    pub async fn get(&self, key: SchemaKey) -> Result<Resolved, SchemaFetchError> {
        let flight = {
            let mut state = self.inner.state.lock();
            if let Some(kept) = state.get(key, self.inner.limits.unusable_for) {
                return Ok(kept);
            }
            // Those that nobody waits for any more.
            state.flights.retain(|_, flight| flight.strong_count() > 0);
            let flight = state.flights.get(&key).and_then(Weak::upgrade).unwrap_or_default();
            state.flights.insert(key, Arc::downgrade(&flight));
            flight
        };
        // Whoever polls it first does the work; when that caller goes away, another one takes it up.
        flight.get_or_init(|| self.fetch_and_keep(key)).await.clone()
    }

    /// A schema, if it is kept.
    pub fn kept(&self, key: SchemaKey) -> Option<Resolved> {
        self.inner.state.lock().get(key, self.inner.limits.unusable_for)
    }

    async fn fetch_and_keep(&self, key: SchemaKey) -> Result<Resolved, SchemaFetchError> {
        let resolved = self.fetch(key).await?;
        if let Resolved::Unusable(reason) = &resolved {
            tracing::debug!(%key, %reason, "a schema cannot be used");
        }
        self.inner.state.lock().keep(key, resolved.clone(), self.inner.limits.max_schemas);
        Ok(resolved)
    }

    async fn fetch(&self, key: SchemaKey) -> Result<Resolved, SchemaFetchError> {
        let text = key.text();
        let name = match key {
            SchemaKey::Id(id) => SchemaName::Id(id),
            SchemaKey::Guid(_) => SchemaName::Guid(&text),
        };
        let unusable = |reason: String| Ok(Resolved::Unusable(format!("{key}: {reason}").into()));
        // Ids are signed where registries are written. One may refuse such a path in any way, and that must not end a read: it
        // is what a value looks like that names no schema at all.
        if matches!(key, SchemaKey::Id(id) if i32::try_from(id).is_err()) {
            return unusable("no registry gives such an id".to_owned());
        }
        let root = match self.inner.client.schema(name).await {
            Ok(json) => schema_of(key.to_string(), &json)?,
            Err(error @ (RegistryError::NotFound { .. } | RegistryError::AnswerTooLarge { .. })) => {
                return unusable(error.to_string());
            }
            Err(error) => return Err(error.into()),
        };
        let root = match root {
            Ok(root) => root,
            Err(reason) => return unusable(reason),
        };
        let mut assembly = match Assembly::new(key, root, self.inner.limits.assembly) {
            Ok(assembly) => assembly,
            Err(problem) => return unusable(problem.to_string()),
        };
        while let Some(next) = assembly.next().cloned() {
            let found = match self.inner.client.version(&next.subject, Some(next.version)).await {
                Ok(json) => schema_of(next.to_string(), &json)?,
                Err(error @ (RegistryError::NotFound { .. } | RegistryError::AnswerTooLarge { .. })) => {
                    Err(format!("it refers to {next}: {error}"))
                }
                Err(error) => return Err(error.into()),
            };
            let supplied = match found {
                Ok(schema) => assembly.supply(schema).map_err(|problem: SchemaProblem| problem.to_string()),
                Err(reason) => Err(reason),
            };
            if let Err(reason) = supplied {
                return unusable(reason);
            }
        }
        // A large schema takes a while, in which others run.
        let compiled = tokio::task::spawn_blocking(move || assembly.compile()).await;
        match compiled {
            Ok(Ok(schema)) => Ok(Resolved::Ready(Arc::new(schema))),
            Ok(Err(problem)) => unusable(problem.to_string()),
            Err(error) => Err(SchemaFetchError::Compiler { what: key.to_string(), reason: error.to_string() }),
        }
    }

    /// What writes values of a topic. Asks the registry for the schema's id each time: the latest one may be another by now.
    ///
    /// # Errors
    /// [`WriterSetupError`].
    pub async fn writer(&self, topic: &TopicName, schema: &WriteSchema) -> Result<ValueWriter, WriterSetupError> {
        let subject = schema.subject.of(topic).ok_or(WriterSetupError::NoSubject)?;
        let client = &self.inner.client;
        let answered = match &schema.text {
            None => client.version(&subject, None).await,
            Some((kind, text)) => {
                let new = NewSchema { kind: kind.name(), text, references: &[] };
                if schema.register {
                    client.register(&subject, &new).await
                } else {
                    client.lookup(&subject, &new).await
                }
            }
        };
        let json = answered.map_err(|error| match error {
            RegistryError::NotFound { .. } => {
                WriterSetupError::NoSchema { subject: subject.clone(), reason: error.to_string() }
            }
            error => SchemaFetchError::from(error).into(),
        })?;
        let what = || format!("subject {subject}");
        let answer = read_answer(&json).map_err(|source| SchemaFetchError::Answer { what: what(), source })?;
        let missing = AnswerError::Missing { member: "id" };
        let id = answer.id.ok_or_else(|| SchemaFetchError::Answer { what: what(), source: missing })?;
        match self.get(SchemaKey::Id(id)).await? {
            Resolved::Ready(compiled) => {
                // The name of a record may be there for its subject alone.
                let names_subject = matches!(schema.subject, Subject::Record(_) | Subject::TopicRecord(_));
                let is_protobuf = compiled.kind() == SchemaType::Protobuf;
                let message = schema.message.as_deref().filter(|_| is_protobuf || !names_subject);
                Ok(ValueWriter::new(id, compiled, message)?)
            }
            Resolved::Unusable(reason) => Err(WriterSetupError::Unusable { subject, reason: reason.to_string() }),
        }
    }
}

/// The schema of an answer. A kind that is not known concerns the schema alone; anything else that is wrong, the registry.
fn schema_of(what: String, json: &[u8]) -> Result<Result<RegisteredSchema, String>, SchemaFetchError> {
    match read_answer(json) {
        Ok(RegistryAnswer { schema: Some(schema), .. }) => Ok(Ok(schema)),
        Ok(RegistryAnswer { schema: None, .. }) => {
            Err(SchemaFetchError::Answer { what, source: AnswerError::Missing { member: "schema" } })
        }
        Err(error @ (AnswerError::SchemaType { .. } | AnswerError::TooManyReferences { .. })) => {
            Ok(Err(error.to_string()))
        }
        Err(source) => Err(SchemaFetchError::Answer { what, source }),
    }
}

impl State {
    fn get(&mut self, key: SchemaKey, unusable_for: Duration) -> Option<Resolved> {
        let kept = self.kept.get_mut(&key)?;
        if matches!(kept.schema, Resolved::Unusable(_)) && kept.since.elapsed() >= unusable_for {
            self.kept.remove(&key);
            return None;
        }
        self.uses += 1;
        kept.used = self.uses;
        Some(kept.schema.clone())
    }

    fn keep(&mut self, key: SchemaKey, schema: Resolved, max_schemas: usize) {
        while self.kept.len() >= max_schemas.max(1) {
            let Some(oldest) = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(key, _)| *key) else { break };
            self.kept.remove(&oldest);
        }
        self.uses += 1;
        self.kept.insert(key, Kept { schema, used: self.uses, since: Instant::now() });
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("client", &self.inner.client).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
