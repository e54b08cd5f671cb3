//! `alluvium bucket`, and `alluvium stream` on streams in buckets, snapshots and bootstrap among it.

#![expect(clippy::disallowed_methods, reason = "a test of a command makes the files that it is given")]

use std::fs;

use crate::support::{Cli, Ended, Server};

impl Server {
    /// `alluvium bucket …` for this server.
    fn bucket(&self, arguments: &str) -> Cli {
        Cli::new(&format!("bucket {arguments}")).env("ALLUVIUM_URL", &self.url())
    }

    /// Makes `/ds/docs/a` with two appends, and returns the offset between them.
    fn stream_in_bucket(&self, content_type: &str, first: &str, second: &str) -> String {
        self.bucket("create docs").run().ok();
        self.stream(&format!("create /ds/docs/a --content-type {content_type}")).run().ok();
        let appended = self.stream("append /ds/docs/a").run_with(first.as_bytes());
        let offset = appended.next_offset();
        appended.ok();
        self.stream("append /ds/docs/a").run_with(second.as_bytes()).ok();
        offset
    }
}

fn says(ended: &Ended, what: &str) {
    assert!(ended.stderr.contains(what), "no `{what}` in {}", ended.stderr);
}

#[test]
fn buckets_are_made_listed_and_deleted() {
    let server = Server::start();
    let created = server.bucket("create docs chat").run();
    let url = server.url();
    assert_eq!(created.stderr, format!("created: {url}/ds/docs\ncreated: {url}/ds/chat\n"));
    created.ok();
    server.bucket("create docs").run().fails_with(4);
    let there = server.bucket("create docs --exist-ok").run();
    assert_eq!(there.stderr, format!("exists already: {url}/ds/docs\n"));
    there.ok();
    let refused = server.bucket("ls").arg("/ds/docs").run();
    says(&refused, "write `docs`");
    refused.fails_with(2);
    server.bucket("create BAD").run().fails_with(1);
    for name in ["/ds/docs/b", "/ds/docs/a", "/ds/docs/other"] {
        server.stream("create --content-type text/plain").arg(name).run().ok();
    }
    server.stream("create").arg("/ds/docs/a b/ä\n").run().fails_with(1);
    server.stream("create").arg("/ds/docs/a ä\n").run().ok();
    server.stream("append /ds/docs/b --close").run_with(b"x").ok();
    let listed = server.bucket("ls docs").run().ok();
    let ids: Vec<&str> =
        listed.lines().filter_map(|line| line.splitn(4, "  ").nth(3)).map(str::trim).collect();
    assert_eq!(ids.len(), 4, "{listed}");
    assert!(listed.lines().nth(1).unwrap().ends_with("a ä\\n"), "{listed}");
    assert!(listed.lines().nth(2).unwrap().contains("closed"), "{listed}");
    let lines = server.bucket("ls docs --prefix o --json").run().ok();
    let item: serde_json::Value = serde_json::from_str(&lines).unwrap();
    assert_eq!(item["stream_id"], "other");
    server.bucket("rm docs").run().fails_with(4);
    server.bucket("rm chat").run().ok();
    server.bucket("rm chat").run().fails_with(3);
    server.bucket("rm chat --force").run().ok();
    server.bucket("ls chat").run().fails_with(3);
}

#[test]
fn all_commands_work_on_a_stream_in_a_bucket() {
    let server = Server::start();
    server.stream("create /ds/docs/a").run().fails_with(3);
    server.stream_in_bucket("text/plain", "one\n", "two\n");
    assert_eq!(server.stream("read /ds/docs/a").run().ok(), "one\ntwo\n");
    server.stream("fork /ds/docs/a chat").run().ok();
    server.stream("fork chat /ds/docs/b").run().ok();
    server.stream("close /ds/docs/b").run().ok();
    assert_eq!(server.stream("tail /ds/docs/b --offset -1").run().ok(), "one\ntwo\n");
    assert!(server.stream("head /ds/docs/b").run().ok().contains("closed:       yes"));
    server.stream("rm /ds/docs/a /ds/docs/b chat").run().ok();
    server.bucket("rm docs").run().ok();
}

