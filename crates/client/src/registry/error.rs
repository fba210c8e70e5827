//! Why a registry did not give what was asked for.

use http::StatusCode;

use crate::security::TlsSettingError;

/// Why a request to a schema registry failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RegistryError {
    /// The registry says that there is no such schema, subject or version. Asking again does not help.
    #[error("the schema registry says: {message} (error {code})")]
    NotFound {
        /// Its error code: 40401, 40402, 40403 or another of 404.
        code: i64,
        /// Its words, cut.
        message: String,
    },
    /// The registry refused the request.
    #[error("{request}: the schema registry refuses with {status}{}: {message}", error_code(*code))]
    Refused {
        /// What was asked of whom.
        request: String,
        /// The HTTP status.
        status: StatusCode,
        /// Its error code, where there is one.
        code: Option<i64>,
        /// Its words, cut.
        message: String,
    },
    /// It did not answer, however often it was asked.
    #[error("the schema registry does not answer {request}: {last} (attempt {attempts}, the last one)")]
    Unavailable {
        /// What was asked.
        request: String,
        /// How often.
        attempts: u32,
        /// What happened the last time.
        last: String,
    },
    /// What it answers is larger than the limit. Asking again does not help.
    #[error("{request}: the answer is longer than {limit} bytes")]
    AnswerTooLarge {
        /// What was asked of whom.
        request: String,
        /// The limit.
        limit: usize,
    },
    /// The request could not be made.
    #[error("{request}: {reason}")]
    Request {
        /// What was asked of whom.
        request: String,
        /// Why not.
        reason: String,
    },
}

fn error_code(code: Option<i64>) -> String {
    code.map(|code| format!(" (error {code})")).unwrap_or_default()
}

/// A setting of the registry is of no use. The settings are named as within their section.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RegistrySettingError {
    /// There is no address.
    #[error("url: no address of a schema registry is given")]
    NoUrl,
    /// An address is none.
    #[error("url: {url:?} {problem}")]
    Url {
        /// The address, without what may be secret in it.
        url: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The user's name and password are not what they should be.
    #[error("basic.auth.user.info: it must be user:password, and holds no colon")]
    UserInfo,
    /// A secret cannot stand in a header.
    #[error("{setting}: it holds characters that cannot stand in an HTTP header")]
    Characters {
        /// The setting.
        setting: &'static str,
    },
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsSettingError),
}
