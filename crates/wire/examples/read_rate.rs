//! How fast record batches are read on one thread: records of 200 bytes, batches of 1 MiB before compression, CRC checked,
//! every record and header visited in place.
//!
//! `cargo run --release -p tidegate-wire --example read_rate`

// A measurement talks to whoever runs it.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_model::{Compression, Header};
use tidegate_wire::{BatchLimits, BatchOptions, BatchWriter, split_batches};

const BATCH_BYTES: usize = 1 << 20;
const VALUE_BYTES: usize = 200;
const BATCHES: usize = 16;
const FOR: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "{:>6} {:>7} {:>9} {:>13} {:>10} {:>10}",
        "codec", "headers", "stored", "records/s", "raw MB/s", "write MB/s"
    );
    for with_header in [false, true] {
        for codec in [Compression::None, Compression::Lz4, Compression::Snappy, Compression::Zstd, Compression::Gzip] {
            measure(codec, with_header)?;
        }
    }
    Ok(())
}

fn measure(compression: Compression, with_header: bool) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let record_set = record_set(compression, with_header)?;
    let write_seconds = started.elapsed().as_secs_f64();
    let limits = BatchLimits::default();
    let started = Instant::now();
    let (mut records, mut bytes) = (0_u64, 0_u64);
    while started.elapsed() < FOR {
        for batch in split_batches(record_set.clone()) {
            let batch = batch?.open(&limits)?;
            bytes += batch.body().len() as u64;
            for record in batch.records() {
                let record = record?;
                records += 1;
                black_box((record.offset, record.timestamp_ms, record.key, record.value));
                record.headers.for_each(|header| {
                    black_box(header);
                });
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{:>6} {:>7} {:>9} {:>13.0} {:>10.0} {:>10.0}",
        compression.name(),
        u8::from(with_header),
        record_set.len() / BATCHES,
        records as f64 / seconds,
        bytes as f64 / seconds / 1e6,
        (BATCHES * BATCH_BYTES) as f64 / write_seconds / 1e6,
    );
    Ok(())
}

/// Batches of JSON-like values, of which about half is the same in each.
fn record_set(compression: Compression, with_header: bool) -> Result<Bytes, Box<dyn Error>> {
    let mut record_set = Vec::new();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut offset = 0;
    for _ in 0..BATCHES {
        let mut writer = BatchWriter::new(BatchOptions { compression, base_offset: offset, ..BatchOptions::default() });
        while writer.bytes() < BATCH_BYTES {
            let mut value = String::with_capacity(VALUE_BYTES + 20);
            while value.len() < VALUE_BYTES {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                value.push_str(&format!("\"field\":{},", seed >> 40));
            }
            value.truncate(VALUE_BYTES);
            let header = Header { name: b"trace", value: Some(b"0123456789abcdef") };
            writer.push(1_714_521_600_000 + offset, None, Some(value.as_bytes()), with_header.then_some(header))?;
            offset += 1;
        }
        record_set.extend_from_slice(&writer.finish()?);
    }
    Ok(record_set.into())
}