#[test]
fn a_snapshot_is_put_and_fetched() {
    let server = Server::start();
    let offset = server.stream_in_bucket("text/plain", "one\n", "two\n");
    server.stream("snapshot get /ds/docs/a").run().fails_with(3);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("snapshot");
    fs::write(&file, "folded").unwrap();
    let put = format!("snapshot put /ds/docs/a --offset {offset} --content-type text/x-fold");
    let published = server.stream(&put).arg(file.to_str().unwrap()).run();
    says(&published, "etag: \"");
    published.ok();
    let got = server.stream("snapshot get /ds/docs/a").run();
    says(&got, &format!("snapshot offset: {offset}"));
    assert_eq!(got.ok(), "folded");
    server
        .stream(&format!("snapshot get /ds/docs/a --offset {offset} -o"))
        .arg(file.to_str().unwrap())
        .run()
        .ok();
    assert_eq!(fs::read(&file).unwrap(), b"folded");
    assert!(server.stream("head /ds/docs/a").run().ok().contains(&format!("snapshot:     {offset}")));
    // The history is gone, and what is left is read from the floor.
    server.stream("read /ds/docs/a").run().fails_with(5);
    assert_eq!(server.stream(&format!("read /ds/docs/a --offset {offset}")).run().ok(), "two\n");
    // From standard input, guarded.
    server
        .stream(&format!("snapshot put /ds/docs/a - --offset {offset} --if-match \"x\""))
        .run_with(b"no")
        .fails_with(4);
    server
        .stream(&format!("snapshot put /ds/docs/a - --offset {offset} --if-match *"))
        .run_with(b"again")
        .ok();
    assert_eq!(server.stream("snapshot get /ds/docs/a").run().ok(), "again");
    fs::remove_file(&file).unwrap();
    server
        .stream(&format!("snapshot put /ds/docs/a --offset {offset}"))
        .arg(file.to_str().unwrap())
        .run()
        .fails_with(1);
}

#[test]
fn what_stands_for_no_snapshot_is_not_published() {
    let server = Server::start();
    let offset = server.stream_in_bucket("text/plain", "one\n", "two\n");
    let folder = tempfile::tempdir().unwrap();
    let put = |file: &str| {
        let command = format!("snapshot put /ds/docs/a --give-up-after 0 --offset {offset}");
        server.stream(&command).arg(file).run()
    };
    // A file that cannot be sent is no outage, which would be waited out for ever here.
    let place = folder.path().to_str().unwrap();
    let directory = put(place);
    says(&directory, &format!("cannot read `{place}`: it is a directory"));
    directory.fails_with(1);
    let missing = put(&format!("{place}/missing"));
    says(&missing, &format!("cannot read `{place}/missing`"));
    missing.fails_with(1);
    // Nothing is published by a pipe that broke before, or by a file that was never written.
    fs::write(folder.path().join("empty"), "").unwrap();
    for ended in [put(&format!("{place}/empty")), put("-")] {
        says(&ended, "--allow-empty");
        ended.fails_with(1);
    }
    for place in ["-1", "now"] {
        let refused = server.stream(&format!("snapshot put /ds/docs/a - --offset {place}")).run();
        says(&refused, &format!("`{place}` is a place to read from"));
        refused.fails_with(2);
    }
    assert_eq!(server.stream("read /ds/docs/a").run().ok(), "one\ntwo\n");
    server.stream(&format!("snapshot put /ds/docs/a - --allow-empty --offset {offset}")).run().ok();
    assert_eq!(server.stream("snapshot get /ds/docs/a").run().ok(), "");
    server.stream("read /ds/docs/a").run().fails_with(5);
}

