//! Every operation of every door, and who may carry it out.
//!
//! What an operation needs is said here once more, and not taken from the server: a route that is in the server's table
//! and not in this one fails the run.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use alluvium_access::routes::Route;
use anyhow::{Result, bail, ensure};

use super::{Asker, Tokens};
use crate::check::Report;

/// What an operation needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Needs {
    Nothing,
    Read,
    Write,
    Admin,
    /// Any of them, or nothing yet: then a connection has to greet.
    Greeting,
    /// Credentials of its own.
    Own,
}
use Needs::{Admin, Greeting, Nothing, Own, Read, Write};

/// An operation: its route, how it is asked for, what it needs, and what is answered if it is allowed.
type Operation = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
    Needs,
    &'static [u16],
);

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
const NONE: &[(&str, &str)] = &[];
const SOCKET: &[(&str, &str)] = &[
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];
const BLOCK: &str = r#"{"requestId":"a","blocks":[{"feedId":"f","actorId":"w","sequence":0,"data":"eA=="}]}"#;
const QUERY: &str = r#"{"requestId":"q","_tag":"QueryRequest"}"#;

/// The operations of `alluvium serve`, in an order in which what they need is there.
const SERVER: &[Operation] = &[
    ("GET /healthz", "/healthz", NONE, "", Nothing, &[200, 404]),
    ("GET /readyz", "/readyz", NONE, "", Nothing, &[200, 404]),
    ("GET /metrics", "/metrics", NONE, "", Admin, &[200, 404]),
    ("GET /admin/v1/backups", "/admin/v1/backups", NONE, "", Admin, &[404]),
    ("PUT /admin/v1/backups/{backup}", "/admin/v1/backups/daily", NONE, "", Admin, &[404]),
    ("GET /admin/v1/streams", "/admin/v1/streams?limit=1", NONE, "", Admin, &[200, 501]),
    ("GET /admin/v1/totals", "/admin/v1/totals", NONE, "", Admin, &[200, 501]),
    ("GET /admin/v1/spaces", "/admin/v1/spaces", NONE, "", Admin, &[200]),
    ("POST /admin/v1/delete", "/admin/v1/delete", JSON, r#"{"prefix":"/ds/none"}"#, Admin, &[200, 501]),
    (
        "POST /admin/v1/trim",
        "/admin/v1/trim",
        JSON,
        r#"{"path":"/v1/stream/none","keep_bytes":1}"#,
        Admin,
        &[404, 501],
    ),
    (
        "POST /admin/v1/prune-feed",
        "/admin/v1/prune-feed",
        JSON,
        r#"{"space_id":"none","feed_id":"f","keep_blocks":1}"#,
        Admin,
        &[404],
    ),
    ("POST /admin/v1/delete-space", "/admin/v1/delete-space", JSON, r#"{"space_id":"none"}"#, Admin, &[404]),
    ("PUT /v1/stream/{stream}", "/v1/stream/a", JSON, "[1]", Write, &[200, 201]),
    ("POST /v1/stream/{stream}", "/v1/stream/a", JSON, "2", Write, &[200, 204]),
    ("GET /v1/stream/{stream}", "/v1/stream/a?offset=-1", NONE, "", Read, &[200]),
    ("GET /v1/stream/{stream}", "/v1/stream/a?offset=-1&live=sse", NONE, "", Read, &[200]),
    ("GET /v1/stream/{stream}", "/v1/stream/a?offset=-1&live=long-poll", NONE, "", Read, &[200]),
    ("GET /v1/stream/{stream}", "/v1/stream/missing", NONE, "", Read, &[404]),
    ("POST /v1/stream/__ds/claim/{stream}", "/v1/stream/__ds/claim/a", JSON, "{}", Write, &[200, 400, 409]),
    ("GET /v1/stream/__ds/claim/{stream}", "/v1/stream/__ds/claim/a", NONE, "", Read, &[200, 404]),
    ("GET /v1/stream/__ds/appends/{stream}", "/v1/stream/__ds/appends/a?from=1", NONE, "", Read, &[200]),
    (
        "PUT /v1/stream/__ds/checkpoint/{stream}",
        "/v1/stream/__ds/checkpoint/a",
        JSON,
        "x",
        Write,
        &[200, 204, 400],
    ),
    ("GET /v1/stream/__ds/checkpoint/{stream}", "/v1/stream/__ds/checkpoint/a", NONE, "", Read, &[200, 404]),
    ("GET /v1/stream/__ds/jwks.json", "/v1/stream/__ds/jwks.json", NONE, "", Nothing, &[200, 501]),
    (
        "PUT /v1/stream/__ds/subscriptions/{subscription}",
        "/v1/stream/__ds/subscriptions/u",
        JSON,
        "{}",
        Admin,
        &[400, 422, 501],
    ),
    (
        "GET /v1/stream/__ds/subscriptions/{subscription}",
        "/v1/stream/__ds/subscriptions/u",
        NONE,
        "",
        Admin,
        &[404, 501],
    ),
    (
        "POST /v1/stream/__ds/subscriptions/{subscription}/streams",
        "/v1/stream/__ds/subscriptions/u/streams",
        JSON,
        "{}",
        Admin,
        &[400, 404, 422, 501],
    ),
    (
        "DELETE /v1/stream/__ds/subscriptions/{subscription}/streams/{member}",
        "/v1/stream/__ds/subscriptions/u/streams/m",
        NONE,
        "",
        Admin,
        &[204, 404, 501],
    ),
    (
        "POST /v1/stream/__ds/subscriptions/{subscription}/claim",
        "/v1/stream/__ds/subscriptions/u/claim",
        JSON,
        "{}",
        Write,
        &[400, 404, 422, 501],
    ),
    (
        "POST /v1/stream/__ds/subscriptions/{subscription}/callback",
        "/v1/stream/__ds/subscriptions/u/callback",
        JSON,
        "{}",
        Own,
        &[],
    ),
    (
        "POST /v1/stream/__ds/subscriptions/{subscription}/ack",
        "/v1/stream/__ds/subscriptions/u/ack",
        JSON,
        "{}",
        Own,
        &[],
    ),
    (
        "POST /v1/stream/__ds/subscriptions/{subscription}/release",
        "/v1/stream/__ds/subscriptions/u/release",
        JSON,
        "{}",
        Own,
        &[],
    ),
    (
        "DELETE /v1/stream/__ds/subscriptions/{subscription}",
        "/v1/stream/__ds/subscriptions/u",
        NONE,
        "",
        Admin,
        &[204, 404, 501],
    ),
    ("PUT /ds/{bucket}", "/ds/docs", NONE, "", Admin, &[201, 501]),
    ("GET /ds/{bucket}", "/ds/docs", NONE, "", Read, &[200, 204, 501]),
    ("PUT /ds/{bucket}/{stream}", "/ds/docs/a", JSON, "[1]", Write, &[200, 201, 501]),
    ("POST /ds/{bucket}/{stream}", "/ds/docs/a", JSON, "2", Write, &[200, 204, 501]),
    ("GET /ds/{bucket}/{stream}", "/ds/docs/a?offset=-1", NONE, "", Read, &[200, 501]),
    ("GET /ds/{bucket}/{stream}", "/ds/docs/a?offset=-1&live=sse", NONE, "", Read, &[200, 501]),
    ("GET /ds/{bucket}/streams", "/ds/docs/streams", NONE, "", Read, &[200, 501]),
    ("PUT /ds/{bucket}/{stream}/attrs", "/ds/docs/a/attrs", JSON, "{}", Write, &[200, 204, 501]),
    ("GET /ds/{bucket}/{stream}/attrs", "/ds/docs/a/attrs", NONE, "", Read, &[200, 501]),
    (
        "POST /ds/{bucket}/{stream}/append-batch",
        "/ds/docs/a/append-batch",
        JSON,
        "\0\0\0\u{1}3",
        Write,
        &[200, 204, 501],
    ),
    ("POST /ds/{bucket}/{stream}/claim", "/ds/docs/a/claim", JSON, "{}", Write, &[200, 400, 409, 501]),
    ("GET /ds/{bucket}/{stream}/claim", "/ds/docs/a/claim", NONE, "", Read, &[200, 404, 501]),
    ("GET /ds/{bucket}/{stream}/appends", "/ds/docs/a/appends?from=1", NONE, "", Read, &[200, 501]),
    (
        "PUT /ds/{bucket}/{stream}/checkpoint",
        "/ds/docs/a/checkpoint",
        JSON,
        "x",
        Write,
        &[200, 204, 400, 501],
    ),
    ("GET /ds/{bucket}/{stream}/checkpoint", "/ds/docs/a/checkpoint", NONE, "", Read, &[200, 404, 501]),
    (
        "PUT /ds/{bucket}/{stream}/snapshot/{offset}",
        "/ds/docs/a/snapshot/0000000000000001_0000000000000001",
        JSON,
        "{}",
        Write,
        &[204, 400, 409, 501],
    ),
    ("GET /ds/{bucket}/{stream}/snapshot", "/ds/docs/a/snapshot", NONE, "", Read, &[302, 303, 307, 404, 501]),
    (
        "GET /ds/{bucket}/{stream}/snapshot/{offset}",
        "/ds/docs/a/snapshot/0000000000000001_0000000000000001",
        NONE,
        "",
        Read,
        &[200, 404, 501],
    ),
    ("GET /ds/{bucket}/{stream}/bootstrap", "/ds/docs/a/bootstrap", NONE, "", Read, &[200, 501]),
    (
        "DELETE /ds/{bucket}/{stream}/snapshot/{offset}",
        "/ds/docs/a/snapshot/0000000000000001_0000000000000001",
        NONE,
        "",
        Write,
        &[204, 404, 409, 501],
    ),
    ("DELETE /ds/{bucket}/{stream}", "/ds/docs/a", NONE, "", Write, &[204, 404, 501]),
    ("DELETE /ds/{bucket}", "/ds/docs", NONE, "", Admin, &[204, 501]),
    ("DELETE /v1/stream/{stream}", "/v1/stream/a", NONE, "", Write, &[204, 404]),
    ("POST /feeds/v1/spaces/{space}/append", "/feeds/v1/spaces/s/append", JSON, BLOCK, Write, &[200]),
    (
        "POST /feeds/v1/spaces/{space}/query",
        "/feeds/v1/spaces/s/query",
        JSON,
        r#"{"requestId":"q"}"#,
        Read,
        &[200],
    ),
    (
        "POST /feeds/v1/spaces/{space}/subscribe",
        "/feeds/v1/spaces/s/subscribe",
        JSON,
        r#"{"requestId":"q","all":true}"#,
        Read,
        &[200],
    ),
    (
        "POST /feeds/v1/spaces/{space}/unsubscribe",
        "/feeds/v1/spaces/s/unsubscribe",
        JSON,
        r#"{"requestId":"q","subscriptionId":"x"}"#,
        Read,
        &[200],
    ),
    (
        "POST /feeds/v1/spaces/{space}/feeds",
        "/feeds/v1/spaces/s/feeds",
        JSON,
        r#"{"requestId":"q"}"#,
        Read,
        &[200],
    ),
    (
        "GET /feeds/v1/spaces/{space}/streams/{feed}",
        "/feeds/v1/spaces/s/streams/f?offset=-1",
        NONE,
        "",
        Read,
        &[200],
    ),
    (
        "GET /feeds/v1/spaces/{space}/streams/{feed}",
        "/feeds/v1/spaces/s/streams/f?offset=-1&live=sse",
        NONE,
        "",
        Read,
        &[200],
    ),
    ("GET /feeds/v1/spaces/{space}/events", "/feeds/v1/spaces/s/events?cursor=0", NONE, "", Read, &[200]),
    // Let in by any scope, and then looked at: who may only write is refused by the surface itself.
    ("POST /feeds/v1/spaces/{space}", "/feeds/v1/spaces/s", JSON, QUERY, Read, &[200]),
    ("GET /feeds/v1/spaces/{space}/ws", "/feeds/v1/spaces/s/ws", SOCKET, "", Greeting, &[101]),
    ("GET /feeds/v1/ws", "/feeds/v1/ws", SOCKET, "", Greeting, &[101]),
    // Nothing that is known.
    ("GET /nothing", "/nothing", NONE, "", Admin, &[404]),
    ("PATCH /v1/stream/{stream}", "/v1/stream/a", JSON, "1", Admin, &[405]),
];

/// The operations of `alluvium jetstream serve`.
const JETSTREAM: &[Operation] = &[
    ("GET /", "/", NONE, "", Nothing, &[200]),
    ("GET /healthz", "/healthz", NONE, "", Nothing, &[200]),
    ("GET /readyz", "/readyz", NONE, "", Nothing, &[200, 404, 503]),
    ("GET /metrics", "/metrics", NONE, "", Admin, &[200, 404]),
    ("GET /status", "/status", NONE, "", Admin, &[200]),
    ("GET /admin/v1/backups", "/admin/v1/backups", NONE, "", Admin, &[404]),
    ("PUT /admin/v1/backups/{backup}", "/admin/v1/backups/daily", NONE, "", Admin, &[404]),
    ("GET /subscribe", "/subscribe", SOCKET, "", Read, &[101]),
    ("GET /subscribe-v2", "/subscribe-v2", SOCKET, "", Read, &[101]),
    ("GET /streams/events", "/streams/events?offset=-1", NONE, "", Read, &[200]),
    (
        "GET /xrpc/network.bsky.jetstream.subscribeEvents",
        "/xrpc/network.bsky.jetstream.subscribeEvents",
        SOCKET,
        "",
        Read,
        &[101],
    ),
    (
        "GET /xrpc/network.bsky.jetstream.listSegments",
        "/xrpc/network.bsky.jetstream.listSegments",
        NONE,
        "",
        Read,
        &[200],
    ),
    (
        "GET /xrpc/network.bsky.jetstream.getSegment",
        "/xrpc/network.bsky.jetstream.getSegment",
        NONE,
        "",
        Read,
        &[400, 404],
    ),
    (
        "GET /xrpc/network.bsky.jetstream.getBlock",
        "/xrpc/network.bsky.jetstream.getBlock",
        NONE,
        "",
        Read,
        &[400, 404],
    ),
    (
        "POST /xrpc/network.bsky.jetstream.importTimestamps",
        "/xrpc/network.bsky.jetstream.importTimestamps",
        JSON,
        "{}",
        Admin,
        &[501],
    ),
    (
        "GET /xrpc/network.bsky.jetstream.getImportStatus",
        "/xrpc/network.bsky.jetstream.getImportStatus",
        NONE,
        "",
        Admin,
        &[501],
    ),
    (
        "GET /xrpc/network.bsky.jetstream.getZstdDictionary",
        "/xrpc/network.bsky.jetstream.getZstdDictionary",
        NONE,
        "",
        Read,
        &[200, 400],
    ),
    (
        "POST /xrpc/network.bsky.jetstream.planBackfill",
        "/xrpc/network.bsky.jetstream.planBackfill",
        JSON,
        "{}",
        Read,
        &[200, 400],
    ),
    (
        "POST /xrpc/network.bsky.jetstream.planSnapshot",
        "/xrpc/network.bsky.jetstream.planSnapshot",
        JSON,
        "{}",
        Read,
        &[200, 400],
    ),
    ("GET /nothing", "/nothing", NONE, "", Admin, &[404]),
];

/// Which table.
#[derive(Clone, Copy, Debug)]
pub(super) enum Door {
    Server,
    Jetstream,
}

impl Door {
    const fn operations(self) -> &'static [Operation] {
        match self {
            Self::Server => SERVER,
            Self::Jetstream => JETSTREAM,
        }
    }

    const fn routes(self) -> &'static [Route] {
        match self {
            Self::Server => alluvium_access::routes::SERVER,
            Self::Jetstream => alluvium_access::routes::JETSTREAM,
        }
    }
}

