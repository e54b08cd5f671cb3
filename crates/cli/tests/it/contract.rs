//! The store contract over HTTP: incarnations, claims, compared repetitions, appends by number, checkpoints.

use super::support::{Answer, Events, Server, call};

const TEXT: &str = "content-type: text/plain";
const JSON: &str = "content-type: application/json";

fn send(server: &Server, method: &str, target: &str, headers: &[&str], body: &str) -> Answer {
    call(server.address(), method, target, headers, body.as_bytes())
}

fn incarnation(answer: &Answer) -> String {
    answer.header("stream-incarnation").unwrap_or_else(|| panic!("no incarnation: {answer:?}")).to_owned()
}

fn json(answer: &Answer) -> serde_json::Value {
    serde_json::from_slice(&answer.body).unwrap()
}

/// A claim as the server gives it.
fn acquire(server: &Server, target: &str, id: &str) -> (u64, Answer) {
    let answer = send(server, "POST", target, &[&format!("producer-id: {id}")], "");
    assert_eq!(answer.status, 200, "{answer:?}");
    (json(&answer)["epoch"].as_u64().unwrap(), answer)
}

fn stamped(id: &str, epoch: u64, seq: u64) -> Vec<String> {
    vec![
        TEXT.to_owned(),
        format!("producer-id: {id}"),
        format!("producer-epoch: {epoch}"),
        format!("producer-seq: {seq}"),
    ]
}

fn append(server: &Server, target: &str, headers: &[String], body: &str) -> Answer {
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    send(server, "POST", target, &headers, body)
}

#[test]
fn every_answer_tells_the_incarnation_and_every_method_honours_the_one_that_is_meant() {
    for server in Server::of_each_store("") {
        let s = "/v1/stream/s";
        let created = incarnation(&send(&server, "PUT", s, &[TEXT], "one"));
        for (method, target, headers, body) in [
            ("PUT", s, &[TEXT][..], ""),
            ("POST", s, &[TEXT], "two"),
            ("GET", s, &[], ""),
            ("GET", "/v1/stream/s?offset=now", &[], ""),
            ("GET", "/v1/stream/s?offset=-1&live=long-poll", &[], ""),
            ("HEAD", s, &[], ""),
            ("GET", "/v1/stream/__ds/claim/s", &[], ""),
            ("GET", "/v1/stream/__ds/appends/s", &[], ""),
        ] {
            let answer = send(&server, method, target, headers, body);
            assert!(answer.status < 300, "{method} {target}: {answer:?}");
            assert_eq!(incarnation(&answer), created, "{method} {target}");
        }
        let (head, mut events) = Events::subscribe(server.address(), "/v1/stream/s?offset=-1&live=sse");
        assert_eq!(incarnation(&head), created);
        let control = std::iter::from_fn(|| events.next()).find(|(event, _)| event == "control").unwrap().1;
        assert!(control.contains(&format!("\"streamIncarnation\":\"{created}\"")), "{control}");
        let other = format!("stream-if-incarnation: inc_{}", "0".repeat(32));
        let right = format!("stream-if-incarnation: {created}");
        for (method, target, headers, body) in [
            ("PUT", s, &[TEXT][..], ""),
            ("POST", s, &[TEXT], "x"),
            ("GET", s, &[], ""),
            ("GET", "/v1/stream/s?offset=-1&live=sse", &[], ""),
            ("GET", "/v1/stream/s?offset=-1&live=long-poll", &[], ""),
            ("GET", "/v1/stream/__ds/claim/s", &[], ""),
            ("POST", "/v1/stream/__ds/claim/s", &["producer-id: p"], ""),
            ("GET", "/v1/stream/__ds/appends/s", &[], ""),
            ("GET", "/v1/stream/__ds/checkpoint/s", &[], ""),
            ("DELETE", s, &[], ""),
        ] {
            let differs = send(&server, method, target, &[headers, &[&other]].concat(), body);
            let found = (differs.status, differs.code());
            assert_eq!(found, (409, "incarnation_mismatch".to_owned()), "{method} {target}");
            let malformed = [headers, &["stream-if-incarnation: inc_x"]].concat();
            let malformed = send(&server, method, target, &malformed, body);
            let found = (malformed.status, malformed.code());
            assert_eq!(found, (400, "invalid_incarnation".to_owned()), "{method} {target}");
        }
        assert_eq!(
            send(&server, "HEAD", s, &[&other], "").header("alluvium-error"),
            Some("incarnation_mismatch")
        );
        let free = send(&server, "PUT", "/v1/stream/free", &[TEXT, &right], "");
        assert_eq!(
            (free.status, free.code().as_str()),
            (409, "incarnation_mismatch"),
            "there is none to be meant"
        );
        assert_eq!(send(&server, "GET", s, &[&right], "").text(), "onetwo", "and nothing of it happened");
        let deleted = send(&server, "DELETE", s, &[&right], "");
        assert_eq!((deleted.status, incarnation(&deleted)), (204, created.clone()));
        let again = send(&server, "PUT", s, &[TEXT], "one");
        assert_ne!(incarnation(&again), created);
    }
}

