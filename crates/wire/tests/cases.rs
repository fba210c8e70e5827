//! Record sets as text: the bytes in hex, and what must be read from them.
//!
//! A case is a file under `tests/cases/`: a paragraph that says what it shows, a line `--- record set`, the bytes (spaces and
//! `# comments` are skipped), a line `--- read`, and the expected reading. `BLESS=1 cargo test -p tidegate-wire --test cases`
//! writes the present reading into every file, to be read over before it is committed.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tidegate_model::{BatchHeader, Record, RecordBatch};
use tidegate_wire::{BatchLimits, ControlRecord, RawMessages, Stored, split_record_set};

const BYTES: &str = "--- record set\n";
const READ: &str = "--- read\n";

#[test]
fn every_case_reads_as_its_file_says() {
    let mut wrong = Vec::new();
    let files = case_files();
    assert!(files.len() >= 20, "only {} cases found", files.len());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let (head, rest) = text.split_once(BYTES).unwrap_or_else(|| panic!("{} has no record set", file.display()));
        let (hex, expected) = rest.split_once(READ).unwrap_or_else(|| panic!("{} has no reading", file.display()));
        assert!(!head.trim().is_empty(), "{} does not say what it shows", file.display());
        let read = reading(parse_hex(hex));
        if read != expected {
            if std::env::var_os("BLESS").is_some() {
                std::fs::write(&file, format!("{head}{BYTES}{hex}{READ}{read}")).unwrap();
                continue;
            }
            wrong.push(format!("{}\nexpected:\n{expected}\nread:\n{read}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

fn case_files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn parse_hex(text: &str) -> Bytes {
    let digits: Vec<u8> = text
        .lines()
        .flat_map(|line| line.split('#').next().unwrap_or_default().chars())
        .filter(|c| !c.is_whitespace())
        .map(|c| u8::try_from(c.to_digit(16).unwrap()).unwrap())
        .collect();
    assert!(digits.len().is_multiple_of(2), "half a byte");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn reading(record_set: Bytes) -> String {
    let mut out = String::new();
    let mut batches = split_record_set(record_set, 0, true).max_batch_bytes(1 << 20);
    for stored in batches.by_ref() {
        match stored {
            Ok(stored) => show_stored(&stored, &mut out),
            Err(error) => writeln!(out, "error {error}; goes on at {:?}", error.at().next_offset()).unwrap(),
        }
    }
    if let Some(left) = batches.leftover() {
        let (from, of) = (show_option(left.base_offset), show_option(left.batch_bytes));
        writeln!(out, "left over {} of {of} bytes, from offset {from}", left.bytes).unwrap();
    }
    out
}

fn show_stored(stored: &Stored, out: &mut String) {
    match stored {
        Stored::Batch(raw) => show_header(raw.header(), out),
        Stored::Messages(raw) => show_messages(raw, out),
    }
    match stored.open(&BatchLimits { max_decompressed_bytes: 1 << 20, check_crcs: true }) {
        Ok(records) => {
            if let Stored::Messages(_) = stored {
                out.push_str("  as ");
                show_header(records.header(), out);
            }
            show_records(&records, out);
        }
        Err(error) => writeln!(out, "  error {error}; goes on at {:?}", error.at().next_offset()).unwrap(),
    }
}

fn show_messages(raw: &RawMessages, out: &mut String) {
    let what = if raw.is_compressed() { "compressed" } else { "plain" };
    let (bytes, span) = (raw.bytes().len(), raw.span());
    let (first, last) = (span.base_offset, show_option(span.last_offset));
    writeln!(out, "{what} messages of {bytes} bytes, {first} to {last}, next {}", raw.next_offset()).unwrap();
}

fn show_header(header: &BatchHeader, out: &mut String) {
    let attributes = header.attributes;
    write!(out, "batch {} to {}, next {}", header.base_offset, header.last_offset(), header.next_offset()).unwrap();
    write!(out, "; epoch {}; {} records", header.partition_leader_epoch, header.record_count).unwrap();
    let codec = attributes.compression().map_or_else(|codec| format!("codec {codec}"), |codec| codec.name().to_owned());
    write!(out, "; {codec}; {}", attributes.timestamp_type().name()).unwrap();
    write!(out, " from {} max {}", header.base_timestamp, header.max_timestamp).unwrap();
    if header.producer_id != -1 || header.producer_epoch != -1 || header.base_sequence != -1 {
        let (id, epoch, sequence) = (header.producer_id, header.producer_epoch, header.base_sequence);
        write!(out, "; producer {id} epoch {epoch} sequence {sequence}").unwrap();
    }
    for (mark, set) in [
        ("transactional", attributes.is_transactional()),
        ("control", attributes.is_control()),
        ("delete horizon", attributes.has_delete_horizon()),
    ] {
        if set {
            write!(out, "; {mark}").unwrap();
        }
    }
    out.push('\n');
}

fn show_records(batch: &RecordBatch, out: &mut String) {
    for record in batch.records() {
        match record {
            Ok(record) if batch.header().attributes.is_control() => show_control(&record, out),
            Ok(record) => show_record(&record, out),
            Err(error) => writeln!(out, "  error {error}").unwrap(),
        }
    }
}

fn show_record(record: &Record<'_>, out: &mut String) {
    let (key, value) = (show_bytes(record.key), show_bytes(record.value));
    write!(out, "  {} at {}: {key} = {value}", record.offset, record.timestamp_ms).unwrap();
    for header in record.headers {
        write!(out, "; {}: {}", show_bytes(Some(header.name)), show_bytes(header.value)).unwrap();
    }
    out.push('\n');
}

fn show_control(record: &Record<'_>, out: &mut String) {
    let control = ControlRecord::parse(record).map_or_else(|error| error.to_string(), |control| format!("{control:?}"));
    writeln!(out, "  {} at {}: {control}", record.offset, record.timestamp_ms).unwrap();
}

fn show_bytes(bytes: Option<&[u8]>) -> String {
    bytes.map_or_else(|| "null".to_owned(), |bytes| format!("\"{}\"", bytes.escape_ascii()))
}

fn show_option(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "?".to_owned(), |value| value.to_string())
}
