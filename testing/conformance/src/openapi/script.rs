//! The requests to `alluvium serve`, in an order in which each finds what it needs.

use super::trial::{Trial, trial};

const TEXT: (&str, &str) = ("content-type", "text/plain");
const BINARY: (&str, &str) = ("content-type", "application/octet-stream");
const JSON: (&str, &str) = ("content-type", "application/json");
const TEXT_ONLY: &[(&str, &str)] = &[TEXT];
const JSON_ONLY: &[(&str, &str)] = &[JSON];
const OF_WAKE: &[(&str, &str)] = &[JSON, ("authorization", "Bearer <token>")];
/// One byte more than an append may have.
static TOO_LONG: [u8; 64 * 1024 + 1] = [b'x'; 64 * 1024 + 1];
/// The digits of an offset that no stream comes to.
pub(super) const FAR: &str = "0000000000ffffff_0000000000ffffff";

/// All of them.
pub(super) fn script() -> Vec<Trial> {
    [
        subscriptions(),
        plain(),
        buckets(),
        bucketed(),
        snapshots(),
        contract_of_plain(),
        contract_of_bucketed(),
        feeds(),
        admin(),
        own(),
    ]
    .concat()
}

const P: &str = "/v1/stream/{path}";

fn plain() -> Vec<Trial> {
    let a = "/v1/stream/a";
    vec![
        trial("PUT", P, a, 201).with(TEXT_ONLY).body(b"one").keep(&[("plain", "stream-incarnation")]),
        trial("PUT", P, a, 200).with(TEXT_ONLY),
        trial("PUT", P, "/v1/stream/b", 400).with(&[TEXT, ("stream-ttl", "soon")]),
        trial("PUT", P, "/v1/stream/b", 404).with(&[TEXT, ("stream-forked-from", "/v1/stream/none")]),
        trial("PUT", P, a, 409).with(&[BINARY]),
        trial("POST", P, a, 204).with(TEXT_ONLY).body(b"two").keep(&[("end", "stream-next-offset")]),
        trial("POST", P, a, 200)
            .with(&[TEXT, ("producer-id", "p"), ("producer-epoch", "1"), ("producer-seq", "0")])
            .body(b"three"),
        trial("POST", P, a, 400).with(&[TEXT, ("producer-id", "p")]).body(b"x"),
        trial("POST", P, a, 403)
            .with(&[TEXT, ("producer-id", "p"), ("producer-epoch", "0"), ("producer-seq", "0")])
            .body(b"x"),
        trial("POST", P, "/v1/stream/none", 404).with(TEXT_ONLY).body(b"x"),
        trial("POST", P, a, 409).with(&[BINARY]).body(b"x"),
        trial("POST", P, a, 412).with(&[TEXT, ("if-match", "\"<end>\"")]).body(b"x"),
        trial("POST", P, a, 413).with(TEXT_ONLY).body(&TOO_LONG),
        trial("GET", P, "/v1/stream/a?offset=-1", 200)
            .keep(&[("tag", "etag"), ("tail", "stream-next-offset")]),
        trial("GET", P, "/v1/stream/a?offset=-1&live=sse", 200),
        trial("GET", P, "/v1/stream/a?offset=<tail>&live=long-poll", 204),
        trial("GET", P, "/v1/stream/a?offset=-1", 304).with(&[("if-none-match", "<tag>")]),
        trial("GET", P, "/v1/stream/a?offset=x", 400),
        trial("GET", P, "/v1/stream/none", 404),
        trial("HEAD", P, a, 200),
        trial("HEAD", P, "/v1/stream/none", 404),
        trial("OPTIONS", P, a, 204),
        trial("PUT", P, "/v1/stream/gone", 201).with(TEXT_ONLY),
        trial("DELETE", P, "/v1/stream/gone", 204),
        trial("DELETE", P, "/v1/stream/gone", 404),
    ]
}