#[test]
fn entity_tags_change_with_the_incarnation_and_with_the_end() {
    for server in Server::of_each_store("") {
        let s = "/v1/stream/s";
        let tag = || send(&server, "GET", s, &[], "").header("etag").unwrap().to_owned();
        send(&server, "PUT", s, &[TEXT], "same");
        let open = tag();
        send(&server, "POST", s, &["stream-closed: true"], "");
        let closed = tag();
        send(&server, "DELETE", s, &[], "");
        send(&server, "PUT", s, &[TEXT, "stream-closed: true"], "same");
        let other = tag();
        assert!(open != closed && closed != other, "{open} {closed} {other}");
    }
}

#[test]
fn a_takeover_fences_compares_and_goes_on_over_a_kill() {
    for mut server in Server::of_each_store("") {
        let (s, claims) = ("/v1/stream/s", "/v1/stream/__ds/claim/s");
        send(&server, "PUT", s, &[TEXT], "");
        let unclaimed = send(&server, "GET", claims, &[], "");
        assert!(json(&unclaimed)["claim"].is_null());
        let (old, _) = acquire(&server, claims, "agent");
        let mut first = stamped("agent", old, 0);
        first.push("producer-retry-metadata: attempt 1".to_owned());
        let written = append(&server, s, &first, "one");
        assert_eq!(written.status, 200);
        append(&server, s, &stamped("agent", old, 1), "two");
        let plain = send(&server, "POST", s, &[TEXT], "x");
        assert_eq!((plain.status, plain.code().as_str()), (400, "claim_required"));
        let other = append(&server, s, &stamped("else", old, 0), "x");
        assert_eq!((other.status, other.code().as_str()), (409, "not_owner"));
        server.kill();
        server.restart();
        let again = append(&server, s, &first, "one");
        assert_eq!((again.status, again.next_offset()), (204, written.next_offset()), "the first answer");
        let changed = append(&server, s, &first, "ONE");
        assert_eq!((changed.status, changed.code().as_str()), (409, "retry_differs"));
        first.pop();
        let unnamed = append(&server, s, &first, "one");
        assert_eq!(unnamed.code(), "retry_differs", "without its metadata it is another attempt");
        let (new, answer) = acquire(&server, claims, "agent");
        assert_eq!(new, old + 1);
        assert_eq!(answer.header("producer-epoch"), Some(new.to_string().as_str()));
        let fenced = append(&server, s, &stamped("agent", old, 2), "late");
        assert_eq!((fenced.status, fenced.code().as_str()), (403, "producer_fenced"));
        assert_eq!(fenced.header("producer-epoch"), Some(new.to_string().as_str()));
        server.kill();
        server.restart();
        assert_eq!(append(&server, s, &stamped("agent", new, 0), "three").status, 200);
        let gap = append(&server, s, &stamped("agent", new, 5), "x");
        assert_eq!((gap.status, gap.header("producer-expected-seq")), (409, Some("1")));
        assert_eq!(send(&server, "GET", s, &[], "").text(), "onetwothree");
        let kept = json(&send(&server, "GET", claims, &[], ""));
        assert_eq!(kept["claim"]["next_seq"], 1);
    }
}

