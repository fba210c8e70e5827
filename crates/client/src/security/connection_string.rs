//! Azure Event Hubs connection strings, as the portal shows them. Pure.
//!
//! `Endpoint=sb://NAMESPACE.servicebus.windows.net/;SharedAccessKeyName=NAME;SharedAccessKey=KEY[;EntityPath=HUB]`. Event
//! Hubs' Kafka endpoint takes the whole string as the password of the user `$ConnectionString`, over SASL PLAIN and TLS.

use super::Security;
use super::sasl::Sasl;
use super::secret::Secret;
use super::tls::TlsSettings;

/// The Kafka endpoint of a namespace.
const PORT: u16 = 9093;

/// That of the emulator, which speaks no TLS.
const EMULATOR_PORT: u16 = 9092;

/// What every connection string has for a user name.
const USERNAME: &str = "$ConnectionString";

/// What a connection string says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionString {
    host: String,
    entity_path: Option<String>,
    emulator: bool,
    whole: Secret,
}

/// A connection string cannot be used. No variant repeats a part of it that may be the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionStringError {
    /// There is nothing.
    #[error("the connection string is empty")]
    Empty,
    /// It stands in quotes.
    #[error("the connection string stands in quotes; give it without them")]
    Quotes,
    /// It stands in braces, or in the manual's placeholder.
    #[error(
        "the connection string holds braces or angle brackets copied from a manual; give the string that the portal shows, without them"
    )]
    Braces,
    /// It has a line break or another control character inside.
    #[error("the connection string holds a line break or another control character inside; it must be one line")]
    ControlCharacter,
    /// It begins with the address.
    #[error("the connection string begins with its address; write Endpoint= in front of sb://")]
    NoEndpointName,
    /// It has no endpoint.
    #[error("the connection string has no Endpoint=sb://NAMESPACE.servicebus.windows.net/")]
    NoEndpoint,
    /// The endpoint is no address.
    #[error("the Endpoint of the connection string is not sb://HOST/")]
    Endpoint,
    /// It has no key name.
    #[error("the connection string has no SharedAccessKeyName")]
    NoKeyName,
    /// It has no key.
    #[error(
        "the connection string has no SharedAccessKey; copy the whole string, with its key, from the namespace's shared access policies"
    )]
    NoKey,
    /// It has a signature in place of a key.
    #[error(
        "the connection string has a SharedAccessSignature in place of a SharedAccessKey; a signature expires and cannot be renewed: use a key, or OAUTHBEARER with Entra ID"
    )]
    Signature,
    /// A part has no name.
    #[error("part {number} of the connection string has no `=`; parts are NAME=VALUE, with `;` between them")]
    NoName {
        /// Which part, counted from 1.
        number: usize,
    },
    /// A part has a name that nobody knows.
    #[error(
        "part {number} of the connection string has a name that is not known; the names are Endpoint, SharedAccessKeyName, SharedAccessKey, EntityPath and UseDevelopmentEmulator"
    )]
    UnknownName {
        /// Which part, counted from 1.
        number: usize,
    },
    /// A part is there twice.
    #[error("the connection string has {name} twice")]
    Twice {
        /// Its name.
        name: &'static str,
    },
    /// A value is empty.
    #[error("the {name} of the connection string is empty")]
    EmptyValue {
        /// Its name.
        name: &'static str,
    },
}

/// Another topic is asked for than the connection string is for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the topic is {asked:?}, but the connection string is for {entity_path:?} alone (its EntityPath); take the namespace's own connection string, or ask for that topic"
)]
pub struct OtherTopic {
    /// The topic asked for.
    pub asked: String,
    /// The connection string's.
    pub entity_path: String,
}

const NAMES: [&str; 6] = [
    "Endpoint",
    "SharedAccessKeyName",
    "SharedAccessKey",
    "EntityPath",
    "UseDevelopmentEmulator",
    "SharedAccessSignature",
];

