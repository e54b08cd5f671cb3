//! A server whose streams are in one SQLite file: what it says of itself, what it cannot do, and what it keeps.

use std::fs;

use super::support::{Answer, Cli, Events, Server, call};

const TEXT: &str = "content-type: text/plain";

fn send(server: &Server, method: &str, target: &str, headers: &[&str], body: &str) -> Answer {
    call(server.address(), method, target, headers, body.as_bytes())
}

#[test]
fn a_start_says_what_keeps_the_streams() {
    let mut server = Server::start();
    assert!(server.announced().contains("\nstore          engine\n"));
    let mut server = Server::on_sqlite("");
    let file = server.data().join("streams.sqlite");
    let announced = server.announced();
    assert!(announced.contains(&format!("\nstore          sqlite:{}\n", file.display())), "{announced}");
    assert!(announced.contains("\ndurability     fsync "), "{announced}");
    assert!(announced.contains("\nrecovered      opened in "), "{announced}");
    // Nothing of the engine's is there, and feeds have their own files.
    let mut names: Vec<String> = fs::read_dir(server.data())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with("streams.sqlite"))
        .collect();
    names.sort();
    assert_eq!(names, ["feeds"]);
}

#[test]
fn what_needs_the_engine_is_refused_by_name() {
    let server = Server::on_sqlite("");
    send(&server, "PUT", "/v1/stream/s", &[TEXT], "one");
    let offset = send(&server, "HEAD", "/v1/stream/s", &[], "").next_offset().to_owned();
    let snapshot = format!("/ds/lakes/thun/snapshot/{offset}");
    let if_match = format!("if-match: \"{offset}\"");
    for (method, target, headers, body, what) in [
        ("PUT", "/ds/lakes", &[][..], "", "buckets"),
        ("GET", "/ds/lakes", &[], "", "buckets"),
        ("DELETE", "/ds/lakes", &[], "", "buckets"),
        ("GET", "/ds/lakes/streams", &[], "", "buckets"),
        ("PUT", "/ds/lakes/thun", &[TEXT], "x", "buckets"),
        ("POST", "/ds/lakes/thun", &[TEXT], "x", "buckets"),
        ("GET", "/ds/lakes/thun", &[], "", "buckets"),
        ("DELETE", "/ds/lakes/thun", &[], "", "buckets"),
        ("POST", "/ds/lakes/thun/claim", &["producer-id: p"], "", "buckets"),
        ("GET", "/ds/lakes/thun/appends", &[], "", "buckets"),
        ("PUT", "/ds/lakes/thun/checkpoint", &[], "x", "buckets"),
        ("GET", "/ds/lakes/thun/snapshot", &[], "", "snapshots"),
        ("GET", &snapshot, &[], "", "snapshots"),
        ("PUT", &snapshot, &[TEXT], "x", "snapshots"),
        ("DELETE", &snapshot, &[], "", "snapshots"),
        ("GET", "/ds/lakes/thun/bootstrap", &[], "", "bootstraps"),
        ("POST", "/ds/lakes/thun/append-batch", &[TEXT], "", "batches of appends"),
        ("GET", "/ds/lakes/thun/attrs", &[], "", "attributes"),
        ("PUT", "/ds/lakes/thun/attrs", &[], "{}", "attributes"),
        ("PUT", "/v1/stream/other", &[TEXT, "stream-attrs: {}"], "", "attributes"),
        ("PUT", "/v1/stream/other", &["stream-forked-from: /ds/lakes/thun"], "", "buckets"),
        ("POST", "/v1/stream/s", &[TEXT, &if_match], "x", "`If-Match` on an append"),
    ] {
        let refused = send(&server, method, target, headers, body);
        let found = (refused.status, refused.code());
        assert_eq!(found, (501, "not_supported_by_store".to_owned()), "{method} {target}");
        let told = format!("this store does not support {what}");
        assert!(refused.text().contains(&told), "{method} {target}: {}", refused.text());
    }
    let head = send(&server, "HEAD", "/ds/lakes/thun", &[], "");
    assert_eq!((head.status, head.header("alluvium-error")), (501, Some("not_supported_by_store")));
    // What a path cannot mean is told as ever, and so is what may be asked.
    assert_eq!(send(&server, "GET", "/ds/x", &[], "").code(), "invalid_bucket");
    assert_eq!(send(&server, "OPTIONS", "/ds/lakes", &[], "").status, 204);
    // And nothing of it happened; `*` asks for nothing that an append does not need anyway.
    assert_eq!(send(&server, "POST", "/v1/stream/s", &[TEXT, "if-match: *"], "two").status, 204);
    assert_eq!(send(&server, "GET", "/v1/stream/s", &[], "").text(), "onetwo");
    assert_eq!(send(&server, "GET", "/v1/stream/other", &[], "").status, 404);
}

