//! `alluvium feed read`: what the file has of a feed.

use alluvium_feed_client::After;
use clap::Args;

use super::failure;
use super::place::Place;
use super::print::{FormatArgs, Printer};
use crate::stream::failure::Failure;
use crate::stream::interrupt::{Work, watch_over};

/// Blocks that are read at once.
const PAGE_BLOCKS: usize = 500;

/// What `--help` says first.
pub(super) const LONG_ABOUT: &str = "\
Print what the file has of a feed, in the feed's order.

Blocks that have their final place come first, by position; then what still waits for one, by sequence and author. \
Nobody is asked: `feed sync` fetches what others have appended.";

/// Arguments of `alluvium feed read`.
#[derive(Debug, Args)]
pub(super) struct ReadArgs {
    /// The feed [default: the file's own].
    feed: Option<String>,

    /// Only blocks after this position, and those that have none yet.
    #[arg(long, value_name = "POSITION", default_value_t = 0)]
    after: u64,

    /// At most so many blocks.
    #[arg(long, value_name = "NUMBER")]
    limit: Option<usize>,

    /// Only blocks that have their final place.
    #[arg(long)]
    settled: bool,

    #[command(flatten)]
    format: FormatArgs,
}

pub(super) fn run(place: &Place, args: &ReadArgs) -> Result<(), Failure> {
    let opened = place.open()?;
    let feed = opened.feed(args.feed.as_deref())?;
    let known = opened.space.feeds().map_err(failure::replica)?;
    if !known.iter().any(|known| known.feed_id == feed) {
        return Err(Failure::NotFound(format!(
            "nothing of `{feed}` is in the file; `feed ls` lists what is, `feed replicate` and `feed sync` fetch it"
        )));
    }
    let pruned = known.iter().find(|known| known.feed_id == feed).and_then(|known| known.pruned_below);
    if let Some(below) = pruned.filter(|below| *below > args.after + 1) {
        let note =
            format!("the server has removed blocks below position {below}: what is older may be missing");
        place.notes().note(&note);
    }
    let _marker = watch_over(Work::Printing, place.notes(), None)?;
    let mut printer = Printer::new(&args.format);
    let mut left = args.limit.unwrap_or(usize::MAX);
    let mut after = if args.after == 0 { After::Start } else { After::Position(args.after) };
    while left > 0 {
        let mut blocks = opened.space.read(&feed, &after, left.min(PAGE_BLOCKS)).map_err(failure::replica)?;
        let Some(last) = blocks.last() else { break };
        after = After::block(last);
        left -= blocks.len();
        if args.settled {
            blocks.retain(|block| block.position.is_some());
        }
        printer.print(&blocks, Some(&feed))?;
        if args.settled && !matches!(after, After::Position(_)) {
            break;
        }
    }
    Ok(())
}