impl ConnectionString {
    /// Reads `text`. White space around it, a line break behind it and a final `;` are let pass; the order does not matter,
    /// neither does the case of the names.
    ///
    /// # Errors
    /// [`ConnectionStringError`]; it repeats nothing that may be the key.
    pub fn parse(text: &str) -> Result<Self, ConnectionStringError> {
        let text = text.trim();
        match (text.chars().next(), text.chars().next_back()) {
            (None, _) => return Err(ConnectionStringError::Empty),
            (Some('"' | '\''), _) | (_, Some('"' | '\'')) => return Err(ConnectionStringError::Quotes),
            _ => {}
        }
        if text.contains(['{', '}', '<', '>']) {
            return Err(ConnectionStringError::Braces);
        }
        if text.chars().any(char::is_control) {
            return Err(ConnectionStringError::ControlCharacter);
        }
        if text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("sb://")) {
            return Err(ConnectionStringError::NoEndpointName);
        }
        let mut values: [Option<&str>; NAMES.len()] = [None; NAMES.len()];
        for (at, part) in text.split(';').enumerate() {
            if part.trim().is_empty() {
                continue;
            }
            let number = at + 1;
            // On the first `=` alone: keys end with some of their own.
            let (name, value) = part.split_once('=').ok_or(ConnectionStringError::NoName { number })?;
            let known = NAMES.iter().position(|known| known.eq_ignore_ascii_case(name.trim()));
            let known = known.ok_or(ConnectionStringError::UnknownName { number })?;
            let name = NAMES[known];
            if values[known].replace(value.trim()).is_some() {
                return Err(ConnectionStringError::Twice { name });
            }
            if value.trim().is_empty() {
                return Err(ConnectionStringError::EmptyValue { name });
            }
        }
        let [endpoint, key_name, key, entity_path, emulator, signature] = values;
        let host = host(endpoint.ok_or(ConnectionStringError::NoEndpoint)?)?;
        if signature.is_some() {
            return Err(ConnectionStringError::Signature);
        }
        if key_name.is_none() {
            return Err(ConnectionStringError::NoKeyName);
        }
        if key.is_none() {
            return Err(ConnectionStringError::NoKey);
        }
        Ok(Self {
            host,
            entity_path: entity_path.map(str::to_owned),
            emulator: emulator.is_some_and(|value| value.eq_ignore_ascii_case("true")),
            whole: Secret::new(text.trim_end_matches([';', ' '])),
        })
    }

    /// The broker to ask first, `host:port`.
    pub fn bootstrap(&self) -> String {
        let port = if self.emulator { EMULATOR_PORT } else { PORT };
        format!("{}:{port}", self.host)
    }

    /// How to connect: SASL PLAIN with the whole string for a password; over TLS, but to the emulator.
    pub fn security(&self) -> Security {
        let sasl = Sasl::Plain { username: USERNAME.to_owned(), password: self.whole.clone() };
        Security { tls: (!self.emulator).then(TlsSettings::default), sasl: Some(sasl) }
    }

    /// The one event hub that it is for, which is the default topic; `None`: it is for the whole namespace.
    pub fn entity_path(&self) -> Option<&str> {
        self.entity_path.as_deref()
    }

    /// The topic to use when `asked` is asked for.
    ///
    /// # Errors
    /// [`OtherTopic`] when the string is for another.
    pub fn topic<'a>(&'a self, asked: Option<&'a str>) -> Result<Option<&'a str>, OtherTopic> {
        match (self.entity_path.as_deref(), asked) {
            (Some(entity_path), Some(asked)) if entity_path != asked => {
                Err(OtherTopic { asked: asked.to_owned(), entity_path: entity_path.to_owned() })
            }
            (entity_path, asked) => Ok(asked.or(entity_path)),
        }
    }
}

