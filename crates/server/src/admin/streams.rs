//! `GET /admin/v1/streams`: streams by size, idleness or path, page by page.

use std::collections::BinaryHeap;

use alluvium_engine::{Engine, Surveyed};
use serde_json::{Value, json};

use super::query::Query;
use super::refusal::Refusal;

/// What comes first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Order {
    /// The largest.
    Size,
    /// What was not written to for longest.
    Idle,
    /// By path.
    Path,
}

const ORDERS: [(&str, Order); 3] = [("size", Order::Size), ("idle", Order::Idle), ("path", Order::Path)];

/// A page that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    prefix: String,
    order: Order,
    limit: usize,
    /// The rank and the path of the last item of the page before.
    after: Option<(u64, String)>,
}

impl Asked {
    pub(crate) fn parse(raw: Option<&str>) -> Result<Self, Refusal> {
        let query = Query::parse(raw, &["prefix", "order", "limit", "cursor"])?;
        let order = query.get("order").unwrap_or("size");
        let order = ORDERS.iter().find(|(name, _)| *name == order).map(|(_, order)| *order);
        let after = query.get("cursor").filter(|cursor| !cursor.is_empty()).map(cursor).transpose()?;
        Ok(Self {
            prefix: query.prefix()?,
            order: order.ok_or(Refusal::Order("`size`, `idle` and `path`"))?,
            limit: query.limit()?,
            after,
        })
    }
}

/// Reads a cursor: rank and path.
fn cursor(text: &str) -> Result<(u64, String), Refusal> {
    let (rank, path) = text.split_once('.').ok_or(Refusal::Cursor)?;
    let rank = u64::from_str_radix(rank, 16).map_err(|_| Refusal::Cursor)?;
    if path.starts_with('/') { Ok((rank, path.to_owned())) } else { Err(Refusal::Cursor) }
}

/// A stream, ordered by its rank and then by its path.
struct Ranked {
    rank: u64,
    path: String,
    stream: Surveyed,
}

impl Ranked {
    fn key(&self) -> (u64, &str) {
        (self.rank, &self.path)
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// The page. Holds no more streams than it has items, and one.
pub(crate) fn page(engine: &Engine, asked: &Asked, now_ms: u64) -> Value {
    let mut first = BinaryHeap::new();
    engine.survey(&asked.prefix, |stream| {
        let rank = match asked.order {
            Order::Size => u64::MAX - stream.bytes,
            Order::Idle => stream.last_write_ms,
            Order::Path => 0,
        };
        let is_full = first.len() > asked.limit;
        // Most streams are told off by their rank, before anything is made of them.
        if is_full && first.peek().is_some_and(|last: &Ranked| rank > last.rank) {
            return;
        }
        let path = stream.path.url_path();
        if asked.after.as_ref().is_some_and(|(after, at)| (rank, &path) <= (*after, at)) {
            return;
        }
        first.push(Ranked { rank, path, stream });
        if is_full {
            first.pop();
        }
    });
    let mut first = first.into_sorted_vec();
    let has_more = first.len() > asked.limit;
    first.truncate(asked.limit);
    let next = first.last().filter(|_| has_more).map(|last| format!("{:x}.{}", last.rank, last.path));
    let streams: Vec<Value> = first.iter().map(|ranked| describe(&ranked.path, &ranked.stream)).collect();
    json!({ "as_of_ms": now_ms, "streams": streams, "next_cursor": next, "has_more": has_more })
}

fn describe(path: &str, stream: &Surveyed) -> Value {
    json!({
        "path": path,
        "bytes": stream.bytes,
        "status": if stream.closed { "Closed" } else { "Open" },
        "earliest_offset": stream.floor.to_string(),
        "next_offset": stream.tail.to_string(),
        "created_at_ms": stream.created_ms,
        "last_write_at_ms": stream.last_write_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_and_what_is_none_is_refused() {
        assert_eq!(cursor("ff./v1/stream/a.b"), Ok((255, "/v1/stream/a.b".to_owned())));
        for text in ["x", "ff", "./a", "g./a", "ff.a", "11111111111111111./a"] {
            assert_eq!(cursor(text), Err(Refusal::Cursor), "{text}");
        }
        let refused = Asked::parse(Some("order=bytes")).unwrap_err();
        assert_eq!(refused, Refusal::Order("`size`, `idle` and `path`"));
    }
}
