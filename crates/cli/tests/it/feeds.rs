//! Feeds over the binary: what was acknowledged is there after `kill -9`, and nothing is doubled.

use super::support::{Cli, Ended, Server, call, signal};

const JSON: &str = "content-type: application/json";

fn ask(server: &Server, operation: &str, message: &str) -> serde_json::Value {
    let target = format!("/feeds/v1/spaces/demo/{operation}");
    let answer = call(server.address(), "POST", &target, &[JSON], message.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

fn block(sequence: usize) -> String {
    format!(
        r#"{{"requestId":"{sequence}","namespace":"notes","blocks":[{{"feedId":"f","actorId":"a","sequence":{sequence},"data":"AQID"}}]}}"#
    )
}

#[test]
fn appended_blocks_survive_a_kill_and_a_repeated_append_changes_nothing() {
    let mut server = Server::start();
    let mut token = None;
    for sequence in 0..6 {
        let answer = ask(&server, "append", &block(sequence));
        assert_eq!(answer["positions"], serde_json::json!([sequence + 1]));
        assert_eq!(*token.get_or_insert(answer["serverToken"].clone()), answer["serverToken"]);
        if sequence % 2 == 0 {
            server.kill();
            server.restart();
            // The answer may have been lost on the way; the client asks again.
            assert_eq!(
                ask(&server, "append", &block(sequence))["positions"],
                serde_json::json!([sequence + 1])
            );
        }
    }
    let page = ask(&server, "query", r#"{"cursor":0}"#);
    assert_eq!(page["blocks"].as_array().unwrap().len(), 6);
    let stream = call(server.address(), "GET", "/feeds/v1/spaces/demo/streams/f?offset=-1", &[], b"");
    let messages: Vec<serde_json::Value> = serde_json::from_slice(&stream.body).unwrap();
    assert_eq!(messages.len(), 6);
}

#[test]
fn a_server_without_feeds_has_nothing_there() {
    let server = Server::start_with("--feeds no");
    let answer = call(server.address(), "POST", "/feeds/v1/spaces/demo/feeds", &[JSON], b"{}");
    assert_eq!((answer.status, answer.code()), (404, "no_such_resource".to_owned()));
    assert!(!server.data().join("feeds").exists());
}

/// `alluvium feed …` for a server, over a file of a folder.
fn feed(url: &str, folder: &std::path::Path, arguments: &str) -> Cli {
    Cli::new(&format!("feed {arguments}"))
        .env("ALLUVIUM_URL", url)
        .env("ALLUVIUM_FEEDS_DB", &folder.join("feeds.sqlite").display().to_string())
}

/// Where nobody listens.
const NOWHERE: &str = "http://127.0.0.1:1";

#[test]
fn a_file_works_without_a_server_and_remembers_who_writes_where() {
    let folder = tempfile::tempdir().unwrap();
    let offline = |arguments: &str| feed(NOWHERE, folder.path(), arguments);
    offline("status").run().fails_with(3);
    offline("append --space home -m one").run().ok();
    offline("append").run_with(b"two\n\nfour").ok();
    assert_eq!(offline("read").run().ok(), "one\ntwo\n\nfour\n");
    assert_eq!(offline("read --raw --limit 2").run().ok(), "onetwo");
    let status: serde_json::Value = serde_json::from_str(&offline("status --json").run().ok()).unwrap();
    assert_eq!((&status["space"], &status["blocksToPush"]), (&"home".into(), &4.into()), "{status}");
    let listed: serde_json::Value = serde_json::from_str(&offline("ls --json").run().ok()).unwrap();
    assert_eq!(listed["feed"].as_str().unwrap().len(), 26, "a ULID was drawn: {listed}");
    offline("read elsewhere").run().fails_with(3);
    offline("append --actor somebody-else -m x").run().fails_with(4);
    assert!(offline("sync --give-up-after 1").run().fails_with(7).contains("127.0.0.1:1"));
    offline("sync --url ftp://x").run().fails_with(2);
    assert_eq!(
        status["actor"],
        serde_json::from_str::<serde_json::Value>(&offline("status --json").run().ok()).unwrap()["actor"]
    );
}

#[test]
fn bytes_of_any_kind_and_whole_files_come_through() {
    let server = Server::start();
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bytes: Vec<u8> = (0..=255).collect();
    feed(&server.url(), one.path(), "append f --whole --namespace files --sync").run_with(&bytes).ok();
    assert!(feed(&server.url(), two.path(), "ls --remote").run().ok().contains("f\tfiles\t1 blocks"));
    feed(&server.url(), two.path(), "replicate --namespace files").run().ok();
    feed(&server.url(), two.path(), "sync").run().ok();
    assert_eq!(feed(&server.url(), two.path(), "read f --raw").run().stdout, bytes);
    let shown: serde_json::Value =
        serde_json::from_str(&feed(&server.url(), two.path(), "read f --json").run().ok()).unwrap();
    assert!(shown["data"].is_string() && shown["position"] == 1, "{shown}");
    feed(&server.url(), one.path(), "append f --whole").run_with(&vec![0; 256 * 1024 + 1]).fails_with(1);
}

#[test]
fn a_follower_pushes_what_another_command_appends_and_shows_what_comes() {
    let server = Server::start();
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    feed(&server.url(), one.path(), "replicate --all --from now").run().ok();
    let mut follower = feed(&server.url(), one.path(), "sync --follow").spawn();
    feed(&server.url(), two.path(), "replicate f").run().ok();
    let tail = feed(&server.url(), two.path(), "tail f --from-start --settled --limit 3").spawn();
    for text in ["a", "b", "c"] {
        feed(&server.url(), one.path(), &format!("append f -m {text}")).run().ok();
    }
    assert_eq!(Ended::of(tail).ok(), "a\nb\nc\n");
    signal(&follower, "TERM");
    assert_eq!(follower.wait().unwrap().code(), Some(143));
}

#[test]
fn what_is_not_wanted_any_more_goes_and_comes_back_on_demand() {
    let server = Server::start();
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    feed(&server.url(), one.path(), "append f -m a -m b -m c --sync").run().ok();
    let reader = |arguments: &str| feed(&server.url(), two.path(), arguments).run().ok();
    reader("replicate f --from 3");
    reader("sync");
    assert_eq!(reader("read f"), "c\n");
    reader("replicate f --since 1h");
    reader("sync");
    assert_eq!(reader("read f"), "a\nb\nc\n");
    assert_eq!(reader("replicate"), "f\tfrom 1\n");
    reader("replicate f --stop --drop");
    assert_eq!(reader("read f"), "");
    assert_eq!(reader("replicate"), "");
}