#[test]
fn appends_are_read_whole_and_by_number() {
    for server in Server::of_each_store("") {
        send(&server, "PUT", "/v1/stream/j", &[JSON], "[1,2]");
        send(&server, "POST", "/v1/stream/j", &[JSON], "{\"big\":12345678901234567890.10}");
        send(&server, "POST", "/v1/stream/j", &[JSON], "[3]");
        let appends =
            |query: &str| send(&server, "GET", &format!("/v1/stream/__ds/appends/j{query}"), &[], "");
        let all = appends("");
        assert_eq!(all.header("stream-up-to-date"), Some("true"));
        assert!(
            all.text().contains("\"messages\":[{\"big\":12345678901234567890.10}]"),
            "as it was: {}",
            all.text()
        );
        let items = json(&all);
        assert_eq!(items.as_array().unwrap().len(), 3);
        assert_eq!(items[0]["messages"], serde_json::json!([1, 2]));
        assert_eq!(items[1]["start_offset"], items[0]["end_offset"]);
        let one = appends("?from=2&limit=1");
        assert_eq!(one.header("stream-up-to-date"), Some("false"));
        assert_eq!(json(&one)[0], items[1]);
        let small = appends("?from=1&max_bytes=1");
        assert_eq!(json(&small).as_array().unwrap().len(), 1, "the first comes however large it is");
        let past = appends("?from=4");
        assert_eq!((past.text(), past.header("stream-up-to-date")), ("[]", Some("true")));
        for (query, code) in [
            ("?from=0", "invalid_append_index"),
            ("?limit=1001", "invalid_limit"),
            ("?max_bytes=x", "invalid_max_bytes"),
        ] {
            assert_eq!((appends(query).status, appends(query).code().as_str()), (400, code), "{query}");
        }
        send(&server, "PUT", "/v1/stream/b", &["content-type: application/octet-stream"], "Hi");
        let binary = send(&server, "GET", "/v1/stream/__ds/appends/b", &[], "");
        assert_eq!(json(&binary)[0]["data"], "SGk=");
        assert_eq!(send(&server, "GET", "/v1/stream/__ds/appends/none", &[], "").code(), "not_found");
        assert_eq!(send(&server, "PUT", "/v1/stream/__ds/appends/j", &[], "").code(), "method_not_allowed");
    }
}

