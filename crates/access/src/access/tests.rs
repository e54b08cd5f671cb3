//! Who is let in, and what becomes of it.

use alluvium_env::sim::ManualClock;
use alluvium_env::{OsRandom, RealDisk};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::json;

use super::*;
use crate::limits::LOOK_S;

const NOW_MS: u64 = 1_800_000_000_000;

/// A file, keys beside it, a clock that is moved by hand, and who is let in by them.
struct World {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
    options: Options,
}

impl World {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.toml");
        let world = Self {
            folder,
            clock: Arc::new(ManualClock::new(NOW_MS)),
            options: Options { file: Some(path), is_open: false, ..Options::open(Doors::Server) },
        };
        world.write("keys.json", &jwks(1));
        world.write("access.toml", text);
        world
    }

    #[expect(clippy::disallowed_methods, reason = "what an operator does by other means")]
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn start(&self) -> Access {
        let env = Env { clock: self.clock.clone(), random: Arc::new(OsRandom), disk: Arc::new(RealDisk) };
        Access::start(self.options.clone(), env).unwrap()
    }
}

fn pair(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

fn jwks(seed: u8) -> String {
    let x = URL_SAFE_NO_PAD.encode(pair(seed).public_key().as_ref());
    json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": x, "kid": seed.to_string()}]}).to_string()
}

fn jwt(seed: u8, claims: &serde_json::Value) -> String {
    let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(&json!({"alg": "EdDSA", "kid": seed.to_string()})), part(claims));
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(pair(seed).sign(message.as_bytes()).as_ref()))
}

fn claims(more: &serde_json::Value) -> serde_json::Value {
    let mut claims =
        json!({"iss": "id", "aud": "us", "sub": "alice", "exp": NOW_MS / 1000 + 60, "scope": "read write"});
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    claims
}

fn token(name: &str, scopes: &str, more: &str) -> String {
    format!("[[token]]\nname = \"{name}\"\nhash = \"{}\"\nscopes = [{scopes}]\n{more}\n", TokenHash::of(name))
}

const ISSUER: &str = "[[issuer]]\nissuer = \"id\"\naudience = \"us\"\nkeys = \"keys.json\"\n\
                      scopes = [\"read\", \"write:/v1/stream/a\"]\nrevoked = [\"gone\"]\n";

fn request(method: &str, path: &str, token: Option<&str>, body: &str) -> Request<String> {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    request.body(body.to_owned()).unwrap()
}

/// The code that a request is refused with.
fn code(access: &Access, method: &str, path: &str, token: Option<&str>) -> &'static str {
    let mut request = request(method, path, token, "");
    match access.admit(&mut request) {
        Ok(_) => "",
        Err(refusal) => refusal.status_and_code().1,
    }
}

#[test]
fn a_static_token_is_good_for_what_stands_beside_its_hash() {
    let world = World::new(
        &(token("reader", "\"read\"", "prefixes = [\"/v1/stream/a\"]")
            + &token("late", "\"admin\"", "expires = 2027-01-15T08:01:00Z")),
    );
    let access = world.start();
    for (method, path, token, expected) in [
        ("GET", "/v1/stream/a/b", Some("reader"), ""),
        ("GET", "/v1/stream/ab", Some("reader"), "forbidden"),
        ("POST", "/v1/stream/a/b", Some("reader"), "forbidden"),
        ("PUT", "/ds/docs", Some("reader"), "forbidden"),
        ("GET", "/nothing", Some("reader"), "forbidden"),
        ("PUT", "/ds/docs", Some("late"), ""),
        ("GET", "/v1/stream/a/b", Some("unknown"), "invalid_token"),
        ("GET", "/v1/stream/a/b", Some("a.b.c"), "invalid_token"),
        ("GET", "/v1/stream/a/b", None, "unauthorized"),
        ("GET", "/nothing", None, "unauthorized"),
        ("OPTIONS", "/v1/stream/a/b", None, ""),
        ("GET", "/healthz", None, ""),
        ("POST", "/v1/stream/__ds/subscriptions/s/ack", None, ""),
    ] {
        assert_eq!(code(&access, method, path, token), expected, "{method} {path} {token:?}");
    }
    assert_eq!(NOW_MS, 1_800_000_000_000, "2027-01-15T08:00:00Z");
    world.clock.advance_ms(59_999);
    assert_eq!(code(&access, "PUT", "/ds/docs", Some("late")), "");
    world.clock.advance_ms(1);
    assert_eq!(code(&access, "PUT", "/ds/docs", Some("late")), "invalid_token");
    assert_eq!(access.counts().forbidden, 4);
}

