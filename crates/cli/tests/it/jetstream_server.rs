//! `alluvium jetstream serve` and a network in this process.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdout};

use alluvium_jetstream_simulator::serve::Options;
use alluvium_jetstream_simulator::{Act, Config, Flaw, Mix, Operation, Simulator};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Cli, call, open, signal};

/// Far more often than it has to be asked whether a few events are there.
const ASKED_MAX: usize = 50_000;

/// A running server; killed, and its data removed, when dropped.
struct Server {
    /// The process, and its standard output, which it must not lose.
    running: (Child, BufReader<ChildStdout>),
    address: String,
    data: TempDir,
}

impl Server {
    fn start(flags: &str, variables: &[(&str, &str)]) -> Self {
        let data = TempDir::new().unwrap();
        let mut cli = Cli::new(&format!("jetstream serve {flags}"))
            .env("ALLUVIUM_JETSTREAM_LISTEN", "127.0.0.1:0")
            .env("ALLUVIUM_JETSTREAM_DATA_DIR", data.path().to_str().unwrap());
        for (name, value) in variables {
            cli = cli.env(name, value);
        }
        let mut process = cli.spawn();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        while stdout.read_line(&mut line).unwrap() > 0 {
            if let Some((_, address)) = line.split_once("http://") {
                let address = address.trim().to_owned();
                return Self { running: (process, stdout), address, data };
            }
            line.clear();
        }
        let output = process.wait_with_output().unwrap();
        panic!("the server did not start: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn status(&self) -> Value {
        serde_json::from_slice(&call(&self.address, "GET", "/status", &[], b"").body).unwrap()
    }

    /// All events of an account.
    fn events(&self, did: &str) -> Vec<Value> {
        let did = did.replace('%', "%25");
        let target = format!("/streams/events?offset=-1&dids={did}");
        serde_json::from_slice(&call(&self.address, "GET", &target, &[], b"").body).unwrap()
    }

    /// Waits until the events of an account are as wanted.
    fn wait(&self, did: &str, is_enough: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        for _ in 0..ASKED_MAX {
            let events = self.events(did);
            if is_enough(&events) {
                return events;
            }
            std::thread::yield_now();
        }
        panic!("{did}: {} events, {}", self.events(did).len(), self.status());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.running.0.kill());
        drop(self.running.0.wait());
    }
}

/// What a client that follows the events holds of the account, by path.
fn folded(events: &[Value]) -> BTreeMap<String, String> {
    let mut records = BTreeMap::new();
    for event in events {
        match event["kind"].as_str().unwrap() {
            "sync" => records.clear(),
            "commit" => {
                let commit = &event["commit"];
                let text = |name: &str| commit[name].as_str().unwrap().to_owned();
                let path = format!("{}/{}", text("collection"), text("rkey"));
                match commit["operation"].as_str().unwrap() {
                    "delete" => drop(records.remove(&path)),
                    _ => drop(records.insert(path, text("cid"))),
                }
            }
            _ => {}
        }
    }
    records
}

fn kinds(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["kind"] == kind).count()
}

