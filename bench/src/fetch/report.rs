//! The results, for machines and for people: one JSON file and one picture a scenario, one table over all.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::results::{Results, Row};
use super::{plot, scenario};
use crate::link::Carried;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("results")
}

/// Writes `results/fetch-<scenario>.json` and `.svg`, and makes `results/fetch.md` anew from all such files.
pub fn write(results: &Results) -> Result<()> {
    let folder = folder();
    std::fs::create_dir_all(&folder).context("results")?;
    let json = serde_json::to_string_pretty(results)? + "\n";
    let name = format!("fetch-{}", results.scenario);
    std::fs::write(folder.join(format!("{name}.json")), json).context("the results")?;
    std::fs::write(folder.join(format!("{name}.svg")), plot::bars(results)).context("the picture")?;
    let mut all = Vec::new();
    for scenario in scenario::all() {
        let Ok(text) = std::fs::read_to_string(folder.join(format!("fetch-{}.json", scenario.name))) else { continue };
        // A file of another version of this program is passed over until its scenario runs again.
        if let Ok(results) = serde_json::from_str(&text) {
            all.push(results);
        }
    }
    std::fs::write(folder.join("fetch.md"), markdown(&all)).context("fetch.md")?;
    Ok(())
}

/// Writes `results/fetch-link.json`.
pub fn write_link(carried: &[Carried]) -> Result<()> {
    std::fs::create_dir_all(folder()).context("results")?;
    let json = serde_json::to_string_pretty(carried)? + "\n";
    std::fs::write(folder().join("fetch-link.json"), json).context("fetch-link.json")
}

/// One scenario's table.
pub fn table(results: &Results) -> String {
    let mut text = String::from(
        "| side | MB/s | least to most | M records/s | first after s | CPU s/GB | CPU s/M records | broker CPU s/GB | memory MiB | ours/this |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in &results.rows {
        let rate = &row.megabytes_per_second;
        let ratio = row.ours_over_this.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {}{} | {:.1} | {:.1} to {:.1} | {:.3} | {:.2} | {:.2} | {:.2} | {:.2} | {:.0} | {ratio} |",
            row.side,
            if row.tls { " (TLS)" } else { "" },
            rate.median,
            rate.min,
            rate.max,
            row.records_per_second.median / 1e6,
            row.first_seconds,
            row.cpu_seconds_per_gb,
            row.cpu_seconds_per_million,
            row.broker_cpu_seconds_per_gb,
            row.peak_mib,
        );
    }
    for verdict in &results.verdicts {
        let measured = verdict.measured.map_or_else(|| "not measured".to_owned(), |value| format!("{value:.2}"));
        let met = if verdict.met { "met" } else { "not met" };
        let _ = writeln!(text, "\n- {}: {measured}, **{met}**", verdict.target);
    }
    for row in &results.rows {
        if let Some(gap) = row.longest_gap_ms {
            let _ = writeln!(text, "\n- {}: the longest wait after a pause was {gap:.0} ms", row.side);
        }
        if let Some(note) = &row.note {
            let _ = writeln!(text, "\n- {} says: `{note}`", row.side);
        }
    }
    for (way, totals) in ["to the broker", "to the client"].iter().zip(results.link.iter().flatten()) {
        let late = totals.late as f64 / totals.packets.max(1) as f64 * 100.0;
        let _ = writeln!(
            text,
            "\n- link {way}: {} packets, {late:.1} % of them more than 1 ms late, the latest {:.1} ms; {} lost, {} lost to a full queue",
            totals.packets,
            totals.latest_us as f64 / 1e3,
            totals.lost,
            totals.overflowed + totals.refused,
        );
    }
    for why in &results.left_out {
        let _ = writeln!(text, "\n- left out: {why}");
    }
    text
}

