//! A pull reader over one JSON text in memory.
//!
//! It keeps no state but a position, so a caller can look ahead in an object and come back. Nothing in it recurses.

use std::borrow::Cow;
use std::fmt;

use crate::MAX_DEPTH;

/// A value is skipped with one bit for each array and object around the place.
const _: () = assert!(MAX_DEPTH <= u128::BITS);

/// Where a JSON text goes wrong, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {problem}")]
pub struct SyntaxError {
    /// Offset into the text, in bytes from 0.
    pub offset: usize,
    /// What is wrong there.
    pub problem: SyntaxProblem,
}

/// What can be wrong with a JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyntaxProblem {
    /// It ends too early.
    End,
    /// Something else should stand here.
    Unexpected {
        /// What should.
        expected: &'static str,
    },
    /// The bytes are not UTF-8.
    NotUtf8,
    /// A control character stands unescaped in a string.
    ControlCharacter,
    /// A backslash begins no escape sequence of JSON.
    Escape,
    /// One half of a UTF-16 surrogate pair is escaped without the other: it stands for no character.
    LoneSurrogate,
    /// A number that JSON has no such form for.
    Number,
    /// Arrays and objects nest too deep.
    Depth {
        /// How deep they may.
        limit: u32,
    },
}

impl fmt::Display for SyntaxProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::End => f.write_str("the text ends too early"),
            Self::Unexpected { expected } => write!(f, "expected {expected}"),
            Self::NotUtf8 => f.write_str("the text is not UTF-8"),
            Self::ControlCharacter => f.write_str("a control character in a string must be escaped"),
            Self::Escape => f.write_str("not an escape sequence of JSON"),
            Self::LoneSurrogate => f.write_str("half a surrogate pair stands for no character"),
            Self::Number => f.write_str("not a number as JSON writes them"),
            Self::Depth { limit } => write!(f, "arrays and objects nest deeper than {limit}"),
        }
    }
}

/// What the next value is, told from its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ahead {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

impl Ahead {
    /// For "expected an object, found …".
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }
}

/// Reads one JSON text from front to back.
#[derive(Clone)]
pub(crate) struct Reader<'j> {
    text: &'j str,
    at: usize,
}

