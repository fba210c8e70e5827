//! What a token tells of itself, and what commands, files and endpoints give in which one is. Pure.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::{Secret, Token};
use crate::security::secret::quoted;

/// The longest token. Kafka's own limit for a SASL message is 512 KiB.
pub(super) const LONGEST: usize = 256 << 10;

/// Longer lives than a year are not told apart from no end.
const LONGEST_LIFE: u64 = 366 * 24 * 3_600;

/// What is given is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenProblem {
    /// There is nothing.
    #[error("it is empty")]
    Empty,
    /// It is too long.
    #[error("it is longer than 256 KiB")]
    TooLong,
    /// It has other characters than a token.
    #[error("it holds characters that no token has (RFC 6750); it must be the token alone, or JSON with access_token")]
    Characters,
    /// It is JSON that has no token in it.
    #[error("it is JSON without access_token, accessToken or token")]
    NoToken,
    /// It begins like JSON and is none.
    #[error("it is not JSON")]
    NotJson,
    /// It is a token of another kind.
    #[error("its token_type is {kind:?}; OAUTHBEARER takes Bearer")]
    Kind {
        /// Which.
        kind: String,
    },
}

/// The claims of a JWT that are of use here, unverified.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Claims {
    pub(super) expires_at: Option<SystemTime>,
    pub(super) subject: Option<String>,
}

/// The claims of `token`; none if it is no JWT.
pub(super) fn claims(token: &str) -> Claims {
    let mut parts = token.split('.');
    let (Some(_), Some(payload), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Claims::default();
    };
    let decoded = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).unwrap_or_default();
    let Ok(Value::Object(claims)) = serde_json::from_slice(&decoded) else { return Claims::default() };
    let subject = claims.get("sub").and_then(Value::as_str).map(quoted).filter(|subject| !subject.is_empty());
    Claims { expires_at: claims.get("exp").and_then(number).and_then(since_1970), subject }
}

/// The token in what a command printed or a file holds: the bare token, or JSON.
pub(crate) fn from_output(text: &str, now: SystemTime) -> Result<Token, TokenProblem> {
    let text = text.trim();
    if !text.starts_with('{') {
        return Token::new(text, None);
    }
    from_json(text.as_bytes(), now)
}

/// The token in the answer of a token endpoint (RFC 6749, 5.1).
pub(crate) fn from_response(body: &[u8], now: SystemTime) -> Result<Token, TokenProblem> {
    from_json(body, now)
}

fn from_json(json: &[u8], now: SystemTime) -> Result<Token, TokenProblem> {
    let Ok(Value::Object(answer)) = serde_json::from_slice(json) else { return Err(TokenProblem::NotJson) };
    let field = |names: &[&str]| names.iter().find_map(|name| answer.get(*name));
    if let Some(kind) = field(&["token_type", "tokenType"]).and_then(Value::as_str)
        && !kind.eq_ignore_ascii_case("bearer")
    {
        return Err(TokenProblem::Kind { kind: quoted(kind) });
    }
    // As RFC 6749 calls it, as `az account get-access-token` does, as others do.
    let token = field(&["access_token", "accessToken", "token"]).and_then(Value::as_str);
    let token = token.ok_or(TokenProblem::NoToken)?;
    let after = field(&["expires_in", "expiresIn"]).and_then(number);
    let at = field(&["expires_on", "expires_at"]).and_then(number);
    let expires_at = match (after, at) {
        (Some(seconds), _) => Some(now + Duration::from_secs(seconds.min(LONGEST_LIFE))),
        (None, Some(seconds)) => since_1970(seconds),
        (None, None) => None,
    };
    Token::new(token, expires_at)
}

/// Whole seconds, as a number or, as some write it, as a text.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(whole)),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
fn whole(number: f64) -> Option<u64> {
    (0.0..1e15).contains(&number).then_some(number as u64)
}

