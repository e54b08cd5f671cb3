//! `GET …/appends`: whole appends, by their numbers (docs/store-api.md).

use alluvium_engine::ReadError;
use alluvium_http::Response;
use alluvium_protocol::{Incarnation, Offset, StreamPath, json, sse::base64, store::AppendBatch};
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
use crate::backend::Facts;
use crate::state::State;

/// Appends in an answer, unless the request wants fewer.
const LIMIT_DEFAULT: usize = 100;
/// Most that a request may want.
const LIMIT_MAX: usize = 1000;
/// How often the beginning of a stream may be given up under a request before that is its answer.
const TRIES_MAX: usize = 8;

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
    let wanted = Wanted { from, expected };
    let Found { head, from, batches } = wanted.find(&Stored { streams, path, limit, max_bytes }).await?;
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

/// A stream whose appends are read.
trait Appends {
    async fn head(&self) -> Result<Facts, Failure>;

    /// Those from number `from` on.
    async fn read(&self, from: u64, incarnation: Incarnation) -> Result<Vec<AppendBatch>, Failure>;
}

/// One of the store.
struct Stored<'a> {
    streams: &'a State,
    path: &'a StreamPath,
    limit: usize,
    max_bytes: u64,
}

impl Appends for Stored<'_> {
    async fn head(&self) -> Result<Facts, Failure> {
        self.streams.backend.head(self.path).await
    }

    async fn read(&self, from: u64, incarnation: Incarnation) -> Result<Vec<AppendBatch>, Failure> {
        let backend = &self.streams.backend;
        backend.read_appends(self.path, from, self.limit, incarnation, self.max_bytes).await
    }
}

/// Which appends a request wants.
#[derive(Clone, Copy)]
struct Wanted {
    /// The number of the first; none for the earliest that there is.
    from: Option<u64>,
    /// Of which stream.
    expected: Option<Incarnation>,
}

/// What there was of them.
struct Found {
    /// The stream, as it was when they were read.
    head: Facts,
    from: u64,
    batches: Vec<AppendBatch>,
}

impl Wanted {
    /// Reads the appends. The beginning of the stream may be given up between a look at it and the read, again and again:
    /// whoever names no number gets the appends from where it begins then, and whoever does is told that they are gone.
    async fn find(self, stream: &impl Appends) -> Result<Found, Failure> {
        let mut seen = stream.head().await?;
        let mut is_cut = false;
        for _ in 0..TRIES_MAX {
            check(self.expected, seen.incarnation)?;
            // Whose beginning was given up begins where that ends, and of an append that was cut with the next.
            let earliest = seen.floor.append_index + 1 + u64::from(is_cut);
            let from = self.from.unwrap_or(earliest);
            let failure = match stream.read(from, seen.incarnation).await {
                Ok(batches) => return Ok(Found { head: seen, from, batches }),
                Err(failure) => failure,
            };
            let now = stream.head().await?;
            let has_moved = now.incarnation != seen.incarnation || now.floor > seen.floor;
            // What the disk does not give is not gone, unless it went meanwhile.
            if failure.is_fault() && !(has_moved && from <= now.floor.append_index + 1) {
                return Err(failure);
            }
            if self.from.is_none() && has_moved {
                (seen, is_cut) = (now, false);
            } else if self.from.is_none() && !is_cut && is_trimmed(&now, from) {
                is_cut = true;
            } else {
                return Err(if is_trimmed(&now, from) { trimmed(&now) } else { failure });
            }
        }
        Err(trimmed(&seen))
    }
}

/// Whether append number `from`, or its beginning, was given up with nothing that stands for it.
fn is_trimmed(head: &Facts, from: u64) -> bool {
    head.floor > Offset::ZERO && head.snapshot.is_none() && from <= head.floor.append_index + 1
}

