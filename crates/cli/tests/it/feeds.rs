//! Feeds over the binary: what was acknowledged is there after `kill -9`, and nothing is doubled.

use std::io::{BufRead, BufReader};
use std::process::Child;

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
    let said = offline("append --actor somebody-else -m x").run().fails_with(2);
    assert!(said.contains("the file belongs to actor"), "{said}");
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
    assert!(feed(&server.url(), two.path(), "ls --remote").run().ok().contains("f\tfiles\t1 block\n"));
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

/// Reads what a command says, up to a line with this in it.
fn says(child: &mut Child, what: &str) {
    let said = BufReader::new(child.stderr.as_mut().unwrap()).lines().map(Result::unwrap);
    assert!(said.into_iter().any(|line| line.contains(what)), "it ended without `{what}`");
}

#[test]
fn where_another_process_gets_nowhere_the_work_is_done_all_the_same() {
    let server = Server::start();
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    feed(&server.url(), two.path(), "replicate f").run().ok();
    feed(&server.url(), two.path(), "sync").run().ok();
    let mut stuck = feed(NOWHERE, two.path(), "sync --follow").spawn();
    says(&mut stuck, "trying again");
    feed(&server.url(), one.path(), "append f -m news --sync").run().ok();
    let ended = feed(&server.url(), two.path(), "sync").run();
    assert!(ended.stderr.contains("another process synchronises this file"), "{}", ended.stderr);
    ended.ok();
    assert_eq!(feed(&server.url(), two.path(), "read f").run().ok(), "news\n");
    // Without a server, nothing is said to be up to date.
    let said = feed(NOWHERE, two.path(), "sync --give-up-after 3").run().fails_with(7);
    assert!(!said.contains("up to date"), "{said}");
    stuck.kill().unwrap();
    stuck.wait().unwrap();
}

#[test]
fn whoever_waits_for_another_process_takes_over_from_it() {
    let server = Server::start();
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    feed(&server.url(), two.path(), "replicate f").run().ok();
    let mut first = feed(&server.url(), two.path(), "sync --follow").spawn();
    says(&mut first, "up to date");
    let mut tail = feed(&server.url(), two.path(), "tail f --limit 1").spawn();
    says(&mut tail, "only looking");
    first.kill().unwrap();
    first.wait().unwrap();
    says(&mut tail, "synchronising");
    feed(&server.url(), one.path(), "append f -m news --sync").run().ok();
    assert_eq!(Ended::of(tail).ok(), "news\n");
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

/// A file, and a copy of it that has written to the server first: what the file writes then is set aside.
fn copied(server: &Server, folder: &std::path::Path) {
    feed(&server.url(), folder, "append g -m one --sync").run().ok();
    std::fs::copy(folder.join("feeds.sqlite"), folder.join("copy.sqlite")).unwrap();
    let copy = folder.join("copy.sqlite").display().to_string();
    feed(&server.url(), folder, &format!("--db {copy} append g -m fromCopy --sync")).run().ok();
}

#[test]
fn what_is_set_aside_is_told_with_its_exit_code_and_can_be_appended_anew() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    copied(&server, folder.path());
    let ours = |arguments: &str| feed(&server.url(), folder.path(), arguments);
    let ended = ours("append g -m fromA --sync --json").run();
    let report: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((&report["conflicts"], &report["blocksToPush"]), (&1.into(), &0.into()), "{report}");
    let said = ended.fails_with(4);
    for told in ["1 block set aside", "`fromA`", "`g`", "feed conflicts --append-again 1"] {
        assert!(said.contains(told), "{told}: {said}");
    }
    assert!(ours("sync").run().fails_with(4).contains("--append-again"));
    let again = ours("conflicts --append-again 1").run();
    assert!(again.stderr.contains("1 appended to `g` anew"), "{}", again.stderr);
    again.ok();
    ours("append g -m last --sync").run().ok();
    let all: Vec<String> = ours("read g").run().ok().lines().map(str::to_owned).collect();
    assert!(all.contains(&"fromA".to_owned()) && all.contains(&"last".to_owned()), "{all:?}");
}

#[test]
fn a_follower_tells_what_is_set_aside() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    copied(&server, folder.path());
    feed(NOWHERE, folder.path(), "append g -m fromA").run().ok();
    let mut follower = feed(&server.url(), folder.path(), "sync --follow").spawn();
    let mut said = BufReader::new(follower.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("set aside") {
        line.clear();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "it ends without a word");
    }
    assert!(line.contains("--append-again"), "{line}");
    signal(&follower, "TERM");
    follower.wait().unwrap();
}

