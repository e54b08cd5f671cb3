//! `GET /ds/{bucket}/streams`: the streams of a bucket, page by page (extensions §1.4).

use std::borrow::Cow;

use alluvium_engine::{Engine, LIST_PAGE_MAX, ListItem, ListRequest};
use alluvium_http::Response;
use alluvium_protocol::BucketId;
use http::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    body::on_blocking_thread,
    bucket::{BUCKETS, json_response},
    error::Failure,
    query,
};
use crate::state::State;

/// One page, as its JSON text has it.
#[derive(Serialize)]
struct Page<'a> {
    bucket_id: &'a str,
    prefix: Option<Cow<'a, str>>,
    /// Items of this page.
    stream_count: usize,
    streams: Vec<Item<'a>>,
    /// The last id of the page, if there are more.
    next_cursor: Option<&'a str>,
    has_more: bool,
}

/// One stream. `tail_offset` is a number of bytes, `next_offset` the token to read from.
#[derive(Serialize)]
struct Item<'a> {
    stream_id: &'a str,
    status: &'static str,
    content_type: &'a str,
    tail_offset: u64,
    next_offset: String,
    created_at_ms: u64,
    last_write_at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot_offset: Option<String>,
    /// As they were written: numbers keep their digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    attrs: Option<&'a RawValue>,
}

/// Answers with one page. A page of long attributes takes a while to write, so no reactor does it.
pub(super) async fn handle(
    streams: &State,
    id: BucketId,
    query: Option<String>,
) -> Result<Response, Failure> {
    let engine = streams.backend.engine(BUCKETS)?.clone();
    on_blocking_thread(move || page(&engine, &id, query.as_deref())).await
}

fn page(engine: &Engine, id: &BucketId, query: Option<&str>) -> Result<Response, Failure> {
    let [prefix, after, limit] = query::parameters(query, ["prefix", "after", "limit"])?;
    let limit = match &limit {
        None => LIST_PAGE_MAX,
        Some(text) => parse_limit(text).ok_or(Failure::InvalidLimit)?,
    };
    let wanted =
        ListRequest { prefix: prefix.as_deref().unwrap_or_default(), after: after.as_deref(), limit };
    let page = engine.list_streams(id, wanted)?;
    let body = Page {
        bucket_id: id.as_str(),
        stream_count: page.items.len(),
        streams: page.items.iter().map(describe).collect(),
        next_cursor: page.items.last().filter(|_| page.has_more).map(|item| item.stream_id.as_str()),
        has_more: page.has_more,
        prefix,
    };
    Ok(json_response(StatusCode::OK, &body))
}

/// Plain decimal digits, from 1 to [`LIST_PAGE_MAX`].
fn parse_limit(text: &str) -> Option<usize> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|limit| is_plain && (1..=LIST_PAGE_MAX).contains(limit))
}

fn describe(item: &ListItem) -> Item<'_> {
    let head = &item.head;
    Item {
        stream_id: &item.stream_id,
        status: if head.closed { "Closed" } else { "Open" },
        content_type: head.content_type.as_str(),
        tail_offset: head.tail.position,
        next_offset: head.tail.to_string(),
        created_at_ms: head.created_ms,
        last_write_at_ms: head.last_write_ms,
        snapshot_offset: head.snapshot.as_ref().map(|snapshot| snapshot.offset.to_string()),
        attrs: (!head.attributes.is_empty())
            .then(|| serde_json::from_str(head.attributes.as_json()).ok())
            .flatten(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_plain_number_in_its_range() {
        assert_eq!(parse_limit("1"), Some(1));
        assert_eq!(parse_limit("1000"), Some(1000));
        for text in ["", "0", "1001", "-1", "+1", " 1", "1.0", "abc", "99999999999999999999"] {
            assert_eq!(parse_limit(text), None, "{text}");
        }
    }
}
