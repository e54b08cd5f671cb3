//! `planBackfill` and `planSnapshot`: what a client has to download.

use std::sync::Arc;

use alluvium_http::{CollectError, CollectLimits, Request, Response, collect};
use alluvium_jetstream_archive::plan::PlannedSegment;
use alluvium_jetstream_archive::{Plan, PlanRequest, plan};
use alluvium_jetstream_wire::filter::{Collections, FilterError, Prefixes, parse_dids};
use alluvium_jetstream_wire::{Filter, KindSet, RequestError, Topic};
use http::{Method, header};
use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use super::segments::{blocking, checksum};
use super::{State, json};
use crate::live::selection;

/// Which of the two names a request has.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum Era {
    Backfill,
    Snapshot,
}

impl Era {
    /// Most accounts and collections of a request.
    const fn limits(self) -> (usize, usize) {
        match self {
            Self::Backfill => (1_000, 25),
            Self::Snapshot => (10_000, 100),
        }
    }
}

/// The body; what is absent, null or empty filters nothing.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Input {
    kinds: Option<Vec<String>>,
    dids: Option<Vec<String>>,
    collections: Option<Vec<String>>,
    after_seq: Option<i64>,
    before_seq: Option<i64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Output {
    planned_through_seq: u64,
    sealed_tip_seq: u64,
    segments: Vec<Segment>,
    stats: Stats,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Segment {
    name: String,
    index: u64,
    checksum: String,
    min_seq: u64,
    max_seq: u64,
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks: Option<Vec<BlockRange>>,
}

#[derive(Serialize)]
struct BlockRange {
    first: u32,
    last: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Stats {
    segments_examined: u64,
    segments_matched: u64,
    blocks_matched: u64,
    entries: u64,
}

pub(super) async fn handle(state: &Arc<State>, era: Era, request: Request) -> Result<Response, Refusal> {
    if *request.method() != Method::POST {
        return Err(Refusal::MethodNotAllowed("POST, OPTIONS"));
    }
    let wanted = wanted(era, &body(state, request).await?)?;
    // Plans are work for a core: more at a time would make all of them slower.
    let _turn = state.plans.acquire().await.map_err(|_| Refusal::Unavailable)?;
    let (manifest, limits) = (state.archive.manifest(), state.options.plan);
    let made = blocking(move || Ok(plan(&manifest, &wanted, limits))).await?;
    Ok(json(&output(made)))
}

async fn body(state: &State, request: Request) -> Result<Vec<u8>, Refusal> {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = content_type.and_then(|text| text.split(';').next()).map(str::trim);
    if !media.is_some_and(|media| media.eq_ignore_ascii_case("application/json")) {
        return Err(Refusal::ContentType);
    }
    let max = state.options.body_bytes_max;
    let limits = CollectLimits {
        bytes_max: max,
        timeout: state.options.body_timeout,
        discard_refused: true,
        budget: &state.bodies,
    };
    match collect(request.into_body(), limits).await {
        Ok(body) => Ok(body.to_vec()),
        Err(CollectError::TooLarge { .. }) => Err(Refusal::TooLarge(max)),
        Err(CollectError::Timeout { .. }) => Err(Refusal::Timeout),
        Err(_) => Err(Refusal::Unavailable),
    }
}

/// Checks a request.
fn wanted(era: Era, body: &[u8]) -> Result<PlanRequest, Refusal> {
    let input: Input = serde_json::from_slice(body).map_err(|error| Refusal::Invalid(error.to_string()))?;
    let (dids_max, collections_max) = era.limits();
    let (dids, collections) = (input.dids.unwrap_or_default(), input.collections.unwrap_or_default());
    let kinds = match (era, input.kinds.unwrap_or_default()) {
        (Era::Backfill, _) => KindSet::default(),
        (Era::Snapshot, kinds) if kinds.is_empty() => KindSet::default(),
        (Era::Snapshot, kinds) if kinds.len() > 4 => return Err(RequestError::TooManyKinds.into()),
        (Era::Snapshot, kinds) => {
            let topic =
                |name: &String| Topic::from_name(name).ok_or_else(|| RequestError::Kind(name.clone()));
            KindSet::only(kinds.iter().map(topic).collect::<Result<Vec<_>, _>>()?)
        }
    };
    if dids.len() > dids_max {
        return Err(Refusal::Invalid(format!("at most {dids_max} dids")));
    }
    if collections.len() > collections_max {
        return Err(Refusal::Invalid(format!("at most {collections_max} collections")));
    }
    let invalid = |error: FilterError| Refusal::Request(error.into());
    let filter = Filter {
        dids: parse_dids(dids.iter().map(String::as_str)).map_err(invalid)?,
        collections: Collections::parse(collections.iter().map(String::as_str), Prefixes::OfNsids)
            .map_err(invalid)?,
        kinds,
        message_bytes_max: 0,
    };
    if !filter.collections.is_empty() && !filter.kinds.has_commits() {
        return Err(RequestError::CollectionsWithoutCommits.into());
    }
    let seq = |name: &str, value: Option<i64>| {
        value
            .map(|value| u64::try_from(value).map_err(|_| Refusal::Invalid(format!("{name} is negative"))))
            .transpose()
    };
    let (after, before_seq) = (seq("afterSeq", input.after_seq)?, seq("beforeSeq", input.before_seq)?);
    if let (Some(after), Some(before)) = (after, before_seq)
        && before <= after
    {
        return Err(Refusal::Invalid("beforeSeq must be above afterSeq".to_owned()));
    }
    let selection = selection(&filter);
    Ok(PlanRequest { selection: (*selection).clone(), after_seq: after.unwrap_or(0), before_seq })
}

fn output(plan: Plan) -> Output {
    Output {
        planned_through_seq: plan.planned_through_seq,
        sealed_tip_seq: plan.sealed_tip_seq,
        segments: plan.segments.into_iter().map(segment).collect(),
        stats: Stats {
            segments_examined: plan.stats.segments_examined,
            segments_matched: plan.stats.segments_matched,
            blocks_matched: plan.stats.blocks_matched,
            entries: plan.stats.entries,
        },
    }
}

fn segment(planned: PlannedSegment) -> Segment {
    let range = |(first, last)| BlockRange { first, last };
    Segment {
        name: planned.index.file_name(),
        index: planned.index.get(),
        checksum: checksum(planned.checksum),
        min_seq: planned.min_seq,
        max_seq: planned.max_seq,
        mode: if planned.ranges.is_some() { "blocks" } else { "segment" },
        blocks: planned.ranges.map(|ranges| ranges.into_iter().map(range).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_request_wants_everything() {
        for body in ["{}", r#"{"dids":[],"collections":null,"kinds":[]}"#] {
            let wanted = wanted(Era::Snapshot, body.as_bytes()).expect(body);
            assert!(wanted.selection.is_everything());
            assert_eq!((wanted.after_seq, wanted.before_seq), (0, None));
        }
    }

    #[test]
    fn what_is_no_request_is_refused_by_name() {
        for (body, name) in [
            ("", "EOF"),
            ("[]", "invalid length"),
            (r#"{"afterSeq":-1}"#, "afterSeq is negative"),
            (r#"{"afterSeq":5,"beforeSeq":5}"#, "beforeSeq must be above afterSeq"),
            (r#"{"dids":["x"]}"#, "invalid did: x"),
            (r#"{"collections":["*"]}"#, "invalid collection: *"),
            (r#"{"kinds":["like"]}"#, "unknown kind: like"),
            (r#"{"kinds":["sync"],"collections":["app.bsky.*"]}"#, "collections need the kind commit"),
        ] {
            let refused = wanted(Era::Snapshot, body.as_bytes()).expect_err(body).to_string();
            assert!(refused.contains(name), "{body}: {refused}");
        }
    }

    #[test]
    fn each_era_has_its_bounds() {
        let body = |count| {
            let dids: Vec<String> = (0..count).map(|n| format!("did:plc:a{n}")).collect();
            serde_json::to_vec(&serde_json::json!({ "dids": dids, "kinds": ["sync"] })).expect("JSON")
        };
        assert!(wanted(Era::Backfill, &body(1_000)).is_ok_and(|wanted| !wanted.selection.is_everything()));
        assert!(wanted(Era::Backfill, &body(1_001)).is_err());
        assert!(wanted(Era::Snapshot, &body(10_000)).is_ok());
        assert!(wanted(Era::Snapshot, &body(10_001)).is_err());
    }
}
