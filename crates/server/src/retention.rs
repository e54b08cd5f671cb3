//! Has streams end that the operator's rules say are to go, and gives up the beginning of others, now and then.

use std::time::Duration;

use alluvium_engine::{
    Engine, OVERDUE_MAX, Overdue, Overlong, RetentionRule, StorageError, TrimError, Trimmed,
};
use alluvium_streams::Backend;
use tokio::task::JoinSet;

use crate::config::Config;
use crate::store::OpenStore;

/// Streams that are being ended or trimmed at once, so that many do not crowd out what clients write.
const ENDING_MAX: usize = 64;

/// What one round came to.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    found: usize,
    ended: u64,
    bytes: u64,
    /// Streams of which something was given up or noted, so that another look finds others.
    done: u64,
}

/// Looks every `retention-interval` until it is dropped. Nothing to do without rules.
pub(crate) async fn keep_retention(config: &Config, store: &OpenStore) {
    let rules = &config.retention.0;
    let Backend::Engine(engine) = store.backend() else { return std::future::pending().await };
    if rules.is_empty() {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(config.retention_interval).await;
        // A look finds so many at most; there may be more. Before whole streams: what is left of all may be little enough.
        while let Some(round) = trims(&engine, rules).await {
            if round.bytes > 0 {
                tracing::info!(
                    streams = round.ended,
                    bytes = round.bytes,
                    "streams have lost their beginning by a rule of retention"
                );
            }
            if round.found < OVERDUE_MAX || round.done == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        while let Some(round) = round(&engine, rules).await {
            if round.ended > 0 {
                tracing::info!(
                    streams = round.ended,
                    bytes = round.bytes,
                    "streams have ended by a rule of retention"
                );
            }
            if round.found < OVERDUE_MAX || round.ended == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// One look at what is too long or too old, and the end of that; `None` if that had to be left for later.
async fn trims(engine: &Engine, rules: &[RetentionRule]) -> Option<Round> {
    let (looking, rules) = (engine.clone(), rules.to_owned());
    let overlong = tokio::task::spawn_blocking(move || looking.overlong(&rules)).await.ok()?;
    let mut round = Round { found: overlong.len(), ..Round::default() };
    let mut trimming = JoinSet::new();
    for overlong in overlong {
        if trimming.len() >= ENDING_MAX {
            round.take_trim(trimming.join_next().await?)?;
        }
        let engine = engine.clone();
        trimming.spawn(async move { (engine.trim(&overlong, false).await, overlong) });
    }
    while let Some(trimmed) = trimming.join_next().await {
        round.take_trim(trimmed)?;
    }
    Some(round)
}

/// One look, and the end of what it finds; `None` if that had to be left for later.
async fn round(engine: &Engine, rules: &[RetentionRule]) -> Option<Round> {
    let (looking, rules) = (engine.clone(), rules.to_owned());
    let overdue = tokio::task::spawn_blocking(move || looking.overdue(&rules)).await.ok()?;
    let mut round = Round { found: overdue.len(), ..Round::default() };
    let mut ending = JoinSet::new();
    for overdue in overdue {
        if ending.len() >= ENDING_MAX {
            round.take(ending.join_next().await?)?;
        }
        let engine = engine.clone();
        ending.spawn(async move { (engine.retire(&overdue).await, overdue) });
    }
    while let Some(ended) = ending.join_next().await {
        round.take(ended)?;
    }
    Some(round)
}

impl Round {
    /// Takes in what became of one stream; `None` if the round had better end.
    fn take(
        &mut self,
        ended: Result<(Result<bool, StorageError>, Overdue), tokio::task::JoinError>,
    ) -> Option<()> {
        let (outcome, overdue) = ended.ok()?;
        match outcome {
            Ok(true) => {
                tracing::debug!(
                    path = overdue.path().map(ToString::to_string),
                    cause = overdue.cause.name(),
                    bytes = overdue.bytes,
                    "a stream has ended by a rule of retention"
                );
                self.ended += 1;
                self.bytes += overdue.bytes;
            }
            // It was written to meanwhile, or is gone.
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "streams that are to go by a rule stay until the next round");
                return None;
            }
        }
        Some(())
    }

    /// Takes in what became of the beginning of one stream; `None` if the round had better end.
    fn take_trim(
        &mut self,
        trimmed: Result<(Result<Trimmed, TrimError>, Overlong), tokio::task::JoinError>,
    ) -> Option<()> {
        let (outcome, overlong) = trimmed.ok()?;
        let path = overlong.path().map(ToString::to_string);
        match outcome {
            Ok(Trimmed { bytes, floor, .. }) => {
                self.done += u64::from(bytes > 0 || overlong.notes_age());
                if bytes > 0 {
                    tracing::debug!(path, bytes, %floor, "a stream has lost its beginning by a rule of retention");
                    self.ended += 1;
                    self.bytes += bytes;
                }
            }
            // It is gone, or was trimmed by somebody else. On a full disk what gives space back goes on; a note of how old
            // something is waits until there is room.
            Err(
                TrimError::Lookup(_)
                | TrimError::Beyond { .. }
                | TrimError::Unaligned
                | TrimError::Storage(StorageError::Full),
            ) => {}
            Err(TrimError::Fault(fault)) => {
                tracing::warn!(path, %fault, "a stream keeps its beginning until the next round");
            }
            Err(TrimError::Storage(error)) => {
                tracing::warn!(%error, "streams that are too long by a rule stay so until the next round");
                return None;
            }
        }
        Some(())
    }
}