/// The callers of the table and the scopes they have everywhere; `elsewhere` has all of them in another place.
pub(super) const CALLERS: [(&str, &[&str]); 4] = [
    ("reader", &["read"]),
    ("writer", &["write"]),
    ("operator", &["admin"]),
    ("elsewhere", &["admin:/v1/stream/elsewhere", "admin:/ds/elsewhere"]),
];

/// Whether a caller may, by what the table says.
fn may(caller: Option<&str>, needs: Needs, anyone_reads: bool) -> bool {
    match (needs, caller) {
        (Nothing | Own, _) | (Greeting, None) => true,
        (Read, _) if anyone_reads => true,
        (_, None | Some("elsewhere")) => false,
        (_, Some("operator")) | (Greeting, _) => true,
        (Read, caller) => caller == Some("reader"),
        (Write, caller) => caller == Some("writer"),
        (Admin, _) => false,
    }
}

/// Every route is in the table, every operation is asked for by everyone, those who may not first.
pub(super) fn check(
    door: Door,
    address: SocketAddr,
    tokens: &Tokens,
    anyone_reads: bool,
    report: &mut Report,
) {
    report.check(&format!("{door:?}: the table has every route"), || {
        let known: BTreeSet<&str> = door.operations().iter().map(|operation| operation.0).collect();
        let routes = door.routes().iter().map(|route| format!("{} {}", route.method, route.path));
        let missing: Vec<String> = routes.filter(|route| !known.contains(route.as_str())).collect();
        ensure!(missing.is_empty(), "not in the table: {missing:?}");
        Ok(())
    });
    let names = || std::iter::once(None).chain(CALLERS.iter().map(|(name, _)| Some(*name)));
    let (mut asked, mut problems) = (0, Vec::new());
    for operation in door.operations() {
        for is_allowed in [false, true] {
            for caller in names().filter(|caller| may(*caller, operation.4, anyone_reads) == is_allowed) {
                asked += 1;
                if let Err(error) = ask(address, tokens, caller, operation, is_allowed) {
                    problems.push(format!("{} by {caller:?}: {error:#}", operation.0));
                }
            }
        }
    }
    report.check(
        &format!("{door:?}: {asked} times an operation is asked for, it is as the table says"),
        || {
            if problems.is_empty() { Ok(()) } else { bail!("\n        {}", problems.join("\n        ")) }
        },
    );
}