impl<'j> Reader<'j> {
    /// Begins to read `bytes`.
    pub(crate) fn new(bytes: &'j [u8]) -> Result<Self, SyntaxError> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Self { text, at: 0 }),
            Err(error) => Err(SyntaxError { offset: error.valid_up_to(), problem: SyntaxProblem::NotUtf8 }),
        }
    }

    /// Where it stands, in bytes from the beginning of the text.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Looks at the next value without moving past it.
    pub(crate) fn ahead(&mut self) -> Result<Ahead, SyntaxError> {
        match self.skip_whitespace() {
            Some(b'n') => Ok(Ahead::Null),
            Some(b't' | b'f') => Ok(Ahead::Bool),
            Some(b'-' | b'0'..=b'9') => Ok(Ahead::Number),
            Some(b'"') => Ok(Ahead::String),
            Some(b'[') => Ok(Ahead::Array),
            Some(b'{') => Ok(Ahead::Object),
            Some(_) => Err(self.unexpected("a value")),
            None => Err(self.problem(SyntaxProblem::End)),
        }
    }

    pub(crate) fn null(&mut self) -> Result<(), SyntaxError> {
        self.literal("null")
    }

    pub(crate) fn boolean(&mut self) -> Result<bool, SyntaxError> {
        match self.skip_whitespace() {
            Some(b't') => self.literal("true").map(|()| true),
            _ => self.literal("false").map(|()| false),
        }
    }

    /// The text of a number, as it stands.
    pub(crate) fn number(&mut self) -> Result<&'j str, SyntaxError> {
        self.skip_whitespace();
        let start = self.at;
        let length = number_length(&self.text.as_bytes()[start..]);
        if length == 0 {
            return Err(self.problem(SyntaxProblem::Number));
        }
        self.at += length;
        Ok(&self.text[start..self.at])
    }

    /// A string, unescaped; borrowed from the text when nothing in it is escaped.
    pub(crate) fn string(&mut self) -> Result<Cow<'j, str>, SyntaxError> {
        if self.skip_whitespace() != Some(b'"') {
            return Err(self.unexpected("a string"));
        }
        let mut unescaped: Option<String> = None;
        let mut run = self.at + 1;
        let mut at = run;
        loop {
            at += plain_length(&self.text.as_bytes()[at..]);
            match self.text.as_bytes().get(at) {
                Some(b'"') => {
                    let last = &self.text[run..at];
                    self.at = at + 1;
                    return Ok(match unescaped {
                        None => Cow::Borrowed(last),
                        Some(mut text) => {
                            text.push_str(last);
                            Cow::Owned(text)
                        }
                    });
                }
                Some(b'\\') => {
                    let text = unescaped.get_or_insert_default();
                    text.push_str(&self.text[run..at]);
                    let (character, length) = self.escape(at)?;
                    text.push(character);
                    at += length;
                    run = at;
                }
                found => return Err(string_problem(at, found)),
            }
        }
    }

    /// Moves past the `{` of an object. Then call [`Reader::next_key`] until it gives `None`.
    pub(crate) fn begin_object(&mut self) -> Result<(), SyntaxError> {
        self.expect(b'{', "an object")
    }

    /// The next key of an object, past its colon. `first` is true before the first call and is cleared by it.
    pub(crate) fn next_key(&mut self, first: &mut bool) -> Result<Option<Cow<'j, str>>, SyntaxError> {
        if !self.next_member(first, b'}', "a comma or the end of the object")? {
            return Ok(None);
        }
        let key = self.string()?;
        self.expect(b':', "a colon")?;
        Ok(Some(key))
    }

    /// Moves past the `[` of an array. Then call [`Reader::next_element`] until it gives false.
    pub(crate) fn begin_array(&mut self) -> Result<(), SyntaxError> {
        self.expect(b'[', "an array")
    }

    /// Moves to the next element of an array. `first` is true before the first call and is cleared by it.
    pub(crate) fn next_element(&mut self, first: &mut bool) -> Result<bool, SyntaxError> {
        self.next_member(first, b']', "a comma or the end of the array")
    }

    /// Moves past one value, whatever it is, and checks it on the way.
    pub(crate) fn skip_value(&mut self) -> Result<(), SyntaxError> {
        // One bit for each open array or object: set for an object.
        let mut open: u128 = 0;
        let mut depth = 0;
        loop {
            let mut first = false;
            match self.ahead()? {
                Ahead::Null => self.null()?,
                Ahead::Bool => self.boolean().map(|_| ())?,
                Ahead::Number => self.number().map(|_| ())?,
                Ahead::String => self.skip_string()?,
                ahead @ (Ahead::Array | Ahead::Object) => {
                    if depth == MAX_DEPTH {
                        return Err(self.problem(SyntaxProblem::Depth { limit: MAX_DEPTH }));
                    }
                    self.at += 1;
                    depth += 1;
                    open = open << 1 | u128::from(ahead == Ahead::Object);
                    first = true;
                }
            }
            // To the next value that is open, out of as many arrays and objects as end here.
            loop {
                if depth == 0 {
                    return Ok(());
                }
                let more = if open & 1 == 1 { self.skip_key(&mut first)? } else { self.next_element(&mut first)? };
                if more {
                    break;
                }
                open >>= 1;
                depth -= 1;
            }
        }
    }

    /// Checks that only whitespace is left.
    pub(crate) fn end(&mut self) -> Result<(), SyntaxError> {
        match self.skip_whitespace() {
            None => Ok(()),
            Some(_) => Err(self.unexpected("the end of the text")),
        }
    }

    fn skip_key(&mut self, first: &mut bool) -> Result<bool, SyntaxError> {
        if !self.next_member(first, b'}', "a comma or the end of the object")? {
            return Ok(false);
        }
        self.skip_string()?;
        self.expect(b':', "a colon")?;
        Ok(true)
    }

    fn skip_string(&mut self) -> Result<(), SyntaxError> {
        if self.skip_whitespace() != Some(b'"') {
            return Err(self.unexpected("a string"));
        }
        let mut at = self.at + 1;
        loop {
            at += plain_length(&self.text.as_bytes()[at..]);
            match self.text.as_bytes().get(at) {
                Some(b'"') => {
                    self.at = at + 1;
                    return Ok(());
                }
                Some(b'\\') => at += self.escape(at)?.1,
                found => return Err(string_problem(at, found)),
            }
        }
    }

    /// The character that the escape sequence at `at` stands for, and the sequence's length.
    fn escape(&self, at: usize) -> Result<(char, usize), SyntaxError> {
        let bytes = self.text.as_bytes();
        let wrong = |problem| SyntaxError { offset: at, problem };
        let character = match bytes.get(at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let unit = hexadecimal(bytes, at + 2).ok_or(wrong(SyntaxProblem::Escape))?;
                if let Some(character) = char::from_u32(unit) {
                    return Ok((character, 6));
                }
                let second = match bytes.get(at + 6..at + 8) {
                    Some(b"\\u") => hexadecimal(bytes, at + 8).ok_or(wrong(SyntaxProblem::Escape))?,
                    _ => return Err(wrong(SyntaxProblem::LoneSurrogate)),
                };
                if !(0xd800..0xdc00).contains(&unit) || !(0xdc00..0xe000).contains(&second) {
                    return Err(wrong(SyntaxProblem::LoneSurrogate));
                }
                let character = 0x10000 + ((unit - 0xd800) << 10) + (second - 0xdc00);
                return char::from_u32(character).map(|c| (c, 12)).ok_or(wrong(SyntaxProblem::LoneSurrogate));
            }
            Some(_) => return Err(wrong(SyntaxProblem::Escape)),
            None => return Err(wrong(SyntaxProblem::End)),
        };
        Ok((character, 2))
    }

    fn next_member(&mut self, first: &mut bool, end: u8, expected: &'static str) -> Result<bool, SyntaxError> {
        let was_first = std::mem::take(first);
        match self.skip_whitespace() {
            Some(found) if found == end => {
                self.at += 1;
                Ok(false)
            }
            Some(b',') if !was_first => {
                self.at += 1;
                Ok(true)
            }
            Some(_) if was_first => Ok(true),
            Some(_) => Err(self.unexpected(expected)),
            None => Err(self.problem(SyntaxProblem::End)),
        }
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), SyntaxError> {
        match self.skip_whitespace() {
            Some(found) if found == byte => {
                self.at += 1;
                Ok(())
            }
            Some(_) => Err(self.unexpected(expected)),
            None => Err(self.problem(SyntaxProblem::End)),
        }
    }

    fn literal(&mut self, literal: &'static str) -> Result<(), SyntaxError> {
        self.skip_whitespace();
        if self.text.as_bytes()[self.at..].starts_with(literal.as_bytes()) {
            self.at += literal.len();
            Ok(())
        } else {
            Err(self.unexpected("a value"))
        }
    }

    /// The next byte that is not whitespace.
    fn skip_whitespace(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    fn problem(&self, problem: SyntaxProblem) -> SyntaxError {
        SyntaxError { offset: self.at, problem }
    }

    fn unexpected(&self, expected: &'static str) -> SyntaxError {
        self.problem(SyntaxProblem::Unexpected { expected })
    }
}

