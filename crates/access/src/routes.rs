//! What each request needs: one table of routes for all doors.
//!
//! A path is taken apart here as its router takes it apart, with the same functions, so that the two never mean different
//! things by it. What is not in the table needs `admin`: a route that was forgotten here is closed and not open.

use alluvium_feed_protocol::Id;
use alluvium_protocol::path::{BUCKET_MOUNT, STREAM_MOUNT, percent_decode};
use alluvium_protocol::{BucketId, StreamPath};
use http::{HeaderMap, Method};

use crate::{Doors, Scope};

/// What is asked of a caller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Asked {
    /// Nothing: there is no secret in it.
    Nothing,
    /// Nothing here: the route has credentials of its own in the request, and checks them itself.
    Own,
    /// A scope at the place that the path names.
    Scope(Scope),
    /// Anything at all, at or below the place: the surface looks at each message.
    Something,
    /// The same, on a connection whose credentials may come in its first message: who presents nothing is let in as well, and
    /// may do nothing before that. The surface sees to it, by [`Lease::holds`](crate::Lease::holds).
    Greeting,
}

/// A route, and what it asks.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The method; `HEAD` goes with `GET`, and `OPTIONS` asks nothing.
    pub method: &'static str,
    /// The path, with names in braces for what differs.
    pub path: &'static str,
    /// What is asked.
    pub asked: Asked,
}

const fn route(method: &'static str, path: &'static str, asked: Asked) -> Route {
    Route { method, path, asked }
}

const READ: Asked = Asked::Scope(Scope::Read);
const WRITE: Asked = Asked::Scope(Scope::Write);
const ADMIN: Asked = Asked::Scope(Scope::Admin);

