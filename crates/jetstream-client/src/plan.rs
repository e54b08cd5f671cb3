//! Which parts of the archive to download, as the server plans it, and where in it a time is.

use std::sync::atomic::{AtomicBool, Ordering};

use alluvium_jss::SegmentIndex;
use serde::{Deserialize, Serialize};

use crate::config::{Config, topic_name};
use crate::error::Error;
use crate::http::Http;

/// What the older of the two methods takes at most.
const BACKFILL_DIDS_MAX: usize = 1_000;
const BACKFILL_COLLECTIONS_MAX: usize = 25;
/// Segments in one answer of a list.
const LIST_LIMIT: usize = 1_000;

/// A part of a plan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Page {
    /// Every event up to this one is in what is to be downloaded, or not wanted.
    pub(crate) through: u64,
    /// The last event of the archive, or of what was asked for.
    pub(crate) tip: u64,
    /// In the order of the archive.
    pub(crate) entries: Vec<Entry>,
}

/// A segment, or blocks of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Entry {
    pub(crate) index: SegmentIndex,
    /// Its version: 16 hexadecimal digits.
    pub(crate) checksum: String,
    /// The first and the last of each range of blocks; none for all of it.
    pub(crate) ranges: Option<Vec<(u32, u32)>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Input<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kinds: Vec<&'static str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    dids: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    collections: &'a [String],
    after_seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    before_seq: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Output {
    planned_through_seq: u64,
    sealed_tip_seq: u64,
    segments: Vec<Segment>,
}

#[derive(Deserialize)]
struct Segment {
    name: String,
    checksum: String,
    mode: String,
    #[serde(default)]
    blocks: Vec<Range>,
}

#[derive(Deserialize)]
struct Range {
    first: u32,
    last: u32,
}

#[derive(Deserialize)]
struct List {
    cursor: Option<String>,
    segments: Vec<Listed>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    index: u64,
    event_count: u64,
    min_seq: u64,
    max_witnessed_at: i64,
}

/// Plans of one server.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    /// The server has only the older of the two methods.
    is_old: AtomicBool,
}

impl Planner {
    /// What to download of the events behind `after`, up to `before`.
    pub(crate) fn plan(
        &self,
        http: &Http,
        config: &Config,
        after: u64,
        before: Option<u64>,
    ) -> Result<Page, Error> {
        if !self.is_old.load(Ordering::Relaxed) {
            let input = Input {
                kinds: config.kinds.iter().map(|topic| topic_name(*topic)).collect(),
                dids: &config.dids,
                collections: &config.collections,
                after_seq: after,
                before_seq: before,
            };
            match http.post::<Output>("planSnapshot", &body(&input)?) {
                Err(error) if is_missing(&error) => self.is_old.store(true, Ordering::Relaxed),
                planned => return planned.and_then(page),
            }
        }
        // It knows no kinds, and fewer of the others: what it plans too much is left out when it is here.
        let fits = |texts: &'_ [String], max| texts.len() <= max;
        let input = Input {
            kinds: Vec::new(),
            dids: if fits(&config.dids, BACKFILL_DIDS_MAX) { &config.dids } else { &[] },
            collections: if fits(&config.collections, BACKFILL_COLLECTIONS_MAX) {
                &config.collections
            } else {
                &[]
            },
            after_seq: after,
            before_seq: before,
        };
        match http.post::<Output>("planBackfill", &body(&input)?) {
            Err(error) if is_missing(&error) => Err(Error::NoArchive),
            planned => planned.and_then(page),
        }
    }
}

/// The first event of the first segment that has one which was seen at this time or later; none if there is no such
/// segment, or no list.
pub(crate) fn first_at(http: &Http, time: i64) -> Result<Option<u64>, Error> {
    let mut cursor = String::from("0");
    let mut last = None;
    loop {
        let page: List = match http.get(&format!("listSegments?limit={LIST_LIMIT}&cursor={cursor}")) {
            Err(error) if is_missing(&error) => return Ok(None),
            listed => listed?,
        };
        if let Some(first) = page.first_at(time, &mut last)? {
            return Ok(Some(first));
        }
        match page.cursor {
            // A list that says where to go on, and gives nothing, would go on for ever.
            Some(next) if next != cursor && next.bytes().all(|byte| byte.is_ascii_digit()) => cursor = next,
            Some(_) => return Err(Error::Answer("listSegments: it does not go on".to_owned())),
            None => return Ok(None),
        }
    }
}