/// Documents, keys that change, repositories and signatures of accounts that no directory knows.
#[test]
fn accounts_of_did_web_are_verified_repaired_and_followed_through_a_change_of_keys() {
    let mix = Mix { rotate: 0, account: 0, ..Config::small(0).mix };
    let config = Config { initial_records_max: 0, web_percent: 0, mix, ..Config::small(31) };
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let network = Simulator::start(config, &Options { local_web: true, ..Options::new(listen) }).unwrap();
    let dids: Vec<String> =
        network.world(|world| world.accounts().iter().map(|account| account.did().to_string()).collect());
    let ports: Vec<u16> =
        std::iter::once(network.address()).chain(network.hosts()).map(|address| address.port()).collect();
    let web: Vec<String> = ports.iter().map(|port| format!("did:web:localhost%3A{port}")).collect();
    assert_eq!(dids[..4], web, "one for each port");
    assert!(dids[4..].iter().all(|did| did.starts_with("did:plc:")));
    for account in 0..4 {
        network.act(Act::Burst { account, commits: 3 }).unwrap();
    }
    let relay = network.address();
    let flags = format!("--relay ws://{relay} --plc http://{relay} --allow-private --start-cursor 0");
    let server = Server::start(&flags, &[]);
    for did in &web {
        server.wait(did, |events| kinds(events, "commit") >= 3);
    }
    // The new key is asked for, since the account says that something has changed; what the old one signs is refused.
    network.act(Act::Rotate { account: 0, announce: true }).unwrap();
    network.act(Act::Lie { account: 0, flaw: Flaw::OldKey }).unwrap();
    network.act(Act::Burst { account: 0, commits: 2 }).unwrap();
    // A signature of nobody is refused, and what follows it is taken.
    network.act(Act::Lie { account: 1, flaw: Flaw::BadSignature }).unwrap();
    network.act(Act::Burst { account: 1, commits: 2 }).unwrap();
    // What nobody was told is fetched from the server that the document names.
    let unheard = Operation::Put { path: "app.bsky.feed.post/unheard".to_owned(), record: None };
    network
        .act(Act::Write { account: 2, operations: vec![unheard], silent: true, missing_block: None })
        .unwrap();
    network.act(Act::Burst { account: 2, commits: 1 }).unwrap();
    // It moves, and its repository is then had from where it lives now.
    network.act(Act::Migrate { account: 3, host: 2, announce: true }).unwrap();
    let unheard = Operation::Put { path: "app.bsky.feed.post/moved".to_owned(), record: None };
    network
        .act(Act::Write { account: 3, operations: vec![unheard], silent: true, missing_block: None })
        .unwrap();
    network.act(Act::Burst { account: 3, commits: 1 }).unwrap();
    for (account, did) in (0..).zip(&web) {
        let truth = network.world(|world| world.truth(world.account(account).unwrap()));
        let truth: BTreeMap<String, String> =
            truth.into_iter().map(|(path, cid)| (path, cid.to_string())).collect();
        let events = server.wait(did, |events| folded(events) == truth);
        let repaired = usize::from(account >= 2);
        assert!(kinds(&events, "sync") >= repaired, "{did}");
    }
    let (first, second) = (server.events(&web[0]), server.events(&web[1]));
    assert!(kinds(&first, "identity") > 0);
    assert_eq!((kinds(&first, "sync"), kinds(&second, "sync")), (0, 0), "no repair was needed");
    let status = server.status();
    assert_eq!(status["dropped"]["refused"]["signature"], 2, "{status}");
}

#[test]
fn each_flag_has_a_variable_and_no_other_variable_is_passed_over() {
    let unknown = |command: &str, name: &str| Cli::new(command).env(name, "1").run().fails_with(78);
    let told = unknown("jetstream serve --relay ws://127.0.0.1:9", "ALLUVIUM_JETSTREAM_LOOKBACK_HOUR");
    assert!(told.contains("unknown environment variable `ALLUVIUM_JETSTREAM_LOOKBACK_HOUR`"), "{told}");
    assert!(told.contains("did you mean `ALLUVIUM_JETSTREAM_LOOKBACK_HOURS`?"), "{told}");
    unknown("config check", "ALLUVIUM_JETSTREAM_LOOKBACK_HOUR");
    Cli::new("config check").env("ALLUVIUM_JETSTREAM_LOOKBACK_HOURS", "1").run().ok();
    let bad = Cli::new("jetstream serve --relay ws://127.0.0.1:9");
    let told = bad.env("ALLUVIUM_JETSTREAM_TRUSTED_PROXIES", "10.0.0.0/40").run().fails_with(2);
    assert!(told.contains("10.0.0.0/40"), "{told}");
    let server = Server::start(
        "",
        &[
            ("ALLUVIUM_JETSTREAM_RELAY", "ws://127.0.0.1:9"),
            ("ALLUVIUM_JETSTREAM_ALLOW_PRIVATE", "yes"),
            ("ALLUVIUM_JETSTREAM_LOOKBACK_HOURS", "2"),
            ("ALLUVIUM_JETSTREAM_QUERY_BYTES_MAX", "20000"),
        ],
    );
    assert_eq!(server.status()["lookbackSeconds"], 7200);
    let refused = call(&server.address, "GET", &format!("/status?{}", "x".repeat(20_001)), &[], b"");
    assert_eq!((refused.status, refused.header("alluvium-error")), (414, Some("query_too_long")));
    let taken = call(&server.address, "GET", &format!("/status?{}", "x".repeat(20_000)), &[], b"");
    assert_eq!(taken.status, 200);
}

