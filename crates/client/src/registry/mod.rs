//! A client of schema registries: Confluent's REST API, which Apicurio, Karapace and Redpanda offer, too.
//!
//! What it gives is the JSON of the answers; `tidegate-codec` reads it. An answer that says for good that something is not
//! there ([`RegistryError::NotFound`]) is told from a registry that cannot be asked: the one concerns a record, the other
//! everything that is being read.

mod answer;
mod error;
mod path;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, StatusCode};

use crate::config::RetryLimits;
use crate::http::{HttpClient, HttpFailure, HttpLimits};
use crate::retry::Retry;
use crate::security::{Secret, Trust};

pub use error::{RegistryError, RegistrySettingError};

use self::answer::{Verdict, judge};
use self::path::{base_url, segment};

/// What the answers may look like: Confluent's own media type, and what others send.
const MEDIA_TYPES: &str = "application/vnd.schemaregistry.v1+json, application/json;q=0.9";
const MEDIA_TYPE: &str = "application/vnd.schemaregistry.v1+json";

/// How to reach a schema registry.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RegistryConfig {
    /// Its addresses, such as `https://registry.example:8081`; with a path where the API has one. All of them lead to the same
    /// registry: where one does not answer, the next one is asked.
    pub urls: Vec<String>,
    /// Who we are to it.
    pub auth: RegistryAuth,
    /// Whose certificates are believed.
    pub trust: Trust,
    /// The longest wait for one answer. Default: 10 s.
    pub timeout: Duration,
    /// The largest answer. Default: 16 MiB.
    pub max_answer_bytes: usize,
    /// How often it is asked when it does not answer. Default: at most 5 attempts within 30 s.
    pub retry: RetryLimits,
}

impl RegistryConfig {
    /// The registry at these addresses, everything else at its default.
    pub fn new(urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let retry = RetryLimits {
            attempts: 5,
            deadline: Duration::from_secs(30),
            backoff: Duration::from_millis(200),
            backoff_max: Duration::from_secs(2),
        };
        Self {
            urls: urls.into_iter().map(Into::into).collect(),
            auth: RegistryAuth::None,
            trust: Trust::System,
            timeout: Duration::from_secs(10),
            max_answer_bytes: 16 << 20,
            retry,
        }
    }
}

/// Who we are to a registry.
#[derive(Clone, Debug, Default)]
pub enum RegistryAuth {
    /// Nobody.
    #[default]
    None,
    /// `user:password`, as `basic.auth.user.info` has it.
    Basic(Secret),
    /// A token.
    Bearer(Secret),
}

/// A schema registry. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct RegistryClient {
    http: HttpClient,
    bases: Vec<String>,
    authorization: Option<HeaderValue>,
    /// Taken out of whatever a registry says.
    secrets: Vec<Secret>,
    retry: RetryLimits,
}

impl fmt::Debug for RegistryClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryClient").field("urls", &self.bases).finish_non_exhaustive()
    }
}

impl RegistryClient {
    /// Makes a client. Nothing is sent yet.
    ///
    /// # Errors
    /// [`RegistrySettingError`].
    pub fn new(config: &RegistryConfig) -> Result<Self, RegistrySettingError> {
        let bases = config.urls.iter().map(|url| base_url(url)).collect::<Result<Vec<_>, _>>()?;
        if bases.is_empty() {
            return Err(RegistrySettingError::NoUrl);
        }
        let limits = HttpLimits { timeout: config.timeout, max_body_bytes: config.max_answer_bytes };
        let (authorization, secrets) = match &config.auth {
            RegistryAuth::None => (None, Vec::new()),
            RegistryAuth::Basic(user_info) => {
                let (header, secrets) = basic(user_info)?;
                (Some(header), secrets)
            }
            RegistryAuth::Bearer(token) => {
                let bearer = header(&format!("Bearer {}", token.expose()), "bearer.auth.token")?;
                (Some(bearer), vec![token.clone()])
            }
        };
        let http = HttpClient::new(&config.trust, "schema.registry.ssl.ca.location", limits)?;
        Ok(Self { http, bases, authorization, secrets, retry: config.retry })
    }

