//! `alluvium feed sync`: push and pull.

use clap::Args;

use super::place::Place;
use super::{conflicts, failure, follow, status};
use crate::stream::failure::Failure;
use crate::stream::interrupt::{Work, watch_over};

/// What `--help` says first.
pub(super) const LONG_ABOUT: &str = "\
Push what waits in the file, and pull what it replicates.

Ends once nothing is left to do. With --follow it goes on: what other commands append to the file is pushed at once, \
and what others append at the server comes within moments.

A server that cannot be reached is waited for until --give-up-after; with --follow, for ever. Nothing is lost or \
doubled by stopping it, by killing it, or by a server that was restored from a backup: what it has lost is pushed again.

A block that the server refuses for good stays in the file and holds up no other; `feed status` says which feed it is of, \
and why. It is tried again with --retry-refused; what a token may not write, each time.

Where another process synchronises the file, this waits for it, and does the work itself if that one ends or gets no further.";

/// Arguments of `alluvium feed sync`.
#[derive(Debug, Args)]
pub(super) struct SyncArgs {
    /// Go on until stopped.
    #[arg(long)]
    follow: bool,

    /// First let blocks that were refused be tried again.
    #[arg(long)]
    retry_refused: bool,

    /// Print the state afterwards as a JSON object on standard output.
    #[arg(long, conflicts_with = "follow")]
    json: bool,
}

pub(super) fn run(place: &Place, args: &SyncArgs) -> Result<(), Failure> {
    let opened = place.open()?;
    if args.retry_refused {
        opened.space.retry_refused(None).map_err(failure::replica)?;
    }
    let marker = watch_over(Work::Appending, place.notes(), None)?;
    if args.follow {
        let mut last = None;
        return follow::while_synchronising(place, &opened, false, || {
            let status = opened.space.status().map_err(failure::replica)?;
            let line = status::summary(&status);
            if last.as_ref() != Some(&line) {
                place.notes().note(&line);
                marker.reach(line.clone());
                last = Some(line);
            }
            Ok(false)
        });
    }
    let done = follow::bring_up_to_date(place, &opened)?;
    if args.json {
        status::print_json(&opened, &done)?;
    } else {
        place.notes().note(status::summary(&done));
    }
    conflicts::told(&opened, &done)
}