/// What is refused before anybody has looked at the request is told as clients of XRPC read it.
#[test]
fn a_head_that_is_too_long_is_refused_as_xrpc_has_it() {
    let server = Server::start("--relay ws://127.0.0.1:9 --query-bytes-max 20000", &[]);
    let xrpc = "/xrpc/network.bsky.jetstream.listSegments";
    let (long, many) = (format!("x: {}", "x".repeat(200_000)), vec!["x: y"; 120]);
    for (target, headers, status, name) in [
        (format!("{xrpc}?{}", "x".repeat(20_001)), vec![], 414, "QueryTooLong"),
        (xrpc.to_owned(), vec![&*long], 431, "HeadTooLarge"),
        (xrpc.to_owned(), many, 431, "TooManyHeaders"),
        (xrpc.to_owned(), vec!["expect: wonders"], 417, "ExpectationFailed"),
        (format!("{xrpc}?limit=0"), vec![], 400, "InvalidRequest"),
    ] {
        let refused = call(&server.address, "GET", &target, &headers, b"");
        let body: Value = serde_json::from_slice(&refused.body).unwrap();
        assert_eq!((refused.status, &body["error"]), (status, &name.into()), "{body}");
        assert!(body["message"].is_string(), "{body}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test of a command spoils what it is given")]
fn a_directory_that_cannot_be_used_is_named_with_the_reason() {
    let server = Server::start("--relay ws://127.0.0.1:9", &[]);
    let dir = |path: &std::path::Path| {
        let cli = Cli::new("jetstream serve --relay ws://127.0.0.1:9 --listen 127.0.0.1:0 --data-dir");
        cli.arg(path.to_str().unwrap()).run()
    };
    let path = server.data.path();
    let told = dir(path).fails_with(75);
    assert_eq!(
        told.lines().last(),
        Some(&*format!("error: `{}` is in use by another process", path.display()))
    );
    // Of another kind: an own server's, or anything.
    let other = TempDir::new().unwrap();
    std::fs::create_dir(other.path().join("streams")).unwrap();
    let told = dir(other.path()).fails_with(65);
    assert!(told.contains(&format!("`{}` is not empty and not the data", other.path().display())), "{told}");
    assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 1, "nothing was made in it");
    // A folder that only has the name of one of its own.
    for part in ["segments", "meta"] {
        let other = TempDir::new().unwrap();
        let part = other.path().join(part);
        std::fs::create_dir(&part).unwrap();
        std::fs::write(part.join("note"), "x").unwrap();
        let told = dir(other.path()).fails_with(65);
        assert!(told.contains(&format!("`{}` is not empty and has nothing", part.display())), "{told}");
        let left = [other.path(), &part].map(|dir| std::fs::read_dir(dir).unwrap().count());
        assert_eq!(left, [1, 1], "nothing was made in it");
    }
    // Of another version.
    let path = path.to_owned();
    let mut server = server;
    server.running.0.kill().unwrap();
    server.running.0.wait().unwrap();
    let version = path.join("meta/version");
    let mut bytes = std::fs::read(&version).unwrap();
    *bytes.last_mut().unwrap() = 2;
    std::fs::write(&version, bytes).unwrap();
    let told = dir(&path).fails_with(65);
    assert!(told.contains(&*path.to_string_lossy()) && told.contains("of another version"), "{told}");
}

/// What is in the log is of this program: libraries tell what went wrong and no more.
#[test]
fn a_signal_ends_it_in_order_and_the_log_says_so() {
    for (name, told) in [("TERM", "SIGTERM"), ("INT", "SIGINT")] {
        let mut server = Server::start("--relay ws://127.0.0.1:9", &[]);
        server.status();
        signal(&server.running.0, name);
        let mut stderr = String::new();
        server.running.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(server.running.0.wait().unwrap().code(), Some(0), "{stderr}");
        let at = |text: &str| stderr.find(text).unwrap_or_else(|| panic!("no {text:?} in {stderr}"));
        let said = format!("stopping signal=\"{told}\" connections=");
        assert!(at(&said) < at(" stopped\n"), "{stderr}");
        assert!(stderr.ends_with(" stopped\n"), "{stderr}");
        assert!(
            !["fjall", "lsm_tree"].iter().any(|library| stderr.contains(&format!(" {library}"))),
            "{stderr}"
        );
    }
}

#[test]
fn only_a_proxy_that_is_named_is_believed_whom_it_speaks_for() {
    const FROM: [&str; 2] = ["X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: 192.0.2.2"];
    let flags = "--relay ws://127.0.0.1:9 --allow-private --subscribers-per-address-max 1";
    let named = format!("{flags} --trusted-proxies 127.0.0.1");
    for (flags, expected) in [(flags, [101, 101, 101]), (&named, [101, 429, 101])] {
        let server = Server::start(flags, &[]);
        let subscribe = |from: &str| {
            let request = format!(
                "GET /subscribe HTTP/1.1\r\nHost: x\r\n{from}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            );
            open(&server.address, request.as_bytes())
        };
        let held = [subscribe(FROM[0]), subscribe(FROM[0]), subscribe(FROM[1])];
        assert_eq!(held.each_ref().map(|(answer, _)| answer.status), expected, "{flags}");
    }
}
