//! The results, for machines and for people.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::Results;

/// Writes `results/readers.json` and `results/readers.md`.
pub fn write(results: &Results) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    std::fs::create_dir_all(&folder).context("results")?;
    let json = serde_json::to_string_pretty(results)? + "\n";
    std::fs::write(folder.join("readers.json"), json).context("readers.json")?;
    std::fs::write(folder.join("readers.md"), markdown(results) + "\n").context("readers.md")?;
    Ok(())
}

/// The results as Markdown.
pub fn markdown(results: &Results) -> String {
    let machine = &results.machine;
    let unknown = || "not told".to_owned();
    let mut text = format!(
        "# {} gRPC readers at once over a year of records\n\n\
         `{}`\n\n\
         The server is `tidegate demo` with the embedded broker, in one process; the readers are in another one on the same\n\
         machine and share its processors. Each reader has a connection of its own and reads the whole topic `flights`.\n\n\
         | run | seconds | MB/s | M records/s | messages | CPU server | CPU readers | memory idle | memory at most |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        results.readers, results.command
    );
    for run in &results.runs {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {:.2} | {:.0} | {:.2} | {} | {} | {} | {:.0} MiB | {:.0} MiB |",
            run.name,
            run.seconds,
            run.megabytes_per_second,
            run.records_per_second / 1e6,
            run.messages,
            run.server_cpu_seconds.map_or_else(unknown, |seconds| format!("{seconds:.1} s")),
            run.readers_cpu_seconds.map_or_else(unknown, |seconds| format!("{seconds:.1} s")),
            run.idle_mib,
            run.peak_mib
        );
    }
    if let (Some(load), Some(cpus)) = (machine.load, machine.cpus)
        && load > cpus as f64 / 2.0
    {
        let _ = write!(
            text,
            "\nThe machine was busy with other work (load {load} before the first run): the seconds and what follows from them are\n\
             too bad. Processor times, memory and hashes stand.\n"
        );
    }
    let records = results.runs.first().map_or(0, |run| run.records) / results.readers.max(1) as u64;
    let _ = write!(
        text,
        "\nMB/s (10^6 bytes) counts keys and values. In the run `stalled` every reader takes one message and then none until the\n\
         server's memory has stopped growing; its time is without that pause. The memory is the server's resident set.\n\n\
         All readers of all runs got the same {records} records by hash (XXH3, 128 bits, of offset, timestamp, key and value in\n\
         order):\n\n"
    );
    for (partition, hash) in &results.hashes {
        let _ = writeln!(text, "- partition {partition}: `{hash}`");
    }
    let bound = &results.bound;
    let _ = write!(
        text,
        "\n## Bound\n\n{:.0} MiB: {:.0} MiB for the process and {:.0} MiB for each of {} readers. It was {}.\n\n\
         | for each reader | MiB |\n|---|---|\n",
        bound.total_mib,
        bound.base_mib,
        bound.read_mib,
        results.readers,
        if results.within_bound { "kept" } else { "BROKEN" }
    );
    for (part, mib) in &bound.parts {
        let _ = writeln!(text, "| {part} | {mib:.0} |");
    }
    let _ = write!(
        text,
        "\n## Machine\n\n- {} ({} at once), {} MiB, Linux {}\n- {}, {}, commit {}\n- {}, {} partition(s), load before: {}",
        machine.cpu.clone().unwrap_or_else(unknown),
        machine.cpus.map_or_else(unknown, |cpus| cpus.to_string()),
        machine.memory_mib.map_or_else(unknown, |mib| mib.to_string()),
        machine.kernel.clone().unwrap_or_else(unknown),
        results.tidegate.clone().unwrap_or_else(unknown),
        machine.rustc.clone().unwrap_or_else(unknown),
        machine.commit.clone().unwrap_or_else(unknown),
        machine.date.clone().unwrap_or_else(unknown),
        results.partitions,
        machine.load.map_or_else(unknown, |load| load.to_string()),
    );
    text
}
