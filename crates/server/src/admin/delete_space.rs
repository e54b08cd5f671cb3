//! `POST /admin/v1/delete-space`: a space of feeds is deleted as a whole, or what that would come to.

use std::sync::Arc;

use alluvium_feeds::{Id, Service};
use serde::Deserialize;
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::{id, object};

/// About how many blocks one request removes; the rest is for the next request.
const BLOCKS_MAX: u64 = 50_000;

/// What is to be deleted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    space: Id,
    /// Only told, not done.
    dry_run: bool,
}

/// The fields of a body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    space_id: String,
    dry_run: Option<bool>,
}

impl Asked {
    /// Reads a body. What is misspelled or stands twice is refused: left out, it could mean more than was wanted.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let fields: Fields = object(body)?;
        Ok(Self { space: id("space_id", &fields.space_id)?, dry_run: fields.dry_run.unwrap_or(true) })
    }
}

/// Deletes the space and what it has; or only tells what that is. Blocks for as long as it takes.
pub(crate) fn run(feeds: &Arc<Service>, asked: &Asked, now_ms: u64) -> Result<Value, Refusal> {
    let Asked { space, dry_run } = asked;
    let deleted = if *dry_run {
        feeds.look_at_deletion(space)?
    } else {
        let deleted = feeds.delete_space(space, BLOCKS_MAX)?;
        let (blocks, bytes, has_more) = (deleted.blocks, deleted.bytes, deleted.has_more);
        tracing::info!(%space, blocks, bytes, has_more, "an operator has deleted a space");
        deleted
    };
    Ok(json!({
        "dry_run": dry_run,
        "as_of_ms": now_ms,
        "space_id": space.as_str(),
        "deleted_blocks": deleted.blocks,
        "deleted_bytes": deleted.bytes,
        "has_more": deleted.has_more,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_word_nothing_is_deleted() {
        let asked = Asked::parse(br#"{"space_id":"s s"}"#).expect("valid");
        assert!(asked.dry_run && asked.space.as_str() == "s s");
        let asked = Asked::parse(br#"{"space_id":"s","dry_run":false}"#).expect("valid");
        assert!(!asked.dry_run);
    }

    #[test]
    fn what_is_misspelled_is_refused() {
        for body in [
            "",
            "[]",
            r#"["s",false]"#,
            "{}",
            r#"{"space_id":""}"#,
            r#"{"space_id":["s"],"dry_run":false}"#,
            r#"{"space_id":"s","space_id":"t","dry_run":false}"#,
            r#"{"space_id":"s","dry_run":0}"#,
            r#"{"space_id":"s","dryrun":true}"#,
            r#"{"space_id":"s","feed_id":"f","dry_run":false}"#,
        ] {
            assert!(matches!(Asked::parse(body.as_bytes()), Err(Refusal::Body(_))), "{body}");
        }
    }
}