/// How many bytes of a string's content stand for themselves: up to a quote, a backslash or a control character.
fn plain_length(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f)).unwrap_or(bytes.len())
}

fn string_problem(offset: usize, found: Option<&u8>) -> SyntaxError {
    let problem = if found.is_some() { SyntaxProblem::ControlCharacter } else { SyntaxProblem::End };
    SyntaxError { offset, problem }
}

fn hexadecimal(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.iter().try_fold(0, |value, byte| Some(value << 4 | char::from(*byte).to_digit(16)?))
}

/// The length of the number at the front of `bytes`; 0 when there is none.
pub(super) fn number_length(bytes: &[u8]) -> usize {
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut at = usize::from(bytes.first() == Some(&b'-'));
    at += match (bytes.get(at), digits(at)) {
        (_, 0) => return 0,
        (Some(b'0'), 2..) => return 0,
        (_, count) => count,
    };
    if bytes.get(at) == Some(&b'.') {
        match digits(at + 1) {
            0 => return 0,
            count => at += 1 + count,
        }
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        match digits(at + 1 + sign) {
            0 => return 0,
            count => at += 1 + sign + count,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &[u8]) -> Result<(), SyntaxError> {
        let mut reader = Reader::new(text)?;
        reader.skip_value()?;
        reader.end()
    }

    #[test]
    fn what_is_not_json_is_refused_at_the_right_byte() {
        let cases: [(&str, usize, SyntaxProblem); 22] = [
            ("", 0, SyntaxProblem::End),
            ("  ", 2, SyntaxProblem::End),
            ("[1,]", 3, SyntaxProblem::Unexpected { expected: "a value" }),
            ("[1 2]", 3, SyntaxProblem::Unexpected { expected: "a comma or the end of the array" }),
            ("{\"a\" 1}", 5, SyntaxProblem::Unexpected { expected: "a colon" }),
            ("{\"a\":1,}", 7, SyntaxProblem::Unexpected { expected: "a string" }),
            ("{a:1}", 1, SyntaxProblem::Unexpected { expected: "a string" }),
            ("{\"a\":1", 6, SyntaxProblem::End),
            ("nul", 0, SyntaxProblem::Unexpected { expected: "a value" }),
            ("1 2", 2, SyntaxProblem::Unexpected { expected: "the end of the text" }),
            ("01", 0, SyntaxProblem::Number),
            ("-", 0, SyntaxProblem::Number),
            ("1.", 0, SyntaxProblem::Number),
            ("1e", 0, SyntaxProblem::Number),
            ("NaN", 0, SyntaxProblem::Unexpected { expected: "a value" }),
            ("\"a", 2, SyntaxProblem::End),
            ("\"a\nb\"", 2, SyntaxProblem::ControlCharacter),
            ("\"\\x\"", 1, SyntaxProblem::Escape),
            ("\"\\u12g4\"", 1, SyntaxProblem::Escape),
            ("\"\\ud800\"", 1, SyntaxProblem::LoneSurrogate),
            ("\"\\ude01\\ud83d\"", 1, SyntaxProblem::LoneSurrogate),
            ("\u{feff}1", 0, SyntaxProblem::Unexpected { expected: "a value" }),
        ];
        for (text, offset, problem) in cases {
            assert_eq!(check(text.as_bytes()), Err(SyntaxError { offset, problem }), "{text}");
        }
        assert_eq!(check(b"\"\xff\""), Err(SyntaxError { offset: 1, problem: SyntaxProblem::NotUtf8 }));
    }

    #[test]
    fn strings_are_unescaped() {
        let mut reader = Reader::new(r#" "a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude01é" "#.as_bytes()).unwrap();
        assert_eq!(reader.string().unwrap(), "a\"\\/\u{8}\u{c}\n\r\té😁é");
        assert!(matches!(Reader::new(b"\"plain\"").unwrap().string().unwrap(), Cow::Borrowed("plain")));
    }

    #[test]
    fn deep_nesting_is_refused_without_recursion() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(check(nested(100).as_bytes()), Ok(()));
        let problem = SyntaxProblem::Depth { limit: 100 };
        assert_eq!(check(nested(101).as_bytes()), Err(SyntaxError { offset: 100, problem }));
        assert_eq!(check("[{\"a\":".repeat(1_000_000).as_bytes()), Err(SyntaxError { offset: 300, problem }));
    }

    /// JSON values, and texts that nearly are.
    fn nearly_json() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"a\"",
            "\"\\n\"",
            "\"\\ud83d\\ude01\"",
            "\"é\"",
            "1",
            "-0",
            "0.5",
            "1e5",
            "01",
            "1.e",
            "true",
            "false",
            "null",
            " ",
            "\n",
            "\"",
            "\\",
            "tru",
            "-",
        ]);
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

        #[test]
        fn the_same_texts_are_json_as_for_serde_json(text in nearly_json()) {
            let theirs = serde_json::from_str::<&serde_json::value::RawValue>(&text);
            prop_assert_eq!(check(text.as_bytes()).is_ok(), theirs.is_ok(), "{}", text);
        }

        #[test]
        fn any_string_comes_back_as_it_went_in(text: String) {
            let json = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(Reader::new(json.as_bytes()).unwrap().string().unwrap(), text);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = check(&bytes);
        }
    }
}