#[test]
fn a_signed_token_is_good_for_what_it_says_below_what_its_issuer_may() {
    let world = World::new(ISSUER);
    let access = world.start();
    let signed = jwt(1, &claims(&json!({})));
    for (method, path, expected) in [
        ("GET", "/v1/stream/x", ""),
        ("POST", "/v1/stream/a/b", ""),
        ("POST", "/v1/stream/x", "forbidden"),
        ("PUT", "/ds/docs", "forbidden"),
    ] {
        assert_eq!(code(&access, method, path, Some(&signed)), expected, "{method} {path}");
        // Again, as it is remembered.
        assert_eq!(code(&access, method, path, Some(&signed)), expected, "{method} {path}");
    }
    let read = |signed: &str| code(&access, "GET", "/v1/stream/x", Some(signed));
    for (more, expected) in [
        (json!({"prefixes": ["/v1/stream/x"]}), ""),
        (json!({"prefixes": ["/v1/stream/y"]}), "forbidden"),
        (json!({"scope": "openid profile"}), "forbidden"),
        (json!({"scope": ["read:/v1/stream/x"]}), ""),
        (json!({"scope": "admin"}), ""),
        (json!({"scope": "read:x"}), "invalid_token"),
        (json!({"iss": "other"}), "invalid_token"),
        (json!({"iss": null}), "invalid_token"),
        (json!({"aud": "them"}), "invalid_token"),
        (json!({"exp": NOW_MS / 1000 - 31}), "invalid_token"),
        (json!({"nbf": NOW_MS / 1000 + 31}), "invalid_token"),
        (json!({"jti": "gone"}), "invalid_token"),
        (json!({"sub": "gone"}), "invalid_token"),
        (json!({"actors": [""]}), "invalid_token"),
    ] {
        assert_eq!(read(&jwt(1, &claims(&more))), expected, "{more}");
    }
    assert_eq!(read(&jwt(2, &claims(&json!({})))), "invalid_token", "another key");
    world.clock.advance_ms(90_000);
    assert_eq!(read(&signed), "invalid_token", "its time is up, with what the clock may be off");
}

#[test]
fn nothing_that_was_presented_is_left_in_a_request() {
    let mut world = World::new(&token("abc", "\"admin\"", ""));
    world.options.token_in_query = true;
    let access = world.start();
    let mut by_header = request("GET", "/v1/stream/x?offset=-1", Some("abc"), "");
    access.admit(&mut by_header).unwrap();
    assert!(by_header.headers().is_empty());
    assert_eq!(by_header.extensions().get::<Arc<Caller>>().unwrap().name, "abc");
    let mut by_query = request("GET", "/v1/stream/x?access_token=abc&offset=-1", None, "");
    access.admit(&mut by_query).unwrap();
    assert_eq!(by_query.uri(), "/v1/stream/x?offset=-1");
    let mut by_socket = request("GET", "/feeds/v1/ws", None, "");
    let offered = HeaderValue::from_static("feeds.v1.json, feeds.bearer.abc");
    by_socket.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, offered);
    let admitted = access.admit(&mut by_socket).unwrap();
    assert_eq!(by_socket.headers()[header::SEC_WEBSOCKET_PROTOCOL], "feeds.v1.json");
    for shown in [format!("{admitted:?}"), format!("{:?}", by_socket.extensions().get::<Lease>().unwrap())] {
        assert!(!shown.contains("token: Some(\"abc") && shown.contains("abc"), "{shown}");
    }
    // A route that checks its own credentials gets them.
    let mut own = request("POST", "/v1/stream/__ds/subscriptions/s/ack", Some("its-own"), "");
    access.admit(&mut own).unwrap();
    assert_eq!(own.headers()[header::AUTHORIZATION], "Bearer its-own");
}

#[test]
fn anyone_may_do_what_the_file_says_and_what_a_door_is_for() {
    let world = World::new("[anyone]\nscopes = [\"read\"]\nprefixes = [\"/v1/stream/public\"]\n");
    let access = world.start();
    assert_eq!(code(&access, "GET", "/v1/stream/public/a", None), "");
    assert_eq!(code(&access, "GET", "/v1/stream/a", None), "unauthorized");
    // A token that is none is told so, even where none is needed.
    assert_eq!(code(&access, "GET", "/v1/stream/public/a", Some("x")), "invalid_token");

    let jetstream = Options { is_open: false, ..Options::open(Doors::Jetstream) };
    let jetstream = Access::start(jetstream, Env::real()).unwrap();
    assert_eq!(code(&jetstream, "GET", "/subscribe", None), "");
    assert_eq!(code(&jetstream, "GET", "/status", None), "unauthorized");
    let open = Access::open(Doors::Jetstream);
    assert_eq!(code(&open, "GET", "/status", Some("whatever")), "");
}