#[test]
fn a_repetition_is_recognised_after_another_producer_has_closed_the_stream() {
    let server = Server::on_sqlite("");
    send(&server, "PUT", "/v1/stream/s", &[TEXT], "");
    let by = |id: &str, headers: &[&str], body: &str| {
        let producer = format!("producer-id: {id}");
        let headers = [&[TEXT, &producer, "producer-epoch: 0", "producer-seq: 0"], headers].concat();
        send(&server, "POST", "/v1/stream/s", &headers, body)
    };
    assert_eq!(by("a", &[], "one").status, 200);
    assert_eq!(by("b", &["stream-closed: true"], "two").status, 200);
    let again = by("a", &[], "one");
    assert_eq!((again.status, again.header("stream-closed")), (204, Some("true")));
    let late = by("c", &[], "three");
    assert_eq!((late.status, late.code().as_str()), (409, "closed"));
    assert_eq!(send(&server, "GET", "/v1/stream/s", &[], "").text(), "onetwo");
}

#[test]
fn feeds_are_there_beside_it() {
    let server = Server::on_sqlite("");
    assert!(send(&server, "GET", "/feeds/", &[], "").text().contains("\"requestId\""));
    let server = Server::on_sqlite("--feeds no");
    assert_eq!(send(&server, "GET", "/feeds/", &[], "").code(), "no_such_resource");
}

#[test]
fn what_cannot_be_meant_by_a_store_is_said_before_anything_starts() {
    for (flags, told) in [
        ("--store postgres:x", "expected `engine`, or `sqlite:PATH`"),
        ("--store sqlite", "expected `engine`, or `sqlite:PATH`"),
        ("--store sqlite:", "expected the path of a file after `sqlite:`"),
        ("--store sqlite:/tmp/", "not of a directory"),
        ("--store sqlite:x --durability os", "`durability` must be `fsync` with a SQLite store"),
        ("--store sqlite:x --append-bytes-max 46MiB", "`append-bytes-max` must be at most 48000000"),
    ] {
        let ended = Cli::new(&format!("config check {flags}")).run();
        assert!(ended.stderr.contains(told), "{flags}: {}", ended.stderr);
        ended.fails_with(78);
    }
    let ended = Cli::new("config show").env("ALLUVIUM_STORE", "sqlite:streams.sqlite").run().ok();
    assert!(ended.contains("store = \"sqlite:streams.sqlite\"  # ALLUVIUM_STORE\n"), "{ended}");
    // A limit of the engine's alone is no contradiction here.
    Cli::new("config check --store sqlite:x --segment-bytes 1MiB").run().ok();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test of a command makes the files that it is given")]
fn a_file_of_somebody_else_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("notes.txt"), folder.path().join("data"));
    fs::write(
        &file,
        "not a database, and longer than the header of one would be, to leave no doubt".repeat(9),
    )
    .unwrap();
    let before = fs::read(&file).unwrap();
    let ended = Cli::new("serve --listen 127.0.0.1:0 --data-dir")
        .arg(data.to_str().unwrap())
        .arg("--store")
        .arg(&format!("sqlite:{}", file.display()))
        .run();
    assert!(ended.stderr.contains("name another file with `--store`"), "{}", ended.stderr);
    ended.fails_with(65);
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[test]
fn the_file_may_be_named_as_sqlite_names_what_is_none() {
    // In a folder of its own, made for it.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("made").join(":memory:");
    let mut server = Server::start_with(&format!("--feeds no --store sqlite:{}", file.display()));
    send(&server, "PUT", "/v1/stream/s", &[TEXT], "kept");
    assert_eq!(send(&server, "GET", "/v1/stream/s", &[], "").text(), "kept");
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    assert!(file.is_file());
    server.restart();
    assert_eq!(send(&server, "GET", "/v1/stream/s", &[], "").text(), "kept");
}

/// Reads a stream from the start to its tail, and how many responses that took.
fn read_all(server: &Server, stream: &str, query: &str) -> (Vec<u8>, usize) {
    let (mut bytes, mut offset, mut responses) = (Vec::new(), "-1".to_owned(), 0);
    loop {
        let target = format!("/v1/stream/{stream}?offset={offset}{query}");
        let answer = send(server, "GET", &target, &[], "");
        assert_eq!(answer.status, 200, "{answer:?}");
        let length = answer.header("content-length").map(str::parse::<usize>);
        assert_eq!(length, Some(Ok(answer.body.len())));
        bytes.extend_from_slice(&answer.body);
        responses += 1;
        if answer.header("stream-up-to-date") == Some("true") {
            return (bytes, responses);
        }
        assert_ne!(answer.next_offset(), offset);
        answer.next_offset().clone_into(&mut offset);
    }
}