const Q: &str = "/v1/stream/__ds/subscriptions/{id}";

/// Ends without subscriptions: those that are there would have their part in what comes after.
fn subscriptions() -> Vec<Trial> {
    let keys = "/v1/stream/__ds/jwks.json";
    let pool = "/v1/stream/__ds/subscriptions/pool";
    let streams = "/v1/stream/__ds/subscriptions/{id}/streams";
    let stream = "/v1/stream/__ds/subscriptions/{id}/streams/{stream}";
    let claim = "/v1/stream/__ds/subscriptions/{id}/claim";
    let claimed = "/v1/stream/__ds/subscriptions/pool/claim";
    let mut trials = vec![
        trial("GET", keys, keys, 200),
        trial("PUT", P, "/v1/stream/wake/pool", 201).with(JSON_ONLY),
        trial("PUT", Q, pool, 201)
            .with(JSON_ONLY)
            .body(br#"{"type":"pull-wake","pattern":"jobs/*","wake_stream":"wake/pool"}"#),
        trial("PUT", Q, pool, 200)
            .with(JSON_ONLY)
            .body(br#"{"type":"pull-wake","pattern":"jobs/*","wake_stream":"wake/pool"}"#),
        trial("PUT", Q, pool, 409)
            .with(JSON_ONLY)
            .body(br#"{"type":"pull-wake","pattern":"other/*","wake_stream":"wake/pool"}"#),
        trial("PUT", Q, pool, 400).with(JSON_ONLY).body(b"{}"),
        trial("GET", Q, pool, 200),
        trial("GET", Q, "/v1/stream/__ds/subscriptions/none", 404),
        trial("POST", streams, "/v1/stream/__ds/subscriptions/pool/streams", 204)
            .with(JSON_ONLY)
            .body(br#"{"streams":["extra"]}"#),
        trial("POST", streams, "/v1/stream/__ds/subscriptions/pool/streams", 400).with(JSON_ONLY).body(b"{}"),
        trial("POST", streams, "/v1/stream/__ds/subscriptions/none/streams", 404)
            .with(JSON_ONLY)
            .body(br#"{"streams":["extra"]}"#),
        trial("DELETE", stream, "/v1/stream/__ds/subscriptions/pool/streams/extra", 204),
        trial("DELETE", stream, "/v1/stream/__ds/subscriptions/none/streams/extra", 404),
        trial("POST", claim, claimed, 409).with(JSON_ONLY).body(br#"{"worker":"w"}"#),
        trial("POST", claim, claimed, 400).with(JSON_ONLY).body(b"{}"),
        trial("POST", claim, "/v1/stream/__ds/subscriptions/none/claim", 404)
            .with(JSON_ONLY)
            .body(br#"{"worker":"w"}"#),
        trial("PUT", P, "/v1/stream/jobs/1", 201).with(JSON_ONLY),
        trial("POST", P, "/v1/stream/jobs/1", 204).with(JSON_ONLY).body(b"1"),
        trial("POST", claim, claimed, 200).with(JSON_ONLY).body(br#"{"worker":"w"}"#).keep(&[
            ("token", "/token"),
            ("wake", "/wake_id"),
            ("generation", "/generation"),
        ]),
    ];
    let ack = "/v1/stream/__ds/subscriptions/{id}/ack";
    let callback = "/v1/stream/__ds/subscriptions/{id}/callback";
    let release = "/v1/stream/__ds/subscriptions/{id}/release";
    let of_wake: &[u8] = br#"{"wake_id":"<wake>","generation":<generation>}"#;
    let of_another: &[u8] = br#"{"wake_id":"<wake>","generation":999999}"#;
    for (path, target) in [
        (ack, "/v1/stream/__ds/subscriptions/pool/ack"),
        (callback, "/v1/stream/__ds/subscriptions/pool/callback"),
        (release, "/v1/stream/__ds/subscriptions/pool/release"),
    ] {
        trials.push(trial("POST", path, target, 400).with(OF_WAKE).body(b"{"));
        trials.push(trial("POST", path, target, 401).with(JSON_ONLY).body(of_wake));
        // Of a pull-wake subscription a callback is refused as such.
        if path != callback {
            trials.push(trial("POST", path, target, 409).with(OF_WAKE).body(of_another));
        }
    }
    trials
        .push(trial("POST", ack, "/v1/stream/__ds/subscriptions/pool/ack", 200).with(OF_WAKE).body(of_wake));
    trials.push(
        trial("POST", release, "/v1/stream/__ds/subscriptions/pool/release", 204).with(OF_WAKE).body(of_wake),
    );
    trials.push(trial("DELETE", Q, pool, 204));
    trials
}

const B: &str = "/ds/{bucket}";
const L: &str = "/ds/{bucket}/streams";

fn buckets() -> Vec<Trial> {
    vec![
        trial("PUT", B, "/ds/docs", 201),
        trial("PUT", B, "/ds/docs", 409),
        trial("PUT", B, "/ds/x", 400),
        trial("GET", B, "/ds/docs", 200),
        trial("GET", B, "/ds/none", 404),
        trial("PUT", B, "/ds/empty", 201),
        trial("DELETE", B, "/ds/empty", 204),
        trial("DELETE", B, "/ds/empty", 404),
        trial("PUT", S, "/ds/docs/a", 201).with(TEXT_ONLY).body(b"one"),
        trial("DELETE", B, "/ds/docs", 409),
        trial("GET", L, "/ds/docs/streams", 200),
        trial("GET", L, "/ds/docs/streams?limit=x", 400),
        trial("GET", L, "/ds/none/streams", 404),
    ]
}

const S: &str = "/ds/{bucket}/{stream}";
const BATCH: &str = "/ds/{bucket}/{stream}/append-batch";
const ATTRS: &str = "/ds/{bucket}/{stream}/attrs";

fn bucketed() -> Vec<Trial> {
    vec![
        trial("PUT", S, "/ds/docs/a", 200).with(TEXT_ONLY),
        trial("PUT", S, "/ds/docs/b", 400).with(&[TEXT, ("stream-ttl", "soon")]),
        trial("PUT", S, "/ds/none/a", 404).with(TEXT_ONLY),
        trial("PUT", S, "/ds/docs/a", 409).with(&[BINARY]),
        trial("POST", S, "/ds/docs/a", 204)
            .with(TEXT_ONLY)
            .body(b"two")
            .keep(&[("two", "stream-next-offset"), ("bucketed", "stream-incarnation")]),
        trial("POST", S, "/ds/docs/a", 200)
            .with(&[TEXT, ("producer-id", "p"), ("producer-epoch", "1"), ("producer-seq", "0")])
            .body(b"three"),
        trial("POST", S, "/ds/docs/a", 400).with(&[TEXT, ("producer-id", "p")]).body(b"x"),
        trial("POST", S, "/ds/docs/a", 403)
            .with(&[TEXT, ("producer-id", "p"), ("producer-epoch", "0"), ("producer-seq", "0")])
            .body(b"x"),
        trial("POST", S, "/ds/docs/none", 404).with(TEXT_ONLY).body(b"x"),
        trial("POST", S, "/ds/docs/a", 409).with(&[BINARY]).body(b"x"),
        trial("POST", S, "/ds/docs/a", 412).with(&[TEXT, ("if-match", "\"<two>\"")]).body(b"x"),
        trial("POST", S, "/ds/docs/a", 413).with(TEXT_ONLY).body(&TOO_LONG),
        trial("GET", S, "/ds/docs/a?offset=-1", 200).keep(&[("tag", "etag"), ("tail", "stream-next-offset")]),
        trial("GET", S, "/ds/docs/a?offset=-1&live=sse", 200),
        trial("GET", S, "/ds/docs/a?offset=<tail>&live=long-poll", 204),
        trial("GET", S, "/ds/docs/a?offset=-1", 304).with(&[("if-none-match", "<tag>")]),
        trial("GET", S, "/ds/docs/a?offset=x", 400),
        trial("GET", S, "/ds/docs/none", 404),
        trial("HEAD", S, "/ds/docs/a", 200),
        trial("HEAD", S, "/ds/docs/none", 404),
        trial("OPTIONS", S, "/ds/docs/a", 204),
        trial("PUT", S, "/ds/docs/gone", 201).with(TEXT_ONLY),
        trial("DELETE", S, "/ds/docs/gone", 204),
        trial("DELETE", S, "/ds/docs/gone", 404),
        trial("POST", BATCH, "/ds/docs/a/append-batch", 200).with(TEXT_ONLY).body(b"\0\0\0\x01x\0\0\0\x01y"),
        trial("POST", BATCH, "/ds/docs/a/append-batch", 204)
            .with(&[TEXT, ("prefer", "return=minimal")])
            .body(b"\0\0\0\x01z"),
        trial("POST", BATCH, "/ds/docs/a/append-batch", 400).with(TEXT_ONLY).body(b"\0\0"),
        trial("POST", BATCH, "/ds/docs/none/append-batch", 404).with(TEXT_ONLY).body(b"\0\0\0\x01x"),
        trial("POST", BATCH, "/ds/docs/a/append-batch", 409).with(&[BINARY]).body(b"\0\0\0\x01x"),
        trial("PUT", ATTRS, "/ds/docs/a/attrs", 204).with(JSON_ONLY).body(b"{\"title\":\"A\"}"),
        trial("PUT", ATTRS, "/ds/docs/a/attrs", 400).with(JSON_ONLY).body(b"[]"),
        trial("PUT", ATTRS, "/ds/docs/none/attrs", 404).with(JSON_ONLY).body(b"{}"),
        trial("PUT", ATTRS, "/ds/docs/a/attrs", 413).with(JSON_ONLY).body(&TOO_LONG),
        trial("GET", ATTRS, "/ds/docs/a/attrs", 200),
        trial("GET", ATTRS, "/ds/docs/none/attrs", 404),
    ]
}

const LATEST: &str = "/ds/{bucket}/{stream}/snapshot";
const AT: &str = "/ds/{bucket}/{stream}/snapshot/{offset}";
const BOOT: &str = "/ds/{bucket}/{stream}/bootstrap";

fn snapshots() -> Vec<Trial> {
    vec![
        trial("GET", LATEST, "/ds/docs/a/snapshot", 404),
        trial("PUT", AT, "/ds/docs/a/snapshot/<two>", 204).with(TEXT_ONLY).body(b"onetwo"),
        trial("PUT", AT, "/ds/docs/a/snapshot/x", 400).with(TEXT_ONLY).body(b"x"),
        trial("PUT", AT, "/ds/docs/none/snapshot/<two>", 404).with(TEXT_ONLY).body(b"x"),
        trial("PUT", AT, "/ds/docs/a/snapshot/<far>", 409).with(TEXT_ONLY).body(b"x"),
        trial("PUT", AT, "/ds/docs/a/snapshot/<tail>", 412).with(&[TEXT, ("if-match", "\"x\"")]).body(b"x"),
        trial("GET", LATEST, "/ds/docs/a/snapshot", 307),
        trial("GET", AT, "/ds/docs/a/snapshot/<two>", 200).keep(&[("tag", "etag")]),
        trial("GET", AT, "/ds/docs/a/snapshot/<two>", 206).with(&[("range", "bytes=1-2")]),
        trial("GET", AT, "/ds/docs/a/snapshot/<two>", 304).with(&[("if-none-match", "<tag>")]),
        trial("GET", AT, "/ds/docs/a/snapshot/x", 400),
        trial("GET", AT, "/ds/docs/a/snapshot/<far>", 404),
        trial("GET", AT, "/ds/docs/a/snapshot/<two>", 416).with(&[("range", "bytes=100-")]),
        trial("DELETE", AT, "/ds/docs/a/snapshot/<far>", 404),
        trial("DELETE", AT, "/ds/docs/a/snapshot/<two>", 409),
        trial("PUT", AT, "/ds/docs/a/snapshot/<tail>", 204).with(TEXT_ONLY).body(b"onetwothree"),
        trial("DELETE", AT, "/ds/docs/a/snapshot/<two>", 404),
        trial("GET", S, "/ds/docs/a?offset=-1", 410),
        trial("GET", BOOT, "/ds/docs/a/bootstrap", 200),
        trial("GET", BOOT, "/ds/docs/a/bootstrap?live=sse", 400),
        trial("GET", BOOT, "/ds/docs/none/bootstrap", 404),
    ]
}

fn contract_of_plain() -> Vec<Trial> {
    let claim = "/v1/stream/__ds/claim/{path}";
    let appends = "/v1/stream/__ds/appends/{path}";
    let checkpoint = "/v1/stream/__ds/checkpoint/{path}";
    vec![
        trial("GET", appends, "/v1/stream/__ds/appends/a", 200),
        trial("GET", appends, "/v1/stream/__ds/appends/a?from=x", 400),
        trial("GET", appends, "/v1/stream/__ds/appends/none", 404),
        trial("GET", checkpoint, "/v1/stream/__ds/checkpoint/a", 404),
        trial("PUT", checkpoint, "/v1/stream/__ds/checkpoint/a", 204)
            .with(&[("stream-if-incarnation", "<plain>"), ("stream-checkpoint-offset", "<end>")])
            .body(b"two words"),
        trial("PUT", checkpoint, "/v1/stream/__ds/checkpoint/a", 400),
        trial("PUT", checkpoint, "/v1/stream/__ds/checkpoint/none", 404)
            .with(&[("stream-if-incarnation", "<plain>"), ("stream-checkpoint-offset", "<end>")]),
        trial("PUT", checkpoint, "/v1/stream/__ds/checkpoint/a", 409)
            .with(&[("stream-if-incarnation", "<bucketed>"), ("stream-checkpoint-offset", "<end>")]),
        trial("GET", checkpoint, "/v1/stream/__ds/checkpoint/a", 200),
        trial("POST", claim, "/v1/stream/__ds/claim/a", 200).with(&[("producer-id", "me")]),
        trial("POST", claim, "/v1/stream/__ds/claim/a", 400),
        trial("POST", claim, "/v1/stream/__ds/claim/none", 404).with(&[("producer-id", "me")]),
        trial("GET", claim, "/v1/stream/__ds/claim/a", 200),
        trial("GET", claim, "/v1/stream/__ds/claim/none", 404),
    ]
}

fn contract_of_bucketed() -> Vec<Trial> {
    let claim = "/ds/{bucket}/{stream}/claim";
    let appends = "/ds/{bucket}/{stream}/appends";
    let checkpoint = "/ds/{bucket}/{stream}/checkpoint";
    vec![
        trial("GET", appends, "/ds/docs/a/appends?from=5", 200),
        trial("GET", appends, "/ds/docs/a/appends?from=x", 400),
        trial("GET", appends, "/ds/docs/none/appends", 404),
        trial("GET", checkpoint, "/ds/docs/a/checkpoint", 404),
        trial("PUT", checkpoint, "/ds/docs/a/checkpoint", 204)
            .with(&[("stream-if-incarnation", "<bucketed>"), ("stream-checkpoint-offset", "<two>")])
            .body(b"two words"),
        trial("PUT", checkpoint, "/ds/docs/a/checkpoint", 400),
        trial("PUT", checkpoint, "/ds/docs/none/checkpoint", 404)
            .with(&[("stream-if-incarnation", "<bucketed>"), ("stream-checkpoint-offset", "<two>")]),
        trial("PUT", checkpoint, "/ds/docs/a/checkpoint", 409)
            .with(&[("stream-if-incarnation", "<plain>"), ("stream-checkpoint-offset", "<two>")]),
        trial("GET", checkpoint, "/ds/docs/a/checkpoint", 200),
        trial("POST", claim, "/ds/docs/a/claim", 200).with(&[("producer-id", "me")]),
        trial("POST", claim, "/ds/docs/a/claim", 400),
        trial("POST", claim, "/ds/docs/none/claim", 404).with(&[("producer-id", "me")]),
        trial("GET", claim, "/ds/docs/a/claim", 200),
        trial("GET", claim, "/ds/docs/none/claim", 404),
    ]
}

const HANDSHAKE: &[(&str, &str)] = &[
    ("connection", "upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

fn feeds() -> Vec<Trial> {
    let space = "/feeds/v1/spaces/{space}";
    let of = |path: &'static str, target: &'static str, body: &'static [u8]| {
        [
            trial("POST", path, target, 200).with(JSON_ONLY).body(body),
            trial("POST", path, target, 400).with(JSON_ONLY).body(b"{"),
        ]
    };
    let stream = "/feeds/v1/spaces/{space}/streams/{feed}";
    let events = "/feeds/v1/spaces/{space}/events";
    let mut trials = vec![
        trial("GET", stream, "/feeds/v1/spaces/x/streams/f?offset=-1", 200),
        trial("GET", stream, "/feeds/v1/spaces/x/streams/f?offset=-1&live=sse", 200),
        trial("GET", stream, "/feeds/v1/spaces/x/streams/f?offset=now&live=long-poll", 204),
        trial("GET", stream, "/feeds/v1/spaces/x/streams/f?offset=x", 400),
        trial("GET", stream, "/feeds/v1/spaces/x/streams/f?offset=0000000000ffffff_0000000000000000", 410),
        trial("GET", events, "/feeds/v1/spaces/x/events", 200),
        trial("GET", events, "/feeds/v1/spaces/x/events?cursor=x", 400),
    ];
    for (path, target) in
        [("/feeds/v1/ws", "/feeds/v1/ws"), ("/feeds/v1/spaces/{space}/ws", "/feeds/v1/spaces/x/ws")]
    {
        trials.push(trial("GET", path, target, 101).with(HANDSHAKE));
        trials.push(trial("GET", path, target, 426));
    }
    let posts = [
        of(
            "/feeds/v1/spaces/{space}/append",
            "/feeds/v1/spaces/x/append",
            br#"{"requestId":"1","blocks":[{"feedId":"f","actorId":"a","sequence":0,"data":"b25l"}]}"#,
        ),
        of(space, "/feeds/v1/spaces/x", br#"{"_tag":"QueryRequest","requestId":"1"}"#),
        of("/feeds/v1/spaces/{space}/query", "/feeds/v1/spaces/x/query", br#"{"requestId":"1"}"#),
        of(
            "/feeds/v1/spaces/{space}/subscribe",
            "/feeds/v1/spaces/x/subscribe",
            br#"{"requestId":"1","feedIds":["f"]}"#,
        ),
        of(
            "/feeds/v1/spaces/{space}/unsubscribe",
            "/feeds/v1/spaces/x/unsubscribe",
            br#"{"requestId":"1","subscriptionId":"none"}"#,
        ),
        of("/feeds/v1/spaces/{space}/feeds", "/feeds/v1/spaces/x/feeds", br#"{"requestId":"1"}"#),
    ];
    posts.into_iter().flatten().chain(trials).collect()
}

fn admin() -> Vec<Trial> {
    let (streams, totals, spaces) = ("/admin/v1/streams", "/admin/v1/totals", "/admin/v1/spaces");
    let (delete, trim, prune) = ("/admin/v1/delete", "/admin/v1/trim", "/admin/v1/prune-feed");
    let space = "/admin/v1/delete-space";
    vec![
        trial("GET", streams, "/admin/v1/streams?order=idle&limit=1", 200).keep(&[("next", "/next_cursor")]),
        trial("GET", streams, "/admin/v1/streams?order=idle&cursor=<next>", 200),
        trial("GET", streams, "/admin/v1/streams?order=none", 400),
        trial("HEAD", streams, streams, 200),
        trial("GET", totals, "/admin/v1/totals?prefix=/ds/&depth=2", 200),
        trial("GET", totals, "/admin/v1/totals?prefix=ds", 400),
        trial("HEAD", totals, totals, 200),
        trial("GET", spaces, spaces, 200),
        trial("GET", spaces, "/admin/v1/spaces?limit=0", 400),
        trial("HEAD", spaces, spaces, 200),
        trial("POST", delete, delete, 200).with(JSON_ONLY).body(br#"{"prefix":"/v1/stream/"}"#),
        trial("POST", delete, delete, 200)
            .with(JSON_ONLY)
            .body(br#"{"prefix":"/v1/stream/none/","dry_run":false}"#),
        trial("POST", delete, delete, 400).with(JSON_ONLY).body(br#"{"prefix":""}"#),
        trial("POST", delete, delete, 413).with(JSON_ONLY).body(&TOO_LONG),
        trial("PUT", P, "/v1/stream/begins", 201).with(TEXT_ONLY).body(b"x"),
        trial("POST", trim, trim, 200)
            .with(JSON_ONLY)
            .body(br#"{"path":"/v1/stream/begins","keep_bytes":0,"dry_run":false}"#),
        trial("POST", trim, trim, 404).with(JSON_ONLY).body(br#"{"path":"/v1/stream/none","keep_bytes":1}"#),
        trial("POST", trim, trim, 400).with(JSON_ONLY).body(br#"{"path":"none","keep_bytes":1}"#),
        trial("POST", trim, trim, 413).with(JSON_ONLY).body(&TOO_LONG),
        trial("POST", prune, prune, 200)
            .with(JSON_ONLY)
            .body(br#"{"space_id":"x","feed_id":"f","keep_blocks":9,"dry_run":false}"#),
        trial("POST", prune, prune, 400)
            .with(JSON_ONLY)
            .body(br#"{"space_id":"x","feed_id":"f","from_position":9000}"#),
        trial("POST", prune, prune, 404)
            .with(JSON_ONLY)
            .body(br#"{"space_id":"x","feed_id":"none","keep_ms":1}"#),
        trial("POST", prune, prune, 413).with(JSON_ONLY).body(&TOO_LONG),
        trial("POST", space, space, 200).with(JSON_ONLY).body(br#"{"space_id":"x"}"#),
        trial("POST", space, space, 400).with(JSON_ONLY).body(br#"{"space_id":""}"#),
        trial("POST", space, space, 404).with(JSON_ONLY).body(br#"{"space_id":"none","dry_run":false}"#),
        trial("POST", space, space, 413).with(JSON_ONLY).body(&TOO_LONG),
    ]
}

fn own() -> Vec<Trial> {
    let of = |path: &'static str| {
        [trial("GET", path, path, 200), trial("HEAD", path, path, 200), trial("POST", path, path, 405)]
    };
    let (backups, backup) = ("/admin/v1/backups", "/admin/v1/backups/{backup}");
    let taken = [
        trial("PUT", backup, "/admin/v1/backups/daily", 201),
        trial("PUT", backup, "/admin/v1/backups/daily", 409),
        trial("PUT", backup, "/admin/v1/backups/daily.partial", 400),
    ];
    ["/healthz", "/readyz", "/metrics", backups].into_iter().flat_map(of).chain(taken).collect()
}
