//! Secrets in a configuration: never in the file itself, but in the environment or in a file of their own.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use tidegate_client::Secret;

/// Passwords, keys and connection strings are shorter.
const LONGEST: u64 = 64 << 10;

/// Where a secret stands: `{env: NAME}` or `{file: PATH}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SecretSource {
    /// In this environment variable.
    Env(String),
    /// In this file, whose last line break does not count.
    File(PathBuf),
}

/// A text that may stand in the file, or where a secret may stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TextSource {
    /// Here.
    Plain(String),
    /// Elsewhere.
    Elsewhere(SecretSource),
}

impl SecretSource {
    /// Makes a path count from `base`.
    pub(crate) fn resolve(&mut self, base: &Path) {
        if let Self::File(path) = self {
            *path = base.join(&*path);
        }
    }

    /// The secret itself. `key` is the setting that it belongs to, for messages.
    pub(crate) fn read(&self, key: &str) -> Result<Secret, String> {
        let text = match self {
            Self::Env(name) => match std::env::var(name) {
                Ok(text) => text,
                Err(std::env::VarError::NotPresent) => {
                    return Err(format!("{key}: the environment variable {name} is not set"));
                }
                Err(std::env::VarError::NotUnicode(_)) => {
                    return Err(format!("{key}: the environment variable {name} is not UTF-8"));
                }
            },
            Self::File(path) => {
                let mut text = String::new();
                let read = File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text));
                read.map_err(|error| format!("{key}: cannot read {}: {error}", path.display()))?;
                if text.len() as u64 > LONGEST {
                    return Err(format!("{key}: {} is larger than 64 KiB; that is no secret", path.display()));
                }
                // What an editor or `echo` puts there.
                if text.ends_with('\n') {
                    text.pop();
                    if text.ends_with('\r') {
                        text.pop();
                    }
                }
                text
            }
        };
        if text.is_empty() {
            let place = match self {
                Self::Env(name) => format!("the environment variable {name}"),
                Self::File(path) => path.display().to_string(),
            };
            return Err(format!("{key}: {place} is empty"));
        }
        Ok(Secret::new(text))
    }
}

impl TextSource {
    /// Makes a path count from `base`.
    pub(crate) fn resolve(&mut self, base: &Path) {
        if let Self::Elsewhere(source) = self {
            source.resolve(base);
        }
    }

    /// The text itself. `key` is the setting that it belongs to, for messages.
    pub(crate) fn read(&self, key: &str) -> Result<String, String> {
        match self {
            Self::Plain(text) => Ok(text.clone()),
            Self::Elsewhere(source) => source.read(key).map(|secret| secret.expose().to_owned()),
        }
    }
}

/// What both forms have in common.
fn source<'de, A: MapAccess<'de>>(mut map: A) -> Result<SecretSource, A::Error> {
    const KEYS: &[&str] = &["env", "file"];
    let mut found = None;
    while let Some(key) = map.next_key::<String>()? {
        if found.is_some() {
            return Err(de::Error::custom("either env or file, and once"));
        }
        found = Some(match key.as_str() {
            "env" => SecretSource::Env(map.next_value()?),
            "file" => SecretSource::File(map.next_value()?),
            other => return Err(de::Error::unknown_field(other, KEYS)),
        });
    }
    found.ok_or_else(|| de::Error::custom("a secret is {env: NAME} or {file: PATH}"))
}

impl<'de> Deserialize<'de> for SecretSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Source;

        /// Says nothing of the value: it is a secret.
        const PLAIN: &str = "a secret does not stand in a configuration file; write {env: NAME} for an environment \
                             variable or {file: PATH} for a file that holds it and nothing else";

        impl<'de> Visitor<'de> for Source {
            type Value = SecretSource;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("{env: NAME} or {file: PATH}")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SecretSource, A::Error> {
                source(map)
            }

            fn visit_str<E: de::Error>(self, _: &str) -> Result<SecretSource, E> {
                Err(E::custom(PLAIN))
            }

            fn visit_i64<E: de::Error>(self, _: i64) -> Result<SecretSource, E> {
                Err(E::custom(PLAIN))
            }

            fn visit_u64<E: de::Error>(self, _: u64) -> Result<SecretSource, E> {
                Err(E::custom(PLAIN))
            }

            fn visit_i128<E: de::Error>(self, _: i128) -> Result<SecretSource, E> {
                Err(E::custom(PLAIN))
            }

            fn visit_u128<E: de::Error>(self, _: u128) -> Result<SecretSource, E> {
                Err(E::custom(PLAIN))
            }

            fn visit_f64<E: de::Error>(self, _: f64) -> Result<SecretSource, E> {
                Err(E::custom(PLAIN))
            }

            fn visit_bool<E: de::Error>(self, _: bool) -> Result<SecretSource, E> {
                Err(E::custom(PLAIN))
            }
        }

        deserializer.deserialize_any(Source)
    }
}

impl<'de> Deserialize<'de> for TextSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = TextSource;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, {env: NAME} or {file: PATH}")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TextSource, A::Error> {
                source(map).map(TextSource::Elsewhere)
            }

            fn visit_str<E>(self, text: &str) -> Result<TextSource, E> {
                Ok(TextSource::Plain(text.to_owned()))
            }
        }

        deserializer.deserialize_any(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(yaml: &str) -> Result<SecretSource, String> {
        serde_yaml_ng::from_str(yaml).map_err(|error| error.to_string())
    }

    #[test]
    fn a_secret_stands_in_the_environment_or_in_a_file() {
        assert_eq!(parse("{env: PASSWORD}"), Ok(SecretSource::Env("PASSWORD".to_owned())));
        let mut file = parse("{file: secrets/p}").unwrap();
        file.resolve(Path::new("dir"));
        assert_eq!(file, SecretSource::File("dir/secrets/p".into()));
        assert!(parse("{env: A, file: b}").unwrap_err().contains("either env or file"));
        assert!(parse("{}").unwrap_err().contains("{env: NAME}"));
    }

    #[test]
    fn a_secret_in_the_file_itself_is_refused_and_not_repeated() {
        let numbers = ["22778899", "-22778899", "2.277889", "227788992277889922778899", "-227788992277889922778899"];
        for yaml in ["hunter22", "'hunter22'"].into_iter().chain(numbers) {
            let error = parse(yaml).unwrap_err();
            assert!(error.contains("{env: NAME}") && !error.contains("22"), "{error}");
        }
    }

    #[test]
    fn a_file_gives_what_it_holds_without_its_last_line_break() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (held, expected) in [("a b\n", "a b"), ("a\r\n", "a"), ("a\n\n", "a\n"), (" a", " a")] {
            std::fs::write(file.path(), held).unwrap();
            let secret = SecretSource::File(file.path().to_owned()).read("sasl.password").unwrap();
            assert_eq!(secret.expose(), expected);
        }
        std::fs::write(file.path(), "\n").unwrap();
        let empty = SecretSource::File(file.path().to_owned()).read("sasl.password").unwrap_err();
        assert!(empty.starts_with("sasl.password: ") && empty.ends_with("is empty"), "{empty}");
    }

    #[test]
    fn what_is_missing_is_named_with_its_setting() {
        let env = SecretSource::Env("TIDEGATE_NO_SUCH_VARIABLE".to_owned()).read("sasl.password").unwrap_err();
        assert_eq!(env, "sasl.password: the environment variable TIDEGATE_NO_SUCH_VARIABLE is not set");
        let file = SecretSource::File("no/such".into()).read("sasl.password").unwrap_err();
        assert!(file.contains("sasl.password: cannot read no/such"), "{file}");
    }
}