/// The routes of `alluvium serve`.
pub const SERVER: &[Route] = &[
    route("GET", "/healthz", Asked::Nothing),
    route("GET", "/readyz", Asked::Nothing),
    route("GET", "/metrics", ADMIN),
    route("GET", "/admin/v1/backups", ADMIN),
    route("PUT", "/admin/v1/backups/{backup}", ADMIN),
    route("GET", "/admin/v1/streams", ADMIN),
    route("GET", "/admin/v1/totals", ADMIN),
    route("GET", "/admin/v1/spaces", ADMIN),
    route("POST", "/admin/v1/delete", ADMIN),
    route("POST", "/admin/v1/trim", ADMIN),
    route("POST", "/admin/v1/prune-feed", ADMIN),
    route("POST", "/admin/v1/delete-space", ADMIN),
    route("GET", "/v1/stream/{stream}", READ),
    route("POST", "/v1/stream/{stream}", WRITE),
    route("PUT", "/v1/stream/{stream}", WRITE),
    route("DELETE", "/v1/stream/{stream}", WRITE),
    route("GET", "/v1/stream/__ds/claim/{stream}", READ),
    route("POST", "/v1/stream/__ds/claim/{stream}", WRITE),
    route("GET", "/v1/stream/__ds/appends/{stream}", READ),
    route("GET", "/v1/stream/__ds/checkpoint/{stream}", READ),
    route("PUT", "/v1/stream/__ds/checkpoint/{stream}", WRITE),
    route("GET", "/v1/stream/__ds/jwks.json", Asked::Nothing),
    route("GET", "/v1/stream/__ds/subscriptions/{subscription}", ADMIN),
    route("PUT", "/v1/stream/__ds/subscriptions/{subscription}", ADMIN),
    route("DELETE", "/v1/stream/__ds/subscriptions/{subscription}", ADMIN),
    route("POST", "/v1/stream/__ds/subscriptions/{subscription}/streams", ADMIN),
    route("DELETE", "/v1/stream/__ds/subscriptions/{subscription}/streams/{member}", ADMIN),
    route("POST", "/v1/stream/__ds/subscriptions/{subscription}/claim", WRITE),
    route("POST", "/v1/stream/__ds/subscriptions/{subscription}/callback", Asked::Own),
    route("POST", "/v1/stream/__ds/subscriptions/{subscription}/ack", Asked::Own),
    route("POST", "/v1/stream/__ds/subscriptions/{subscription}/release", Asked::Own),
    route("GET", "/ds/{bucket}", READ),
    route("PUT", "/ds/{bucket}", ADMIN),
    route("DELETE", "/ds/{bucket}", ADMIN),
    route("GET", "/ds/{bucket}/streams", READ),
    route("GET", "/ds/{bucket}/{stream}", READ),
    route("POST", "/ds/{bucket}/{stream}", WRITE),
    route("PUT", "/ds/{bucket}/{stream}", WRITE),
    route("DELETE", "/ds/{bucket}/{stream}", WRITE),
    route("GET", "/ds/{bucket}/{stream}/snapshot", READ),
    route("GET", "/ds/{bucket}/{stream}/snapshot/{offset}", READ),
    route("PUT", "/ds/{bucket}/{stream}/snapshot/{offset}", WRITE),
    route("DELETE", "/ds/{bucket}/{stream}/snapshot/{offset}", WRITE),
    route("GET", "/ds/{bucket}/{stream}/bootstrap", READ),
    route("POST", "/ds/{bucket}/{stream}/append-batch", WRITE),
    route("GET", "/ds/{bucket}/{stream}/attrs", READ),
    route("PUT", "/ds/{bucket}/{stream}/attrs", WRITE),
    route("GET", "/ds/{bucket}/{stream}/claim", READ),
    route("POST", "/ds/{bucket}/{stream}/claim", WRITE),
    route("GET", "/ds/{bucket}/{stream}/appends", READ),
    route("GET", "/ds/{bucket}/{stream}/checkpoint", READ),
    route("PUT", "/ds/{bucket}/{stream}/checkpoint", WRITE),
    route("POST", "/feeds/v1/spaces/{space}", Asked::Something),
    route("POST", "/feeds/v1/spaces/{space}/append", WRITE),
    route("POST", "/feeds/v1/spaces/{space}/query", READ),
    route("POST", "/feeds/v1/spaces/{space}/subscribe", READ),
    route("POST", "/feeds/v1/spaces/{space}/unsubscribe", READ),
    route("POST", "/feeds/v1/spaces/{space}/feeds", READ),
    route("GET", "/feeds/v1/spaces/{space}/streams/{feed}", READ),
    route("GET", "/feeds/v1/spaces/{space}/events", READ),
    route("GET", "/feeds/v1/spaces/{space}/ws", Asked::Greeting),
    route("GET", "/feeds/v1/ws", Asked::Greeting),
];

/// The routes of `alluvium jetstream serve`.
pub const JETSTREAM: &[Route] = &[
    route("GET", "/", Asked::Nothing),
    route("GET", "/healthz", Asked::Nothing),
    route("GET", "/readyz", Asked::Nothing),
    route("GET", "/metrics", ADMIN),
    route("GET", "/status", ADMIN),
    route("GET", "/admin/v1/backups", ADMIN),
    route("PUT", "/admin/v1/backups/{backup}", ADMIN),
    route("GET", "/subscribe", READ),
    route("GET", "/subscribe-v2", READ),
    route("GET", "/streams/events", READ),
    route("GET", "/xrpc/network.bsky.jetstream.subscribeEvents", READ),
    route("GET", "/xrpc/network.bsky.jetstream.listSegments", READ),
    route("GET", "/xrpc/network.bsky.jetstream.getSegment", READ),
    route("GET", "/xrpc/network.bsky.jetstream.getBlock", READ),
    route("GET", "/xrpc/network.bsky.jetstream.getZstdDictionary", READ),
    route("POST", "/xrpc/network.bsky.jetstream.planBackfill", READ),
    route("POST", "/xrpc/network.bsky.jetstream.planSnapshot", READ),
    route("POST", "/xrpc/network.bsky.jetstream.importTimestamps", ADMIN),
    route("GET", "/xrpc/network.bsky.jetstream.getImportStatus", ADMIN),
];

/// What a request needs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Need {
    /// What is asked.
    pub asked: Asked,
    /// Where: decoded, as [`Prefix`](crate::Prefix) covers it.
    pub place: String,
    /// Where it needs to read besides: the source of a fork.
    pub reads: Option<String>,
}

