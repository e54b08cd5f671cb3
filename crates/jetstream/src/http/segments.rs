//! `listSegments`, `getSegment` and `getBlock`: the archive as files.
//!
//! A file can be replaced by another version at any time. So what is served is described by the file that was opened,
//! and never by what is resident: a download that goes on would else splice two versions.

use std::sync::Arc;

use alluvium_http::{Request, Response};
use alluvium_jetstream_archive::Descriptor;
use alluvium_jetstream_wire::query::Query;
use alluvium_jss::header::{HEADER_BYTES, State as HeaderState};
use alluvium_jss::{BlockInfo, Metadata, SegmentIndex};
use http::{HeaderValue, Method};
use serde::Serialize;

use super::ranged::{self, Served, Source};
use super::refusal::Refusal;
use super::{State, json};

/// Segments in a list unless a request says otherwise.
const LIST_DEFAULT: usize = 100;
/// Most segments in a list.
const LIST_MAX: usize = 1000;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    name: String,
    index: u64,
    size_bytes: u64,
    checksum: String,
    event_count: u64,
    min_seq: u64,
    max_seq: u64,
    min_witnessed_at: i64,
    max_witnessed_at: i64,
}

#[derive(Serialize)]
struct List {
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    segments: Vec<Listed>,
}

/// A checksum as the wire has it.
pub(crate) fn checksum(checksum: u64) -> String {
    format!("{checksum:016x}")
}

pub(crate) fn list(state: &State, query: &Query) -> Result<Response, Refusal> {
    let limit = match query.get("limit") {
        None => LIST_DEFAULT,
        Some(text) => match text.parse::<i64>() {
            Ok(limit) if limit > 0 => usize::try_from(limit).unwrap_or(LIST_MAX).min(LIST_MAX),
            _ => return Err(Refusal::Invalid("limit must be a positive integer".to_owned())),
        },
    };
    let from: u64 = match query.get("cursor") {
        None | Some("") => 0,
        Some(text) => {
            text.parse().map_err(|_| Refusal::Invalid("cursor is not one of this list".to_owned()))?
        }
    };
    let manifest = state.archive.manifest();
    let start = manifest.segments.partition_point(|segment| segment.index.get() < from);
    let rest = &manifest.segments[start..];
    let cursor = rest.get(limit).map(|next| next.index.get().to_string());
    let segments = rest.iter().take(limit).map(|segment| listed(segment)).collect();
    Ok(json(&List { cursor, segments }))
}

fn listed(segment: &Descriptor) -> Listed {
    let header = segment.header();
    Listed {
        name: segment.index.file_name(),
        index: segment.index.get(),
        size_bytes: segment.size_bytes,
        checksum: checksum(header.checksum),
        event_count: header.event_count.into(),
        min_seq: header.min_seq,
        max_seq: header.max_seq,
        min_witnessed_at: header.min_witnessed_at,
        max_witnessed_at: header.max_witnessed_at,
    }
}

pub(crate) async fn segment(state: &State, query: &Query, request: &Request) -> Result<Response, Refusal> {
    let descriptor = find(state, query, "name")?;
    let disk = Arc::clone(&state.archive.env().disk);
    let served = blocking(move || {
        let file = descriptor.open(&*disk)?;
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0).map_err(unreadable)?;
        let Ok(HeaderState::Sealed(header)) = HeaderState::parse(&header) else {
            return Err(Refusal::Unavailable);
        };
        #[cfg(feature = "planted-bugs")]
        let header = if alluvium_jss::planted::is_planted(alluvium_jss::planted::Bug::TagOfManifest) {
            descriptor.header().clone()
        } else {
            header
        };
        let (end, modified_s) = (file.len().map_err(unreadable)?, file.modified_s().map_err(unreadable)?);
        Ok((Source::File { file, range: 0..end }, modified_s, header.checksum))
    });
    let (source, modified_s, sum) = served.await?;
    answer(state, source, modified_s, format!("\"{}\"", checksum(sum)), request)
}

pub(crate) async fn block(state: &State, query: &Query, request: &Request) -> Result<Response, Refusal> {
    let descriptor = find(state, query, "segment")?;
    let number = query.get("blockIndex").and_then(|text| text.parse::<usize>().ok());
    let number = number
        .ok_or_else(|| Refusal::Invalid("blockIndex must be an integer that is not negative".to_owned()))?;
    let disk = Arc::clone(&state.archive.env().disk);
    let limits = state.archive.options().read;
    let served = blocking(move || {
        let file = descriptor.open(&*disk)?;
        let metadata = if descriptor.is_of(&*file)? {
            Arc::clone(&descriptor.metadata)
        } else {
            Arc::new(Metadata::read(&*file, limits).map_err(|error| {
                tracing::error!(error = &error as &dyn std::error::Error, "a segment cannot be read");
                Refusal::Unavailable
            })?)
        };
        let block: &BlockInfo = metadata.blocks.get(number).ok_or(Refusal::BlockNotFound)?;
        let (range, modified_s) = (block.frame_offset()..block.end(), file.modified_s().map_err(unreadable)?);
        Ok((Source::File { file, range }, modified_s, metadata.header.checksum))
    });
    let (source, modified_s, sum) = served.await?;
    answer(state, source, modified_s, format!("\"{}:{number}\"", checksum(sum)), request)
}

fn find(state: &State, query: &Query, name: &str) -> Result<Arc<Descriptor>, Refusal> {
    let file = query.get(name).ok_or_else(|| Refusal::Invalid(format!("{name} is missing")))?;
    let index = SegmentIndex::from_file_name(file)
        .ok_or_else(|| Refusal::Invalid(format!("{name} is not the name of a segment")))?;
    state.archive.manifest().get(index).cloned().ok_or(Refusal::SegmentNotFound)
}

fn answer(
    state: &State,
    source: Source,
    modified_s: Option<u64>,
    etag: String,
    request: &Request,
) -> Result<Response, Refusal> {
    let cache_control = match state.options.segment_max_age.as_secs() {
        0 => HeaderValue::from_static("public, no-cache"),
        age => HeaderValue::from_str(&format!("public, max-age={age}"))
            .unwrap_or(HeaderValue::from_static("public, no-cache")),
    };
    let served = Served { source, etag, modified_s, cache_control };
    ranged::respond(served, request.headers(), *request.method() == Method::HEAD)
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` is given")]
fn unreadable(error: std::io::Error) -> Refusal {
    tracing::error!(error = &error as &dyn std::error::Error, "a segment cannot be read");
    Refusal::Unavailable
}

/// Runs what may wait for the disk where that is allowed.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
