//! `planBackfill` and `planSnapshot`: what a client has to download.

use std::sync::Arc;

use alluvium_http::{CollectError, CollectLimits, Request, Response, collect};
use alluvium_jetstream_archive::plan::PlannedSegment;
use alluvium_jetstream_archive::{Plan, PlanRequest, plan};
use alluvium_jetstream_wire::filter::{Collections, FilterError, Prefixes, parse_dids};
use alluvium_jetstream_wire::{Filter, KindSet, RequestError, Topic};
use http::{Method, header};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

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
#[derive(Default)]
struct Input {
    kinds: Vec<String>,
    dids: Vec<String>,
    collections: Vec<String>,
    after_seq: Option<u64>,
    before_seq: Option<u64>,
}

/// The fields of the body, each to be read by itself, so that what is wrong with it can be told by its name.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a> {
    #[serde(borrow)]
    kinds: Option<&'a RawValue>,
    #[serde(borrow)]
    dids: Option<&'a RawValue>,
    #[serde(borrow)]
    collections: Option<&'a RawValue>,
    #[serde(borrow)]
    after_seq: Option<&'a RawValue>,
    #[serde(borrow)]
    before_seq: Option<&'a RawValue>,
}

impl Input {
    fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let invalid = |text: String| Refusal::Invalid(text);
        if body.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
            return Err(invalid("the body must be a JSON object".to_owned()));
        }
        let fields: Fields<'_> = serde_json::from_slice(body)
            .map_err(|error| invalid(format!("the body cannot be read as a JSON object: {error}")))?;
        let texts = |name: &str, value: Option<&RawValue>| {
            let Some(value) = value else { return Ok(Vec::new()) };
            serde_json::from_str::<Option<Vec<String>>>(value.get())
                .map(Option::unwrap_or_default)
                .map_err(|_| invalid(format!("{name} must be an array of strings")))
        };
        let seq = |name: &str, value: Option<&RawValue>| {
            let Some(value) = value else { return Ok(None) };
            let number: Option<i64> = serde_json::from_str(value.get())
                .map_err(|_| invalid(format!("{name} must be a whole number of 63 bits")))?;
            let positive = |number| u64::try_from(number).map_err(|_| invalid(format!("{name} is negative")));
            number.map(positive).transpose()
        };
        Ok(Self {
            kinds: texts("kinds", fields.kinds)?,
            dids: texts("dids", fields.dids)?,
            collections: texts("collections", fields.collections)?,
            after_seq: seq("afterSeq", fields.after_seq)?,
            before_seq: seq("beforeSeq", fields.before_seq)?,
        })
    }
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
    let Input { kinds, dids, collections, after_seq, before_seq } = Input::parse(body)?;
    let (dids_max, collections_max) = era.limits();
    let kinds = match (era, kinds) {
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
    if let (Some(after), Some(before)) = (after_seq, before_seq)
        && before <= after
    {
        return Err(Refusal::Invalid("beforeSeq must be above afterSeq".to_owned()));
    }
    let selection = selection(&filter);
    Ok(PlanRequest { selection: (*selection).clone(), after_seq: after_seq.unwrap_or(0), before_seq })
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
            ("", "the body cannot be read as a JSON object: EOF"),
            ("[]", "the body must be a JSON object"),
            (" [null,[],[],1,2]", "the body must be a JSON object"),
            ("null", "the body must be a JSON object"),
            ("7", "the body must be a JSON object"),
            ("\"x\"", "the body must be a JSON object"),
            ("{", "the body cannot be read as a JSON object: EOF"),
            (r#"{"dids":[],"dids":[]}"#, "duplicate field `dids`"),
            (r#"{"dids":"did:web:a"}"#, "dids must be an array of strings"),
            (r#"{"dids":[1]}"#, "dids must be an array of strings"),
            (r#"{"collections":{}}"#, "collections must be an array of strings"),
            (r#"{"kinds":true}"#, "kinds must be an array of strings"),
            (r#"{"afterSeq":"5"}"#, "afterSeq must be a whole number"),
            (r#"{"afterSeq":1.5}"#, "afterSeq must be a whole number"),
            (r#"{"beforeSeq":99999999999999999999}"#, "beforeSeq must be a whole number"),
            (r#"{"afterSeq":-1}"#, "afterSeq is negative"),
            (r#"{"afterSeq":5,"beforeSeq":5}"#, "beforeSeq must be above afterSeq"),
            (r#"{"dids":["x"]}"#, "invalid did: x"),
            (r#"{"collections":["*"]}"#, "invalid collection: *"),
            (r#"{"kinds":["like"]}"#, "unknown kind: like"),
            (r#"{"kinds":["sync"],"collections":["app.bsky.*"]}"#, "collections need the kind commit"),
        ] {
            let refused = wanted(Era::Snapshot, body.as_bytes()).expect_err(body).to_string();
            assert!(refused.contains(name), "{body}: {refused}");
            assert!(!refused.contains("struct") && !refused.contains("Input"), "{body}: {refused}");
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
