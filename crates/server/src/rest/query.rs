//! The query of a request, read strictly: a parameter that nobody knows, or one given twice, is an error and not ignored.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use tidegate_api::{ApiError, Code};

/// The parameters of one request.
#[derive(Debug)]
pub(super) struct Query<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Query<'a> {
    /// Reads a query; `known` are the names that the path takes.
    pub(super) fn parse<S: AsRef<str>>(raw: Option<&'a str>, known: &[S]) -> Result<Self, ApiError> {
        let mut pairs = Vec::new();
        for part in raw.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let name = decode(name)?;
            if !known.iter().any(|known| known.as_ref() == name) {
                return Err(unknown(&name, known));
            }
            let value = decode(value)?;
            if value.is_empty() {
                let message = format!("the parameter {name} is empty; leave it out or give it a value");
                return Err(ApiError::new(Code::InvalidArgument, message).with("field", &name));
            }
            pairs.push((name, value));
        }
        Ok(Self { pairs })
    }

    /// Which of `names` the request gives.
    pub(super) fn given<'n>(&self, names: &[&'n str]) -> Vec<&'n str> {
        names.iter().copied().filter(|name| self.pairs.iter().any(|(given, _)| given == name)).collect()
    }

    /// A parameter that may be given once.
    pub(super) fn one(&self, name: &str) -> Result<Option<&str>, ApiError> {
        let mut values = self.all(name);
        let first = values.next();
        if values.next().is_some() {
            let message = format!("the parameter {name} is given more than once");
            return Err(ApiError::new(Code::InvalidArgument, message).with("field", name));
        }
        Ok(first)
    }

    /// A parameter that may be given often.
    pub(super) fn all<'q>(&'q self, name: &str) -> impl Iterator<Item = &'q str> + use<'q, 'a> {
        let name = name.to_owned();
        self.pairs.iter().filter(move |(given, _)| *given == name).map(|(_, value)| &**value)
    }

    /// A number that may be given once.
    pub(super) fn number<N: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<N>, ApiError> {
        self.one(name)?.map(|text| number(name, text)).transpose()
    }

    /// One of several words, given at most once.
    pub(super) fn word<W: Copy>(&self, name: &str, words: &[(&str, W)]) -> Result<Option<W>, ApiError> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let found = words.iter().find(|(word, _)| *word == text);
        found.map(|(_, meaning)| Some(*meaning)).ok_or_else(|| {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let message = format!("{name}={text} is not known; {name} is one of {}", words.join(", "));
            invalid(name, text, message)
        })
    }

    /// Numbers that may be given often, and several at a time with commas between them.
    pub(super) fn numbers<N: FromStr<Err: Display>>(&self, name: &str) -> Result<Vec<N>, ApiError> {
        self.all(name).flat_map(|list| list.split(',')).map(|text| number(name, text)).collect()
    }
}

fn number<N: FromStr<Err: Display>>(name: &str, text: &str) -> Result<N, ApiError> {
    text.parse().map_err(|error: N::Err| invalid(name, text, format!("{name}={text} is not a number for it: {error}")))
}

fn invalid(name: &str, value: &str, message: String) -> ApiError {
    ApiError::new(Code::InvalidArgument, message).with("field", name).with("value", value)
}

fn unknown<S: AsRef<str>>(name: &str, known: &[S]) -> ApiError {
    // A slip of the pen in every third letter at most: letters left out, added, taken for others, or two swapped.
    let close = known
        .iter()
        .map(|known| (known.as_ref(), strsim::damerau_levenshtein(known.as_ref(), name)))
        .filter(|(known, slips)| slips * 3 <= known.len())
        .min_by_key(|(_, slips)| *slips);
    let hint = match close {
        Some((close, _)) => format!("did you mean {close}?"),
        None if known.is_empty() => "this path takes none".to_owned(),
        None => {
            let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
            format!("the parameters are {}", known.join(", "))
        }
    };
    let error = ApiError::new(Code::InvalidArgument, format!("unknown parameter {name:?}; {hint}")).with("field", name);
    match close {
        Some((close, _)) => error.with("suggestion", close),
        None => error,
    }
}

