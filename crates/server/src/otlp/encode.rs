//! Spans and metrics in OTLP's JSON encoding (OpenTelemetry Protocol 1.x): identifiers are hexadecimal, 64-bit numbers are
//! text.

use alluvium_env::Env;
use alluvium_metrics::{Family, Kind, Observed, Page, Sample, Value as Figure};
use serde_json::{Value, json};

use super::spans::Span;

/// The kind of a span that answers a request.
const SPAN_KIND_SERVER: u8 = 2;
/// A status that says that it failed.
const STATUS_ERROR: u8 = 2;
/// Sums and histograms are of everything since the start.
const CUMULATIVE: u8 = 2;

/// Who exports.
#[derive(Debug)]
pub(super) struct Resource {
    instance: String,
}

impl Resource {
    pub(super) fn new(env: &Env) -> Self {
        Self { instance: format!("{:032x}", env.random.next_u128()) }
    }

    fn json(&self) -> Value {
        json!({ "attributes": [
            text("service.name", "alluvium"),
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("service.instance.id", &self.instance),
        ] })
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn scope() -> Value {
    json!({ "name": "alluvium", "version": env!("CARGO_PKG_VERSION") })
}

fn nanoseconds(microseconds: u64) -> String {
    microseconds.saturating_mul(1000).to_string()
}

/// The body of an export of spans.
pub(super) fn traces_json(resource: &Resource, spans: &[Span]) -> Value {
    let spans: Vec<Value> = spans.iter().map(span_json).collect();
    json!({ "resourceSpans": [{
        "resource": resource.json(),
        "scopeSpans": [{ "scope": scope(), "spans": spans }],
    }] })
}

fn span_json(span: &Span) -> Value {
    let mut json = json!({
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.operation,
        "kind": SPAN_KIND_SERVER,
        "startTimeUnixNano": nanoseconds(span.began_us),
        "endTimeUnixNano": nanoseconds(span.ended_us),
        "attributes": [
            text("http.request.method", span.method.as_str()),
            json!({ "key": "http.response.status_code", "value": { "intValue": span.status.to_string() } }),
            text("alluvium.operation", span.operation),
            text("alluvium.request_id", &span.request_id),
        ],
    });
    if let Some(parent) = &span.parent_id {
        json["parentSpanId"] = Value::from(parent.as_str());
    }
    if span.status >= 500 {
        json["status"] = json!({ "code": STATUS_ERROR });
    }
    json
}

/// The body of an export of metrics.
pub(super) fn metrics_json(resource: &Resource, page: &Page, started_us: u64, now_us: u64) -> Value {
    let times = (nanoseconds(started_us), nanoseconds(now_us));
    let metrics: Vec<Value> = page
        .sections()
        .iter()
        .map(|section| {
            let points: Vec<Value> =
                section.samples.iter().map(|sample| point(section.family, sample, &times)).collect();
            let mut metric = json!({ "name": section.family.name, "description": section.family.help });
            match section.family.kind {
                Kind::Counter => {
                    metric["sum"] = json!({
                        "aggregationTemporality": CUMULATIVE, "isMonotonic": true, "dataPoints": points
                    });
                }
                Kind::Gauge => metric["gauge"] = json!({ "dataPoints": points }),
                Kind::Histogram => {
                    metric["histogram"] =
                        json!({ "aggregationTemporality": CUMULATIVE, "dataPoints": points });
                }
            }
            metric
        })
        .collect();
    json!({ "resourceMetrics": [{
        "resource": resource.json(),
        "scopeMetrics": [{ "scope": scope(), "metrics": metrics }],
    }] })
}

fn point(family: &Family, sample: &Sample, (started, now): &(String, String)) -> Value {
    let attributes: Vec<Value> =
        family.labels.iter().zip(&sample.labels).map(|(label, value)| text(label, value)).collect();
    let mut point = json!({ "attributes": attributes, "timeUnixNano": now });
    if family.kind != Kind::Gauge {
        point["startTimeUnixNano"] = Value::from(started.as_str());
    }
    match &sample.value {
        Figure::Whole(number) => point["asInt"] = Value::from(number.to_string()),
        Figure::Fraction(number) => point["asDouble"] = Value::from(*number),
        Figure::Observed(observed) => histogram(&mut point, observed),
    }
    point
}

#[expect(clippy::cast_precision_loss, reason = "bounds and sums are floating-point numbers in this format")]
fn histogram(point: &mut Value, observed: &Observed) {
    let per_shown = observed.unit.per_shown as f64;
    let bounds: Vec<f64> = observed.unit.bounds.iter().map(|bound| *bound as f64 / per_shown).collect();
    let counts: Vec<String> = observed.buckets.iter().map(ToString::to_string).collect();
    point["count"] = Value::from(observed.count().to_string());
    point["sum"] = Value::from(observed.sum as f64 / per_shown);
    point["bucketCounts"] = Value::from(counts);
    point["explicitBounds"] = Value::from(bounds);
}
