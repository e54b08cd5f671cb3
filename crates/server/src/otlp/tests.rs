//! What a collector gets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use alluvium_metrics::{Histogram, MICROSECONDS, Page};
use http::{Method, StatusCode};
use serde_json::Value;

use super::*;
use crate::metrics::families;
use crate::sight::Operations;

/// Takes one request and answers it with a status; gives its path and body.
fn collect(listener: &TcpListener, status: &str) -> (String, Value) {
    let (mut stream, _) = listener.accept().expect("a connection");
    let (mut text, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut chunk).expect("a request");
        text.extend_from_slice(&chunk[..read]);
        if let Some(taken) = taken(&text) {
            answer(&mut stream, status);
            return taken;
        }
    }
}

fn answer(stream: &mut TcpStream, status: &str) {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}");
    stream.write_all(head.as_bytes()).expect("an answer");
}

/// The path and body of a request that is there as a whole.
fn taken(text: &[u8]) -> Option<(String, Value)> {
    let text = std::str::from_utf8(text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let path = head.split(' ').nth(1)?.to_owned();
    Some((path, serde_json::from_str(body).ok()?))
}

fn attribute<'a>(of: &'a Value, key: &str) -> &'a Value {
    let all = of["attributes"].as_array().expect("attributes");
    &all.iter().find(|attribute| attribute["key"] == key).expect("the attribute")["value"]
}

fn exporter() -> (TcpListener, Arc<Sight>, Exporter) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}/", listener.local_addr().expect("an address"));
    let env = Env::real();
    let sight = Sight::new(&env, Operations { names: &["append"], of: |_| 0 });
    let exporter = Exporter::start(&endpoint, &env, &sight).expect("a thread");
    (listener, sight, exporter)
}

fn begun(spans: &Spans, parent: Option<&str>) -> spans::Begun {
    let mut head = http::Request::new(());
    *head.method_mut() = Method::POST;
    if let Some(parent) = parent {
        head.headers_mut().insert("traceparent", parent.parse().expect("a value"));
    }
    spans.begin(head.method(), head.headers())
}

#[test]
fn traced_and_failed_requests_are_exported_and_then_the_metrics() {
    let (listener, sight, running) = exporter();
    let spans = sight.traced().expect("an export");
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let kept = begun(spans, Some(&format!("00-{trace}-00f067aa0ba902b7-01")));
    spans.end(kept, "append", StatusCode::NO_CONTENT, "mine");
    // Neither traced nor failed, or part of a trace that nobody keeps.
    spans.end(begun(spans, None), "append", StatusCode::OK, "a");
    spans.end(begun(spans, Some(&format!("00-{trace}-00f067aa0ba902b7-00"))), "append", StatusCode::OK, "b");
    spans.end(begun(spans, None), "append", StatusCode::INSUFFICIENT_STORAGE, "c");
    let collector = std::thread::spawn(move || [collect(&listener, "200 OK"), collect(&listener, "200 OK")]);
    running.stop();
    let [(traces_path, traces), (metrics_path, metrics)] = collector.join().expect("no panic");

    assert_eq!((traces_path.as_str(), metrics_path.as_str()), ("/v1/traces", "/v1/metrics"));
    let exported = &traces["resourceSpans"][0];
    assert_eq!(attribute(&exported["resource"], "service.name")["stringValue"], "alluvium");
    let exported = exported["scopeSpans"][0]["spans"].as_array().expect("spans");
    assert_eq!(exported.len(), 2, "{exported:#?}");
    assert_eq!(
        (&exported[0]["traceId"], &exported[0]["parentSpanId"]),
        (&trace.into(), &"00f067aa0ba902b7".into())
    );
    assert_eq!(attribute(&exported[0], "http.response.status_code")["intValue"], "204");
    assert_eq!(attribute(&exported[0], "alluvium.request_id")["stringValue"], "mine");
    assert_eq!(exported[0]["status"], Value::Null);
    assert_eq!(exported[1]["status"]["code"], 2);
    assert_eq!(exported[1]["traceId"].as_str().map(str::len), Some(32));
    assert_eq!(exported[1]["parentSpanId"], Value::Null);

    let exported = metrics["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().expect("metrics");
    let named = |name: &str| exported.iter().find(|metric| metric["name"] == name).expect(name);
    assert_eq!(named("alluvium_ready")["gauge"]["dataPoints"][0]["asInt"], "0");
    let exports = &named("alluvium_otlp_exports_total")["sum"];
    assert_eq!((&exports["isMonotonic"], &exports["aggregationTemporality"]), (&true.into(), &2.into()));
    assert_eq!(attribute(&exports["dataPoints"][0], "outcome")["stringValue"], "done");
    assert_eq!(exports["dataPoints"][0]["asInt"], "1");
}

#[test]
fn histograms_have_a_count_for_each_bound_and_one_beyond() {
    let histogram = Histogram::new(&MICROSECONDS);
    histogram.observe(60);
    histogram.observe(60_000_000);
    let mut page = Page::new();
    page.observed(&families::FOLD_SECONDS, &[], histogram.observed());
    let json = metrics_json(&Resource::new(&Env::real()), &page, 5, 7);
    let point = &json["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]["histogram"]["dataPoints"][0];
    assert_eq!((&point["count"], &point["sum"]), (&"2".into(), &60.00006.into()));
    assert_eq!((&point["startTimeUnixNano"], &point["timeUnixNano"]), (&"5000".into(), &"7000".into()));
    let (counts, bounds) = (point["bucketCounts"].as_array(), point["explicitBounds"].as_array());
    assert_eq!(counts.map(Vec::len), bounds.map(|bounds| bounds.len() + 1));
    assert_eq!((&point["bucketCounts"][1], &point["explicitBounds"][1]), (&"1".into(), &0.0001.into()));
}

#[test]
fn what_a_collector_does_not_take_is_dropped_and_counted() {
    let (listener, sight, running) = exporter();
    let spans = sight.traced().expect("an export");
    spans.end(begun(spans, None), "append", StatusCode::INTERNAL_SERVER_ERROR, "x");
    let refused = "503 Service Unavailable";
    let collector = std::thread::spawn(move || [collect(&listener, refused), collect(&listener, refused)]);
    running.stop();
    collector.join().expect("no panic");
    let text = sight.page().text(alluvium_metrics::Format::Prometheus);
    let read = alluvium_metrics::parse(&text).expect("written here");
    assert_eq!(read.value("alluvium_otlp_spans_dropped_total", &[]), Some(1.0));
    assert_eq!(read.value("alluvium_otlp_exports_total", &[("outcome", "failed")]), Some(2.0));
}