/// What a path names: a path of the table, and a place.
struct Named {
    path: &'static str,
    place: String,
}

/// The header that names the source of a fork.
const FORKED_FROM: &str = "stream-forked-from";
/// Where spaces are.
const SPACES: &str = "/feeds/v1/spaces/";

/// Where backups of the server are.
const BACKUPS: &str = "/admin/v1/backups/";

/// What a request needs, by its method, the path of its URL as it stands there, and its headers.
pub fn need(doors: Doors, method: &Method, path: &str, headers: &HeaderMap) -> Need {
    let nothing = || Need { asked: Asked::Nothing, place: String::new(), reads: None };
    if *method == Method::OPTIONS {
        return nothing();
    }
    let named = match doors {
        Doors::Server => server(path),
        Doors::Jetstream => backup(path).or_else(|| plain(JETSTREAM, path)),
    };
    let Some(named) = named else {
        // Nothing is there, or nothing that is known here.
        return Need { asked: ADMIN, place: String::new(), reads: None };
    };
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    let table = if doors == Doors::Server { SERVER } else { JETSTREAM };
    let found = table.iter().find(|route| route.method == method && route.path == named.path);
    let reads = (method == "PUT").then(|| source(headers)).flatten();
    Need { asked: found.map_or(ADMIN, |route| route.asked), place: named.place, reads }
}

/// The source of a fork. What is no path of a stream is refused by the operation itself; until then it is a place that
/// only those may read who may read everything.
fn source(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(FORKED_FROM)?;
    let path = value.to_str().ok().and_then(StreamPath::parse_url_path);
    Some(path.map_or_else(String::new, |path| place_of(&path)))
}

/// The place of a stream.
fn place_of(path: &StreamPath) -> String {
    match (path.bucket(), path.stream_id()) {
        (Some(bucket), Some(id)) => format!("{BUCKET_MOUNT}{bucket}/{id}"),
        _ => format!("{STREAM_MOUNT}{}", path.as_str()),
    }
}

/// A path of a table without names that differ.
fn plain(table: &[Route], path: &str) -> Option<Named> {
    let route = table.iter().find(|route| route.path == path)?;
    Some(Named { path: route.path, place: path.to_owned() })
}

/// A backup by its name.
fn backup(path: &str) -> Option<Named> {
    let has_name = path.strip_prefix(BACKUPS).is_some_and(|name| !name.is_empty());
    has_name.then(|| Named { path: "/admin/v1/backups/{backup}", place: path.to_owned() })
}

fn server(path: &str) -> Option<Named> {
    if let Some(rest) = path.strip_prefix(STREAM_MOUNT) {
        return stream(rest);
    }
    if let Some(rest) = path.strip_prefix(BUCKET_MOUNT) {
        return bucket(rest);
    }
    if let Some(rest) = path.strip_prefix(SPACES) {
        return space(rest);
    }
    if let Some(named) = backup(path) {
        return Some(named);
    }
    let named = plain(SERVER, path).filter(|named| !named.path.contains('{'))?;
    // A socket for all spaces is for whoever may do something in one.
    let is_for_spaces = named.path == "/feeds/v1/ws";
    Some(if is_for_spaces {
        Named { place: SPACES.trim_end_matches('/').to_owned(), ..named }
    } else {
        named
    })
}

fn stream(rest: &str) -> Option<Named> {
    let Some(reserved) = rest.strip_prefix("__ds/") else {
        let path = StreamPath::parse_encoded(rest).ok()?;
        return Some(Named { path: "/v1/stream/{stream}", place: place_of(&path) });
    };
    let (name, rest) = reserved.split_once('/').unwrap_or((reserved, ""));
    let path = match name {
        "claim" => "/v1/stream/__ds/claim/{stream}",
        "appends" => "/v1/stream/__ds/appends/{stream}",
        "checkpoint" => "/v1/stream/__ds/checkpoint/{stream}",
        "jwks.json" if rest.is_empty() => {
            return Some(Named {
                path: "/v1/stream/__ds/jwks.json",
                place: format!("{STREAM_MOUNT}__ds/jwks.json"),
            });
        }
        "subscriptions" => return subscription(rest),
        _ => return None,
    };
    Some(Named { path, place: place_of(&StreamPath::parse_encoded(rest).ok()?) })
}

