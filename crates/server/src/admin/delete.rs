//! `POST /admin/v1/delete`: the end of all streams under a prefix, so many at a time, or what that would come to.

use std::collections::BinaryHeap;

use alluvium_engine::{DeleteError, Engine};
use alluvium_protocol::{Incarnation, StreamPath};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::refusal::Refusal;
use super::{ADMIN_PAGE_MAX, PAGE_DEFAULT, blocking};
use crate::config::parse_prefix;

/// Deletions under way at once, so that clients' writes are not crowded out.
const DELETING_MAX: usize = 64;

/// What is to be deleted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    prefix: String,
    /// Only told, not done.
    dry_run: bool,
    limit: usize,
    /// Streams that were created at this time or later are left alone: what is counted first and deleted then is the same,
    /// whatever clients create meanwhile.
    created_before_ms: Option<u64>,
}

impl Asked {
    /// Reads a body. What is misspelled or stands twice is refused: left out, or taken the other way, it could mean more
    /// than was wanted.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Refusal> {
        // Fields without their names would be understood as well.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(Refusal::Body("expected an object".to_owned()));
        }
        let fields: Fields =
            serde_json::from_slice(body).map_err(|error| Refusal::Body(error.to_string()))?;
        let limit = match fields.limit {
            None => PAGE_DEFAULT,
            Some(limit) => {
                let limit = limit.as_u64().and_then(|limit| usize::try_from(limit).ok());
                limit.filter(|limit| (1..=ADMIN_PAGE_MAX).contains(limit)).ok_or(Refusal::Limit)?
            }
        };
        Ok(Self {
            prefix: parse_prefix(&fields.prefix).map_err(Refusal::Prefix)?,
            dry_run: fields.dry_run.unwrap_or(true),
            limit,
            created_before_ms: fields.created_before_ms,
        })
    }
}

/// The fields of a body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    prefix: String,
    dry_run: Option<bool>,
    limit: Option<Value>,
    created_before_ms: Option<u64>,
}

/// What was found: how much there is, and which streams come first.
struct Found {
    streams: u64,
    bytes: u64,
    /// The first ones, by their paths.
    first: BinaryHeap<(StreamPath, Incarnation, u64)>,
}

fn find(engine: &Engine, asked: &Asked, now_ms: u64) -> Found {
    let mut found = Found { streams: 0, bytes: 0, first: BinaryHeap::new() };
    let before_ms = asked.created_before_ms.unwrap_or(now_ms);
    engine.survey(&asked.prefix, |stream| {
        if asked.created_before_ms.is_some() && stream.created_ms >= before_ms {
            return;
        }
        found.streams += 1;
        found.bytes = found.bytes.saturating_add(stream.bytes);
        if !asked.dry_run {
            found.first.push((stream.path, stream.incarnation, stream.bytes));
            if found.first.len() > asked.limit {
                found.first.pop();
            }
        }
    });
    found
}

/// Deletes the first streams, and tells what is left; or only what there is.
pub(crate) async fn run(engine: Engine, asked: Asked, now_ms: u64) -> Result<Value, Refusal> {
    let (looking, dry_run) = (engine.clone(), asked.dry_run);
    let found = blocking(move || find(&looking, &asked, now_ms)).await?;
    if dry_run {
        return Ok(json!({
            "dry_run": true, "as_of_ms": now_ms, "streams": found.streams, "bytes": found.bytes,
        }));
    }
    let (mut deleted, mut deleted_bytes, mut gone, mut gone_bytes) = (0, 0, 0, 0);
    let mut deleting = JoinSet::new();
    let mut waiting = found.first.into_iter();
    loop {
        while deleting.len() < DELETING_MAX
            && let Some((path, incarnation, bytes)) = waiting.next()
        {
            let engine = engine.clone();
            deleting.spawn(async move { (engine.delete_expected(&path, Some(incarnation)).await, bytes) });
        }
        let Some(ended) = deleting.join_next().await else { break };
        let (outcome, bytes): (_, u64) = ended.map_err(|_| Refusal::Stopping)?;
        gone += 1;
        gone_bytes += bytes;
        match outcome {
            Ok(_) => {
                deleted += 1;
                deleted_bytes += bytes;
            }
            // Somebody else was faster.
            Err(DeleteError::Lookup(_) | DeleteError::Incarnation) => {}
            Err(DeleteError::Storage(error)) => return Err(error.into()),
        }
    }
    tracing::info!(streams = deleted, bytes = deleted_bytes, "streams were deleted by an operator");
    Ok(json!({
        "dry_run": false,
        "as_of_ms": now_ms,
        "deleted_streams": deleted,
        "deleted_bytes": deleted_bytes,
        "remaining_streams": found.streams.saturating_sub(gone),
        "remaining_bytes": found.bytes.saturating_sub(gone_bytes),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_word_nothing_is_deleted() {
        let asked = Asked::parse(br#"{"prefix":"/ds/a%20b"}"#).expect("valid");
        let expected = Asked {
            prefix: "/ds/a b".to_owned(),
            dry_run: true,
            limit: PAGE_DEFAULT,
            created_before_ms: None,
        };
        assert_eq!(asked, expected);
        let asked =
            Asked::parse(br#"{"prefix":"/v1/stream/","dry_run":false,"limit":2,"created_before_ms":5}"#);
        assert!(asked.is_ok_and(|asked| !asked.dry_run && asked.created_before_ms == Some(5)));
    }

    #[test]
    fn what_is_misspelled_is_refused() {
        for body in [
            "",
            "[]",
            "{}",
            r#"{"prefix":1}"#,
            r#"{"prefix":"/ds/","dryrun":false}"#,
            r#"{"prefix":"/ds/","dry_run":0}"#,
            r#"{"prefix":"/ds/","created_before_ms":"x"}"#,
            r#"{"prefix":"/ds/","dry_run":true,"dry_run":false}"#,
            r#"{"prefix":"/ds/","prefix":"/v1/stream/"}"#,
            r#"{"prefix":"/ds/","limit":1,"limit":2}"#,
            r#"["/ds/",false,null,null]"#,
        ] {
            assert!(matches!(Asked::parse(body.as_bytes()), Err(Refusal::Body(_))), "{body}");
        }
        for body in [r#"{"prefix":""}"#, r#"{"prefix":"logs"}"#, r#"{"prefix":"/ds/%zz"}"#] {
            assert!(matches!(Asked::parse(body.as_bytes()), Err(Refusal::Prefix(_))), "{body}");
        }
        for body in [r#"{"prefix":"/ds/","limit":0}"#, r#"{"prefix":"/ds/","limit":1001}"#] {
            assert_eq!(Asked::parse(body.as_bytes()), Err(Refusal::Limit));
        }
    }
}
