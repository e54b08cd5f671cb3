//! `alluvium jetstream inspect`: what segment files have, and whether all of it can be read.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use alluvium_env::{Disk as _, OpenMode, RealDisk};
use alluvium_jss::{Inspection, ReadLimits};
use alluvium_server::words::counted;
use clap::Args;
use serde_json::{Value, json};

use crate::exit_codes_help;

/// A file is damaged or could not be read.
const EXIT_DAMAGED: u8 = 1;
/// How it ends.
const EXIT_CODES: &[(u8, &str)] = &[
    (0, "Every file was read as a whole and is as it should be."),
    (EXIT_DAMAGED, "A file is damaged, is no segment, or could not be read."),
    (2, "Wrong arguments."),
];

/// What the help says after the options.
pub(crate) fn after_help() -> String {
    exit_codes_help(EXIT_CODES)
}

/// The part of the page of options that is about this command.
pub(crate) fn docs_markdown() -> String {
    let mut page = String::from(
        "\n## `alluvium jetstream inspect`\n\n\
         Segment files as arguments; `--json` prints one object a line, `--blocks` a line for each block too.\n\n\
         ## Exit codes of `alluvium jetstream inspect`\n\n",
    );
    alluvium_server::config::exit_codes(&mut page, EXIT_CODES);
    page
}

/// Arguments of `alluvium jetstream inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Segment files, sealed or active. They are not changed.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print one JSON object a line for each file.
    #[arg(long)]
    json: bool,
    /// Print every block.
    #[arg(long)]
    blocks: bool,
}

/// Runs the command.
pub(crate) fn run(args: &InspectArgs) -> ExitCode {
    let mut out = io::stdout().lock();
    let mut failed = false;
    for path in &args.files {
        let found = look(path);
        failed |= found.is_err();
        let printed = match (&found, args.json) {
            (Ok(found), true) => writeln!(out, "{}", as_json(path, found, args.blocks)),
            (Ok(found), false) => print(&mut out, path, found, args.blocks),
            (Err(error), true) => {
                writeln!(out, "{}", json!({ "file": path.display().to_string(), "error": error }))
            }
            (Err(error), false) => writeln!(io::stderr(), "error: {}: {error}", path.display()),
        };
        // Whoever reads this has seen enough.
        if printed.is_err() {
            break;
        }
    }
    if failed { ExitCode::from(EXIT_DAMAGED) } else { ExitCode::SUCCESS }
}

fn look(path: &Path) -> Result<Inspection, String> {
    let file = RealDisk.open(path, OpenMode::Read).map_err(|error| error.to_string())?;
    alluvium_jss::inspect(&*file, ReadLimits::default()).map_err(|error| error.to_string())
}

/// A time in microseconds since the Unix epoch, as people write it.
fn time(us: i64) -> String {
    jiff::Timestamp::from_microsecond(us).map_or_else(|_| format!("{us} µs"), |time| time.to_string())
}

fn rows(found: &Inspection) -> u64 {
    found.blocks.iter().map(|block| u64::from(block.event_count)).sum()
}

/// A column of widths, a line each.
fn line(out: &mut impl Write, name: &str, value: impl std::fmt::Display) -> io::Result<()> {
    writeln!(out, "  {name:<12} {value}")
}

