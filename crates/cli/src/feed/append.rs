//! `alluvium feed append`: standard input, or texts from the command line, into the file.

use std::io::{self, BufRead, BufReader, IsTerminal, Read};

use alluvium_feed_client::{Id, Namespace};
use clap::Args;
use serde::Serialize;

use super::place::{Opened, Place};
use super::{conflicts, failure, follow, print};
use crate::stream::failure::Failure;
use crate::stream::interrupt::{Marker, Work, watch_over};
use crate::stream::progress::Progress;

/// Most blocks of one transaction.
const BATCH_BLOCKS_MAX: usize = 500;
/// Bytes from which a transaction takes no further block.
const BATCH_BYTES_MAX: usize = 1024 * 1024;
/// Largest block, as the library has it by default, in bytes.
const BLOCK_BYTES_MAX: usize = 256 * 1024;

/// What `--help` says first.
pub(super) const LONG_ABOUT: &str = "\
Append standard input, or texts given as arguments, to a feed in the file.

Each line of standard input is a block, without its line end; with --whole the input is one block. What has been \
appended is durable in the file, whether there is a server or not. It is pushed with --sync, by the next `feed sync`, \
or at once by a `feed sync --follow` or `feed tail` that runs on the same file.

A slow program is followed live: what it has written is appended as soon as it is there.";

/// Arguments of `alluvium feed append`.
#[derive(Debug, Args)]
pub(super) struct AppendArgs {
    /// The feed [default: the file's own].
    feed: Option<String>,

    /// Append this text in place of standard input; may be repeated.
    #[arg(long = "message", short, value_name = "TEXT", allow_hyphen_values = true)]
    messages: Vec<String>,

    /// All of standard input is one block.
    #[arg(long, conflicts_with = "messages")]
    whole: bool,

    /// The namespace of the feed, if it is new.
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// Synchronise with the server afterwards.
    #[arg(long)]
    sync: bool,

    /// Print the outcome as a JSON object on standard output.
    #[arg(long)]
    json: bool,
}

/// The outcome, as `--json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    space: &'a Id,
    feed: &'a Id,
    actor: &'a Id,
    appended: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_sequence: Option<u64>,
    blocks_to_push: u64,
    blocks_refused: u64,
    conflicts: u64,
}

/// Appends batches to one feed.
struct Writer<'a> {
    opened: &'a Opened,
    feed: &'a Id,
    namespace: Option<Namespace>,
    marker: Marker,
    appended: u64,
    last_sequence: Option<u64>,
}

impl Writer<'_> {
    fn append(&mut self, batch: Vec<Vec<u8>>) -> Result<(), Failure> {
        self.marker.leave();
        let appended = self.opened.space.append_all(self.feed, self.namespace.as_ref(), batch);
        let appended = appended.map_err(failure::replica)?;
        self.appended += appended.len() as u64;
        self.last_sequence = appended.last().map(|last| last.sequence).or(self.last_sequence);
        self.marker.reach(self.place());
        Ok(())
    }

    fn place(&self) -> String {
        format!("{} appended to `{}`", conflicts::blocks(self.appended), self.feed)
    }
}