/// The host of `sb://HOST[:PORT]/`. The port is AMQP's.
fn host(endpoint: &str) -> Result<String, ConnectionStringError> {
    let rest = endpoint.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("sb://")).map(|_| &endpoint[5..]);
    let authority = rest.ok_or(ConnectionStringError::Endpoint)?.split('/').next().unwrap_or_default();
    let host = authority.split_once(':').map_or(authority, |(host, _)| host);
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    if host.is_empty() || !host.chars().all(allowed) {
        return Err(ConnectionStringError::Endpoint);
    }
    Ok(host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "QUJDREVGR0g+/aa==";
    const PLAIN: &str =
        "Endpoint=sb://ns1.servicebus.windows.net/;SharedAccessKeyName=reader;SharedAccessKey=QUJDREVGR0g+/aa==";

    fn password(string: &ConnectionString) -> String {
        let Some(Sasl::Plain { username, password }) = string.security().sasl else { panic!("not PLAIN") };
        assert_eq!(username, "$ConnectionString");
        password.expose().to_owned()
    }

    #[test]
    fn the_string_of_the_portal_gives_broker_user_and_password() {
        let string = ConnectionString::parse(PLAIN).unwrap();
        assert_eq!(string.bootstrap(), "ns1.servicebus.windows.net:9093");
        assert_eq!(password(&string), PLAIN);
        assert!(string.security().tls.is_some());
        assert_eq!(string.topic(None), Ok(None));
        assert_eq!(string.topic(Some("hub1")), Ok(Some("hub1")));
    }

    #[test]
    fn an_entity_path_is_the_default_topic_and_refuses_another_with_both_names() {
        let string = ConnectionString::parse(&format!("{PLAIN};EntityPath=hub1")).unwrap();
        assert_eq!(string.topic(None), Ok(Some("hub1")));
        assert_eq!(string.topic(Some("hub1")), Ok(Some("hub1")));
        let error = string.topic(Some("hub2")).unwrap_err().to_string();
        assert!(error.contains("\"hub1\"") && error.contains("\"hub2\"") && !error.contains(KEY), "{error}");
        assert_eq!(password(&string), format!("{PLAIN};EntityPath=hub1"));
    }

    #[test]
    fn order_spaces_line_breaks_and_a_last_semicolon_do_not_matter() {
        let reordered = "SharedAccessKey=QUJDREVGR0g+/aa==;EntityPath=hub1;SharedAccessKeyName=reader;\
                         Endpoint=sb://ns1.servicebus.windows.net/";
        for text in [format!("{PLAIN};"), format!("{PLAIN} "), format!("{PLAIN}\n"), format!("\u{20}{PLAIN} ;\r\n")] {
            let string = ConnectionString::parse(&text).unwrap();
            assert_eq!(
                (string.bootstrap().as_str(), password(&string).as_str()),
                ("ns1.servicebus.windows.net:9093", PLAIN)
            );
        }
        let string = ConnectionString::parse(reordered).unwrap();
        assert_eq!((string.entity_path(), password(&string).as_str()), (Some("hub1"), reordered));
    }

    #[test]
    fn every_slip_has_its_own_message_and_none_shows_the_key() {
        let bare = PLAIN.trim_start_matches("Endpoint=");
        let without_key = PLAIN.replace(&format!(";SharedAccessKey={KEY}"), "");
        for (text, error) in [
            (String::new(), ConnectionStringError::Empty),
            (format!("\"{PLAIN}\""), ConnectionStringError::Quotes),
            (format!("{PLAIN}'"), ConnectionStringError::Quotes),
            (format!("{{{PLAIN}}}"), ConnectionStringError::Braces),
            (PLAIN.replace("ns1", "<namespace>"), ConnectionStringError::Braces),
            (PLAIN.replace(";Shared", ";\nShared"), ConnectionStringError::ControlCharacter),
            (bare.to_owned(), ConnectionStringError::NoEndpointName),
            (format!("SharedAccessKeyName=reader;SharedAccessKey={KEY}"), ConnectionStringError::NoEndpoint),
            (PLAIN.replace("sb://", "https://"), ConnectionStringError::Endpoint),
            (PLAIN.replace("sb://ns1.servicebus.windows.net/", "sb:///"), ConnectionStringError::Endpoint),
            (PLAIN.replace("SharedAccessKeyName=reader;", ""), ConnectionStringError::NoKeyName),
            (without_key.clone(), ConnectionStringError::NoKey),
            (
                format!("{without_key};SharedAccessSignature=SharedAccessSignature sr=x&sig={KEY}"),
                ConnectionStringError::Signature,
            ),
            (PLAIN.replace("SharedAccessKey=", ""), ConnectionStringError::UnknownName { number: 3 }),
            (PLAIN.replace("SharedAccessKeyName=", ""), ConnectionStringError::NoName { number: 2 }),
            (format!("{PLAIN};SharedAccessKey={KEY}"), ConnectionStringError::Twice { name: "SharedAccessKey" }),
            (format!("{PLAIN};EntityPath="), ConnectionStringError::EmptyValue { name: "EntityPath" }),
            (PLAIN.replace(KEY, ""), ConnectionStringError::EmptyValue { name: "SharedAccessKey" }),
        ] {
            let found = ConnectionString::parse(&text).unwrap_err();
            assert_eq!(found, error, "{text}");
            assert!(!found.to_string().contains("QUJD"), "{found}");
        }
    }

    #[test]
    fn the_emulator_is_reached_without_tls() {
        let text = "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;\
                    UseDevelopmentEmulator=true;";
        let string = ConnectionString::parse(text).unwrap();
        assert_eq!(string.bootstrap(), "localhost:9092");
        assert!(string.security().tls.is_none());
    }

    #[test]
    fn debug_output_shows_no_key() {
        assert!(!format!("{:?}", ConnectionString::parse(PLAIN).unwrap()).contains("QUJD"));
    }

    #[test]
    fn every_cut_is_an_answer_and_not_a_panic() {
        let text = format!("{PLAIN};EntityPath=hub\u{e4}");
        for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            let _ = ConnectionString::parse(&text[..cut]);
        }
    }
}
