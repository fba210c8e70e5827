//! SCRAM's side of the client (RFC 5802, RFC 7677), as Kafka speaks it. Pure.
//!
//! User names and passwords go as the UTF-8 that they are: Kafka applies no SASLprep (RFC 4013) to what it stores, neither do
//! its Java client and librdkafka, and one that did would be refused for names and passwords that it changes.

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac, pbkdf2};

use super::secret::{Secret, quoted};

/// RFC 7677 asks for at least so many. Fewer make a password that somebody overheard cheap to guess.
pub(crate) const MIN_ITERATIONS: u32 = 4_096;

/// Kafka stores at most 16,384. A broker must not be able to keep a processor busy for long: this many take a quarter of a
/// second.
pub(crate) const MAX_ITERATIONS: u32 = 200_000;

/// No message of a server is longer than some hundred bytes.
const LONGEST_MESSAGE: usize = 4_096;

/// The hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScramHash {
    /// SCRAM-SHA-256.
    Sha256,
    /// SCRAM-SHA-512.
    Sha512,
}

impl ScramHash {
    /// The mechanism's name.
    pub fn mechanism(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }

    fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }

    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }

    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        }
    }
}

/// What is wrong with what the server says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// It is not a message of SCRAM.
    #[error("the broker's SCRAM message is malformed: {what}")]
    Malformed {
        /// Where.
        what: &'static str,
    },
    /// It says that it refuses.
    #[error("the broker refuses: {reason}")]
    Refused {
        /// Its words.
        reason: String,
    },
    /// Its nonce does not continue ours: the message belongs to another conversation.
    #[error("the broker's nonce does not continue ours; somebody may be replaying another conversation")]
    Nonce,
    /// It asks for too few or too many iterations.
    #[error("the broker asks for {iterations} iterations; between {MIN_ITERATIONS} and {MAX_ITERATIONS} are done")]
    Iterations {
        /// How many it asks for.
        iterations: u64,
    },
    /// It does not know the password either.
    #[error("the broker does not prove that it knows the password; it may not be the one it says it is")]
    ServerSignature,
}

/// The conversation before the server has said anything.
#[derive(Debug)]
pub(crate) struct ScramClient {
    hash: ScramHash,
    password: Secret,
    nonce: String,
    first_bare: String,
}

/// What the server asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    nonce: String,
    salt: Vec<u8>,
    iterations: NonZeroU32,
}

/// The conversation once the proof has been sent: what the server must sign.
pub(crate) struct Expected {
    server_key: hmac::Key,
    auth_message: String,
}

impl std::fmt::Debug for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Expected")
    }
}

impl Challenge {
    /// How many iterations are asked for.
    pub(crate) fn iterations(&self) -> u32 {
        self.iterations.get()
    }
}

impl ScramClient {
    /// A conversation with a nonce of our own, which must be printable ASCII without a comma.
    pub(crate) fn new(hash: ScramHash, username: &str, password: Secret, nonce: String) -> Self {
        // In this order, so that the second does not touch what the first put in.
        let username = username.replace('=', "=3D").replace(',', "=2C");
        let first_bare = format!("n={username},r={nonce}");
        Self { hash, password, nonce, first_bare }
    }

    /// The client's first message: no channel binding, no other identity.
    pub(crate) fn first(&self) -> String {
        format!("n,,{}", self.first_bare)
    }