fn subscription(rest: &str) -> Option<Named> {
    let (id, rest) = rest.split_once('/').map_or((rest, None), |(id, rest)| (id, Some(rest)));
    let id = percent_decode(id).filter(|id| !id.is_empty())?;
    let path = match rest {
        None => "/v1/stream/__ds/subscriptions/{subscription}",
        Some("streams") => "/v1/stream/__ds/subscriptions/{subscription}/streams",
        Some("claim") => "/v1/stream/__ds/subscriptions/{subscription}/claim",
        Some("callback") => "/v1/stream/__ds/subscriptions/{subscription}/callback",
        Some("ack") => "/v1/stream/__ds/subscriptions/{subscription}/ack",
        Some("release") => "/v1/stream/__ds/subscriptions/{subscription}/release",
        Some(rest) if rest.starts_with("streams/") => {
            "/v1/stream/__ds/subscriptions/{subscription}/streams/{member}"
        }
        Some(_) => return None,
    };
    Some(Named { path, place: format!("{STREAM_MOUNT}__ds/subscriptions/{id}") })
}

fn bucket(rest: &str) -> Option<Named> {
    let mut segments = rest.split('/');
    let bucket = BucketId::parse(segments.next().unwrap_or_default()).ok()?;
    let place = format!("{BUCKET_MOUNT}{bucket}");
    let (stream, rest): (_, Vec<&str>) = (segments.next(), segments.collect());
    let path = match (stream, rest.as_slice()) {
        (None, _) => return Some(Named { path: "/ds/{bucket}", place }),
        (Some("streams"), []) => return Some(Named { path: "/ds/{bucket}/streams", place }),
        (_, []) => "/ds/{bucket}/{stream}",
        (_, ["snapshot"]) => "/ds/{bucket}/{stream}/snapshot",
        (_, ["snapshot", _]) => "/ds/{bucket}/{stream}/snapshot/{offset}",
        (_, ["bootstrap"]) => "/ds/{bucket}/{stream}/bootstrap",
        (_, ["append-batch"]) => "/ds/{bucket}/{stream}/append-batch",
        (_, ["attrs"]) => "/ds/{bucket}/{stream}/attrs",
        (_, ["claim"]) => "/ds/{bucket}/{stream}/claim",
        (_, ["appends"]) => "/ds/{bucket}/{stream}/appends",
        (_, ["checkpoint"]) => "/ds/{bucket}/{stream}/checkpoint",
        _ => return None,
    };
    let stream = StreamPath::in_bucket_encoded(&bucket, stream?).ok()?;
    Some(Named { path, place: place_of(&stream) })
}

/// The place of a space of feeds.
pub fn place_of_space(space: &Id) -> String {
    format!("{SPACES}{space}")
}

fn space(rest: &str) -> Option<Named> {
    let (space, rest) = rest.split_once('/').map_or((rest, None), |(space, rest)| (space, Some(rest)));
    let space = Id::parse(&percent_decode(space)?).ok()?;
    let path = match rest {
        None => "/feeds/v1/spaces/{space}",
        Some("append") => "/feeds/v1/spaces/{space}/append",
        Some("query") => "/feeds/v1/spaces/{space}/query",
        Some("subscribe") => "/feeds/v1/spaces/{space}/subscribe",
        Some("unsubscribe") => "/feeds/v1/spaces/{space}/unsubscribe",
        Some("feeds") => "/feeds/v1/spaces/{space}/feeds",
        Some("events") => "/feeds/v1/spaces/{space}/events",
        Some("ws") => "/feeds/v1/spaces/{space}/ws",
        Some(rest) => match rest.strip_prefix("streams/") {
            Some(feed) if !feed.contains('/') => "/feeds/v1/spaces/{space}/streams/{feed}",
            _ => return None,
        },
    };
    Some(Named { path, place: place_of_space(&space) })
}

#[cfg(test)]
mod tests;
