//! `GET …/appends`: whole appends, by their numbers (docs/store-api.md).

use alluvium_engine::ReadError;
use alluvium_http::Response;
use alluvium_protocol::{Offset, StreamPath, json, sse::base64, store::AppendBatch};
use http::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    Request,
    bucket::json_response,
    claim::check,
    error::{Failure, InvalidContract},
    headers::{self, set_earliest, set_incarnation, set_next_offset, set_up_to_date},
    query,
};
use crate::state::State;

/// Appends in an answer, unless the request wants fewer.
const LIMIT_DEFAULT: usize = 100;
/// Most that a request may want.
const LIMIT_MAX: usize = 1000;

#[derive(Serialize)]
struct Item {
    append_index: u64,
    start_offset: String,
    end_offset: String,
    /// Of a JSON stream: its messages as they were written.
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<Box<RawValue>>,
    /// Of any other: its bytes in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
}

/// Answers with the appends from number `from` on: at most `limit`, and `max_bytes` of them unless the first alone is
/// larger.
pub(super) async fn read(streams: &State, path: &StreamPath, request: &Request) -> Result<Response, Failure> {
    let expected = headers::expected_incarnation(request.headers())?;
    let [from, limit, max_bytes] = query::parameters(request.uri().query(), ["from", "limit", "max_bytes"])?;
    let number = |text: Option<&str>, refusal| match text {
        None => Ok(None),
        Some(text) => query::positive(text).map(Some).ok_or(refusal),
    };
    let from = number(from.as_deref(), InvalidContract::AppendIndex.into())?;
    let limit = number(limit.as_deref(), Failure::InvalidLimit)?.map_or(Ok(LIMIT_DEFAULT), |limit| {
        usize::try_from(limit).ok().filter(|limit| *limit <= LIMIT_MAX).ok_or(Failure::InvalidLimit)
    })?;
    let max_bytes = number(max_bytes.as_deref(), Failure::InvalidMaxBytes)?;
    let max_bytes = max_bytes.unwrap_or(u64::MAX).min(streams.options.read_bytes_max);
    let head = streams.backend.head(path).await?;
    check(expected, head.incarnation)?;
    // Whose beginning was given up begins where that ends, and of an append that was cut with the next.
    let floor = head.floor.append_index;
    let first = from.unwrap_or(floor + 1);
    let read = |from| streams.backend.read_appends(path, from, limit, head.incarnation, max_bytes);
    let trimmed = || {
        let is_below = head.floor > Offset::ZERO && head.snapshot.is_none() && first <= floor + 1;
        is_below.then(|| Failure::Read(ReadError::Retained { floor: head.floor, snapshot: None }))
    };
    let (from, batches) = match read(first).await {
        Ok(batches) => (first, batches),
        // What the disk does not give is not gone.
        Err(fault) if fault.is_fault() => return Err(fault),
        Err(_) if from.is_none() && trimmed().is_some() => (first + 1, read(first + 1).await?),
        Err(failure) => return Err(trimmed().unwrap_or(failure)),
    };
    let is_json = head.content_type.is_json();
    let items = batches.iter().map(|batch| item(batch, is_json)).collect::<Result<Vec<Item>, Failure>>()?;
    let mut response = json_response(StatusCode::OK, &items);
    let headers = response.headers_mut();
    set_incarnation(headers, head.incarnation);
    set_earliest(headers, head.floor);
    if let Some(last) = batches.last() {
        set_next_offset(headers, last.end_offset);
    }
    // A later append may have come since; then the next request finds it.
    let is_at_tail =
        batches.last().map_or(from > head.tail.append_index, |last| last.end_offset >= head.tail);
    set_up_to_date(headers, is_at_tail);
    Ok(response)
}

fn item(batch: &AppendBatch, is_json: bool) -> Result<Item, Failure> {
    let messages = if is_json {
        let text = String::from_utf8(json::array(&batch.data)).map_err(|_| Failure::StoredText)?;
        Some(RawValue::from_string(text).map_err(|_| Failure::StoredText)?)
    } else {
        None
    };
    Ok(Item {
        append_index: batch.append_index,
        start_offset: batch.start_offset.to_string(),
        end_offset: batch.end_offset.to_string(),
        data: messages.is_none().then(|| base64(&batch.data)),
        messages,
    })
}
