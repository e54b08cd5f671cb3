//! Downloading what was planned, on threads of its own: one asks for parts, the other decodes, filters and hands over.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread;

use alluvium_jss::Block;
use tokio::sync::{mpsc, oneshot};

use crate::error::Error;
use crate::event::Event;
use crate::events::{Counters, Handed, Shared};
use crate::plan::Entry;
use crate::segment::{Piece, download};

/// Blocks that are downloaded ahead. With them their part is held.
const AHEAD: usize = 1;

/// Where a download is.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Span {
    /// Everything up to this event is done with.
    pub(crate) after: u64,
    /// Later ones are for the live feed.
    pub(crate) tip: u64,
    /// Nothing is given out before the first event that was seen at this time or later.
    pub(crate) gate: Option<i64>,
}

/// Whether anybody takes what is handed over.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Taker {
    There,
    Gone,
}

/// Runs what blocks on a thread. Dropping the future leaves the thread to its end.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let (sender, receiver) = oneshot::channel();
    let run = move || drop(sender.send(work()));
    let thread = thread::Builder::new().name("jetstream-client".to_owned()).spawn(run);
    thread.map_err(|error| Error::Network(format!("a thread cannot be started: {error}")))?;
    receiver.await.map_err(|_| Error::Stopped)
}

/// Downloads the entries of a plan and hands over what passes. `span` says how far it came, also if it failed.
pub(crate) fn run(
    shared: &Arc<Shared>,
    counters: &Counters,
    entries: &[Entry],
    span: &mut Span,
    out: &mpsc::Sender<Handed>,
) -> Result<Taker, Error> {
    let (sender, pieces) = sync_channel::<Result<Piece, Error>>(AHEAD);
    let after = span.after;
    thread::scope(|scope| {
        let fetch = move || {
            for entry in entries {
                let limits = &shared.config.limits;
                let mut give = |piece| sender.send(Ok(piece)).is_ok();
                if let Err(error) = download(&shared.http, limits, entry, after, &mut give) {
                    // Nobody to be told: nobody is there any more.
                    drop(sender.send(Err(error)));
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("jetstream-fetch".to_owned()).spawn_scoped(scope, fetch);
        thread.map_err(|error| Error::Network(format!("a thread cannot be started: {error}")))?;
        // Consumed here, so that an early end also ends the other thread.
        for piece in pieces {
            let piece = piece?;
            counters.bytes.fetch_add(piece.bytes() as u64, Ordering::Relaxed);
            let block = piece.decode(&shared.config.limits)?;
            if give(shared, &block, span, out) == Taker::Gone {
                return Ok(Taker::Gone);
            }
        }
        Ok(Taker::There)
    })
}

/// Hands over what passes of a block.
fn give(shared: &Shared, block: &Block, span: &mut Span, out: &mpsc::Sender<Handed>) -> Taker {
    let limits = &shared.config.limits;
    let (mut events, mut bytes) = (Vec::new(), 0);
    // A block can come again after a new plan; what was given out of it is passed over.
    for row in (block.first_at(span.after.saturating_add(1))..block.len()).map(|row| block.row(row)) {
        if row.seq > span.tip {
            break;
        }
        span.after = row.seq;
        if span.gate.is_some_and(|time| row.witnessed_at < time) {
            continue;
        }
        span.gate = None;
        if !shared.filter.has(&row) {
            continue;
        }
        let Some(event) = Event::of_row(&row, shared.config.form) else { continue };
        bytes += event.line.len();
        events.push(event);
        if events.len() >= limits.batch_events || bytes >= limits.batch_bytes {
            bytes = 0;
            let batch = Handed::Batch { events: std::mem::take(&mut events), through: span.after };
            if out.blocking_send(batch).is_err() {
                return Taker::Gone;
            }
        }
    }
    // Before the time that was asked for there is no cursor to go on from.
    if span.gate.is_none() && out.blocking_send(Handed::Batch { events, through: span.after }).is_err() {
        return Taker::Gone;
    }
    Taker::There
}
