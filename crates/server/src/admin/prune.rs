//! `POST /admin/v1/prune-feed`: the old blocks of a feed are removed, or what that would come to.

use std::sync::Arc;

use alluvium_feeds::limits::NUMBER_MAX;
use alluvium_feeds::{Id, PruneTo, Service};
use serde::Deserialize;
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::{id, object};

/// About how many blocks one request removes. Each takes a moment of the space's writer; the rest is for the next request.
const BLOCKS_MAX: u64 = 50_000;

/// What is to be removed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    space: Id,
    feed: Id,
    to: Keep,
    /// Only told, not done.
    dry_run: bool,
}

/// What is to stay.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Keep {
    Blocks(u64),
    LastMs(u64),
    Position(u64),
}

/// The fields of a body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    space_id: String,
    feed_id: String,
    keep_blocks: Option<u64>,
    keep_ms: Option<u64>,
    from_position: Option<u64>,
    dry_run: Option<bool>,
}

impl Asked {
    /// Reads a body. What is misspelled or stands twice is refused: left out, it could mean more than was wanted.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let refused = |message: &str| Refusal::Body(message.to_owned());
        let fields: Fields = object(body)?;
        let to = match (fields.keep_blocks, fields.keep_ms, fields.from_position) {
            (Some(blocks), None, None) => Keep::Blocks(blocks),
            (None, Some(ms), None) => Keep::LastMs(ms),
            (None, None, Some(position)) if (1..=NUMBER_MAX).contains(&position) => Keep::Position(position),
            (None, None, Some(_)) => return Err(refused("`from_position` is a position, from 1 on")),
            _ => return Err(refused("one of `keep_blocks`, `keep_ms` and `from_position` is wanted")),
        };
        Ok(Self {
            space: id("space_id", &fields.space_id)?,
            feed: id("feed_id", &fields.feed_id)?,
            to,
            dry_run: fields.dry_run.unwrap_or(true),
        })
    }
}

/// Removes what is not to stay; or only tells what that is. Blocks for as long as it takes.
pub(crate) fn run(feeds: &Arc<Service>, asked: &Asked, now_ms: u64) -> Result<Value, Refusal> {
    let Asked { space, feed, to, dry_run } = asked;
    let to = match *to {
        Keep::Blocks(blocks) => PruneTo::Blocks(blocks),
        Keep::LastMs(ms) => PruneTo::Since(now_ms.saturating_sub(ms)),
        Keep::Position(position) => PruneTo::Position(position),
    };
    let found = feeds.look_at_prune(space, feed, to)?;
    let (mut blocks, mut bytes, mut has_more) = (found.blocks, found.bytes, false);
    if !dry_run {
        let pruned = feeds.prune_some(space, feed, found.below, BLOCKS_MAX)?;
        (blocks, bytes, has_more) = (pruned.blocks, pruned.bytes, pruned.has_more);
        if blocks > 0 {
            tracing::info!(%space, %feed, blocks, bytes, below = found.below, "an operator has pruned a feed");
        }
    }
    Ok(json!({
        "dry_run": dry_run,
        "as_of_ms": now_ms,
        "space_id": space.as_str(),
        "feed_id": feed.as_str(),
        "from_position": found.below,
        "pruned_blocks": blocks,
        "pruned_bytes": bytes,
        "has_more": has_more,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_word_nothing_is_removed() {
        let asked = Asked::parse(br#"{"space_id":"s s","feed_id":"f","keep_blocks":0}"#).expect("valid");
        assert!(asked.dry_run && asked.to == Keep::Blocks(0));
        assert_eq!((asked.space.as_str(), asked.feed.as_str()), ("s s", "f"));
        let asked = Asked::parse(br#"{"space_id":"s","feed_id":"f","from_position":7,"dry_run":false}"#)
            .expect("valid");
        assert!(!asked.dry_run && asked.to == Keep::Position(7));
        let asked = Asked::parse(br#"{"space_id":"s","feed_id":"f","keep_ms":5}"#);
        assert!(asked.is_ok_and(|asked| asked.to == Keep::LastMs(5)));
    }

    #[test]
    fn what_is_misspelled_is_refused() {
        for body in [
            "",
            "[]",
            r#"["s","f",1,null,null,false]"#,
            "{}",
            r#"{"space_id":"s","feed_id":"f"}"#,
            r#"{"space_id":"s","keep_blocks":1}"#,
            r#"{"feed_id":"f","keep_blocks":1}"#,
            r#"{"space_id":"","feed_id":"f","keep_blocks":1}"#,
            r#"{"space_id":"s","feed_id":["f"],"keep_blocks":1}"#,
            r#"{"space_id":"s","feed_id":"f","keep_blocks":-1}"#,
            r#"{"space_id":"s","feed_id":"f","keep_blocks":1.5}"#,
            r#"{"space_id":"s","feed_id":"f","keep_blocks":null}"#,
            r#"{"space_id":"s","feed_id":"f","keep_blocks":1,"keep_ms":1}"#,
            r#"{"space_id":"s","feed_id":"f","keep_blocks":1,"keep_blocks":2}"#,
            r#"{"space_id":"s","feed_id":"f","from_position":0}"#,
            r#"{"space_id":"s","feed_id":"f","from_position":9007199254740992}"#,
            r#"{"space_id":"s","feed_id":"f","keep_blocks":1,"dryrun":false}"#,
            r#"{"space_id":"s","feed_id":"f","keep_blocks":1,"dry_run":0}"#,
        ] {
            assert!(matches!(Asked::parse(body.as_bytes()), Err(Refusal::Body(_))), "{body}");
        }
    }
}
