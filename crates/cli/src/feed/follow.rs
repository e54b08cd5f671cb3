//! Commands that meet the server: once, or as long as they run.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use alluvium_feed_client::{Space, SyncStatus};
use indicatif::{ProgressBar, ProgressStyle};

use super::place::{Opened, Place};
use super::{conflicts, failure};
use crate::stream::failure::Failure;

/// How often a command that waits for another process looks, in milliseconds.
const LOOK_MS: u64 = 200;
/// A bar is shown for what takes longer, in milliseconds.
const BAR_AFTER_MS: u64 = 1000;
/// How often a bar is drawn anew, in milliseconds.
const BAR_EVERY_MS: u64 = 200;

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| Failure::Other(format!("no runtime: {error}")))
}

/// Pushes and pulls what there is. Another process that synchronises the file already does the work; then it is waited
/// for.
pub(super) fn bring_up_to_date(place: &Place, opened: &Opened) -> Result<SyncStatus, Failure> {
    let patience = place.patience();
    let claim = opened.client.claim().map_err(|error| Failure::Other(format!("cannot lock: {error}")))?;
    let runtime = runtime()?;
    let server = place.server()?;
    let status = runtime.block_on(async {
        let working = async {
            if claim.is_some() {
                opened.space.sync(&server, patience).await.map_err(failure::sync)
            } else {
                place.notes().note("another process synchronises this file: waiting for it");
                wait_for_other(opened, patience).await
            }
        };
        tokio::select! {
            ended = working => ended,
            () = show_progress(place, &opened.space) => unreachable_status(&opened.space),
        }
    });
    // Threads of calls that were given up must not hold up the end.
    runtime.shutdown_background();
    status
}

/// The bar never ends by itself.
fn unreachable_status(space: &Space) -> Result<SyncStatus, Failure> {
    space.status().map_err(failure::replica)
}

async fn wait_for_other(opened: &Opened, patience: Duration) -> Result<SyncStatus, Failure> {
    let waiting = async {
        loop {
            let status = opened.space.status().map_err(failure::replica)?;
            if status.is_done() {
                return Ok(status);
            }
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
        }
    };
    let timeout = || Failure::Unavailable("the process that synchronises this file is not done".to_owned());
    tokio::time::timeout(patience, waiting).await.unwrap_or_else(|_| Err(timeout()))
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
    let claim = if is_offline {
        None
    } else {
        opened.client.claim().map_err(|error| Failure::Other(format!("cannot lock: {error}")))?
    };
    if claim.is_none() && !is_offline {
        place.notes().note("another process synchronises this file: only looking");
    }
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let mut changes = opened.space.changes();
        let syncing = match claim {
            Some(_) => Some(opened.space.start(&place.server()?).map_err(failure::start)?),
            None => None,
        };
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