#[test]
fn an_address_and_a_caller_have_their_limits() {
    let mut world = World::new(
        &(token("a", "\"admin\"", "")
            + &token("b", "\"admin\"", "")
            + &token("c", "\"admin\"", "requests-per-s = 1000")),
    );
    world.options.burst = Duration::from_secs(1);
    world.options.address_rates = Rates { requests_per_s: Some(20), append_bytes_per_s: None };
    world.options.caller_rates = Rates { requests_per_s: Some(5), append_bytes_per_s: Some(100) };
    let access = world.start();
    let given = |address: &str, token: &str, body: &str| {
        let ask = || {
            let mut request = request("POST", "/v1/stream/x", Some(token), body);
            access.admit_from(address.parse().unwrap(), &mut request).is_ok()
        };
        (0..40).filter(|_| ask()).count()
    };
    // The clock of limits runs while this runs, so one more may come.
    let about =
        |expected: usize, given: usize| assert!((expected..=expected + 2).contains(&given), "{given}");
    about(5, given("10.0.0.1", "a", ""));
    about(0, given("10.0.0.2", "a", ""));
    about(5, given("10.0.0.3", "b", ""));
    about(20, given("10.0.0.4", "c", ""));
    about(0, given("10.0.0.4", "c", ""));
    let counts = access.counts();
    assert!(
        counts.limited_by_address > 0 && counts.limited_by_caller > 0 && counts.addresses >= 4,
        "{counts:?}"
    );
}

#[test]
fn bytes_that_are_kept_are_counted_also_where_their_number_comes_late() {
    let mut world = World::new(&token("a", "\"admin\"", ""));
    world.options.burst = Duration::from_secs(1);
    world.options.caller_rates = Rates { requests_per_s: None, append_bytes_per_s: Some(1) };
    let access = world.start();
    let mut first = request("POST", "/v1/stream/x", Some("a"), "1234");
    access.admit(&mut first).unwrap();
    assert!(matches!(
        access.admit(&mut request("POST", "/v1/stream/x", Some("a"), "1")),
        Err(Refusal::Limited(_))
    ));
    // What reads has no bytes to keep, however long its body.
    access.admit(&mut request("POST", "/feeds/v1/spaces/s/query", Some("a"), "1234")).unwrap();
    access.admit(&mut request("GET", "/v1/stream/x", Some("a"), "")).unwrap();
    let meter = first.extensions().get::<Meter>().unwrap();
    meter.received(1_000_000);
    meter.clone().for_body(true).received(1_000_000);
    let refused = access.admit(&mut request("POST", "/v1/stream/x", Some("a"), "1")).unwrap_err();
    assert!(
        matches!(refused, Refusal::Limited(wait) if (900_000..1_100_000).contains(&wait.as_secs())),
        "{refused}"
    );
}

#[test]
fn a_socket_is_opened_without_a_token_and_rests_on_nothing_until_one_comes() {
    let mut world = World::new(
        &(token("a", "\"read\"", "prefixes = [\"/feeds/v1/spaces/s\"]")
            + &token("elsewhere", "\"read\"", "prefixes = [\"/ds\"]")),
    );
    world.options.burst = Duration::from_secs(1);
    world.options.caller_rates = Rates { requests_per_s: Some(1), append_bytes_per_s: None };
    let access = world.start();
    for path in ["/feeds/v1/ws", "/feeds/v1/spaces/s/ws"] {
        let mut asked = request("GET", path, None, "");
        let lease = access.admit(&mut asked).unwrap().lease.unwrap();
        assert!(!lease.holds() && lease.exchange("none").is_none() && lease.exchange("elsewhere").is_none());
        let exchanged = lease.exchange("a").unwrap();
        assert!(exchanged.holds() && exchanged.caller().name == "a");
        // From then on its requests are counted as those of the token.
        let meter = asked.extensions().get::<Meter>().unwrap().clone();
        assert!((0..10).all(|_| meter.take(0).is_ok()));
        let meter = meter.of_caller(exchanged.caller());
        assert!((0..10).any(|_| meter.take(0).is_err()));
        assert_eq!(code(&access, "GET", path, Some("none")), "invalid_token");
        assert_eq!(code(&access, "GET", path, Some("elsewhere")), "forbidden");
    }
    // Nothing else is open to who presents nothing.
    assert_eq!(code(&access, "POST", "/feeds/v1/spaces/s", None), "unauthorized");
    assert_eq!(code(&access, "GET", "/feeds/v1/spaces/s/streams/f", None), "unauthorized");
}

