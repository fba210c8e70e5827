//! Small text files: a first line with kind and format version, `key value` lines, and a CRC over all of them.
//!
//! Replaced as a whole by writing beside and renaming, so that a reader meets the old file or the new one.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// The ending of a file that is being written.
pub(crate) const TEMPORARY: &str = "tmp";

/// A kind of text file and the format version that is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextKind {
    pub(crate) name: &'static str,
    pub(crate) version: u32,
}

/// Why a text file does not say anything.
#[derive(Debug)]
pub(crate) enum TextError {
    Io(io::Error),
    /// Written by another version, whose name is in it.
    Version(String),
    /// Cut, changed, or something else altogether.
    Damaged(String),
}

/// Replaces the file at `path`. `durable`: it is on the disk when this returns.
pub(crate) fn write(path: &Path, kind: TextKind, lines: &[(&str, String)], durable: bool) -> io::Result<()> {
    let mut text = format!("{} {}\n", kind.name, kind.version);
    for (key, value) in lines {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{key} {value}");
    }
    let _ = writeln!(text, "crc {:08x}", tidegate_wire::crc32c(text.as_bytes()));
    let beside = path.with_extension(TEMPORARY);
    let mut file = File::create(&beside)?;
    file.write_all(text.as_bytes())?;
    if durable {
        file.sync_all()?;
    }
    drop(file);
    fs::rename(&beside, path)?;
    if durable && let Some(folder) = path.parent() {
        sync_dir(folder)?;
    }
    Ok(())
}

/// Reads the lines of the file at `path`; `None` when there is none.
pub(crate) fn read(path: &Path, kind: TextKind) -> Result<Option<Vec<(String, String)>>, TextError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(TextError::Io(error)),
    };
    parse(&bytes, kind).map(Some)
}

fn parse(bytes: &[u8], kind: TextKind) -> Result<Vec<(String, String)>, TextError> {
    let damaged = |reason: &str| TextError::Damaged(reason.to_owned());
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not UTF-8"))?;
    let (first, _) = text.split_once('\n').ok_or_else(|| damaged("its first line is cut"))?;
    let (name, version) = first.split_once(' ').ok_or_else(|| damaged("its first line names no version"))?;
    if name != kind.name {
        return Err(TextError::Damaged(format!("it begins with {name:?}, not with {:?}", kind.name)));
    }
    if version != kind.version.to_string() {
        return Err(TextError::Version(version.to_owned()));
    }
    let crc_at = text.rfind("crc ").ok_or_else(|| damaged("its last line is missing"))?;
    let (body, crc_line) = text.split_at(crc_at);
    if crc_line != format!("crc {:08x}\n", tidegate_wire::crc32c(body.as_bytes())) {
        return Err(damaged("its CRC is not that of its text"));
    }
    body.lines()
        .skip(1)
        .map(|line| {
            let (key, value) = line.split_once(' ').ok_or_else(|| damaged("a line has no value"))?;
            Ok((key.to_owned(), value.to_owned()))
        })
        .collect()
}

/// Forces a folder's entries to the disk: a new or renamed file survives a power cut only then.
pub(crate) fn sync_dir(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: TextKind = TextKind { name: "things", version: 3 };

    fn write_things(path: &Path) -> Vec<(&'static str, String)> {
        let lines = vec![("a", "1".to_owned()), ("crc", "of something".to_owned()), ("a", String::new())];
        write(path, KIND, &lines, true).unwrap();
        lines
    }

    #[test]
    fn lines_come_back_in_order_with_repeats() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let lines = write_things(&path);
        let back = read(&path, KIND).unwrap().unwrap();
        let expected: Vec<_> = lines.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        assert_eq!(back, expected);
    }

    #[test]
    fn every_cut_and_every_flipped_byte_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        write_things(&path);
        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            assert!(parse(&whole[..cut], KIND).is_err(), "cut at {cut}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x04;
            assert!(parse(&changed, KIND).is_err(), "changed at {at}");
        }
    }

    #[test]
    fn another_version_is_named_and_a_missing_file_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        write(&path, TextKind { version: 4, ..KIND }, &[], false).unwrap();
        assert!(matches!(read(&path, KIND), Err(TextError::Version(version)) if version == "4"));
        assert!(read(&dir.path().join("g"), KIND).unwrap().is_none());
    }
}