fn since_1970(seconds: u64) -> Option<SystemTime> {
    // The year 9999; what is beyond is no time, and may be more than a time can hold.
    (seconds < 253_402_300_800).then(|| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// The `error` and `error_description` of an endpoint's refusal (RFC 6749, 5.2); nothing else of it is repeated.
pub(super) fn refusal(body: &[u8], secret: &Secret) -> String {
    let Ok(Value::Object(answer)) = serde_json::from_slice(body) else {
        return "it gives no reason in RFC 6749's form; is it the token endpoint?".to_owned();
    };
    let field = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default();
    let text = match (field("error"), field("error_description")) {
        ("", "") => "it gives no reason in RFC 6749's form; is it the token endpoint?".to_owned(),
        (error, "") => error.to_owned(),
        (error, description) => format!("{error}: {description}"),
    };
    // Hidden before it is cut.
    quoted(&secret.hide_in(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jwt(claims: &str) -> String {
        format!("eyJhbGciOiJub25lIn0.{}.", URL_SAFE_NO_PAD.encode(claims))
    }

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn end(token: &Token) -> Option<u64> {
        token.expires_at().map(|end| end.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
    }

    #[test]
    fn a_jwt_tells_its_end_and_its_subject() {
        let token = from_output(&format!(" {}\n", jwt(r#"{"sub":"alice","exp":1714521600}"#)), NOW).unwrap();
        assert_eq!((end(&token), token.subject()), (Some(1_714_521_600), Some("alice")));
        for claims in [r#"{"exp":1.7e9}"#, r#"{"exp":"1700000000"}"#] {
            assert_eq!(end(&Token::new(&jwt(claims), None).unwrap()), Some(1_700_000_000), "{claims}");
        }
        for opaque in ["abc", "a.b", "a.b.c", "a.b.c.d", &jwt("[]"), &jwt(r#"{"exp":-1}"#), &jwt(r#"{"exp":1e30}"#)] {
            assert_eq!(end(&Token::new(opaque, None).unwrap()), None, "{opaque}");
        }
    }

    #[test]
    fn json_is_read_as_endpoints_and_command_line_tools_write_it() {
        for (json, ends) in [
            (r#"{"access_token":"t","token_type":"Bearer","expires_in":3600}"#, Some(3_600)),
            (r#"{"access_token":"t","token_type":"bearer","expires_in":"3599"}"#, Some(3_599)),
            (
                r#"{"accessToken":"t","expiresOn":"2024-05-01 02:00:00.000000","expires_on":1714521600,"tokenType":"Bearer"}"#,
                Some(1_714_521_600),
            ),
            (r#"{"token":"t"}"#, None),
        ] {
            let token = from_output(json, NOW).unwrap();
            assert_eq!((token.value().expose(), end(&token)), ("t", ends), "{json}");
        }
        assert!(end(&from_output(r#"{"token":"t","expires_in":18446744073709551615}"#, NOW).unwrap()).is_some());
    }

    #[test]
    fn what_is_no_token_is_told_apart() {
        for (text, problem) in [
            ("", TokenProblem::Empty),
            ("\n", TokenProblem::Empty),
            ("two words", TokenProblem::Characters),
            ("t\x01auth=Bearer u", TokenProblem::Characters),
            ("{", TokenProblem::NotJson),
            ("{\"access_token\":7}", TokenProblem::NoToken),
            ("{\"error\":\"x\"}", TokenProblem::NoToken),
            ("{\"access_token\":\"t\",\"token_type\":\"mac\"}", TokenProblem::Kind { kind: "mac".to_owned() }),
        ] {
            assert_eq!(from_output(text, NOW), Err(problem), "{text:?}");
        }
        assert_eq!(Token::new(&"x".repeat(LONGEST + 1), None), Err(TokenProblem::TooLong));
    }

    #[test]
    fn a_refusal_repeats_its_reason_and_no_secret() {
        let secret = Secret::new("hunter22");
        let body = br#"{"error":"invalid_client","error_description":"secret hunter22 is wrong\r\nTrace: 1"}"#;
        assert_eq!(refusal(body, &secret), "invalid_client: secret *** is wrong  Trace: 1");
        assert!(refusal(b"<html>hunter22</html>", &secret).contains("is it the token endpoint?"));
    }
}
