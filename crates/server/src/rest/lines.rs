//! Cuts a body that arrives in pieces into its records: lines of NDJSON, or the elements of a JSON array.
//!
//! The pieces may be cut anywhere, also inside a character or between CR and LF. What is not yet complete is kept, up to a
//! limit; a line that is complete within one piece is not copied.

use bytes::Bytes;

/// One record's JSON text and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Its text, without what separates it from the next.
    pub(super) text: Bytes,
    /// The line it begins on, from 1.
    pub(super) line: u64,
    /// Which record it is, from 1: blank lines are none.
    pub(super) ordinal: u64,
}

/// Why a body cannot be cut.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SplitError {
    #[error("line {line}: the record is longer than {limit} bytes, the most that this server takes")]
    TooLong { line: u64, limit: usize },
    #[error("line {line}: a JSON array of records begins with '['; send NDJSON as application/x-ndjson")]
    NoArray { line: u64 },
    #[error("line {line}: a ',' or ']' must follow a record of the array")]
    NoSeparator { line: u64 },
    #[error("line {line}: a record is missing before the ',' or ']'")]
    NoElement { line: u64 },
    #[error("line {line}: the array ended before")]
    AfterArray { line: u64 },
    #[error("the body ends inside the array, on line {line}")]
    ArrayCut { line: u64 },
    #[error(
        "line {line}: more than {MAX_BLANK_BYTES} bytes of white space before a record, the most that this server skips"
    )]
    Blank { line: u64 },
}

impl SplitError {
    /// The line it is about.
    pub(super) fn line(&self) -> u64 {
        match *self {
            Self::TooLong { line, .. }
            | Self::NoArray { line }
            | Self::NoSeparator { line }
            | Self::NoElement { line }
            | Self::AfterArray { line }
            | Self::ArrayCut { line }
            | Self::Blank { line } => line,
        }
    }
}

/// Cuts a body into records.
#[derive(Debug)]
pub(super) enum Splitter {
    Lines(Lines),
    Array(Array),
}

impl Splitter {
    /// Lines of NDJSON. No line may be longer than `limit`.
    pub(super) fn lines(limit: usize) -> Self {
        Self::Lines(Lines { rest: Bytes::new(), open: Vec::new(), limit, line: 0, ordinal: 0, blank: 0 })
    }

    /// The elements of one JSON array. None may be longer than `limit`.
    pub(super) fn array(limit: usize) -> Self {
        Self::Array(Array {
            rest: Bytes::new(),
            open: Vec::new(),
            limit,
            state: State::BeforeArray { bom: 0 },
            line: 1,
            begun_on: 1,
            ordinal: 0,
            blank: 0,
        })
    }

    /// Gives it the next piece. The one before must be used up: `next` has answered `None`.
    pub(super) fn feed(&mut self, piece: Bytes) {
        match self {
            Self::Lines(lines) => lines.rest = piece,
            Self::Array(array) => array.rest = piece,
        }
    }

    /// The next record; `None`: more is needed.
    pub(super) fn next(&mut self) -> Result<Option<Item>, SplitError> {
        match self {
            Self::Lines(lines) => lines.next(),
            Self::Array(array) => array.next(),
        }
    }

    /// The body has ended as it should: what is left may be the last record. To be called once.
    pub(super) fn finish(&mut self) -> Result<Option<Item>, SplitError> {
        match self {
            Self::Lines(lines) => Ok(lines.finish()),
            Self::Array(array) => array.finish().map(|()| None),
        }
    }
}

const BOM: &[u8] = b"\xef\xbb\xbf";

/// The most bytes of white space between two records. No honest body has so many, and a few bytes of a compressed one can
/// stand for any number.
const MAX_BLANK_BYTES: usize = 64 << 20;

/// How many bytes at the start of `bytes` are `blank`.
fn blank_run(bytes: &[u8], blank: impl Fn(u8) -> bool) -> usize {
    // Whole blocks first: without a way out in the middle, a block is compared many bytes at a time.
    let whole = bytes.chunks_exact(64).take_while(|block| block.iter().fold(true, |all, byte| all & blank(*byte)));
    let whole = whole.count() * 64;
    let rest = bytes.get(whole..).unwrap_or_default();
    whole + rest.iter().position(|byte| !blank(*byte)).unwrap_or(rest.len())
}