fn ask(
    address: SocketAddr,
    tokens: &Tokens,
    caller: Option<&str>,
    (route, target, headers, body, needs, allowed): &Operation,
    is_allowed: bool,
) -> Result<()> {
    let asker = Asker::new(address, caller.map(|caller| tokens.of(caller)));
    let method = route.split(' ').next().unwrap_or_default();
    let body = body.as_bytes();
    let answer = asker.ask(method, target, headers, body)?;
    let code = answer.header("alluvium-error").unwrap_or_default().to_owned();
    match (is_allowed, caller) {
        (true, _) if *needs == Own => {
            ensure!(
                !["unauthorized", "forbidden", "invalid_token"].contains(&code.as_str()),
                "refused as {code}"
            );
        }
        (true, _) => ensure!(allowed.contains(&answer.status), "status {} {code}", answer.status),
        (false, None) => {
            ensure!(answer.status == 401, "status {} {code}", answer.status);
            let challenge = answer.header("www-authenticate").unwrap_or_default();
            ensure!(challenge == "Bearer realm=\"alluvium\"", "challenge {challenge}");
        }
        (false, Some(_)) => {
            ensure!(answer.status == 403, "status {} {code}", answer.status);
            let challenge = answer.header("www-authenticate").unwrap_or_default();
            // The surface of feeds refuses some by itself, for what is in a message.
            let is_own = route.starts_with("POST /feeds/v1/spaces/{space}") && challenge.is_empty();
            ensure!(is_own || challenge.contains("error=\"insufficient_scope\""), "challenge {challenge}");
        }
    }
    if method == "GET" && headers.is_empty() {
        let head = asker.ask("HEAD", target, headers, &[])?;
        let is_same = head.status == answer.status || is_allowed;
        ensure!(is_same, "status {} by HEAD where {} is due", head.status, answer.status);
    }
    Ok(())
}