#[test]
fn large_streams_are_read_in_windows() {
    let text = "\u{20ac} 0123456789 \u{1f600}\n".repeat(100_000);
    let server = Server::on_sqlite("");
    send(&server, "PUT", "/v1/stream/s", &[TEXT], &text);
    let (read, responses) = read_all(&server, "s", "");
    assert!(read == text.as_bytes());
    assert_eq!(responses, text.len().div_ceil(512 * 1024));
    let (_, mut events) = Events::subscribe(server.address(), "/v1/stream/s?offset=-1&live=sse");
    let mut received = String::new();
    while received.len() < text.len() {
        let (name, data) = events.next().unwrap();
        if name == "data" {
            received.push_str(&data);
        }
    }
    assert!(received == text);
}

#[test]
fn a_client_s_bound_is_kept_between_appends() {
    let server = Server::on_sqlite("");
    send(&server, "PUT", "/v1/stream/s", &[TEXT], "one");
    for word in ["two", "three", "four"] {
        send(&server, "POST", "/v1/stream/s", &[TEXT], word);
    }
    let bounded = |max| send(&server, "GET", &format!("/v1/stream/s?max_bytes={max}"), &[], "");
    for (max, expected, is_all) in [
        (1, "one", false),
        (5, "one", false),
        (6, "onetwo", false),
        (14, "onetwothree", false),
        (15, "onetwothreefour", true),
    ] {
        let answer = bounded(max);
        assert_eq!(answer.text(), expected, "{max}");
        assert_eq!(answer.header("stream-up-to-date"), is_all.then_some("true"), "{max}");
    }
    assert_eq!(read_all(&server, "s", "&max_bytes=4").0, b"onetwothreefour");
    let poll = send(&server, "GET", "/v1/stream/s?offset=-1&live=long-poll&max_bytes=4", &[], "");
    assert_eq!((poll.text(), poll.header("stream-up-to-date")), ("one", None));
}

#[test]
fn a_deletion_and_a_stop_end_live_readers() {
    let mut server = Server::on_sqlite("");
    send(&server, "PUT", "/v1/stream/s", &[TEXT], "kept");
    let (_, mut events) = Events::subscribe(server.address(), "/v1/stream/s?offset=-1&live=sse");
    assert_eq!(events.next().unwrap().1, "kept");
    assert_eq!(events.next().unwrap().0, "control");
    send(&server, "POST", "/v1/stream/s", &[TEXT], ", and told");
    assert_eq!(events.next().unwrap().1, ", and told");
    assert_eq!(events.next().unwrap().0, "control");
    // A reader of a stream that is deleted, and replaced, is let go.
    send(&server, "DELETE", "/v1/stream/s", &[], "");
    send(&server, "PUT", "/v1/stream/s", &[TEXT], "another");
    assert_eq!(events.next(), None);
    let (_, mut events) = Events::subscribe(server.address(), "/v1/stream/s?offset=now&live=sse");
    assert_eq!(events.next().unwrap().0, "control");
    server.terminate();
    assert_eq!(events.next(), None);
    assert_eq!(server.ended(), Some(0));
    server.restart();
    assert_eq!(send(&server, "GET", "/v1/stream/s", &[], "").text(), "another");
}

#[test]
fn a_directory_that_had_only_feeds_takes_streams_too_and_keeps_its_feeds() {
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("streams.sqlite");
    let mut server = Server::start_with(&format!("--store sqlite:{}", file.display()));
    let append = r#"{"blocks":[{"actorId":"a","sequence":0,"data":"eA=="}]}"#;
    assert_eq!(send(&server, "POST", "/feeds/v1/spaces/s/append", &[], append).status, 200);
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    server.restart_with("");
    assert_eq!(send(&server, "PUT", "/v1/stream/s", &[TEXT], "one").status, 201);
    let page = send(&server, "POST", "/feeds/v1/spaces/s/query", &[], "{}");
    assert!(page.text().contains("\"position\":1"), "{}", page.text());
    // And back again: the engine's files are in nobody's way.
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    server.restart_with(&format!("--store sqlite:{}", file.display()));
    assert_eq!(send(&server, "POST", "/feeds/v1/spaces/s/query", &[], "{}").status, 200);
}