/// All scenarios as Markdown.
fn markdown(all: &[Results]) -> String {
    let mut text = String::from(
        "# Reading a backlog\n\n\
         Each client reads the same topic from a real Apache Kafka, in a process of its own, in turns with the others; figures\n\
         are medians over the rounds. MB/s (10^6 bytes) counts values, from the making of the consumer to the last record;\n\
         a client that has not read everything some seconds after its first record counts with what it has read. CPU is that of the client's\n\
         process, user and system. `../README.md` tells how the link is emulated and what each scenario asks.\n\n\
         | scenario | ours MB/s | best peer | its MB/s | ratio | targets |\n|---|---|---|---|---|---|\n",
    );
    for results in all {
        let ours = results.rows.iter().find(|row| row.side.starts_with("tidegate"));
        let peers = results.rows.iter().filter(|row| !row.side.starts_with("tidegate"));
        let rate = |row: &Row| row.megabytes_per_second.median;
        let best = peers.max_by(|one, two| rate(one).total_cmp(&rate(two)));
        let figure = |row: Option<&Row>| row.map_or_else(|| "-".to_owned(), |row| format!("{:.1}", rate(row)));
        let ratio =
            ours.zip(best).map_or_else(|| "-".to_owned(), |(ours, best)| format!("{:.1}", rate(ours) / rate(best)));
        let met = results.verdicts.iter().filter(|verdict| verdict.met).count();
        let _ = writeln!(
            text,
            "| [{0}](#{0}) | {1} | {2} | {3} | {ratio} | {4} |",
            results.scenario,
            figure(ours),
            best.map_or("-", |row| row.side.as_str()),
            figure(best),
            if results.verdicts.is_empty() { "-".to_owned() } else { format!("{met} of {}", results.verdicts.len()) },
        );
    }
    for results in all {
        section(&mut text, results);
    }
    text
}

fn section(text: &mut String, results: &Results) {
    let unknown = || "not told".to_owned();
    let machine = &results.machine;
    let _ = write!(
        text,
        "\n## {}\n\n{}{}.\n\n`{}`\n\n![{0}](fetch-{0}.svg)\n\n{}\n",
        results.scenario,
        results.asks,
        if results.loss > 0.0 { format!("; {} of packets lost each way", results.loss) } else { String::new() },
        results.command,
        table(results)
    );
    let loads: Vec<f64> = results.rows.iter().flat_map(|row| row.runs.iter().filter_map(|run| run.load)).collect();
    let (least, most) =
        loads.iter().fold((f64::MAX, 0.0_f64), |(least, most), load| (least.min(*load), most.max(*load)));
    let link = match results.round_trip_ms {
        Some(ms) => format!(
            "emulated, {ms} ms there and back, {}",
            results.rate.map_or("no rate of its own".to_owned(), |rate| format!("{rate} bytes/s"))
        ),
        None => "loopback".to_owned(),
    };
    let tcp = |settings: &std::collections::BTreeMap<String, String>| {
        settings.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join("; ")
    };
    let _ = write!(
        text,
        "- topic: {}\n- link: {link}\n- broker: {}, socket.send.buffer.bytes = {}\n- TCP of the clients: {}\n\
         - all sides read the same first {} records: sum of CRC-32 {}\n\
         - {}; {} at once, {} MiB, Linux {}; {}; commit {}; {}\n\
         - {} rounds, each stopped {} s after its first record at the latest; load averages before the runs: {least} to {most}\n",
        results.topic,
        results.broker,
        results.send_buffer_bytes,
        tcp(&results.client_tcp),
        results.verified_records,
        results.hash,
        machine.cpu.clone().unwrap_or_else(unknown),
        machine.cpus.map_or_else(unknown, |cpus| cpus.to_string()),
        machine.memory_mib.map_or_else(unknown, |mib| mib.to_string()),
        machine.kernel.clone().unwrap_or_else(unknown),
        machine.rustc.clone().unwrap_or_else(unknown),
        machine.commit.clone().unwrap_or_else(unknown),
        machine.date.clone().unwrap_or_else(unknown),
        results.rounds,
        results.limit_seconds,
    );
    for row in &results.rows {
        let settings: Vec<String> = row.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let _ = writeln!(
            text,
            "- {}: {}{}{}",
            row.side,
            row.version,
            if row.checks_crcs { ", checks CRCs" } else { ", does not check CRCs" },
            if settings.is_empty() { String::new() } else { format!(", {}", settings.join(", ")) },
        );
    }
}