    /// Reads the server's first message.
    pub(crate) fn challenge(&self, message: &[u8]) -> Result<Challenge, ScramError> {
        let malformed = |what| ScramError::Malformed { what };
        let text = text(message)?;
        let mut fields = text.split(',');
        let mut field = |name: char, what| match fields.next().and_then(|field| field.strip_prefix(name)) {
            Some(rest) => rest.strip_prefix('=').ok_or(malformed(what)),
            None => Err(malformed(what)),
        };
        if let Some(reason) = text.strip_prefix("e=") {
            return Err(ScramError::Refused { reason: quoted(reason) });
        }
        if text.starts_with("m=") {
            return Err(malformed("it needs an extension (m=) that is not known"));
        }
        let nonce = field('r', "r= is missing")?;
        let salt = field('s', "s= is missing")?;
        let iterations = field('i', "i= is missing")?;
        let continues = nonce.strip_prefix(self.nonce.as_str()).is_some_and(|theirs| !theirs.is_empty());
        if !continues || !nonce.bytes().all(|byte| matches!(byte, 0x21..=0x7e)) {
            return Err(ScramError::Nonce);
        }
        let salt = BASE64.decode(salt).map_err(|_| malformed("the salt is not base64"))?;
        if salt.is_empty() {
            return Err(malformed("the salt is empty"));
        }
        let digits = !iterations.is_empty() && iterations.bytes().all(|byte| byte.is_ascii_digit());
        let iterations = digits.then(|| iterations.parse::<u64>().unwrap_or(u64::MAX));
        let iterations = iterations.ok_or(malformed("the number of iterations is none"))?;
        let allowed = u32::try_from(iterations).ok().filter(|i| (MIN_ITERATIONS..=MAX_ITERATIONS).contains(i));
        let iterations = allowed.and_then(NonZeroU32::new).ok_or(ScramError::Iterations { iterations })?;
        Ok(Challenge { nonce: nonce.to_owned(), salt, iterations })
    }

    /// The client's final message, and what the server must answer. `message` is what [`Self::challenge`] read. This takes
    /// as long as the iterations take.
    pub(crate) fn prove(&self, message: &[u8], challenge: &Challenge) -> Result<(String, Expected), ScramError> {
        let server_first = text(message)?;
        let Challenge { nonce, salt, iterations } = challenge;
        // `biws` is base64 of the `n,,` of the first message.
        let without_proof = format!("c=biws,r={nonce}");
        let auth_message = format!("{},{server_first},{without_proof}", self.first_bare);

        let algorithm = self.hash.hmac();
        let mut salted = vec![0; self.hash.digest().output_len()];
        pbkdf2::derive(self.hash.pbkdf2(), *iterations, salt, self.password.expose().as_bytes(), &mut salted);
        let salted = hmac::Key::new(algorithm, &salted);
        let client_key = hmac::sign(&salted, b"Client Key");
        let stored_key = digest::digest(self.hash.digest(), client_key.as_ref());
        let signature = hmac::sign(&hmac::Key::new(algorithm, stored_key.as_ref()), auth_message.as_bytes());
        let proof: Vec<u8> = client_key.as_ref().iter().zip(signature.as_ref()).map(|(a, b)| a ^ b).collect();
        let server_key = hmac::Key::new(algorithm, hmac::sign(&salted, b"Server Key").as_ref());
        Ok((format!("{without_proof},p={}", BASE64.encode(proof)), Expected { server_key, auth_message }))
    }
}

impl Expected {
    /// Checks the server's final message: it must prove that it knows the password too.
    pub(crate) fn verify(&self, message: &[u8]) -> Result<(), ScramError> {
        let text = text(message)?;
        if let Some(reason) = text.strip_prefix("e=") {
            return Err(ScramError::Refused { reason: quoted(reason) });
        }
        let signature = text.strip_prefix("v=").ok_or(ScramError::Malformed { what: "v= is missing" })?;
        let signature = signature.split(',').next().unwrap_or_default();
        let signature =
            BASE64.decode(signature).map_err(|_| ScramError::Malformed { what: "the signature is not base64" })?;
        // In constant time.
        hmac::verify(&self.server_key, self.auth_message.as_bytes(), &signature)
            .map_err(|_| ScramError::ServerSignature)
    }
}