fn line_ends(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// White space between the tokens of JSON.
fn is_json_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

#[derive(Debug)]
pub(super) struct Lines {
    rest: Bytes,
    /// The beginning of a line whose end has not come yet.
    open: Vec<u8>,
    limit: usize,
    line: u64,
    ordinal: u64,
    /// Bytes of blank lines since the last record.
    blank: usize,
}

impl Lines {
    fn next(&mut self) -> Result<Option<Item>, SplitError> {
        loop {
            if self.open.is_empty() {
                self.skip_blank_lines();
            }
            if self.blank > MAX_BLANK_BYTES {
                return Err(SplitError::Blank { line: self.line });
            }
            let end = self.rest.iter().position(|byte| *byte == b'\n');
            let len = self.open.len() + end.unwrap_or(self.rest.len());
            // One byte for a CR, which may not have shown itself as the line's end yet.
            if len > self.limit.saturating_add(1) {
                return Err(SplitError::TooLong { line: self.line + 1, limit: self.limit });
            }
            let Some(end) = end else {
                self.open.extend_from_slice(&self.rest);
                self.rest = Bytes::new();
                return Ok(None);
            };
            let mut text = self.rest.split_to(end + 1);
            text.truncate(end);
            if !self.open.is_empty() {
                self.open.extend_from_slice(&text);
                text = std::mem::take(&mut self.open).into();
            }
            if let Some(item) = self.item(text) {
                return Ok(Some(item));
            }
        }
    }

    /// Skips blank lines as far as they are there whole; what stands before a record on its own line belongs to it.
    fn skip_blank_lines(&mut self) {
        let run = blank_run(&self.rest, |byte| byte.is_ascii_whitespace());
        let last_end = self.rest.get(..run).and_then(|run| run.iter().rposition(|byte| *byte == b'\n'));
        let Some(last_end) = last_end else { return };
        let skipped = self.rest.split_to(last_end + 1);
        self.line += line_ends(&skipped) as u64;
        self.blank += skipped.len();
    }

    fn finish(&mut self) -> Option<Item> {
        let text = std::mem::take(&mut self.open).into();
        self.item(text)
    }

    fn item(&mut self, mut text: Bytes) -> Option<Item> {
        self.line += 1;
        if self.line == 1 && text.starts_with(BOM) {
            drop(text.split_to(BOM.len()));
        }
        if text.ends_with(b"\r") {
            text.truncate(text.len() - 1);
        }
        if text.trim_ascii().is_empty() {
            self.blank += text.len() + 1;
            return None;
        }
        self.blank = 0;
        self.ordinal += 1;
        Some(Item { text, line: self.line, ordinal: self.ordinal })
    }
}

#[derive(Debug)]
pub(super) struct Array {
    rest: Bytes,
    /// The beginning of an element whose end has not come yet.
    open: Vec<u8>,
    limit: usize,
    state: State,
    line: u64,
    /// The line on which the present element begins.
    begun_on: u64,
    ordinal: u64,
    /// Bytes of white space since the last element.
    blank: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but a BOM (of which `bom` bytes have been seen) and white space has come.
    BeforeArray { bom: usize },
    /// Behind `[`: an element or the array's end.
    First,
    /// Behind `,`: an element.
    Following,
    /// In an element. What is inside it is for the parser to check: here only its end is looked for.
    In { depth: u32, string: bool, escaped: bool },
    /// Behind an element that ended by itself, or at white space.
    Behind,
    /// Behind `]`.
    Done,
}

impl Array {
    fn next(&mut self) -> Result<Option<Item>, SplitError> {
        // Where the present element begins in `rest`; in a piece that goes on with one, at its start.
        let mut from = 0;
        let mut at = 0;
        while let Some(byte) = self.rest.get(at).copied() {
            let line = self.line;
            let white = is_json_space(byte);
            // In an element white space is the parser's affair, in half a byte order mark an error.
            if white && !matches!(self.state, State::In { .. } | State::BeforeArray { bom: 1 | 2 }) {
                at += self.skip_blank(at)?;
                continue;
            }
            self.line += u64::from(byte == b'\n');
            match self.state {
                State::BeforeArray { bom } => match byte {
                    _ if bom < BOM.len() && BOM[bom] == byte => self.state = State::BeforeArray { bom: bom + 1 },
                    _ if !matches!(bom, 0 | 3) => return Err(SplitError::NoArray { line }),
                    b'[' => self.state = State::First,
                    _ => return Err(SplitError::NoArray { line }),
                },
                State::First | State::Following => match byte {
                    b']' if self.state == State::First => self.state = State::Done,
                    b']' | b',' => return Err(SplitError::NoElement { line }),
                    _ => {
                        from = at;
                        self.blank = 0;
                        self.begun_on = line;
                        self.state = State::In {
                            depth: u32::from(matches!(byte, b'{' | b'[')),
                            string: byte == b'"',
                            escaped: false,
                        };
                    }
                },
                State::In { depth, string: true, escaped } => {
                    let string = escaped || byte != b'"';
                    self.state = State::In { depth, string, escaped: !escaped && byte == b'\\' };
                    if !string && depth == 0 {
                        self.state = State::Behind;
                        return self.cut(from, at + 1, at + 1).map(Some);
                    }
                }
                State::In { depth: 0, .. } if white || matches!(byte, b',' | b']') => {
                    // A number or a word ends before what follows it.
                    self.state = match byte {
                        b',' => State::Following,
                        b']' => State::Done,
                        _ => State::Behind,
                    };
                    return self.cut(from, at, at + 1).map(Some);
                }
                State::In { depth, string: false, .. } => {
                    let depth = match byte {
                        b'{' | b'[' => depth.saturating_add(1),
                        b'}' | b']' => depth.saturating_sub(1),
                        _ => depth,
                    };
                    if depth == 0 && matches!(byte, b'}' | b']') {
                        self.state = State::Behind;
                        return self.cut(from, at + 1, at + 1).map(Some);
                    }
                    self.state = State::In { depth, string: byte == b'"', escaped: false };
                }
                State::Behind => match byte {
                    b',' => self.state = State::Following,
                    b']' => self.state = State::Done,
                    _ => return Err(SplitError::NoSeparator { line }),
                },
                State::Done => return Err(SplitError::AfterArray { line }),
            }
            at += 1;
        }
        if matches!(self.state, State::In { .. }) {
            self.open.extend_from_slice(&self.rest[from..]);
            self.check_length(self.open.len())?;
        }
        self.rest = Bytes::new();
        Ok(None)
    }

    /// Skips the white space that begins at `at`, and says how many bytes it is.
    fn skip_blank(&mut self, at: usize) -> Result<usize, SplitError> {
        let rest = self.rest.get(at..).unwrap_or_default();
        let run = blank_run(rest, is_json_space);
        self.line += line_ends(rest.get(..run).unwrap_or_default()) as u64;
        self.blank += run;
        if self.blank > MAX_BLANK_BYTES {
            return Err(SplitError::Blank { line: self.line });
        }
        if matches!(self.state, State::BeforeArray { .. }) {
            // A byte order mark may no longer follow.
            self.state = State::BeforeArray { bom: BOM.len() };
        }
        Ok(run)
    }

    /// Takes the element `rest[from..to]`, in front of which `open` stands, and moves past `next`.
    fn cut(&mut self, from: usize, to: usize, next: usize) -> Result<Item, SplitError> {
        let piece = self.rest.split_to(next);
        let mut text = piece.slice(from..to);
        if !self.open.is_empty() {
            self.open.extend_from_slice(&text);
            text = std::mem::take(&mut self.open).into();
        }
        self.check_length(text.len())?;
        self.ordinal += 1;
        Ok(Item { text, line: self.begun_on, ordinal: self.ordinal })
    }

    fn check_length(&self, len: usize) -> Result<(), SplitError> {
        if len > self.limit {
            return Err(SplitError::TooLong { line: self.begun_on, limit: self.limit });
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SplitError> {
        match self.state {
            State::Done => Ok(()),
            State::BeforeArray { .. } => Err(SplitError::NoArray { line: self.line }),
            _ => Err(SplitError::ArrayCut { line: self.line }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 4 << 20;

    /// Feeds `body` cut into pieces of `size` bytes; the records' texts and lines.
    fn split(mut splitter: Splitter, body: &[u8], size: usize) -> Result<Vec<(String, u64)>, SplitError> {
        let mut items = Vec::new();
        for piece in body.chunks(size.max(1)) {
            splitter.feed(Bytes::copy_from_slice(piece));
            while let Some(item) = splitter.next()? {
                items.push(item);
            }
        }
        items.extend(splitter.finish()?);
        assert!(items.iter().zip(1..).all(|(item, ordinal)| item.ordinal == ordinal));
        Ok(items.into_iter().map(|item| (String::from_utf8(item.text.to_vec()).unwrap(), item.line)).collect())
    }

    fn owned(items: &[(&str, u64)]) -> Vec<(String, u64)> {
        items.iter().map(|(text, line)| ((*text).to_owned(), *line)).collect()
    }

    #[test]
    fn lines_are_the_same_wherever_the_pieces_are_cut() {
        let body = "\u{feff}{\"a\":1}\r\n\r\n  \n{\"b\":\"ä😁\u{2028}\u{85}\\r\"}\n\n{\"c\":3}";
        let expected = owned(&[("{\"a\":1}", 1), ("{\"b\":\"ä😁\u{2028}\u{85}\\r\"}", 4), ("{\"c\":3}", 6)]);
        for size in 1..=body.len() {
            assert_eq!(split(Splitter::lines(LIMIT), body.as_bytes(), size).unwrap(), expected, "pieces of {size}");
        }
    }

    #[test]
    fn only_the_first_line_may_begin_with_a_byte_order_mark() {
        let items = split(Splitter::lines(LIMIT), "\u{feff}\u{feff}1\n\u{feff}2".as_bytes(), 3).unwrap();
        assert_eq!(items, owned(&[("\u{feff}1", 1), ("\u{feff}2", 2)]));
        assert_eq!(split(Splitter::lines(LIMIT), "\u{feff}".as_bytes(), 1).unwrap(), []);
    }

    #[test]
    fn a_body_without_lines_has_no_records() {
        for body in ["", "\n", "\r\n\r\n", " "] {
            assert_eq!(split(Splitter::lines(LIMIT), body.as_bytes(), 1).unwrap(), []);
        }
    }

    #[test]
    fn long_lines_come_whole_and_too_long_ones_are_refused_with_their_number() {
        for len in [70_000, 2 << 20] {
            let body = format!("1\n\"{}\"\r\n2", "x".repeat(len));
            let items = split(Splitter::lines(len + 2), body.as_bytes(), 8_191).unwrap();
            assert_eq!(items.len(), 3);
            assert_eq!(items[1].0.len(), len + 2);
            let error = split(Splitter::lines(len), body.as_bytes(), 8_191).unwrap_err();
            assert_eq!(error, SplitError::TooLong { line: 2, limit: len });
        }
    }

    #[test]
    fn a_line_that_never_ends_is_refused_before_it_fills_the_memory() {
        let mut splitter = Splitter::lines(1_000);
        splitter.feed(Bytes::from(vec![b'x'; 900]));
        assert_eq!(splitter.next().unwrap(), None);
        splitter.feed(Bytes::from(vec![b'x'; 900]));
        assert_eq!(splitter.next().unwrap_err(), SplitError::TooLong { line: 1, limit: 1_000 });
        let mut splitter = Splitter::array(1_000);
        splitter.feed(Bytes::from([b"[\n\"".as_slice(), &[b'x'; 1_200]].concat()));
        assert_eq!(splitter.next().unwrap_err(), SplitError::TooLong { line: 2, limit: 1_000 });
    }

    #[test]
    fn runs_of_blank_lines_are_skipped_and_counted() {
        let blank = " \t\r\n\n\n  \r\n".repeat(100);
        let lines = 1 + 4 * 100;
        let body = format!("{blank}  1\n{blank}\x0c\n2");
        let expected = owned(&[("  1", lines), ("2", lines * 2 + 1)]);
        for size in [1, 63, 64, 65, 200, body.len()] {
            assert_eq!(split(Splitter::lines(LIMIT), body.as_bytes(), size).unwrap(), expected, "pieces of {size}");
        }
        let body = format!("{blank}[{blank}1{blank},{blank}2{blank}]{blank}");
        let expected = owned(&[("1", 1 + 8 * 100), ("2", 1 + 16 * 100)]);
        for size in [1, 63, 64, 65, 200, body.len()] {
            assert_eq!(split(Splitter::array(LIMIT), body.as_bytes(), size).unwrap(), expected, "pieces of {size}");
        }
    }

    #[test]
    fn more_white_space_than_any_honest_body_has_is_refused() {
        let piece = Bytes::from(vec![b'\n'; 1 << 20]);
        for (mut splitter, begin) in [(Splitter::lines(LIMIT), "1\n"), (Splitter::array(LIMIT), "[1,")] {
            let feed = |splitter: &mut Splitter| {
                splitter.feed(piece.clone());
                splitter.next()
            };
            for _ in 0..MAX_BLANK_BYTES / piece.len() {
                assert_eq!(feed(&mut splitter), Ok(None));
            }
            // A record begins the count anew.
            splitter.feed(begin.into());
            assert!(splitter.next().unwrap().is_some());
            assert_eq!(splitter.next(), Ok(None));
            for _ in 0..MAX_BLANK_BYTES / piece.len() {
                assert_eq!(feed(&mut splitter), Ok(None));
            }
            assert!(matches!(feed(&mut splitter), Err(SplitError::Blank { .. })));
        }
    }

    #[test]
    fn elements_are_the_same_wherever_the_pieces_are_cut() {
        let body = "\u{feff} [\r\n{\"a\":[1,{\"]\":\"}\\\\\\\"\"}]},\n 12 ,\"x,]ä\\\"\"\n,true,[[]],{}\n]\n ";
        let expected = owned(&[
            ("{\"a\":[1,{\"]\":\"}\\\\\\\"\"}]}", 2),
            ("12", 3),
            ("\"x,]ä\\\"\"", 3),
            ("true", 4),
            ("[[]]", 4),
            ("{}", 4),
        ]);
        for size in 1..=body.len() {
            assert_eq!(split(Splitter::array(LIMIT), body.as_bytes(), size).unwrap(), expected, "pieces of {size}");
        }
    }

    #[test]
    fn empty_arrays_have_no_records() {
        for body in ["[]", " [ ] ", "\u{feff}[\n]\n"] {
            assert_eq!(split(Splitter::array(LIMIT), body.as_bytes(), 1).unwrap(), []);
        }
    }

    #[test]
    fn what_is_not_one_whole_array_is_refused_with_its_line() {
        let cases = [
            ("", SplitError::NoArray { line: 1 }),
            ("\n{\"a\":1}", SplitError::NoArray { line: 2 }),
            (" \u{feff}[]", SplitError::NoArray { line: 1 }),
            ("\u{feff}\u{feff}[]", SplitError::NoArray { line: 1 }),
            ("[1\n2]", SplitError::NoSeparator { line: 2 }),
            ("[{}{}]", SplitError::NoSeparator { line: 1 }),
            ("[1,\n]", SplitError::NoElement { line: 2 }),
            ("[,1]", SplitError::NoElement { line: 1 }),
            ("[1],", SplitError::AfterArray { line: 1 }),
            ("[1]\n[2]", SplitError::AfterArray { line: 2 }),
            ("[", SplitError::ArrayCut { line: 1 }),
            ("[1,\n\"a", SplitError::ArrayCut { line: 2 }),
            ("[{\"a\":1}", SplitError::ArrayCut { line: 1 }),
        ];
        for (body, expected) in cases {
            for size in [1, 2, body.len()] {
                assert_eq!(split(Splitter::array(LIMIT), body.as_bytes(), size).unwrap_err(), expected, "{body:?}");
            }
        }
    }
}
