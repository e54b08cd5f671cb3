//! `alluvium feed conflicts`: what lost its place, so that nothing is lost without a word.

use alluvium_feed_client::{Conflict, Id, Refused, SyncStatus};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde::Serialize;

use super::place::{Opened, Place};
use super::{failure, print};
use crate::stream::failure::Failure;

/// How much of a block is quoted in a note, in characters.
const QUOTED_CHARS_MAX: usize = 40;
/// How many blocks are told of in one note.
const TOLD_MAX: usize = 3;

/// The failure that synchronisation ends with if blocks were refused or set aside: which, and how to go on.
pub(super) fn told(opened: &Opened, status: &SyncStatus) -> Result<(), Failure> {
    if status.conflicts > 0 {
        return Err(Failure::Conflict(described(opened)?));
    }
    if status.blocks_refused > 0 {
        return Err(Failure::Conflict(refused(status)));
    }
    Ok(())
}

/// What was refused, and the way to go on, for people.
pub(super) fn refused(status: &SyncStatus) -> String {
    let told: Vec<String> = status.refused.iter().take(TOLD_MAX).map(of_feed).collect();
    let more = if status.refused.len() > told.len() { "; …" } else { "" };
    format!(
        "{} not pushed and still in the file: {}{more}; `feed sync --retry-refused` tries all of it again",
        blocks(status.blocks_refused),
        told.join("; ")
    )
}

/// What of a feed was refused, and why.
pub(super) fn of_feed(refused: &Refused) -> String {
    format!("{} of `{}`: {}", refused.blocks, refused.feed_id, refused.reason)
}

/// What is set aside, and the ways to go on, for people.
pub(super) fn described(opened: &Opened) -> Result<String, Failure> {
    let all = opened.space.conflicts().map_err(failure::replica)?;
    let told: Vec<_> = all.iter().take(TOLD_MAX).map(one).collect();
    let more = if all.len() > told.len() { ", …" } else { "" };
    let number = all.first().map_or(1, |conflict| conflict.id);
    let count = u64::try_from(all.len()).unwrap_or(u64::MAX);
    Ok(format!(
        "{} set aside, because the server has another one in its place, as when a copy of this file has written there: \
         {}{more}; `feed conflicts` shows them, `feed conflicts --append-again {number}` appends one anew",
        blocks(count),
        told.join(", ")
    ))
}

fn one(conflict: &Conflict) -> String {
    let Conflict { id, feed_id, sequence, data, .. } = conflict;
    let text = std::str::from_utf8(&data.0).ok().filter(|text| !text.contains(char::is_control));
    let quoted = match text {
        Some(text) if text.chars().count() <= QUOTED_CHARS_MAX => format!("`{text}`"),
        _ => format!("{} bytes", data.0.len()),
    };
    format!("number {id}, {quoted}, of feed `{feed_id}`, sequence {sequence}")
}

/// So many blocks, in words.
pub(super) fn blocks(count: u64) -> String {
    format!("{count} {}", if count == 1 { "block" } else { "blocks" })
}

/// Arguments of `alluvium feed conflicts`.
#[derive(Debug, Args)]
pub(super) struct ConflictsArgs {
    /// Append the block anew, under a key of its own, and forget the conflict; may be repeated.
    #[arg(long, value_name = "NUMBER")]
    append_again: Vec<i64>,

    /// Forget a conflict, and with it the block; may be repeated.
    #[arg(long, value_name = "NUMBER")]
    forget: Vec<i64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Printed<'a> {
    number: i64,
    feed: &'a Id,
    sequence: u64,
    actor: &'a Id,
    detected_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
}

pub(super) fn run(place: &Place, args: &ConflictsArgs) -> Result<(), Failure> {
    let opened = place.open()?;
    let conflicts = opened.space.conflicts().map_err(failure::replica)?;
    let find = |number: i64| -> Result<&Conflict, Failure> {
        let found = conflicts.iter().find(|conflict| conflict.id == number);
        found.ok_or_else(|| Failure::NotFound(format!("there is no conflict {number}")))
    };
    for number in &args.append_again {
        let conflict = find(*number)?;
        let data = conflict.data.0.to_vec();
        let appended = opened.space.append(&conflict.feed_id, conflict.namespace.as_ref(), data);
        let sequence = appended.map_err(failure::replica)?.sequence;
        opened.client.replica().forget_conflict(*number).map_err(failure::replica)?;
        let feed = &conflict.feed_id;
        place.notes().note(format_args!("{number} appended to `{feed}` anew, with sequence {sequence}"));
    }
    for number in &args.forget {
        find(*number)?;
        opened.client.replica().forget_conflict(*number).map_err(failure::replica)?;
        place.notes().note(format_args!("{number} forgotten"));
    }
    if !args.append_again.is_empty() || !args.forget.is_empty() {
        return Ok(());
    }
    for conflict in &conflicts {
        let text = std::str::from_utf8(&conflict.data.0).ok();
        print::json(&Printed {
            number: conflict.id,
            feed: &conflict.feed_id,
            sequence: conflict.sequence,
            actor: &conflict.actor_id,
            detected_at: conflict.detected_at,
            text,
            data: text.is_none().then(|| STANDARD.encode(&conflict.data.0)),
        })?;
    }
    if conflicts.is_empty() {
        place.notes().note("there is none");
    }
    Ok(())
}