#[test]
fn a_page_of_another_origin_opens_no_socket() {
    let mut world = World::new(&token("a", "\"admin\"", ""));
    world.options.origins = "https://a.example".parse().unwrap();
    let access = world.start();
    let open = |origin: Option<&'static str>| {
        let mut request = request("GET", "/feeds/v1/ws", Some("a"), "");
        request.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        if let Some(origin) = origin {
            request.headers_mut().insert(header::ORIGIN, HeaderValue::from_static(origin));
        }
        access.admit(&mut request).map(drop)
    };
    assert_eq!((open(None), open(Some("https://a.example"))), (Ok(()), Ok(())));
    assert_eq!(open(Some("https://b.example")), Err(Refusal::Origin));
}

#[tokio::test(start_paused = true)]
async fn a_lease_ends_with_the_time_of_its_token() {
    let world = World::new(&token("late", "\"read\"", "expires = 2027-01-15T08:01:00Z"));
    let access = world.start();
    let mut asked = request("GET", "/v1/stream/x", Some("late"), "");
    let lease = access.admit(&mut asked).unwrap().lease.unwrap();
    let mut ended = std::pin::pin!(lease.refused());
    let is_over = tokio::time::timeout(Duration::from_mins(5), &mut ended).await;
    assert!(is_over.is_err(), "the clock has not moved");
    world.clock.advance_ms(60_000);
    assert_eq!(ended.await, Refusal::Rejected(Rejected::Expired));
    assert_eq!(access.counts().leases_ended, 1);
}

#[tokio::test]
async fn a_change_of_the_file_is_taken_over_and_ends_what_rests_on_the_old_one() {
    let world = World::new(
        &(token("kept", "\"read\"", "")
            + &token("taken", "\"read\"", "")
            + &token("wider", "\"read\"", "")
            + ISSUER),
    );
    let access = world.start();
    let lease = |token: &str| {
        let mut asked = request("GET", "/v1/stream/x", Some(token), "");
        access.admit(&mut asked).unwrap().lease.unwrap()
    };
    let signed = jwt(1, &claims(&json!({})));
    let (kept, taken, by_key) = (lease("kept"), lease("taken"), lease(&signed));
    let (wider, still_read) = (lease("wider"), lease("wider"));
    // What is wrong changes nothing.
    world.write("access.toml", "[[token]]\n");
    let failed = async {
        while access.counts().file_failures == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10 * LOOK_S), failed).await.unwrap();
    assert_eq!(code(&access, "GET", "/v1/stream/x", Some("taken")), "");
    // What is right ends what was taken away and nothing else.
    let wide = token("wider", "\"read\", \"write\"", "");
    world.write("access.toml", &(token("kept", "\"read\"", "") + &wide + ISSUER));
    tokio::time::timeout(Duration::from_secs(10 * LOOK_S), taken.lost()).await.unwrap();
    assert_eq!(code(&access, "GET", "/v1/stream/x", Some("taken")), "invalid_token");
    assert_eq!(code(&access, "GET", "/v1/stream/x", Some("kept")), "");
    // A key that is gone takes its tokens with it.
    world.write("keys.json", &jwks(2));
    tokio::time::timeout(Duration::from_secs(10 * LOOK_S), by_key.lost()).await.unwrap();
    assert_eq!(code(&access, "GET", "/v1/stream/x", Some(&signed)), "invalid_token");
    assert_eq!(code(&access, "GET", "/v1/stream/x", Some(&jwt(2, &claims(&json!({}))))), "");
    tokio::time::timeout(Duration::from_secs(10 * LOOK_S), wider.altered()).await.unwrap();
    let going_on = async {
        tokio::select! {
            () = kept.altered() => {}
            () = still_read.lost() => {}
        }
    };
    let going_on = tokio::time::timeout(Duration::from_millis(10), going_on).await;
    assert!(going_on.is_err(), "what was not changed goes on, and what was let in for what is still allowed");
}