fn text(message: &[u8]) -> Result<&str, ScramError> {
    if message.len() > LONGEST_MESSAGE {
        return Err(ScramError::Malformed { what: "it is longer than 4 KiB" });
    }
    std::str::from_utf8(message).map_err(|_| ScramError::Malformed { what: "it is not UTF-8" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The conversation of RFC 7677, section 3.
    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const SERVER_FIRST: &[u8] =
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    fn client() -> ScramClient {
        ScramClient::new(ScramHash::Sha256, "user", Secret::new("pencil"), NONCE.to_owned())
    }

    #[test]
    fn the_conversation_of_rfc_7677_is_spoken_to_the_letter() {
        let client = client();
        assert_eq!(client.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let challenge = client.challenge(SERVER_FIRST).unwrap();
        let (last, expected) = client.prove(SERVER_FIRST, &challenge).unwrap();
        let proof = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                     p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(last, proof);
        expected.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").unwrap();
        for wrong in [&b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5="[..], b"v=", b"v=AAAA"] {
            assert!(expected.verify(wrong).is_err());
        }
        let refused = expected.verify(b"e=invalid-proof").unwrap_err();
        assert_eq!(refused, ScramError::Refused { reason: "invalid-proof".to_owned() });
    }

    #[test]
    fn a_server_that_does_not_know_the_password_is_found_out() {
        let client = client();
        let challenge = client.challenge(SERVER_FIRST).unwrap();
        let (_, expected) = client.prove(SERVER_FIRST, &challenge).unwrap();
        let signature = BASE64.encode([7; 32]);
        assert_eq!(expected.verify(format!("v={signature}").as_bytes()), Err(ScramError::ServerSignature));
    }

    #[test]
    fn names_with_commas_and_equal_signs_are_escaped() {
        let client = ScramClient::new(ScramHash::Sha512, "a=b,c=2C", Secret::new("x"), "n".to_owned());
        assert_eq!(client.first(), "n,,n=a=3Db=2Cc=3D2C,r=n");
    }

    #[test]
    fn iterations_are_bounded_both_ways() {
        let ask = |iterations: &str| {
            let message = format!("r={NONCE}x,s=AAAA,i={iterations}");
            client().challenge(message.as_bytes())
        };
        assert!(ask("4096").is_ok() && ask("16384").is_ok() && ask("200000").is_ok());
        for (text, iterations) in
            [("4095", 4095), ("1", 1), ("0", 0), ("200001", 200_001), ("99999999999999999999", u64::MAX)]
        {
            assert_eq!(ask(text), Err(ScramError::Iterations { iterations }), "{text}");
        }
        for text in ["", "-1", "+5000", "5e3"] {
            assert!(matches!(ask(text), Err(ScramError::Malformed { .. })), "{text}");
        }
    }

    #[test]
    fn a_nonce_that_is_not_ours_or_adds_nothing_is_refused() {
        for nonce in ["other", NONCE, "rOprNGfwEbeRWgbNEkqP0", ""] {
            let message = format!("r={nonce},s=AAAA,i=4096");
            assert_eq!(client().challenge(message.as_bytes()), Err(ScramError::Nonce), "{nonce}");
        }
    }

    #[test]
    fn every_cut_and_every_other_order_is_malformed_and_not_a_panic() {
        for cut in 0..SERVER_FIRST.len() - b"096".len() {
            assert!(client().challenge(&SERVER_FIRST[..cut]).is_err(), "cut at {cut}");
        }
        for message in ["s=AAAA,r=x,i=4096", "m=1,r=x", "r", "=", "r=,s=,i=", "\u{fc}"] {
            assert!(client().challenge(message.as_bytes()).is_err(), "{message}");
        }
        assert!(client().challenge(&[b'r'; 5_000]).is_err());
        assert!(client().challenge(&[0xff, 0xfe]).is_err());
        let refused = client().challenge(b"e=unknown-user").unwrap_err();
        assert_eq!(refused, ScramError::Refused { reason: "unknown-user".to_owned() });
    }
}
