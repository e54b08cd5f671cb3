//! Which operation a request asks for, by method and path alone, for counting.

use http::{Method, Uri};

/// The operations, in the order of the numbers that [`operation`] gives.
pub const OPERATIONS: &[&str] = &[
    "feed_append",
    "feed_query",
    "feed_subscribe",
    "feed_unsubscribe",
    "feed_list",
    "feed_message",
    "feed_stream",
    "feed_events",
    "feed_socket",
    "feed_preflight",
    "feed_other",
];

/// The place of what a request asks for among [`OPERATIONS`].
pub fn operation(method: &Method, uri: &Uri) -> usize {
    let name = named(method, uri);
    OPERATIONS.iter().position(|known| *known == name).unwrap_or(OPERATIONS.len() - 1)
}

fn named(method: &Method, uri: &Uri) -> &'static str {
    if *method == Method::OPTIONS {
        return "feed_preflight";
    }
    let Some(rest) = uri.path().strip_prefix("/feeds/v1/") else { return "feed_other" };
    let mut segments = rest.split('/');
    match (segments.next(), segments.next(), segments.next()) {
        (Some("ws"), None, _) | (Some("spaces"), Some(_), Some("ws")) => "feed_socket",
        (Some("spaces"), Some(_), None) => "feed_message",
        (Some("spaces"), Some(_), Some("append")) => "feed_append",
        (Some("spaces"), Some(_), Some("query")) => "feed_query",
        (Some("spaces"), Some(_), Some("subscribe")) => "feed_subscribe",
        (Some("spaces"), Some(_), Some("unsubscribe")) => "feed_unsubscribe",
        (Some("spaces"), Some(_), Some("feeds")) => "feed_list",
        (Some("spaces"), Some(_), Some("streams")) => "feed_stream",
        (Some("spaces"), Some(_), Some("events")) => "feed_events",
        _ => "feed_other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_of_one_operation() {
        for (request, expected) in [
            ("POST /feeds/v1/spaces/s", "feed_message"),
            ("POST /feeds/v1/spaces/s/append", "feed_append"),
            ("POST /feeds/v1/spaces/s/query", "feed_query"),
            ("POST /feeds/v1/spaces/s/subscribe", "feed_subscribe"),
            ("POST /feeds/v1/spaces/s/unsubscribe", "feed_unsubscribe"),
            ("POST /feeds/v1/spaces/s/feeds", "feed_list"),
            ("GET /feeds/v1/spaces/s/streams/f", "feed_stream"),
            ("GET /feeds/v1/spaces/s/events?cursor=1", "feed_events"),
            ("GET /feeds/v1/spaces/s/ws", "feed_socket"),
            ("GET /feeds/v1/ws", "feed_socket"),
            ("OPTIONS /feeds/v1/ws", "feed_preflight"),
            ("GET /feeds/v2/ws", "feed_other"),
            ("GET /feeds/v1/spaces/s/else", "feed_other"),
        ] {
            let (method, uri) = request.split_once(' ').expect("a method");
            let method = Method::try_from(method).expect("a method");
            let found = operation(&method, &uri.parse().expect("a path"));
            assert_eq!(OPERATIONS[found], expected, "{request}");
        }
    }
}