#[test]
fn an_append_that_is_not_pushed_yet_is_said_to_be_safe() {
    let folder = tempfile::tempdir().unwrap();
    let offline = |arguments: &str| feed(NOWHERE, folder.path(), arguments).run();
    let said = offline("append g -m x --sync --give-up-after 1").fails_with(7);
    assert!(said.contains("safe in `") && said.contains("1 block"), "{said}");
    let ended = offline("append g -m y --sync --give-up-after 1 --json");
    let report: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!((&report["appended"], &report["blocksToPush"]), (&1.into(), &2.into()));
    ended.fails_with(7);
}

#[test]
fn a_server_without_feeds_is_told_as_such_and_not_asked_again() {
    let server = Server::start_with("--feeds no");
    let folder = tempfile::tempdir().unwrap();
    // Given up at once: waiting as long as this says would be a test that hangs.
    for arguments in ["append g -m x --sync", "sync", "ls --remote"] {
        let said = feed(&server.url(), folder.path(), &format!("{arguments} --give-up-after 3600")).run();
        let said = said.fails_with(3);
        assert!(said.contains("there are no feeds at") && !said.contains('{'), "{said}");
    }
}

#[test]
fn what_is_replicated_is_said_and_listed_before_any_server_is_met() {
    let folder = tempfile::tempdir().unwrap();
    let offline = |arguments: &str| feed(NOWHERE, folder.path(), arguments).run();
    let said = offline("replicate --since 3d g");
    assert!(said.stderr.contains("`g` is pulled from 3 days ago on"), "{}", said.stderr);
    said.ok();
    offline("replicate --from now h").ok();
    offline("replicate --prefix x").ok();
    assert_eq!(offline("replicate").ok(), "--prefix x\tfrom the start\ng\tfrom 3 days ago\nh\tfrom now\n");
    assert!(offline("replicate --stop h").stderr.contains("`h` is not pulled any more"));
    offline("replicate --stop --all").fails_with(3);
    offline("replicate --stop --prefix x").ok();
    assert!(offline("replicate --stop nofeed").fails_with(3).contains("`nofeed` is not replicated"));
    assert_eq!(offline("replicate").ok(), "g\tfrom 3 days ago\n");
}

#[test]
fn a_subscription_that_is_refused_holds_up_nothing_and_status_says_so() {
    let server = Server::start_with("--feed-count-max 5");
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    feed(&server.url(), two.path(), "append q1 -m theirs --sync").run().ok();
    let ours = |arguments: &str| feed(&server.url(), one.path(), arguments).run();
    ours("replicate q1 q2 q3 q4 q5 q6 q7").ok();
    ours("append mine -m important").ok();
    ours("sync").ok();
    assert_eq!(ours("read q1").ok(), "theirs\n");
    let said = ours("status").ok();
    assert!(
        said.contains("to push   0\n") && said.contains("a subscription is refused: limit_reached"),
        "{said}"
    );
    feed(&server.url(), two.path(), "replicate mine").run().ok();
    feed(&server.url(), two.path(), "sync").run().ok();
    assert_eq!(feed(&server.url(), two.path(), "read mine").run().ok(), "important\n");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test of a command makes the file that a server is given")]
fn what_a_token_may_not_write_is_in_the_status_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let (access, token) = (folder.path().join("access.toml"), folder.path().join("token"));
    let (access, token) = (access.to_str().unwrap(), token.to_str().unwrap());
    let new = Cli::new("token --name writer --scope read --scope write --token-file");
    let entry = new.arg(token).run().ok();
    std::fs::write(access, format!("{entry}\nactors = [\"alice\"]\nnamespaces = [\"notes\"]\n")).unwrap();
    let server = Server::start_with(&format!("--access-file {access}"));
    let ours = |arguments: &str| {
        feed(&server.url(), folder.path(), arguments).env("ALLUVIUM_TOKEN_FILE", token).run()
    };
    ours("append --actor alice g -m one").ok();
    assert!(ours("sync").fails_with(4).contains("`g`"));
    let said = ours("status").ok();
    let refused = said.lines().find(|line| line.starts_with("refused")).unwrap_or_default();
    assert!(refused.contains("`g`") && refused.contains("forbidden"), "{said}");
    assert!(!said.contains("never met"), "{said}");
    let status: serde_json::Value = serde_json::from_str(&ours("status --json").ok()).unwrap();
    assert_eq!(
        (&status["blocksRefused"], &status["refused"][0]["feed"]),
        (&1.into(), &"g".into()),
        "{status}"
    );
    // What it may write goes beside it.
    ours("append --namespace notes h -m two").ok();
    assert!(ours("sync").fails_with(4).contains("`g`"));
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&ours("status --json").ok()).unwrap()["blocksToPush"],
        1
    );
}