#[test]
fn streams_outside_buckets_have_no_snapshots() {
    let server = Server::start();
    let appended = server.stream("append chat --create").run_with(b"x");
    let offset = appended.next_offset();
    appended.ok();
    for command in [
        format!("snapshot put chat - --offset {offset}"),
        "snapshot get chat".to_owned(),
        format!("snapshot get ds/docs/a --offset {offset}"),
        "bootstrap chat".to_owned(),
    ] {
        let ended = server.stream(&command).run_with(b"folded");
        says(&ended, "only streams in a bucket (/ds/BUCKET/STREAM) have snapshots");
        ended.fails_with(2);
    }
    // Nor did the attempt make a stream of the resource's name.
    server.stream(&format!("head chat/snapshot/{offset}")).run().fails_with(3);
}

#[test]
fn help_of_buckets_has_the_exit_codes_and_no_line_is_cut() {
    let help = Cli::new("bucket --help").run().ok();
    assert!(
        help.contains("Exit codes:") && help.contains("Options of every stream, bucket and feed command"),
        "{help}"
    );
    let help = Cli::new("stream bootstrap --help").run().ok();
    assert!(help.lines().all(|line| line.len() <= 100), "{help}");
    // A paragraph is filled: no line but its last is short.
    let lines: Vec<&str> = help.lines().take_while(|line| !line.starts_with("Usage")).collect();
    for pair in lines.windows(2).filter(|pair| !pair[0].is_empty() && !pair[1].is_empty()) {
        assert!(pair[0].len() > 60, "`{}` in {help}", pair[0]);
    }
}

#[test]
fn a_bootstrap_keeps_snapshot_and_messages_apart() {
    let server = Server::start();
    let offset = server.stream_in_bucket("application/json", "[1,2]", "{\"three\":\"\\r\\n--\"} 4");
    let whole = server.stream("bootstrap /ds/docs/a").run();
    says(&whole, "snapshot offset: -1");
    assert_eq!(whole.ok(), "1\n2\n{\"three\":\"\\r\\n--\"}\n4\n");
    server
        .stream(&format!("snapshot put /ds/docs/a - --offset {offset} --retain-all"))
        .run_with(b"\r\n--[1,2]")
        .ok();
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let apart = server.stream("bootstrap /ds/docs/a --snapshot").arg(&place("snap")).run();
    says(&apart, &format!("snapshot offset: {offset}"));
    assert_eq!(apart.ok(), "{\"three\":\"\\r\\n--\"}\n4\n");
    assert_eq!(fs::read(place("snap")).unwrap(), b"\r\n--[1,2]");
    let left_out = server.stream("bootstrap /ds/docs/a --messages").arg(&place("messages")).run();
    says(&left_out, "snapshot not written; give --snapshot");
    left_out.ok();
    assert_eq!(fs::read(place("messages")).unwrap(), b"{\"three\":\"\\r\\n--\"}\n4\n");
    server.stream("bootstrap /ds/docs/a --dir").arg(&place("dir")).run().ok();
    assert_eq!(fs::read(place("dir/snapshot")).unwrap(), b"\r\n--[1,2]");
    assert_eq!(fs::read(place("dir/message-00000001")).unwrap(), b"4");
    let text = fs::read(place("dir/bootstrap.json")).unwrap();
    let description: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(description["snapshot_offset"], offset.as_str());
    assert_eq!(description["messages"][0]["offset"], offset.as_str());
    assert_eq!(description["messages"].as_array().unwrap().len(), 2);
    // A directory that is there is left alone.
    server.stream("bootstrap /ds/docs/a --dir").arg(&place("dir")).run().fails_with(1);
    server.stream("bootstrap /ds/docs/missing").run().fails_with(3);
    // Where it ended is where an ordinary read goes on.
    let next = description["next_offset"].as_str().unwrap();
    assert_eq!(server.stream(&format!("read /ds/docs/a --offset {next}")).run().ok(), "[]\n");
}
