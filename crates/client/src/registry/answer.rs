//! What an answer means, from its status and body.

use http::StatusCode;
use serde::Deserialize;

use crate::security::quoted;

/// What an answer means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is no such thing.
    NotFound { code: i64, message: String },
    /// The request is refused, and will be the next time.
    Refused { code: Option<i64>, message: String },
    /// The registry cannot answer now.
    Later { message: String },
}

/// An error in the form that the API has for them.
#[derive(Deserialize)]
struct ErrorBody {
    error_code: i64,
    #[serde(default)]
    message: String,
}

/// Judges an answer that is no success.
///
/// That something is not there is believed only in the API's own form: a proxy, or a web server that the address leads to by
/// mistake, answers 404 to everything.
pub(super) fn judge(status: StatusCode, body: &[u8]) -> Verdict {
    let error = serde_json::from_slice::<ErrorBody>(body).ok();
    let code = error.as_ref().map(|error| error.error_code);
    let message = match error {
        Some(error) => quoted(&error.message),
        None => quoted(&String::from_utf8_lossy(body)),
    };
    let message = if message.is_empty() { "it gives no reason".to_owned() } else { message };
    match (status.as_u16(), code) {
        (404, Some(code @ (404 | 40_400..=40_499))) => Verdict::NotFound { code, message },
        (404, _) => {
            let message = format!("this is no answer of a schema registry; is the address right? It says: {message}");
            Verdict::Refused { code, message }
        }
        // A registry whose leader is away says 500 with a code of its own.
        (408 | 425 | 429 | 500..=599, _) => Verdict::Later { message },
        (300..=399, _) => {
            Verdict::Refused { code, message: "it sends us elsewhere, and that is not followed".to_owned() }
        }
        _ => Verdict::Refused { code, message },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, body: &str) -> Verdict {
        judge(StatusCode::from_u16(status).unwrap(), body.as_bytes())
    }

    #[test]
    fn only_the_registry_itself_can_say_that_something_is_not_there() {
        let not_found = of(404, r#"{"error_code":40403,"message":"Schema 7 not found"}"#);
        assert_eq!(not_found, Verdict::NotFound { code: 40403, message: "Schema 7 not found".to_owned() });
        for body in ["", "<html>", r#"{"error_code":50001}"#, r#"{"message":"HTTP 404 Not Found"}"#] {
            assert!(matches!(of(404, body), Verdict::Refused { .. }), "{body}");
        }
    }

    #[test]
    fn what_may_pass_is_told_from_what_stays() {
        for status in [408, 429, 500, 502, 503, 504] {
            assert!(matches!(of(status, ""), Verdict::Later { .. }), "{status}");
        }
        for status in [301, 400, 401, 403, 405, 409, 422] {
            assert!(matches!(of(status, ""), Verdict::Refused { .. }), "{status}");
        }
    }
}
