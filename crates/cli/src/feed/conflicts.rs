//! `alluvium feed conflicts`: what lost its place, so that nothing is lost without a word.

use alluvium_feed_client::{Conflict, Id};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde::Serialize;

use super::place::Place;
use super::{failure, print};
use crate::stream::failure::Failure;

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
        appended.map_err(failure::replica)?;
        opened.client.replica().forget_conflict(*number).map_err(failure::replica)?;
    }
    for number in &args.forget {
        find(*number)?;
        opened.client.replica().forget_conflict(*number).map_err(failure::replica)?;
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