#[test]
fn a_checkpoint_is_kept_beside_its_stream_over_a_kill() {
    for mut server in Server::of_each_store("") {
        let (s, at) = ("/v1/stream/s", "/v1/stream/__ds/checkpoint/s");
        let created = send(&server, "PUT", s, &[TEXT], "one");
        let (first, same) =
            (created.next_offset(), format!("stream-if-incarnation: {}", incarnation(&created)));
        let second = send(&server, "POST", s, &[TEXT], "two");
        assert_eq!(send(&server, "GET", at, &[], "").code(), "checkpoint_not_found");
        let put = |server: &Server, offset: &str, body: &str| {
            let offset = format!("stream-checkpoint-offset: {offset}");
            send(server, "PUT", at, &[&same, &offset, "stream-checkpoint-version: 3"], body)
        };
        assert_eq!(put(&server, second.next_offset(), "{\"seen\":2}").status, 204);
        server.kill();
        server.restart();
        let kept = send(&server, "GET", at, &[], "");
        assert_eq!((kept.status, kept.text()), (200, "{\"seen\":2}"));
        assert_eq!(kept.header("stream-checkpoint-offset"), Some(second.next_offset()));
        assert_eq!(kept.header("stream-checkpoint-version"), Some("3"));
        let bounded = send(&server, "GET", &format!("{at}?at_or_before={first}"), &[], "");
        assert_eq!((bounded.status, bounded.code().as_str()), (404, "checkpoint_not_found"));
        let behind = put(&server, first, "{}");
        assert_eq!((behind.status, behind.code().as_str()), (409, "checkpoint_behind"));
        let inside = put(&server, "0000000000000001_0000000000000002", "{}");
        assert_eq!((inside.status, inside.code().as_str()), (400, "invalid_offset"));
        let loose = send(&server, "PUT", at, &[&format!("stream-checkpoint-offset: {first}")], "{}");
        assert_eq!((loose.status, loose.code().as_str()), (400, "incarnation_required"));
        let nowhere = send(&server, "PUT", at, &[&same], "{}");
        assert_eq!((nowhere.status, nowhere.code().as_str()), (400, "invalid_checkpoint"));
        send(&server, "DELETE", s, &[], "");
        send(&server, "PUT", s, &[TEXT], "one");
        assert_eq!(send(&server, "GET", at, &[], "").code(), "checkpoint_not_found");
    }
}

/// Sends each request and checks that its answer tells the stream.
fn all_tell(server: &Server, created: &str, requests: &[(&str, &str, &[&str], &str)]) {
    for (method, target, headers, body) in requests {
        let answer = send(server, method, target, headers, body);
        let status = answer.status;
        assert!(status < 300 || matches!(status, 304 | 307), "{method} {target}: {answer:?}");
        assert_eq!(incarnation(&answer), created, "{method} {target}");
    }
}

/// The requests that both namespaces have, on the stream at `s`, whose resources of the store contract are as
/// `contract` says.
fn walk(server: &Server, s: &str, contract: impl Fn(&str) -> String) -> String {
    let created = send(server, "PUT", s, &[TEXT], "one");
    assert_eq!(created.status, 201);
    let (tail, created) = (created.next_offset().to_owned(), incarnation(&created));
    let if_same = format!("stream-if-incarnation: {created}");
    let tag = format!("if-none-match: {}", send(server, "GET", s, &[], "").header("etag").unwrap());
    let at_tail = format!("checkpoint-offset: {tail}");
    let (claim, appends, checkpoint) = (contract("claim"), contract("appends"), contract("checkpoint"));
    let at = |query: &str| format!("{s}?offset={query}");
    all_tell(
        server,
        &created,
        &[
            ("PUT", s, &[TEXT], ""),
            ("HEAD", s, &[], ""),
            ("GET", s, &[], ""),
            ("GET", s, &[&tag], ""),
            ("GET", &at("now"), &[], ""),
            ("GET", &at("now&live=long-poll"), &[], ""),
            ("GET", &at("-1&live=long-poll"), &[], ""),
            ("GET", &at("-1&live=sse"), &[], ""),
            ("PUT", &checkpoint, &[&if_same, &format!("stream-{at_tail}")], "folded"),
            ("GET", &checkpoint, &[], ""),
            ("HEAD", &checkpoint, &[], ""),
            ("GET", &appends, &[], ""),
            ("GET", &claim, &[], ""),
            ("POST", s, &[TEXT, "producer-id: p", "producer-epoch: 0", "producer-seq: 0"], "two"),
            ("POST", s, &[TEXT, "producer-id: p", "producer-epoch: 0", "producer-seq: 0"], "two"),
            ("POST", s, &[TEXT], "three"),
            ("POST", &claim, &["producer-id: p"], ""),
        ],
    );
    created
}

