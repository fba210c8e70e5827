//! NDJSON framing: lines end with `\n`. One byte order mark at the start and a `\r` before the `\n` are taken off, blank
//! lines are skipped, the last line needs no `\n`. No other character ends a line: U+2028 and U+0085 are text.

use std::io::{self, BufRead as _, Read as _};

use super::open::Input;

/// Lines with their numbers, counted from 1, blank lines included.
pub(crate) struct Lines {
    input: Box<dyn Input>,
    line: Vec<u8>,
    number: u64,
    limit_bytes: usize,
}

/// Why a line could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    /// The line is longer than the limit.
    #[error("line {number} is longer than {limit_bytes} bytes")]
    TooLong { number: u64, limit_bytes: usize },
    /// The input cannot be read.
    #[error("cannot read line {number}: {source}")]
    Io { number: u64, source: io::Error },
}

impl Lines {
    /// Lines of `input`, each at most `limit_bytes` long without its end.
    pub(crate) fn new(input: Box<dyn Input>, limit_bytes: usize) -> Self {
        Self { input, line: Vec::new(), number: 0, limit_bytes }
    }

    /// Whether the next line is at hand, so that reading it waits for nobody.
    pub(crate) fn has_line(&self) -> bool {
        self.input.has_line()
    }

    /// The next line that is not blank, with its number.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, &[u8])>, LineError> {
        let (start, end) = loop {
            self.number += 1;
            self.line.clear();
            // Two more than the limit: the end may be "\r\n".
            let mut limited = self.input.by_ref().take(self.limit_bytes as u64 + 2);
            let read = limited.read_until(b'\n', &mut self.line);
            if read.map_err(|source| LineError::Io { number: self.number, source })? == 0 {
                return Ok(None);
            }
            let start = if self.number == 1 && self.line.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
            let line = &self.line[start..];
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.len() > self.limit_bytes {
                return Err(LineError::TooLong { number: self.number, limit_bytes: self.limit_bytes });
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                break (start, start + line.len());
            }
        };
        Ok(Some((self.number, &self.line[start..end])))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Cursor};

    use super::*;

    fn read(input: &[u8], buffer: usize) -> Vec<(u64, Vec<u8>)> {
        let mut lines = Lines::new(Box::new(BufReader::with_capacity(buffer, Cursor::new(input.to_vec()))), 4 << 20);
        let mut out = Vec::new();
        while let Some((number, line)) = lines.next().unwrap() {
            out.push((number, line.to_vec()));
        }
        out
    }

    #[test]
    fn marks_carriage_returns_blank_lines_and_a_missing_last_newline_do_not_change_the_records() {
        let input = b"\xef\xbb\xbf{\"a\":1}\r\n\n  \r\n{\"a\":2}\n{\"a\":3}";
        let expected: Vec<(u64, Vec<u8>)> =
            [(1, "{\"a\":1}"), (4, "{\"a\":2}"), (5, "{\"a\":3}")].map(|(n, l)| (n, l.into())).into();
        // However the input is cut, also between CR and LF and inside the mark.
        for buffer in 1..input.len() {
            assert_eq!(read(input, buffer), expected, "buffer of {buffer}");
        }
    }

    #[test]
    fn other_line_separators_of_unicode_are_text() {
        let input = "\"a\u{2028}b\u{2029}c\u{85}d\\r\"\n\"e\"\n";
        let lines = read(input.as_bytes(), 3);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].1, input.split_once('\n').unwrap().0.as_bytes());
    }

    #[test]
    fn long_lines_pass_up_to_the_limit_and_not_beyond() {
        for length in [70_000, 2 << 20] {
            let mut input = vec![b'x'; length];
            input.push(b'\n');
            assert_eq!(read(&input, 8_192)[0].1.len(), length);
        }
        let mut exact = Lines::new(Box::new(BufReader::new(&b"12345\r\n123456\n"[..])), 5);
        assert_eq!(exact.next().unwrap(), Some((1, &b"12345"[..])));
        assert!(matches!(exact.next(), Err(LineError::TooLong { number: 2, limit_bytes: 5 })));
    }
}
