//! `alluvium feed status`: who writes here, and how far the file is.

use alluvium_feed_client::{Id, Refused, SyncStatus};
use clap::Args;
use serde::Serialize;

use super::conflicts::{self, blocks};
use super::place::{Opened, Place, now_ms};
use super::{failure, print};
use crate::stream::failure::Failure;

/// Arguments of `alluvium feed status`.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

/// The state, as `--json` prints it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    space: &'a Id,
    actor: &'a Id,
    position: u64,
    total_blocks: u64,
    blocks_to_push: u64,
    blocks_to_pull: u64,
    blocks_refused: u64,
    /// Of which feeds, and why.
    refused: Vec<Refusal<'a>>,
    conflicts: u64,
    backfilling: &'a [Id],
    last_ok_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a str>,
}

/// What of a feed is not pushed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Refusal<'a> {
    feed: &'a Id,
    blocks: u64,
    reason: &'a str,
    refused_at: u64,
}

impl<'a> From<&'a Refused> for Refusal<'a> {
    fn from(refused: &'a Refused) -> Self {
        let Refused { feed_id, blocks, reason, refused_at } = refused;
        Self { feed: feed_id, blocks: *blocks, reason, refused_at: *refused_at }
    }
}

pub(super) fn run(place: &Place, args: &StatusArgs) -> Result<(), Failure> {
    let opened = place.open()?;
    let status = opened.space.status().map_err(failure::replica)?;
    if args.json {
        return print_json(&opened, &status);
    }
    let spaces = opened.client.spaces().map_err(failure::replica)?;
    let actor = opened.client.replica().actor().clone();
    print::line(format_args!("space     {}", opened.space.id()))?;
    for other in spaces.iter().filter(|other| *other != opened.space.id()) {
        print::line(format_args!("          ({other} is in the file, too)"))?;
    }
    print::line(format_args!("actor     {actor}"))?;
    print::line(format_args!("blocks    {}", status.total_blocks))?;
    print::line(format_args!("to push   {}", status.blocks_to_push))?;
    print::line(format_args!("to pull   {}", status.blocks_to_pull))?;
    print::line(format_args!("position  {}", status.position))?;
    for feed in &status.backfilling {
        print::line(format_args!("fetching  {feed}"))?;
    }
    for refused in &status.refused {
        print::line(format_args!("refused   {}", conflicts::of_feed(refused)))?;
    }
    if status.conflicts > 0 {
        print::line(format_args!("conflicts {}", status.conflicts))?;
    }
    match (status.last_ok_at, &status.last_error) {
        (None, None) => print::line("server    never met")?,
        (Some(at), None) => print::line(format_args!("server    answered {}", ago(at)))?,
        (_, Some(error)) => print::line(format_args!("server    {error}"))?,
    }
    Ok(())
}

/// How long ago something was.
pub(super) fn ago(at_ms: u64) -> String {
    let seconds = now_ms().saturating_sub(at_ms) / 1000;
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// The state in a line.
pub(super) fn summary(status: &SyncStatus) -> String {
    if status.is_done() && status.blocks_refused == 0 {
        let place = format!(", at position {}", status.position);
        let place = if status.position > 0 { place } else { String::new() };
        return format!("up to date: {}{place}", blocks(status.total_blocks));
    }
    format!(
        "{} to push, {} to pull, {} here",
        status.blocks_to_push,
        status.blocks_to_pull,
        blocks(status.total_blocks)
    )
}

pub(super) fn print_json(opened: &Opened, status: &SyncStatus) -> Result<(), Failure> {
    let actor = opened.client.replica().actor().clone();
    print::json(&Report {
        space: opened.space.id(),
        actor: &actor,
        position: status.position,
        total_blocks: status.total_blocks,
        blocks_to_push: status.blocks_to_push,
        blocks_to_pull: status.blocks_to_pull,
        blocks_refused: status.blocks_refused,
        refused: status.refused.iter().map(Refusal::from).collect(),
        conflicts: status.conflicts,
        backfilling: &status.backfilling,
        last_ok_at: status.last_ok_at,
        last_error: status.last_error.as_deref(),
    })
}
