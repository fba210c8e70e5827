//! A door for the fuzz targets to what strangers' bytes meet first. Not part of the crate's contract.

use std::time::SystemTime;

use futures_util::FutureExt as _;
use tidegate_wire::frame::FrameLimit;

use crate::conn::first_frame;
use crate::security::connection_string::ConnectionString;
use crate::security::sasl::{Conversation, Sasl, Step};
use crate::security::scram::{ScramClient, ScramHash};
use crate::security::secret::Secret;
use crate::security::tls::{certificates, private_key};
use crate::security::token::{from_output, from_response};

/// The nonce of the SCRAM conversations, so that an input can continue it.
const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";

/// What a broker says in SCRAM: its two messages, with a zero byte between them.
pub fn scram(bytes: &[u8]) {
    let at = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (first, last) = (&bytes[..at], bytes.get(at + 1..).unwrap_or_default());
    for hash in [ScramHash::Sha256, ScramHash::Sha512] {
        let client = ScramClient::new(hash, "user", Secret::new("pencil"), NONCE.to_owned());
        let Ok(challenge) = client.challenge(first) else { continue };
        // What more iterations do is not different, only slower.
        if challenge.iterations() == crate::security::scram::MIN_ITERATIONS
            && let Ok((_, expected)) = client.prove(first, &challenge)
        {
            let proved = expected.verify(last);
            assert!(proved.is_err() || last.starts_with(b"v="));
        }
    }
}

/// What a broker says in PLAIN and OAUTHBEARER: messages with zero bytes between them. The conversation must end.
pub fn sasl(bytes: &[u8]) {
    let plain = Sasl::Plain { username: "user".to_owned(), password: Secret::new("pencil") };
    let Ok(token) = from_output("token", SystemTime::UNIX_EPOCH) else { return };
    let bearer = Conversation::bearer(&token);
    for conversation in [Conversation::begin(&plain, None), bearer] {
        let Ok((mut conversation, _)) = conversation else { continue };
        let mut sent = 0;
        for message in bytes.split(|byte| *byte == 0) {
            match conversation.answer(message) {
                Ok(Step::Send(_)) => sent += 1,
                Ok(Step::Done | Step::Prove(_)) | Err(_) => break,
            }
        }
        assert!(sent <= 1, "it goes on and on");
    }
}

/// What a token endpoint, a command or a file gives.
pub fn token(bytes: &[u8]) {
    let _ = from_response(bytes, SystemTime::UNIX_EPOCH);
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(token) = from_output(text, SystemTime::UNIX_EPOCH)
    {
        let _ = token.expires_at();
        assert!(!format!("{token:?}").contains(token.value().expose()) || token.value().expose().len() < 16);
    }
}

/// What somebody copied from a portal. No error may repeat a key.
pub fn connection_string(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match ConnectionString::parse(text) {
        Ok(string) => {
            let _ = (string.bootstrap(), string.topic(Some("hub")));
            assert!(string.security().sasl.is_some());
        }
        Err(error) => {
            let said = error.to_string();
            for value in text.split([';', '=']).filter(|value| value.len() > 24) {
                assert!(!said.contains(value), "{said}");
            }
        }
    }
}

/// A file that should hold certificates and keys.
pub fn pem(bytes: &[u8]) {
    let _ = certificates(bytes);
    let _ = private_key(bytes);
}

/// The first bytes of a connection, which may be those of another protocol. The limit lets a TLS alert pass for a size.
pub fn first_bytes(bytes: &[u8]) {
    let mut read = bytes;
    let frame = first_frame(&mut read, FrameLimit::new(1 << 30)).now_or_never();
    if let (Some(Ok(frame)), Some(size)) = (frame, bytes.first_chunk::<4>()) {
        assert_eq!(frame.len(), u32::from_be_bytes(*size) as usize);
    }
}
