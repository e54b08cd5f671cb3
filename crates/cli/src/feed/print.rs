//! Blocks on standard output.

use std::io::{self, StdoutLock, Write};

use alluvium_feed_client::{Block, Id};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde::Serialize;

use crate::stream::failure::Failure;

/// How blocks are printed.
#[derive(Debug, Args)]
pub(super) struct FormatArgs {
    /// A JSON object for each block: its feed, position, sequence, author, time and data.
    #[arg(long)]
    json: bool,

    /// Data as it is, with nothing between blocks.
    #[arg(long, conflicts_with = "json")]
    raw: bool,
}

/// A block as `--json` prints it. Data that is text is in `text`, other data in base64 in `data`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Printed<'a> {
    feed: &'a Id,
    position: Option<u64>,
    sequence: u64,
    actor: &'a Id,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    sealed: bool,
}

/// Prints blocks as the options say.
pub(super) struct Printer<'a> {
    out: StdoutLock<'static>,
    format: &'a FormatArgs,
}

impl<'a> Printer<'a> {
    pub(super) fn new(format: &'a FormatArgs) -> Self {
        Self { out: io::stdout().lock(), format }
    }

    /// Prints some blocks, all of `feed` unless they say otherwise.
    pub(super) fn print(&mut self, blocks: &[Block], feed: Option<&Id>) -> Result<(), Failure> {
        self.write(blocks, feed).and_then(|()| self.out.flush()).map_err(|error| Failure::output(&error))
    }

    fn write(&mut self, blocks: &[Block], feed: Option<&Id>) -> io::Result<()> {
        for block in blocks {
            if self.format.raw {
                self.out.write_all(&block.data.0)?;
                continue;
            }
            if self.format.json {
                let feed = feed.or(block.feed_id.as_ref()).unwrap_or(&block.actor_id);
                serde_json::to_writer(&mut self.out, &printed(block, feed))?;
            } else {
                self.out.write_all(&block.data.0)?;
            }
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }
}

fn printed<'a>(block: &'a Block, feed: &'a Id) -> Printed<'a> {
    let sealed = block.encryption_key_id.is_some();
    let text = std::str::from_utf8(&block.data.0).ok().filter(|_| !sealed);
    Printed {
        feed,
        position: block.position,
        sequence: block.sequence,
        actor: &block.actor_id,
        namespace: block.namespace.as_ref().map(alluvium_feed_client::Namespace::as_str),
        timestamp: block.timestamp,
        text,
        data: text.is_none().then(|| STANDARD.encode(&block.data.0)),
        sealed,
    }
}

/// Prints one JSON object on a line.
pub(super) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let printed = serde_json::to_writer(&mut out, value).map_err(Into::into).and_then(|()| writeln!(out));
    printed.and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

/// Prints a line of text.
pub(super) fn line(text: impl std::fmt::Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}