    /// `GET /schemas/ids/{id}`, and `GET /schemas/guids/{guid}`.
    ///
    /// # Errors
    /// [`RegistryError::NotFound`] for good, others when it cannot be asked.
    pub async fn schema(&self, id: SchemaName<'_>) -> Result<Bytes, RegistryError> {
        let path = match id {
            SchemaName::Id(id) => format!("/schemas/ids/{id}"),
            SchemaName::Guid(guid) => format!("/schemas/guids/{}", segment(guid)),
        };
        self.send(Method::GET, &path, None).await
    }

    /// `GET /subjects/{subject}/versions/{version}`; without a version the latest one.
    ///
    /// # Errors
    /// As [`RegistryClient::schema`].
    pub async fn version(&self, subject: &str, version: Option<i32>) -> Result<Bytes, RegistryError> {
        let version = version.map_or_else(|| "latest".to_owned(), |version| version.to_string());
        self.send(Method::GET, &format!("/subjects/{}/versions/{version}", segment(subject)), None).await
    }

    /// `POST /subjects/{subject}`: the id of a schema that is registered there already.
    ///
    /// # Errors
    /// As [`RegistryClient::schema`].
    pub async fn lookup(&self, subject: &str, schema: &NewSchema<'_>) -> Result<Bytes, RegistryError> {
        self.send(Method::POST, &format!("/subjects/{}", segment(subject)), Some(schema.json())).await
    }

    /// `POST /subjects/{subject}/versions`: registers a schema, and answers with its id. A schema that is there already keeps
    /// the id that it has, so the request may be repeated.
    ///
    /// # Errors
    /// [`RegistryError::Refused`] where it is not compatible or not valid.
    pub async fn register(&self, subject: &str, schema: &NewSchema<'_>) -> Result<Bytes, RegistryError> {
        self.send(Method::POST, &format!("/subjects/{}/versions", segment(subject)), Some(schema.json())).await
    }

    async fn send(&self, method: Method, path: &str, body: Option<Bytes>) -> Result<Bytes, RegistryError> {
        let mut retry = Retry::new(self.retry);
        let mut attempts: u32 = 0;
        loop {
            // The first address is preferred; the others are for when it is away.
            let base = &self.bases[attempts as usize % self.bases.len()];
            attempts += 1;
            let failure = match self.exchange(&method, base, path, body.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(Attempt::Final(error)) => return Err(error),
                Err(Attempt::Again(reason)) => reason,
            };
            tracing::debug!(%method, url = %format_args!("{base}{path}"), %failure, "the schema registry did not answer");
            if !retry.pause().await {
                return Err(RegistryError::Unavailable {
                    request: format!("{method} {path}"),
                    attempts,
                    last: failure,
                });
            }
        }
    }

    async fn exchange(&self, method: &Method, base: &str, path: &str, body: Option<Bytes>) -> Result<Bytes, Attempt> {
        let request = format!("{method} {base}{path}");
        let mut builder = Request::builder().method(method).uri(format!("{base}{path}")).header(ACCEPT, MEDIA_TYPES);
        if let Some(authorization) = &self.authorization {
            builder = builder.header(AUTHORIZATION, authorization);
        }
        if body.is_some() {
            builder = builder.header(CONTENT_TYPE, MEDIA_TYPE);
        }
        let sent = builder.body(body.unwrap_or_default()).map_err(|error| {
            Attempt::Final(RegistryError::Request { request: request.clone(), reason: error.to_string() })
        })?;
        let answer = self.http.send(sent).await.map_err(|error| match error.failure {
            HttpFailure::TooLarge { limit } => {
                Attempt::Final(RegistryError::AnswerTooLarge { request: request.clone(), limit })
            }
            HttpFailure::Address { .. } => {
                Attempt::Final(RegistryError::Request { request: request.clone(), reason: error.failure.to_string() })
            }
            _ => Attempt::Again(self.hide(&error.to_string())),
        })?;
        let status = answer.status();
        if status == StatusCode::OK {
            return Ok(answer.into_body());
        }
        // Before anything is cut: the rest of a secret that was cut is not found any more.
        let said = self.hide(&String::from_utf8_lossy(answer.body()));
        Err(match judge(status, said.as_bytes()) {
            Verdict::NotFound { code, message } => Attempt::Final(RegistryError::NotFound { code, message }),
            Verdict::Refused { code, message } => {
                Attempt::Final(RegistryError::Refused { request, status, code, message })
            }
            Verdict::Later { message } => Attempt::Again(format!("{request}: {status}: {message}")),
        })
    }