/// Undoes percent-encoding; a `+` is a space, as forms write it.
fn decode(text: &str) -> Result<Cow<'_, str>, ApiError> {
    if !text.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
        return Ok(Cow::Borrowed(text));
    }
    let bad = || ApiError::new(Code::InvalidArgument, format!("{text:?} in the query is not percent-encoded UTF-8"));
    let hex = |digit: Option<u8>| digit.and_then(|digit| char::from(digit).to_digit(16)).ok_or_else(bad);
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => (hex(bytes.next())? * 16 + hex(bytes.next())?).to_le_bytes()[0],
            b'+' => b' ',
            _ => byte,
        });
    }
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] = ["from", "until", "partition", "limit", "isolation"];

    fn error(raw: &str) -> String {
        Query::parse(Some(raw), &KNOWN).unwrap_err().message
    }

    #[test]
    fn values_are_decoded_and_a_plus_is_a_space() {
        let query = Query::parse(Some("from=2013-02-01T00%3A00%3A00%2B02:00&until=a+b%20c&"), &KNOWN).unwrap();
        assert_eq!(query.one("from").unwrap(), Some("2013-02-01T00:00:00+02:00"));
        assert_eq!(query.one("until").unwrap(), Some("a b c"));
        assert_eq!(query.one("limit").unwrap(), None);
        assert_eq!(query.given(&["limit", "until", "from"]), ["until", "from"]);
    }

    #[test]
    fn an_unknown_parameter_is_refused_with_the_one_that_was_meant() {
        assert_eq!(error("form=now"), "unknown parameter \"form\"; did you mean from?");
        assert_eq!(error("partitions=1"), "unknown parameter \"partitions\"; did you mean partition?");
        assert_eq!(error("isolaton=1"), "unknown parameter \"isolaton\"; did you mean isolation?");
        assert_eq!(
            error("zzz=1"),
            "unknown parameter \"zzz\"; the parameters are from, until, partition, limit, isolation"
        );
        let none: [&str; 0] = [];
        let message = Query::parse(Some("a=1"), &none).unwrap_err().message;
        assert_eq!(message, "unknown parameter \"a\"; this path takes none");
    }

    #[test]
    fn a_parameter_given_twice_or_without_a_value_is_refused() {
        let query = Query::parse(Some("from=now&from=now"), &KNOWN).unwrap();
        assert_eq!(query.one("from").unwrap_err().message, "the parameter from is given more than once");
        for empty in ["from=", "from", "from=&until=now"] {
            assert_eq!(error(empty), "the parameter from is empty; leave it out or give it a value");
        }
    }

    #[test]
    fn a_list_may_be_repeated_or_separated_by_commas() {
        let query = Query::parse(Some("partition=0,2&partition=5"), &KNOWN).unwrap();
        assert_eq!(query.numbers::<i32>("partition").unwrap(), [0, 2, 5]);
        let query = Query::parse(Some("partition=0,,1"), &KNOWN).unwrap();
        assert!(query.numbers::<i32>("partition").is_err());
    }

    #[test]
    fn a_number_or_word_that_is_none_is_named() {
        let query = Query::parse(Some("limit=-1&isolation=none"), &KNOWN).unwrap();
        let message = query.number::<u64>("limit").unwrap_err().message;
        assert_eq!(message, "limit=-1 is not a number for it: invalid digit found in string");
        let words = [("read_committed", 1), ("read_uncommitted", 2)];
        let message = query.word("isolation", &words).unwrap_err().message;
        assert_eq!(message, "isolation=none is not known; isolation is one of read_committed, read_uncommitted");
    }

    #[test]
    fn broken_percent_encoding_is_refused() {
        for raw in ["from=%", "from=%2", "from=%zz", "from=%ff", "%ff=1"] {
            assert!(error(raw).ends_with("is not percent-encoded UTF-8"), "{raw}");
        }
    }
}