pub(super) fn run(place: &Place, args: &AppendArgs) -> Result<(), Failure> {
    let opened = place.create()?;
    let feed = opened.feed(args.feed.as_deref())?;
    let namespace = args
        .namespace
        .as_deref()
        .map(|name| Namespace::parse(name).map_err(|error| Failure::Usage(format!("`{name}`: {error}"))));
    let marker = watch_over(Work::Appending, place.notes(), None)?;
    let namespace = namespace.transpose()?;
    let mut writer =
        Writer { opened: &opened, feed: &feed, namespace, marker, appended: 0, last_sequence: None };
    let outcome = if !args.messages.is_empty() {
        writer.append(args.messages.iter().map(|text| text.clone().into_bytes()).collect())
    } else if args.whole {
        whole().and_then(|block| writer.append(vec![block]))
    } else {
        lines(place, &mut writer)
    };
    if outcome.is_err() || !args.json {
        place.notes().note(writer.place());
    }
    outcome?;
    let synced = args.sync.then(|| follow::bring_up_to_date(place, &opened));
    let (status, failed) = match synced {
        Some(Ok(status)) => (status, None),
        Some(Err(failure)) => (opened.space.status().map_err(failure::replica)?, Some(failure)),
        None => (opened.space.status().map_err(failure::replica)?, None),
    };
    if args.json {
        let actor = opened.client.replica().actor().clone();
        print::json(&Report {
            space: opened.space.id(),
            feed: &feed,
            actor: &actor,
            appended: writer.appended,
            last_sequence: writer.last_sequence,
            blocks_to_push: status.blocks_to_push,
            blocks_refused: status.blocks_refused,
            conflicts: status.conflicts,
        })?;
    }
    match failed {
        Some(failure) => {
            if status.blocks_to_push > 0 {
                let waiting = conflicts::blocks(status.blocks_to_push);
                let file = place.db().display();
                let text = format_args!("safe in `{file}`, to be pushed by the next `feed sync`: {waiting}");
                place.notes().note(text);
            }
            Err(failure)
        }
        None if args.sync => conflicts::told(&opened, &status),
        None => Ok(()),
    }
}

/// All of standard input as one block.
fn whole() -> Result<Vec<u8>, Failure> {
    let mut block = Vec::new();
    let mut input = io::stdin().lock().take(BLOCK_BYTES_MAX as u64 + 1);
    input.read_to_end(&mut block).map_err(|error| Failure::input(&error))?;
    fits(block.len())?;
    Ok(block)
}

fn fits(bytes: usize) -> Result<(), Failure> {
    if bytes > BLOCK_BYTES_MAX {
        return Err(Failure::Other(format!("a block is larger than {BLOCK_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// Each line as a block; in one transaction what has come at once.
fn lines(place: &Place, writer: &mut Writer<'_>) -> Result<(), Failure> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        place.notes().note("reading from the terminal; Ctrl-D ends the input");
    }
    let mut progress = Progress::new(place.connection.quiet, &stdin, None);
    let mut input = BufReader::new(stdin.lock());
    let mut batch = Batch::default();
    while let Some(line) = next_line(&mut input)? {
        progress.add(line.len() + 1);
        batch.push(line);
        if batch.is_full() || !input.buffer().contains(&b'\n') {
            writer.append(batch.take())?;
        }
    }
    if batch.blocks.is_empty() { Ok(()) } else { writer.append(batch.take()) }
}

/// Blocks of one transaction.
#[derive(Default)]
struct Batch {
    blocks: Vec<Vec<u8>>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, block: Vec<u8>) {
        self.bytes += block.len();
        self.blocks.push(block);
    }

    fn is_full(&self) -> bool {
        self.blocks.len() >= BATCH_BLOCKS_MAX || self.bytes >= BATCH_BYTES_MAX
    }

    fn take(&mut self) -> Vec<Vec<u8>> {
        self.bytes = 0;
        std::mem::take(&mut self.blocks)
    }
}

/// The next line without its end, `None` at the end of the input. Reads no more of it than a block may have.
fn next_line(input: &mut impl BufRead) -> Result<Option<Vec<u8>>, Failure> {
    let mut line = Vec::new();
    let mut bounded = input.take(BLOCK_BYTES_MAX as u64 + 2);
    let read = bounded.read_until(b'\n', &mut line).map_err(|error| Failure::input(&error))?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    fits(line.len())?;
    Ok(Some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_blocks_without_their_ends_and_empty_ones_count() {
        let mut input = &b"a\n\nb\r\nlast"[..];
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut input).unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, [&b"a"[..], b"", b"b\r", b"last"]);
    }

    #[test]
    fn a_line_that_no_block_holds_is_refused_and_not_collected() {
        let largest = vec![b'x'; BLOCK_BYTES_MAX];
        assert_eq!(next_line(&mut &largest[..]).unwrap().unwrap().len(), BLOCK_BYTES_MAX);
        let mut endless = BufReader::new(io::repeat(b'x'));
        assert!(next_line(&mut endless).is_err());
    }
}