fn print(out: &mut impl Write, path: &Path, found: &Inspection, blocks: bool) -> io::Result<()> {
    writeln!(out, "{}", path.display())?;
    match &found.header {
        Some(header) => line(out, "state", format_args!("sealed, version {:016x}", header.checksum))?,
        None => line(out, "state", "active")?,
    }
    line(out, "size", format_args!("{} bytes", found.size_bytes))?;
    let (rows, count) = (rows(found), found.blocks.len());
    line(
        out,
        "events",
        format_args!(
            "{rows} in {}, of {}",
            counted(count as u64, "blocks"),
            counted(found.accounts.into(), "accounts")
        ),
    )?;
    if let (Some(first), Some(last)) = (found.blocks.first(), found.blocks.last()) {
        line(out, "numbers", format_args!("{} to {}", first.min_seq, last.max_seq))?;
        let first = found.blocks.iter().map(|block| block.min_witnessed_at).min().unwrap_or_default();
        let last = found.blocks.iter().map(|block| block.max_witnessed_at).max().unwrap_or_default();
        line(out, "seen", format_args!("{} to {}", time(first), time(last)))?;
        let (compressed, body) = bytes(found);
        line(out, "blocks", format_args!("{compressed} bytes compressed, {body} as they are"))?;
    }
    if found.header.is_some() {
        let (segment, block) = (found.filter_bytes, found.block_filter_bytes);
        line(out, "filters", format_args!("{segment} bytes for the segment, {block} for each block"))?;
    }
    if found.tail_bytes > 0 {
        line(out, "tail", format_args!("{} bytes behind the last whole block", found.tail_bytes))?;
    }
    let kinds: Vec<String> = found.kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    line(out, "kinds", kinds.join(", "))?;
    for (number, (collection, blocks)) in found.collections.iter().enumerate() {
        let name = if number == 0 { "collections" } else { "" };
        let events = if collection.is_sentinel() { "-".to_owned() } else { collection.events.to_string() };
        line(
            out,
            name,
            format_args!("{:<40} {events:>10} in {}", collection.name, counted((*blocks).into(), "blocks")),
        )?;
    }
    if blocks {
        writeln!(
            out,
            "  {:>5} {:>11} {:>9} {:>9} {:>7} {:>14} {:>14}  first seen",
            "block", "offset", "frame", "body", "events", "first", "last"
        )?;
        for (number, block) in found.blocks.iter().enumerate() {
            writeln!(
                out,
                "  {number:>5} {:>11} {:>9} {:>9} {:>7} {:>14} {:>14}  {}",
                block.offset,
                block.compressed_size,
                block.uncompressed_size,
                block.event_count,
                block.min_seq,
                block.max_seq,
                time(block.min_witnessed_at)
            )?;
        }
    }
    Ok(())
}

/// The lengths of all blocks, compressed and not.
fn bytes(found: &Inspection) -> (u64, u64) {
    let compressed = found.blocks.iter().map(|block| u64::from(block.compressed_size)).sum();
    (compressed, found.blocks.iter().map(|block| u64::from(block.uncompressed_size)).sum())
}

fn as_json(path: &Path, found: &Inspection, blocks: bool) -> Value {
    let kinds = found.kinds.iter().map(|(kind, count)| (kind.to_string(), json!(count)));
    let collections = found.collections.iter().map(|(collection, blocks)| {
        json!({ "name": collection.name, "events": collection.events, "blocks": blocks })
    });
    let (compressed, body) = bytes(found);
    let mut object = json!({
        "file": path.display().to_string(),
        "state": if found.header.is_some() { "sealed" } else { "active" },
        "sizeBytes": found.size_bytes,
        "eventCount": rows(found),
        "blockCount": found.blocks.len(),
        "accounts": found.accounts,
        "compressedBytes": compressed,
        "bodyBytes": body,
        "tailBytes": found.tail_bytes,
        "kinds": kinds.collect::<serde_json::Map<_, _>>(),
        "collections": collections.collect::<Vec<_>>(),
    });
    if let Some(header) = &found.header {
        object["checksum"] = json!(format!("{:016x}", header.checksum));
        object["minSeq"] = json!(header.min_seq);
        object["maxSeq"] = json!(header.max_seq);
        object["minWitnessedAt"] = json!(header.min_witnessed_at);
        object["maxWitnessedAt"] = json!(header.max_witnessed_at);
        object["filterBytes"] = json!(found.filter_bytes);
        object["blockFilterBytes"] = json!(found.block_filter_bytes);
    }
    if blocks {
        let blocks = found.blocks.iter().map(|block| {
            json!({
                "offset": block.offset,
                "compressedSize": block.compressed_size,
                "uncompressedSize": block.uncompressed_size,
                "eventCount": block.event_count,
                "minSeq": block.min_seq,
                "maxSeq": block.max_seq,
                "minWitnessedAt": block.min_witnessed_at,
                "maxWitnessedAt": block.max_witnessed_at,
            })
        });
        object["blocks"] = blocks.collect();
    }
    object
}
