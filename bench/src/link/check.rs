//! What a link carries: plain TCP streams from the far end to the near one, with the kernel's own buffer sizes.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use super::{FAR, Link, LinkOptions, Tcp};

/// What one link carried.
#[derive(Clone, Debug, Serialize)]
pub struct Carried {
    /// The link; `None` is the loopback of the far namespace, without an emulator.
    pub link: Option<LinkOptions>,
    /// How many streams at once.
    pub streams: usize,
    /// Bytes a second of all streams, in MB (10^6 bytes), over the second half of the time.
    pub megabytes_per_second: f64,
    /// How long it took to connect: one round trip.
    pub connect_ms: f64,
    /// The emulator's processor time for each second, both directions.
    pub emulator_cpu: f64,
    /// How late packets were at most, in microseconds.
    pub latest_us: u64,
    /// Packets that the emulator had no room for.
    pub overflowed: u64,
}

/// Measures links of several delays and prints what they carry.
pub fn run(seconds: f64, loss: f64, rate: Option<u64>) -> Result<Vec<Carried>> {
    let mut link = Link::open()?;
    println!("TCP in the namespaces: {:?}", Tcp::of(&link.near)?.0);
    println!(
        "{:>8} {:>8} {:>8} {:>10} {:>8} {:>10} {:>9}",
        "RTT ms", "streams", "MB/s", "connect ms", "cpu", "late us", "overflow"
    );
    let mut all = Vec::new();
    let delays = [None, Some(0.0), Some(20.0), Some(40.0), Some(80.0)];
    for (delay, streams) in delays.iter().flat_map(|delay| [1, 4, 16].map(|streams| (*delay, streams))) {
        let options = delay.map(|ms| LinkOptions { loss, rate, ..LinkOptions::with_round_trip_ms(ms) });
        let carried = carry(&mut link, options, streams, Duration::from_secs_f64(seconds))?;
        println!(
            "{:>8} {:>8} {:>8.0} {:>10.2} {:>8.2} {:>10} {:>9}",
            delay.map_or("loopback".to_owned(), |ms| ms.to_string()),
            streams,
            carried.megabytes_per_second,
            carried.connect_ms,
            carried.emulator_cpu,
            carried.latest_us,
            carried.overflowed
        );
        all.push(carried);
    }
    Ok(all)
}

/// Measures one link.
pub fn carry(link: &mut Link, options: Option<LinkOptions>, streams: usize, time: Duration) -> Result<Carried> {
    if let Some(options) = &options {
        link.shape(options)?;
    }
    let address = if options.is_some() { FAR } else { Ipv4Addr::LOCALHOST };
    let listener = link.far.run(|| TcpListener::bind((address, 0)))?.context("the source's port")?;
    let address = listener.local_addr()?;
    let sink = if options.is_some() { &link.near } else { &link.far };

    let (connect, bytes) = std::thread::scope(|scope| -> Result<(Duration, u64)> {
        scope.spawn(|| {
            for _ in 0..streams {
                let Ok((stream, _)) = listener.accept() else { return };
                scope.spawn(move || source(stream));
            }
        });
        sink.run(|| drain(address, streams, time))?
    })?;
    let totals = link.totals().filter(|_| options.is_some());
    let sum = |of: fn(&super::Totals) -> u64| totals.iter().flatten().map(of).sum::<u64>();
    Ok(Carried {
        link: options,
        streams,
        megabytes_per_second: bytes as f64 / 1e6 / (time.as_secs_f64() / 2.0),
        connect_ms: connect.as_secs_f64() * 1e3,
        emulator_cpu: sum(|totals| totals.cpu_ms) as f64 / 1e3 / time.as_secs_f64(),
        latest_us: totals.iter().flatten().map(|totals| totals.latest_us).max().unwrap_or(0),
        overflowed: sum(|totals| totals.overflowed),
    })
}

/// Writes until the other side has had enough.
fn source(mut stream: TcpStream) {
    let block = vec![0x5a; 256 << 10];
    while stream.write_all(&block).is_ok() {}
}

/// Reads all streams for `time`: how long the first took to connect, and the bytes of the second half.
fn drain(address: SocketAddr, streams: usize, time: Duration) -> Result<(Duration, u64)> {
    let begun = Instant::now();
    let mut open = vec![TcpStream::connect(address).context("the source does not answer")?];
    let connect = begun.elapsed();
    for _ in 1..streams {
        open.push(TcpStream::connect(address)?);
    }
    let begun = Instant::now();
    let read = |mut stream: TcpStream| {
        let mut buffer = vec![0; 256 << 10];
        let mut bytes = 0;
        while begun.elapsed() < time {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(read) if begun.elapsed() >= time / 2 => bytes += read as u64,
                Ok(_) => {}
            }
        }
        bytes
    };
    let bytes = std::thread::scope(|scope| {
        let threads: Vec<_> = open.into_iter().map(|stream| scope.spawn(move || read(stream))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
    });
    Ok((connect, bytes))
}
