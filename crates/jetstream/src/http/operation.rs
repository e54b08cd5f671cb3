//! Which operation a request asks for, by its method and target alone, for counting.

use alluvium_http::query;
use http::{Method, Request};

use super::{METHODS, XRPC, stream};

/// The operations, in the order of the numbers that [`operation`] gives. Methods have their own names.
pub const OPERATIONS: &[&str] = &[
    "subscribe",
    "subscribe_v2",
    "subscribeEvents",
    "listSegments",
    "getSegment",
    "getBlock",
    "getZstdDictionary",
    "planBackfill",
    "planSnapshot",
    "importTimestamps",
    "getImportStatus",
    "read",
    "read_long_poll",
    "read_sse",
    "status",
    "index",
    "health",
    "ready",
    "metrics",
    "backup",
    "backup_list",
    "preflight",
    "other",
];

/// The place of what a request asks for among [`OPERATIONS`].
pub fn operation<B>(request: &Request<B>) -> usize {
    let name = named(request.method(), request.uri().path(), query(request));
    OPERATIONS.iter().position(|known| *known == name).unwrap_or(OPERATIONS.len() - 1)
}

fn named<'a>(method: &Method, path: &'a str, query: &str) -> &'a str {
    if *method == Method::OPTIONS {
        return "preflight";
    }
    match path {
        "/subscribe" => "subscribe",
        "/subscribe-v2" => "subscribe_v2",
        stream::PATH => {
            let mut pairs = query.split('&');
            match pairs.find_map(|pair| pair.strip_prefix("live=")) {
                Some("sse") => "read_sse",
                Some("long-poll") => "read_long_poll",
                _ => "read",
            }
        }
        "/status" => "status",
        "/" => "index",
        "/healthz" => "health",
        "/readyz" => "ready",
        "/metrics" => "metrics",
        "/admin/v1/backups" => "backup_list",
        path if path.starts_with("/admin/v1/backups/") => "backup",
        path => {
            let method = path.strip_prefix(XRPC).and_then(|method| method.strip_prefix(METHODS));
            // Names of methods have a large letter in them, and so are none of the others.
            method.filter(|method| method.bytes().any(|byte| byte.is_ascii_uppercase())).unwrap_or("other")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_of_one_operation() {
        for (request, expected) in [
            ("GET /subscribe?wantedCollections=x", "subscribe"),
            ("GET /subscribe-v2", "subscribe_v2"),
            ("GET /xrpc/network.bsky.jetstream.subscribeEvents", "subscribeEvents"),
            ("GET /xrpc/network.bsky.jetstream.getBlock?segment=1", "getBlock"),
            ("POST /xrpc/network.bsky.jetstream.planBackfill", "planBackfill"),
            ("GET /xrpc/network.bsky.jetstream.getImportStatus?job=1", "getImportStatus"),
            ("GET /xrpc/network.bsky.jetstream.status", "other"),
            ("GET /xrpc/network.bsky.jetstream.getNothing", "other"),
            ("GET /xrpc/com.example.other", "other"),
            ("GET /streams/events?offset=now&live=sse", "read_sse"),
            ("GET /streams/events?offset=now", "read"),
            ("GET /status", "status"),
            ("GET /", "index"),
            ("GET /metrics", "metrics"),
            ("GET /admin/v1/backups", "backup_list"),
            ("PUT /admin/v1/backups/daily", "backup"),
            ("GET /admin/v1/streams", "other"),
            ("OPTIONS /subscribe", "preflight"),
        ] {
            let (method, uri) = request.split_once(' ').expect("a method");
            let asked = Request::builder().method(method).uri(uri).body(()).expect("a request");
            assert_eq!(OPERATIONS[operation(&asked)], expected, "{request}");
        }
    }
}