    /// A registry may send back what it was sent.
    fn hide(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| secret.hide_in(&text))
    }
}

/// Which schema, by the number or the GUID that it has in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaName<'a> {
    /// Its id.
    Id(u32),
    /// Its GUID, in five groups.
    Guid(&'a str),
}

/// A schema to look up or to register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewSchema<'a> {
    /// `AVRO`, `PROTOBUF` or `JSON`.
    pub kind: &'a str,
    /// Its text.
    pub text: &'a str,
    /// The other schemas that it uses: what the text calls each, its subject and its version.
    pub references: &'a [(&'a str, &'a str, i32)],
}

impl NewSchema<'_> {
    fn json(&self) -> Bytes {
        let reference = |(name, subject, version): &(&str, &str, i32)| serde_json::json!({ "name": name, "subject": subject, "version": version });
        let references: Vec<_> = self.references.iter().map(reference).collect();
        serde_json::json!({ "schemaType": self.kind, "schema": self.text, "references": references }).to_string().into()
    }
}

/// An attempt that did not succeed.
enum Attempt {
    Final(RegistryError),
    /// Worth another one.
    Again(String),
}

/// The header, and what must not be shown: the password, and what the header has of it.
fn basic(user_info: &Secret) -> Result<(HeaderValue, Vec<Secret>), RegistrySettingError> {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let Some((_, password)) = user_info.expose().split_once(':') else { return Err(RegistrySettingError::UserInfo) };
    let encoded = STANDARD.encode(user_info.expose());
    let header = header(&format!("Basic {encoded}"), "basic.auth.user.info")?;
    Ok((header, vec![Secret::new(encoded), Secret::new(password)]))
}

fn header(text: &str, setting: &'static str) -> Result<HeaderValue, RegistrySettingError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| RegistrySettingError::Characters { setting })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_are_of_no_use_are_refused_and_secrets_are_not_repeated() {
        let new = |change: &dyn Fn(&mut RegistryConfig)| {
            let mut config = RegistryConfig::new(["http://localhost:8081"]);
            change(&mut config);
            RegistryClient::new(&config).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(new(&|_| {}), Ok(()));
        assert_eq!(new(&|config| config.urls.clear()).unwrap_err(), "url: no address of a schema registry is given");
        let auth = |auth: RegistryAuth| new(&move |config| config.auth = auth.clone()).unwrap_err();
        let error = auth(RegistryAuth::Basic(Secret::new("hunter22")));
        assert!(error.contains("user:password") && !error.contains("hunter22"), "{error}");
        let error = auth(RegistryAuth::Bearer(Secret::new("hunter\n22")));
        assert!(error.contains("bearer.auth.token") && !error.contains("hunter"), "{error}");
        let config =
            RegistryConfig { auth: RegistryAuth::Bearer(Secret::new("hunter22")), ..RegistryConfig::new(["http://a"]) };
        let client = RegistryClient::new(&config).unwrap();
        assert!(!format!("{config:?} {client:?} {:?}", client.authorization).contains("hunter22"));
    }
}