fn trimmed(head: &Facts) -> Failure {
    Failure::Read(ReadError::Retained { floor: head.floor, snapshot: head.snapshot })
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

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;

    use alluvium_protocol::{
        Attributes, ContentType, Lifetime, StreamError,
        store::{StoreError, StoreFault},
    };
    use bytes::Bytes;

    use super::*;

    /// A stream of [`APPENDS`] appends of ten bytes whose floor moves on in front of each read.
    struct Trimmed {
        floor: Cell<u64>,
        /// The floors to come, in bytes. One within an append cuts it.
        next: RefCell<VecDeque<u64>>,
        /// The numbers of appends that the disk does not give.
        broken: Vec<u64>,
        snapshot: bool,
    }

    const APPENDS: u64 = 30;

    fn offset(position: u64) -> Offset {
        Offset::new(position / 10, position)
    }

    impl Trimmed {
        fn new(floor: u64, next: &[u64]) -> Self {
            let next = RefCell::new(next.iter().copied().collect());
            Self { floor: Cell::new(floor), next, broken: Vec::new(), snapshot: false }
        }

        fn facts(&self) -> Facts {
            let floor = offset(self.floor.get());
            Facts {
                incarnation: Incarnation(7),
                content_type: ContentType::parse("text/plain").expect("a content type"),
                lifetime: Lifetime::Forever,
                tail: offset(APPENDS * 10),
                closed: false,
                floor,
                snapshot: self.snapshot.then_some(floor),
                attributes: Attributes::default(),
            }
        }

        fn take(&self, from: u64) -> Result<Vec<AppendBatch>, Failure> {
            if let Some(floor) = self.next.borrow_mut().pop_front() {
                self.floor.set(floor);
            }
            if self.broken.contains(&from) {
                return Err(Failure::Contract(StoreError::Fault(StoreFault::Corrupt("a checksum".into()))));
            }
            let start = (from - 1) * 10;
            if start < self.floor.get() {
                let refused = StreamError::InvalidOffset { offset: Offset::ZERO };
                return Err(Failure::Contract(StoreError::Refused(refused)));
            }
            let (start_offset, end_offset) = (offset(start), offset(start + 10));
            let data = Bytes::from_static(b"0123456789");
            Ok(vec![AppendBatch { append_index: from, start_offset, end_offset, data }])
        }

        fn find(&self, from: Option<u64>) -> Result<u64, Failure> {
            let wanted = Wanted { from, expected: Some(Incarnation(7)) };
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(wanted.find(self)).map(|found| {
                assert_eq!(found.batches[0].append_index, found.from);
                found.from
            })
        }
    }

    impl Appends for Trimmed {
        async fn head(&self) -> Result<Facts, Failure> {
            Ok(self.facts())
        }

        async fn read(&self, from: u64, incarnation: Incarnation) -> Result<Vec<AppendBatch>, Failure> {
            assert_eq!(incarnation, Incarnation(7));
            self.take(from)
        }
    }

    /// The floor that somebody is told of who asked for what is gone.
    fn told(found: &Result<u64, Failure>) -> Option<Offset> {
        match found {
            Err(Failure::Read(ReadError::Retained { floor, .. })) => Some(*floor),
            _ => None,
        }
    }

    #[test]
    fn trims_between_a_look_and_a_read_are_never_the_fault_of_whoever_asks() {
        let floors = [0, 10, 15, 40, 47, 60];
        for first in floors {
            for second in floors.into_iter().filter(|next| *next >= first) {
                for third in floors.into_iter().filter(|next| *next >= second) {
                    let stream = Trimmed::new(first, &[first, second, third]);
                    let found = stream.find(None).expect("the earliest append");
                    let earliest = stream.floor.get().div_ceil(10) + 1;
                    assert_eq!(found, earliest, "{first} {second} {third}");
                    for from in 1..8 {
                        let stream = Trimmed::new(first, &[second, third]);
                        let found = stream.find(Some(from));
                        let is_there = (from - 1) * 10 >= second;
                        assert_eq!(found.is_ok(), is_there, "{first} {second} {third}: {from}");
                        let floor = (!is_there).then(|| stream.facts().floor);
                        assert_eq!(told(&found), floor, "{first} {second} {third}: {from}: {found:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn trims_without_end_are_an_answer() {
        let next: Vec<u64> = (1..APPENDS).map(|nth| nth * 10).collect();
        let stream = Trimmed::new(0, &next);
        let found = stream.find(None);
        assert_eq!(told(&found), Some(stream.facts().floor), "{found:?}");
        assert_eq!(stream.floor.get(), TRIES_MAX as u64 * 10);
    }

    #[test]
    fn what_the_disk_does_not_give_behind_a_trimmed_beginning_is_not_told_as_gone() {
        for floor in [0, 10, 15, 40, 47] {
            for from in [None, Some(floor / 10 + 1), Some(floor / 10 + 2), Some(APPENDS)] {
                let stream = Trimmed { broken: (1..=APPENDS).collect(), ..Trimmed::new(floor, &[]) };
                let failure = stream.find(from).expect_err("a fault");
                assert!(failure.is_fault(), "{floor} {from:?}: {failure:?}");
            }
        }
        // A trim elsewhere does not excuse the disk either; one of the very append does.
        let later = Trimmed { broken: vec![9], ..Trimmed::new(10, &[40]) };
        assert!(later.find(Some(9)).expect_err("a fault").is_fault());
        let gone = Trimmed { broken: vec![2], ..Trimmed::new(10, &[40]) };
        assert_eq!(told(&gone.find(Some(2))), Some(offset(40)));
        let gone = Trimmed { broken: vec![2], ..Trimmed::new(10, &[40]) };
        assert_eq!(gone.find(None).ok(), Some(5));
    }

    #[test]
    fn with_a_snapshot_the_refusal_is_that_of_the_store() {
        let stream = Trimmed { snapshot: true, ..Trimmed::new(40, &[]) };
        let failure = stream.find(Some(2)).expect_err("it is not retained");
        assert!(matches!(failure, Failure::Contract(StoreError::Refused(_))), "{failure:?}");
        assert_eq!(stream.find(None).ok(), Some(5));
    }
}
