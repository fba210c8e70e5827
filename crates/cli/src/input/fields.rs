//! Takes single fields out of a JSON text without building a document of it, and checks on the way that the text is one
//! JSON value.

use std::fmt;

use serde::Deserializer as _;
use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// A field's place: the name of a top-level field, or a JSON pointer (RFC 6901) when it begins with `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldPath(Vec<String>);

impl std::str::FromStr for FieldPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix('/') {
            Some(pointer) => {
                Ok(Self(pointer.split('/').map(|part| part.replace("~1", "/").replace("~0", "~")).collect()))
            }
            None if text.is_empty() => Err("the field's name is empty".to_owned()),
            None => Ok(Self(vec![text.to_owned()])),
        }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [name] => f.write_str(name),
            parts => parts.iter().try_for_each(|part| write!(f, "/{}", part.replace('~', "~0").replace('/', "~1"))),
        }
    }
}

/// Checks that `json` is one JSON value and nothing more, and takes the JSON text of each of `paths` from it. A path that
/// leads nowhere gives `None`; of a name that stands twice the last one counts.
pub(crate) fn pick<'a, const N: usize>(
    json: &'a str,
    paths: [Option<&FieldPath>; N],
) -> Result<[Option<&'a str>; N], serde_json::Error> {
    let mut found = [None; N];
    let heads = paths.map(|path| path.and_then(|path| path.0.first()).map(String::as_str));
    let mut deserializer = serde_json::Deserializer::from_str(json);
    deserializer.deserialize_any(Fields { heads: &heads, found: &mut found })?;
    deserializer.end()?;
    for (found, path) in found.iter_mut().zip(paths) {
        for part in path.iter().flat_map(|path| &path.0[1..]) {
            let Some(json) = *found else { break };
            let mut inner = [None];
            let mut deserializer = serde_json::Deserializer::from_str(json);
            deserializer.deserialize_any(Fields { heads: &[Some(part.as_str())], found: &mut inner })?;
            *found = inner[0];
        }
    }
    Ok(found)
}

/// Keeps the values of the named fields of one object, or elements of one array, and skips all else.
struct Fields<'f, 'a, const N: usize> {
    heads: &'f [Option<&'f str>; N],
    found: &'f mut [Option<&'a str>; N],
}

impl<'a, const N: usize> Visitor<'a> for Fields<'_, 'a, N> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(wanted) = map.next_key_seed(Which(self.heads))? {
            if wanted.contains(&true) {
                set(wanted, self.found, map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut index = 0_usize;
        loop {
            let text = index.to_string();
            let wanted = self.heads.map(|head| head == Some(text.as_str()));
            if wanted.contains(&true) {
                let Some(value) = seq.next_element::<&RawValue>()? else { return Ok(()) };
                set(wanted, self.found, value);
            } else if seq.next_element::<IgnoredAny>()?.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

fn set<'a, const N: usize>(wanted: [bool; N], found: &mut [Option<&'a str>; N], value: &'a RawValue) {
    for (found, wanted) in found.iter_mut().zip(wanted) {
        if wanted {
            *found = Some(value.get());
        }
    }
}

/// Which of the names a key is.
struct Which<'f, const N: usize>(&'f [Option<&'f str>; N]);

impl<'de, const N: usize> DeserializeSeed<'de> for Which<'_, N> {
    type Value = [bool; N];

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<[bool; N], D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<const N: usize> Visitor<'_> for Which<'_, N> {
    type Value = [bool; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E>(self, key: &str) -> Result<[bool; N], E> {
        Ok(self.0.map(|head| head == Some(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one<'a>(json: &'a str, path: &str) -> Result<Option<&'a str>, serde_json::Error> {
        pick(json, [Some(&path.parse().unwrap())]).map(|[found]| found)
    }

    #[test]
    fn fields_come_out_as_their_json_text() {
        let json = r#"{"a": 9007199254740993, "b" : {"c/d":[10, {"e":"x"}]}, "t":"2013-01-01T00:00:00Z"}"#;
        assert_eq!(one(json, "a").unwrap(), Some("9007199254740993"));
        assert_eq!(one(json, "/b/c~1d/1/e").unwrap(), Some("\"x\""));
        assert_eq!(one(json, "/b/c~1d/0").unwrap(), Some("10"));
        assert_eq!(one(json, "b.c").unwrap(), None);
        assert_eq!(one(json, "/b/c~1d/7").unwrap(), None);
        assert_eq!(one(json, "/a/x").unwrap(), None);
        let both = pick(json, [Some(&"t".parse().unwrap()), None, Some(&"a".parse().unwrap())]).unwrap();
        assert_eq!(both, [Some("\"2013-01-01T00:00:00Z\""), None, Some("9007199254740993")]);
    }

    #[test]
    fn a_value_that_is_no_object_has_no_fields() {
        for json in ["1", "-1.5", "\"text\"", "\"es\\ncaped\"", "null", "true", "[]"] {
            assert_eq!(one(json, "a").unwrap(), None, "{json}");
        }
    }

    #[test]
    fn two_values_on_a_line_and_broken_ones_are_refused() {
        for json in [r#"{"a":1} {"b":2}"#, r#"{"a":1}x"#, r#"{"a":"#, "", r#"{"a":1,}"#, "{\"a\":\"\u{1}\"}"] {
            assert!(one(json, "a").is_err(), "{json}");
        }
    }

    #[test]
    fn a_name_may_be_written_with_escapes() {
        assert_eq!(one(r#"{"\u0061":1}"#, "a").unwrap(), Some("1"));
    }
}
