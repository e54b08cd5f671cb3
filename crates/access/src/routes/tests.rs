//! What a path is taken for.

use http::HeaderValue;
use proptest::prelude::*;

use super::*;

fn of(method: &str, path: &str) -> (Asked, String) {
    let need = need(Doors::Server, &method.parse().unwrap(), path, &HeaderMap::new());
    assert_eq!(need.reads, None);
    (need.asked, need.place)
}

/// A path of the table with names in it.
fn example(path: &str) -> String {
    path.replace("{bucket}", "docs")
        .replace("{stream}", "a")
        .replace("{offset}", "-1")
        .replace("{space}", "s")
        .replace("{feed}", "f")
        .replace("{backup}", "daily")
        .replace("{subscription}", "u")
        .replace("{member}", "m")
}

#[test]
fn every_route_of_the_tables_is_reached_by_its_path() {
    for (doors, table) in [(Doors::Server, SERVER), (Doors::Jetstream, JETSTREAM)] {
        for route in table {
            let method: Method = route.method.parse().unwrap();
            let needed = need(doors, &method, &example(route.path), &HeaderMap::new());
            assert_eq!(needed.asked, route.asked, "{} {}", route.method, route.path);
            assert!(!needed.place.is_empty(), "{} {}", route.method, route.path);
            let by_head = need(doors, &Method::HEAD, &example(route.path), &HeaderMap::new());
            let by_get = need(doors, &Method::GET, &example(route.path), &HeaderMap::new());
            assert_eq!(by_head, by_get);
            assert_eq!(
                need(doors, &Method::OPTIONS, &example(route.path), &HeaderMap::new()).asked,
                Asked::Nothing
            );
        }
    }
}

#[test]
fn what_is_not_in_the_tables_needs_an_operator() {
    for (method, path) in [
        ("PATCH", "/v1/stream/a"),
        ("POST", "/metrics"),
        ("GET", "/v1/stream/"),
        ("GET", "/v1/stream"),
        ("GET", "/v1/stream/__ds/other/a"),
        ("GET", "/v1/stream/%5F%5Fds/claim/a"),
        ("GET", "/v1/stream/a/../b"),
        ("GET", "/v1/stream/a//b"),
        ("GET", "/v1/stream/%zz"),
        ("GET", "/ds/"),
        ("GET", "/ds/DOCS"),
        ("GET", "/ds/docs/"),
        ("GET", "/ds/docs/a%2Fb"),
        ("GET", "/ds/docs/%73treams"),
        ("GET", "/ds/docs/.."),
        ("GET", "/ds/docs/a/other"),
        ("GET", "//v1/stream/a"),
        ("GET", "/V1/stream/a"),
        ("GET", "/feeds/v1/spaces/"),
        ("GET", "/feeds/v2/ws"),
        ("GET", "/feeds/v1/spaces/s/streams/a/b"),
        ("GET", "/admin"),
        ("GET", "*"),
        ("GET", ""),
    ] {
        let (asked, _) = of(method, path);
        assert_eq!(asked, Asked::Scope(Scope::Admin), "{method} {path}");
    }
}

#[test]
fn a_place_is_decoded_once() {
    for (path, place) in [
        ("/v1/stream/a%2Fb", "/v1/stream/a/b"),
        ("/v1/stream/a%252Fb", "/v1/stream/a%2Fb"),
        ("/v1/stream/%C3%A9", "/v1/stream/é"),
        ("/ds/docs/a%20b/bootstrap", "/ds/docs/a b"),
        ("/ds/docs/a%252Fb", "/ds/docs/a%2Fb"),
        ("/ds/docs/streams", "/ds/docs"),
        ("/ds/docs/snapshot", "/ds/docs/snapshot"),
        ("/feeds/v1/spaces/a%2Fb/streams/f", "/feeds/v1/spaces/a/b"),
    ] {
        assert_eq!(of("GET", path).1, place, "{path}");
    }
    assert_eq!(of("GET", "/feeds/v1/ws"), (Asked::Greeting, "/feeds/v1/spaces".to_owned()));
}

#[test]
fn a_fork_reads_its_source() {
    let with = |source: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(FORKED_FROM, HeaderValue::from_static(source));
        need(Doors::Server, &Method::PUT, "/ds/docs/b", &headers).reads
    };
    assert_eq!(with("/ds/secret/a").as_deref(), Some("/ds/secret/a"));
    assert_eq!(with("/v1/stream/a%2Fb").as_deref(), Some("/v1/stream/a/b"));
    // What is no path of a stream can be read by nobody but who reads everything.
    for odd in ["http://h/v1/stream/a", "/ds/secret", "/v1/stream/../a", ""] {
        assert_eq!(with(odd).as_deref(), Some(""), "{odd}");
    }
}

proptest! {
    /// Whatever is written in a path, a place is that of the stream that the router finds, or an operator is needed.
    #[test]
    fn no_spelling_of_a_path_is_taken_for_another_place(rest in "([a-b./%]|%2[Ff]|%2[Ee]|%25|%61|__ds){0,8}") {
        let path = format!("/v1/stream/{rest}");
        let (asked, place) = of("GET", &path);
        match StreamPath::parse_encoded(&rest) {
            Ok(stream) if !rest.starts_with("__ds/") => {
                prop_assert_eq!(asked, READ);
                prop_assert_eq!(place, format!("/v1/stream/{}", stream.as_str()));
            }
            _ => prop_assert!(asked == ADMIN || rest.starts_with("__ds/")),
        }
    }
}
