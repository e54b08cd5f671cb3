//! `GET /admin/v1/totals`: how many streams and bytes there are under each prefix, page by page.

use std::collections::BTreeMap;

use alluvium_engine::{Engine, Surveyed};
use alluvium_protocol::path::{BUCKET_MOUNT, STREAM_MOUNT, percent_encode};
use serde_json::{Value, json};

use super::query::Query;
use super::refusal::Refusal;

/// Most segments of a path that a group has beyond what was asked for.
const DEPTH_MAX: u32 = 8;

/// Totals that are asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    prefix: String,
    depth: u32,
    limit: usize,
    after: Option<String>,
}

impl Asked {
    pub(crate) fn parse(raw: Option<&str>) -> Result<Self, Refusal> {
        let query = Query::parse(raw, &["prefix", "depth", "limit", "cursor"])?;
        let depth = match query.get("depth") {
            None => 1,
            Some(text) => {
                let depth = text.parse().ok().filter(|depth| (1..=DEPTH_MAX).contains(depth));
                depth.ok_or(Refusal::Depth(DEPTH_MAX))?
            }
        };
        let after = query.get("cursor").filter(|cursor| !cursor.is_empty());
        if after.is_some_and(|after| !after.starts_with('/')) {
            return Err(Refusal::Cursor);
        }
        let (prefix, limit) = (query.prefix()?, query.limit()?);
        Ok(Self { prefix, depth, limit, after: after.map(str::to_owned) })
    }
}

/// Totals of some streams.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Total {
    streams: u64,
    bytes: u64,
    closed: u64,
    last_write_ms: u64,
}

impl Total {
    fn add(&mut self, stream: &Surveyed) {
        self.streams += 1;
        self.bytes = self.bytes.saturating_add(stream.bytes);
        self.closed += u64::from(stream.closed);
        self.last_write_ms = self.last_write_ms.max(stream.last_write_ms);
    }

    fn describe(&self) -> Value {
        json!({
            "streams": self.streams,
            "bytes": self.bytes,
            "closed_streams": self.closed,
            "last_write_at_ms": (self.streams > 0).then_some(self.last_write_ms),
        })
    }
}

/// The group of a path: what it has in common with others, up to a slash so many segments after `from`, or to the last
/// slash that it has.
fn group(path: &str, from: usize, depth: u32) -> &str {
    let mounts = [STREAM_MOUNT, BUCKET_MOUNT];
    let mount = mounts.iter().find(|mount| path.starts_with(**mount)).map_or(0, |mount| mount.len());
    let from = from.max(mount);
    let slashes = path.bytes().enumerate().skip(from).filter(|(_, byte)| *byte == b'/').map(|(at, _)| at);
    let last = slashes.take(depth as usize).last();
    let end =
        last.or_else(|| path.get(..from.min(path.len()))?.rfind('/')).map_or(path.len(), |slash| slash + 1);
    path.get(..end).unwrap_or(path)
}

/// The page: all of what is under the prefix, and the first groups of it. Holds no more groups than it has, and one.
pub(crate) fn page(engine: &Engine, asked: &Asked, now_ms: u64) -> Value {
    let (mut all, mut groups) = (Total::default(), BTreeMap::<String, Total>::new());
    // What is beyond a prefix begins behind a slash, whether it was written or not.
    let from = percent_encode(asked.prefix.trim_end_matches('/')).len() + 1;
    engine.survey(&asked.prefix, |stream| {
        all.add(&stream);
        let path = stream.path.url_path();
        let group = group(&path, from, asked.depth);
        if asked.after.as_ref().is_some_and(|after| group <= after.as_str()) {
            return;
        }
        match groups.get_mut(group) {
            Some(total) => total.add(&stream),
            None => groups.entry(group.to_owned()).or_default().add(&stream),
        }
        // One that falls out lies behind all that stay, and so does whatever else of it is to come.
        if groups.len() > asked.limit + 1 {
            groups.pop_last();
        }
    });
    let has_more = groups.len() > asked.limit;
    if has_more {
        groups.pop_last();
    }
    let next = groups.last_key_value().filter(|_| has_more).map(|(group, _)| group.clone());
    let groups: Vec<Value> = groups
        .iter()
        .map(|(group, total)| {
            let mut described = total.describe();
            described["prefix"] = group.as_str().into();
            described
        })
        .collect();
    json!({
        "as_of_ms": now_ms,
        "total": all.describe(),
        "groups": groups,
        "next_cursor": next,
        "has_more": has_more,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_ends_with_a_slash() {
        for (path, from, depth, expected) in [
            ("/v1/stream/a", 0, 1, "/v1/stream/"),
            ("/v1/stream/a/b/c", 0, 1, "/v1/stream/a/"),
            ("/v1/stream/a/b/c", 0, 2, "/v1/stream/a/b/"),
            ("/v1/stream/a/b/c", 0, 8, "/v1/stream/a/b/"),
            ("/v1/stream/a/b/c", "/v1/stream/a/".len(), 1, "/v1/stream/a/b/"),
            ("/v1/stream/a", "/v1/stream/a/".len(), 1, "/v1/stream/"),
            ("/v1/stream/a/b", "/v1/stream/a/".len(), 1, "/v1/stream/a/"),
            ("/ds/bucket/s", 0, 1, "/ds/bucket/"),
            ("/ds/bucket/s", "/ds/bucket/s/".len(), 1, "/ds/bucket/"),
        ] {
            assert_eq!(group(path, from, depth), expected, "{path} {from} {depth}");
        }
    }

    #[test]
    fn depth_and_cursor_are_checked() {
        for raw in ["depth=0", "depth=9", "depth=x"] {
            assert_eq!(Asked::parse(Some(raw)), Err(Refusal::Depth(DEPTH_MAX)));
        }
        assert_eq!(Asked::parse(Some("cursor=a")), Err(Refusal::Cursor));
    }
}