#[test]
fn every_answer_about_a_stream_tells_its_incarnation() {
    for server in Server::of_each_store("--long-poll-timeout 10ms --sse-cycle 10ms") {
        let created = walk(&server, "/v1/stream/s", |resource| format!("/v1/stream/__ds/{resource}/s"));
        all_tell(
            &server,
            &created,
            &[
                (
                    "POST",
                    "/v1/stream/s",
                    &["stream-closed: true", "producer-id: p", "producer-epoch: 1", "producer-seq: 0"],
                    "",
                ),
                ("GET", "/v1/stream/s?offset=now&live=long-poll", &[], ""),
                ("DELETE", "/v1/stream/s", &[], ""),
            ],
        );
    }
}

#[test]
fn every_answer_about_a_stream_in_a_bucket_tells_its_incarnation() {
    let server = Server::start_with("--long-poll-timeout 10ms --sse-cycle 10ms");
    send(&server, "PUT", "/ds/lakes", &[], "");
    let s = "/ds/lakes/thun";
    let created = walk(&server, s, |resource| format!("{s}/{resource}"));
    let tail = send(&server, "HEAD", s, &[], "").next_offset().to_owned();
    let snapshot = format!("{s}/snapshot/{tail}");
    let (latest, bootstrap, attributes) =
        (format!("{s}/snapshot"), format!("{s}/bootstrap"), format!("{s}/attrs"));
    let published = send(&server, "PUT", &snapshot, &[TEXT], "all of it");
    assert_eq!((published.status, incarnation(&published)), (204, created.clone()));
    let tag = format!("if-none-match: {}", published.header("etag").unwrap());
    let batch = format!("{s}/append-batch");
    let closing = ["stream-closed: true", "producer-id: p", "producer-epoch: 1", "producer-seq: 1"];
    all_tell(
        &server,
        &created,
        &[
            ("GET", &latest, &[], ""),
            ("HEAD", &latest, &[], ""),
            ("GET", &snapshot, &[], ""),
            ("HEAD", &snapshot, &[], ""),
            ("GET", &snapshot, &["range: bytes=0-2"], ""),
            ("GET", &snapshot, &[&tag], ""),
            ("GET", &bootstrap, &[], ""),
            ("HEAD", &bootstrap, &[], ""),
            ("PUT", &attributes, &[], "{\"depth\":217}"),
            ("GET", &attributes, &[], ""),
            ("HEAD", &attributes, &[], ""),
            (
                "POST",
                &batch,
                &[TEXT, "producer-id: p", "producer-epoch: 1", "producer-seq: 0"],
                "\0\0\0\x01x",
            ),
            // Each frame is refused, for a reason of its own.
            (
                "POST",
                &batch,
                &[TEXT, "producer-id: p", "producer-epoch: 1", "producer-seq: 0"],
                "\0\0\0\x01y\0\0\0\0",
            ),
            ("POST", s, &closing, ""),
            ("GET", &format!("{s}?offset=now&live=long-poll"), &[], ""),
            ("DELETE", s, &[], ""),
        ],
    );
}

#[test]
fn streams_in_buckets_are_claimed_as_well() {
    let server = Server::start();
    send(&server, "PUT", "/ds/lakes", &[], "");
    send(&server, "PUT", "/ds/lakes/thun", &[TEXT], "");
    let (epoch, _) = acquire(&server, "/ds/lakes/thun/claim", "gauge");
    assert_eq!(append(&server, "/ds/lakes/thun", &stamped("gauge", epoch, 0), "4").status, 200);
    let appends = send(&server, "GET", "/ds/lakes/thun/appends", &[], "");
    assert_eq!(json(&appends)[0]["append_index"], 1);
    let other = format!("stream-if-incarnation: inc_{}", "0".repeat(32));
    let attributes = send(&server, "GET", "/ds/lakes/thun/attrs", &[&other], "");
    assert_eq!((attributes.status, attributes.code().as_str()), (409, "incarnation_mismatch"));
}
