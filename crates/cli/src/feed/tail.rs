//! `alluvium feed tail`: what comes into the file.

use alluvium_feed_client::{After, Id, LocalCursor, Space};
use clap::Args;

use super::place::{Opened, Place, id};
use super::print::{FormatArgs, Printer};
use super::{failure, follow};
use crate::stream::failure::Failure;
use crate::stream::interrupt::{Work, watch_over};

/// Blocks that are read at once.
const PAGE_BLOCKS: usize = 500;

/// What `--help` says first.
pub(super) const LONG_ABOUT: &str = "\
Show what comes in, and synchronise meanwhile.

Prints blocks as they come into the file: one's own at once, those of others when they arrive. With --settled a feed \
is printed in the order that everybody has, each block once it has its final place. What is there already is \
printed first with --from-start.

Only what is replicated arrives: see `feed replicate`. A server that cannot be reached is waited for. Ctrl-C ends it.";

/// Arguments of `alluvium feed tail`.
#[derive(Debug, Args)]
pub(super) struct TailArgs {
    /// The feed [default: all of the space].
    feed: Option<String>,

    /// Print what is there already first.
    #[arg(long)]
    from_start: bool,

    /// In the order that everybody has: each block once it has its final place.
    #[arg(long, requires = "feed")]
    settled: bool,

    /// Don't synchronise: show what other commands bring into the file.
    #[arg(long)]
    offline: bool,

    /// End after so many blocks.
    #[arg(long, value_name = "NUMBER")]
    limit: Option<usize>,

    #[command(flatten)]
    format: FormatArgs,
}

pub(super) fn run(place: &Place, args: &TailArgs) -> Result<(), Failure> {
    let opened = place.open()?;
    let feed = args.feed.as_deref().map(id).transpose()?;
    let _marker = watch_over(Work::Printing, place.notes(), None)?;
    let mut tail = Tail::new(&opened, feed, args)?;
    follow::while_synchronising(place, &opened, args.offline, || tail.print_new(&opened.space))
}

/// Where the output is.
struct Tail<'a> {
    feed: Option<Id>,
    printer: Printer<'a>,
    left: usize,
    at: At,
}

enum At {
    Arrival(Option<LocalCursor>),
    Settled(After),
}

impl<'a> Tail<'a> {
    fn new(opened: &Opened, feed: Option<Id>, args: &'a TailArgs) -> Result<Self, Failure> {
        let at = match (args.settled, args.from_start, &feed) {
            (true, true, _) | (true, false, None) => At::Settled(After::Start),
            (true, false, Some(feed)) => At::Settled(last_settled(&opened.space, feed)?),
            (false, true, _) => At::Arrival(None),
            (false, false, _) => {
                let end = opened.client.replica().tail_end().map_err(failure::replica)?;
                At::Arrival(Some(end))
            }
        };
        let left = args.limit.unwrap_or(usize::MAX);
        Ok(Self { feed, printer: Printer::new(&args.format), left, at })
    }

    /// Prints what is new. Whether that was all that is wanted.
    fn print_new(&mut self, space: &Space) -> Result<bool, Failure> {
        while self.left > 0 {
            let limit = self.left.min(PAGE_BLOCKS);
            let blocks = match (&mut self.at, &self.feed) {
                (At::Settled(after), Some(feed)) => {
                    let mut blocks = space.read(feed, after, limit).map_err(failure::replica)?;
                    blocks.retain(|block| block.position.is_some());
                    if let Some(last) = blocks.last() {
                        *after = After::block(last);
                    }
                    blocks
                }
                (At::Settled(_), None) => Vec::new(),
                (At::Arrival(after), feed) => {
                    let tailed =
                        space.tail(feed.as_ref(), after.as_ref(), limit).map_err(failure::replica)?;
                    *after = Some(tailed.next);
                    tailed.blocks
                }
            };
            if blocks.is_empty() {
                break;
            }
            self.left -= blocks.len();
            self.printer.print(&blocks, self.feed.as_ref())?;
        }
        Ok(self.left == 0)
    }
}

/// The last block of a feed that has its final place.
fn last_settled(space: &Space, feed: &Id) -> Result<After, Failure> {
    let mut last = After::Start;
    loop {
        let blocks = space.read(feed, &last, PAGE_BLOCKS).map_err(failure::replica)?;
        match blocks.iter().rev().find(|block| block.position.is_some()) {
            Some(block) => last = After::block(block),
            None => return Ok(last),
        }
    }
}
