//! Commands that meet the server: once, or as long as they run.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use alluvium_feed_client::{Claim, Space, SyncStatus};
use indicatif::{ProgressBar, ProgressStyle};

use super::place::{Opened, Place, now_ms};
use super::{conflicts, failure};
use crate::stream::failure::Failure;

/// How often a command that waits for another process looks, in milliseconds.
const LOOK_MS: u64 = 200;
/// For how long that process may get no further before the work is done twice, in milliseconds.
const IDLE_MS: u64 = 1000;
/// A server that has not answered for so long is told of, in milliseconds.
const TROUBLE_AFTER_MS: u64 = 2000;
/// A bar is shown for what takes longer, in milliseconds.
const BAR_AFTER_MS: u64 = 1000;
/// How often a bar is drawn anew, in milliseconds.
const BAR_EVERY_MS: u64 = 200;

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| Failure::Other(format!("no runtime: {error}")))
}

/// Pushes and pulls what there is. Another process that synchronises the file already does the work; then it is waited
/// for, as long as it gets on.
pub(super) fn bring_up_to_date(place: &Place, opened: &Opened) -> Result<SyncStatus, Failure> {
    let (patience, began_ms) = (place.patience(), now_ms());
    let claim = claim(opened)?;
    let runtime = runtime()?;
    let server = place.server()?;
    let status = runtime.block_on(async {
        let working = async {
            let _claim = match claim {
                Some(claim) => Some(claim),
                None => match tokio::time::timeout(patience, wait_for_other(place, opened)).await {
                    Ok(waited) => match waited? {
                        Waited::Done(status) => return Ok(*status),
                        Waited::Ours(claim) => claim,
                    },
                    Err(_) => None,
                },
            };
            let waited = Duration::from_millis(now_ms().saturating_sub(began_ms));
            opened.space.sync(&server, patience.saturating_sub(waited)).await.map_err(failure::sync)
        };
        tokio::pin!(working);
        tokio::select! {
            ended = &mut working => return ended,
            () = tokio::time::sleep(Duration::from_millis(TROUBLE_AFTER_MS)) => {}
        }
        if let Some(error) = opened.space.status().map_err(failure::replica)?.last_error {
            place.notes().note(format_args!("{error}; trying again"));
        }
        tokio::select! {
            ended = working => ended,
            () = show_progress(place, &opened.space) => unreachable_status(&opened.space),
        }
    });
    // Threads of calls that were given up must not hold up the end.
    runtime.shutdown_background();
    status
}

fn claim(opened: &Opened) -> Result<Option<Claim>, Failure> {
    opened.client.claim().map_err(|error| Failure::Other(format!("cannot lock: {error}")))
}

/// The bar never ends by itself.
fn unreachable_status(space: &Space) -> Result<SyncStatus, Failure> {
    space.status().map_err(failure::replica)
}

/// What came of waiting for another process.
enum Waited {
    /// It has heard of the server since, and nothing is left to do.
    Done(Box<SyncStatus>),
    /// The work is to be done here. Without a claim, as the other process is there and gets nowhere: both doing it does no
    /// harm.
    Ours(Option<Claim>),
}

/// Waits until the process that synchronises the file is done, has ended, or gets no further.
async fn wait_for_other(place: &Place, opened: &Opened) -> Result<Waited, Failure> {
    place.notes().note("another process synchronises this file: waiting for it");
    let began_ms = now_ms();
    let (mut last, mut idle_ms) = (None, 0);
    loop {
        let status = opened.space.status().map_err(failure::replica)?;
        // What the file says may be of long ago, if that process cannot reach the server.
        if status.is_done() && status.last_ok_at.is_some_and(|heard| heard >= began_ms) {
            return Ok(Waited::Done(Box::new(status)));
        }
        if let Some(claim) = claim(opened)? {
            return Ok(Waited::Ours(Some(claim)));
        }
        idle_ms = if last.as_ref() == Some(&status) { idle_ms + LOOK_MS } else { 0 };
        if idle_ms >= IDLE_MS {
            return Ok(Waited::Ours(None));
        }
        last = Some(status);
        tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
    }
}

/// Draws what is left to do, if somebody looks and it takes long enough. Never ends.
async fn show_progress(place: &Place, space: &Space) {
    let is_seen = !place.connection.quiet && std::io::stderr().is_terminal();
    tokio::time::sleep(Duration::from_millis(BAR_AFTER_MS)).await;
    if !is_seen {
        return std::future::pending().await;
    }
    let bar = Bar(ProgressBar::no_length());
    let style = ProgressStyle::with_template("{wide_bar} {msg}");
    bar.0.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut most = 0;
    loop {
        if let Ok(status) = space.status() {
            let left = status.blocks_to_pull + status.blocks_to_push;
            most = most.max(left);
            bar.0.set_length(most);
            bar.0.set_position(most - left);
            let trouble = status.last_error.as_deref().map(|error| format!(": {error}"));
            bar.0.set_message(format!(
                "{} to pull, {} to push{}",
                status.blocks_to_pull,
                status.blocks_to_push,
                trouble.unwrap_or_default()
            ));
        }
        tokio::time::sleep(Duration::from_millis(BAR_EVERY_MS)).await;
    }
}

/// A bar that leaves no trace.
struct Bar(ProgressBar);

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
        drop(std::io::stderr().flush());
    }
}

/// Synchronises as long as it runs, and calls `look` whenever something has changed, until it says that it is enough.
pub(super) fn while_synchronising(
    place: &Place,
    opened: &Opened,
    is_offline: bool,
    mut look: impl FnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let mut held = if is_offline { None } else { claim(opened)? };
    if held.is_none() && !is_offline {
        place.notes().note("another process synchronises this file: only looking");
    }
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let mut changes = opened.space.changes();
        let start = || opened.space.start(&place.server()?).map_err(failure::start);
        let mut syncing = held.is_some().then(start).transpose()?;
        let mut trouble = Trouble::default();
        loop {
            changes.mark_unchanged();
            if look()? {
                return Ok(());
            }
            if syncing.is_some() {
                trouble.look(place, opened)?;
            }
            let pause = tokio::time::sleep(Duration::from_millis(LOOK_MS));
            tokio::select! {
                _ = changes.changed() => {}
                () = pause => opened.space.notice_others().map_err(failure::replica)?,
            }
            if held.is_none() && !is_offline {
                held = claim(opened)?;
                if held.is_some() {
                    place.notes().note("the other process has ended: synchronising");
                    syncing = Some(start()?);
                }
            }
        }
    });
    runtime.shutdown_background();
    ended
}

/// Tells once that the server is away, and once that it is back; and whenever more blocks are refused or set aside.
#[derive(Default)]
struct Trouble {
    is_on: bool,
    refused: u64,
    conflicts: u64,
}

impl Trouble {
    fn look(&mut self, place: &Place, opened: &Opened) -> Result<(), Failure> {
        let status = opened.space.status().map_err(failure::replica)?;
        if status.stopped.is_some() {
            return Err(failure::refused(&status));
        }
        match (&status.last_error, self.is_on) {
            (Some(error), false) => place.notes().note(format_args!("{error}; trying again")),
            (None, true) => place.notes().note("the server answers again"),
            _ => {}
        }
        self.is_on = status.last_error.is_some();
        if status.blocks_refused > self.refused {
            place.notes().note(conflicts::refused(&status));
        }
        self.refused = status.blocks_refused;
        if status.conflicts > self.conflicts {
            place.notes().note(conflicts::described(opened)?);
        }
        self.conflicts = status.conflicts;
        Ok(())
    }
}