impl List {
    /// The first event of the first segment here that reaches a time. `last` is the segment before these.
    fn first_at(&self, time: i64, last: &mut Option<u64>) -> Result<Option<u64>, Error> {
        for segment in &self.segments {
            if last.is_some_and(|last| segment.index <= last) {
                return Err(Error::Answer("listSegments: it is not in order".to_owned()));
            }
            *last = Some(segment.index);
            if segment.event_count > 0 && segment.max_witnessed_at >= time {
                return Ok(Some(segment.min_seq));
            }
        }
        Ok(None)
    }
}

/// A plan as a server sent it.
pub(crate) fn read_page(answer: &[u8]) -> Result<Page, Error> {
    let output = serde_json::from_slice(answer).map_err(|error| Error::Answer(error.to_string()))?;
    page(output)
}

/// What a list as a server sent it says about a time.
pub(crate) fn first_of_page(answer: &[u8], time: i64) -> Result<Option<u64>, Error> {
    let list: List = serde_json::from_slice(answer).map_err(|error| Error::Answer(error.to_string()))?;
    list.first_at(time, &mut None)
}

fn body(input: &Input<'_>) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(input).map_err(|error| Error::Answer(error.to_string()))
}

/// Whether the server does not have a method.
fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Refused { status: 404 | 405 | 501, .. })
}

/// Checks a plan: what is out of order would be taken for events that were there before.
fn page(output: Output) -> Result<Page, Error> {
    let wrong = |what: &str| Error::Answer(format!("the plan: {what}"));
    let mut entries: Vec<Entry> = Vec::with_capacity(output.segments.len());
    let mut end = 0;
    for segment in output.segments {
        let index = SegmentIndex::from_file_name(&segment.name)
            .ok_or_else(|| wrong("a segment has another name than segments have"))?;
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if segment.checksum.len() != 16 || !segment.checksum.bytes().all(is_hex) {
            return Err(wrong("a checksum has other than 16 hexadecimal digits"));
        }
        let ranges = match &*segment.mode {
            "segment" => None,
            "blocks" => {
                Some(segment.blocks.iter().map(|range| (range.first, range.last)).collect::<Vec<_>>())
            }
            _ => return Err(wrong("a mode is not known")),
        };
        let before = entries.last().map(|entry| entry.index);
        // The same segment may come again with later blocks.
        let from = if before == Some(index) { end } else { 0 };
        let is_again = before == Some(index);
        if before.is_some_and(|before| index < before) || (is_again && (from == 0 || ranges.is_none())) {
            return Err(wrong("segments are out of order"));
        }
        end = from;
        for (first, last) in ranges.iter().flatten() {
            if u64::from(*first) < end || last < first {
                return Err(wrong("blocks are out of order"));
            }
            end = u64::from(*last) + 1;
        }
        entries.push(Entry { index, checksum: segment.checksum, ranges });
    }
    Ok(Page { through: output.planned_through_seq, tip: output.sealed_tip_seq, entries })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(number: u64, mode: &str, blocks: &[(u32, u32)]) -> Segment {
        Segment {
            name: SegmentIndex::new(number).unwrap().file_name(),
            checksum: "0123456789abcdef".to_owned(),
            mode: mode.to_owned(),
            blocks: blocks.iter().map(|(first, last)| Range { first: *first, last: *last }).collect(),
        }
    }

    type Planned = (u64, Option<Vec<(u32, u32)>>);

    fn checked(segments: Vec<Segment>) -> Result<Vec<Planned>, String> {
        page(Output { planned_through_seq: 9, sealed_tip_seq: 9, segments })
            .map(|page| page.entries.into_iter().map(|entry| (entry.index.get(), entry.ranges)).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_plan_is_taken_in_the_order_of_the_archive_only() {
        let good = vec![
            segment(0, "segment", &[]),
            segment(1, "blocks", &[(0, 0)]),
            segment(1, "blocks", &[(2, 3)]),
        ];
        assert_eq!(checked(good).unwrap(), [(0, None), (1, Some(vec![(0, 0)])), (1, Some(vec![(2, 3)]))]);
        for bad in [
            vec![segment(1, "segment", &[]), segment(0, "segment", &[])],
            vec![segment(1, "segment", &[]), segment(1, "segment", &[])],
            vec![segment(1, "blocks", &[(2, 3)]), segment(1, "segment", &[])],
            vec![segment(1, "blocks", &[(3, 2)])],
            vec![segment(1, "blocks", &[(2, 3), (3, 4)])],
            vec![segment(1, "blocks", &[(2, 3)]), segment(1, "blocks", &[(0, 1)])],
            vec![segment(1, "later", &[])],
            vec![Segment { name: "../x".to_owned(), ..segment(1, "segment", &[]) }],
            vec![Segment { checksum: "x".to_owned(), ..segment(1, "segment", &[]) }],
        ] {
            checked(bad).unwrap_err();
        }
    }
}
