//! A world over sockets: what directory, hosts and relay answer, and what goes wrong when it is armed.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use alluvium_atproto::car::Limits;
use alluvium_atproto::{Car, DidDocument, Repo};
use alluvium_jetstream_simulator::serve::Options;
use alluvium_jetstream_simulator::{Act, Config, Fault, Simulator, Status};
use serde_json::{Value, json};

/// A response, as far as it came.
#[derive(Debug)]
struct Got {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Got {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    fn error(&self) -> (u16, String) {
        (self.status, self.json()["error"].as_str().unwrap_or_default().to_owned())
    }

    fn length(&self) -> usize {
        let line = self.head.lines().find_map(|line| line.strip_prefix("content-length: "));
        line.expect("a length").parse().expect("a number")
    }
}

fn request(address: SocketAddr, method: &str, path: &str, host: &str, body: &str) -> Got {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(Duration::from_mins(2))).expect("it can be set");
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).expect("it is taken");
    let mut bytes = Vec::new();
    // A connection that is reset has sent what it has sent.
    drop(stream.read_to_end(&mut bytes));
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head");
    let head = String::from_utf8(bytes[..end].to_vec()).expect("text").to_ascii_lowercase();
    let status = head[9..12].parse().expect("a status");
    Got { status, head, body: bytes[end + 4..].to_vec() }
}

fn get(address: SocketAddr, path: &str) -> Got {
    request(address, "GET", path, &address.to_string(), "")
}

fn post(address: SocketAddr, path: &str, body: &Value) -> Got {
    request(address, "POST", path, &address.to_string(), &body.to_string())
}

/// A world that is served, and what is asked of it.
fn served(test: impl FnOnce(&Simulator)) {
    let options = Options::new(SocketAddr::from(([127, 0, 0, 1], 0)));
    let simulator = Simulator::start(Config::small(21), &options).expect("it starts");
    test(&simulator);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(simulator.stop());
}

fn did(simulator: &Simulator, index: u32) -> String {
    simulator.world(|world| world.account(index).expect("an account").did().as_str().to_owned())
}

fn host(simulator: &Simulator, index: u32) -> SocketAddr {
    let host = simulator.world(|world| world.account(index).expect("an account").host());
    simulator.hosts()[host as usize]
}

fn repo(got: &Got) -> Repo {
    assert_eq!(got.status, 200, "{}", got.head);
    Repo::open(Car::read(got.body.clone().into(), &Limits::REPO).expect("a file")).expect("a repository")
}

const GET_REPO: &str = "/xrpc/com.atproto.sync.getRepo?did=";

#[test]
fn documents_lead_to_hosts_that_serve_the_whole_repository() {
    served(|simulator| {
        for index in 0..24 {
            let (did, document) =
                (did(simulator, index), get(simulator.address(), &format!("/{}", did(simulator, index))));
            let read = DidDocument::read(&did.parse().expect("a DID"), &document.body).expect("a document");
            let address =
                read.pds.expect("a host").strip_prefix("http://").expect("http").parse().expect("an address");
            assert_eq!(address, host(simulator, index));
            let got = get(address, &format!("{GET_REPO}{did}"));
            let repo = repo(&got);
            repo.commit.verify(&read.signing_key.expect("a key")).expect("signed");
            let count = repo.records(1_000_000, |_, _, _| {}).expect("complete");
            let truth = simulator.world(|world| world.truth(world.account(index).expect("an account")));
            assert_eq!(count, truth.len());
            assert_eq!(simulator.served(&did), 1);
            let latest = get(address, &format!("/xrpc/com.atproto.sync.getLatestCommit?did={did}")).json();
            assert_eq!(latest, json!({"cid": repo.cid.to_string(), "rev": repo.commit.rev}));
        }
    });
}

#[test]
fn without_sockets_everything_is_the_same() {
    let inside = Simulator::detached(Config::small(21)).expect("it starts");
    served(|outside| {
        for act in [Act::Step { count: 50 }, Act::Account { account: 9, status: Status::Suspended }] {
            inside.act(act.clone()).expect("it can be done");
            outside.act(act).expect("it can be done");
        }
        for index in 0..12 {
            let did = did(outside, index);
            let host = outside.world(|world| world.account(index).expect("an account").host());
            let path = format!("{GET_REPO}{did}");
            let got = inside.get(&format!("https://pds{host}.sim.invalid{path}")).expect("an answer");
            let expected = get(outside.hosts()[host as usize], &path);
            assert_eq!((got.status, &got.body[..]), (expected.status, expected.body.as_slice()));
            let document = inside.get(&format!("https://plc.invalid/{did}")).expect("an answer");
            assert_eq!(document.headers, [("content-type".to_owned(), "application/did+ld+json".to_owned())]);
            let read = DidDocument::read(&did.parse().expect("a DID"), &document.body).expect("a document");
            assert_eq!(read.pds, Some(format!("https://pds{host}.sim.invalid")));
        }
        inside.arm(Fault::PlcHang { did: did(outside, 0) }, 1).expect("room");
        assert_eq!(inside.get(&format!("https://plc.invalid/{}", did(outside, 0))), None);
        inside.arm(Fault::Swallow { after: 0 }, 1).expect("room");
        let mut subscription = inside.subscribe(Some(10));
        let next = inside.next(&mut subscription);
        let frames = outside.world(|world| {
            world.history().iter().skip(11).map(|emitted| emitted.frame.clone()).collect::<Vec<_>>()
        });
        assert_eq!((next.messages, next.is_end), (frames, false));
    });
}

#[test]
fn a_name_in_the_host_header_is_served_by_any_listener() {
    served(|simulator| {
        let (did, number) =
            (did(simulator, 1), simulator.world(|world| world.account(1).expect("one").host()));
        let path = format!("{GET_REPO}{did}");
        let address = simulator.address();
        let from = |host: u32| request(address, "GET", &path, &format!("pds{host}.sim.invalid"), "");
        assert_eq!(from(number).status, 200);
        assert_eq!(from((number + 1) % 3).error(), (404, "RepoNotFound".to_owned()));
        let handle = request(address, "GET", "/.well-known/atproto-did", "user-1.test", "");
        assert_eq!(handle.body, did.as_bytes());
        let resolved = get(address, "/xrpc/com.atproto.identity.resolveHandle?handle=user-1.test").json();
        assert_eq!(resolved, json!({"did": did}));
        let web = simulator.world(|world| {
            let all = world.accounts().iter().map(|account| account.did().as_str().to_owned());
            all.filter(|did| did.starts_with("did:web:")).collect::<Vec<_>>()
        });
        assert!(!web.is_empty(), "the seed has one");
        for did in web {
            let got =
                request(address, "GET", "/.well-known/did.json", did.trim_start_matches("did:web:"), "");
            assert_eq!(got.json()["id"], json!(did));
        }
    });
}

#[test]
fn lists_of_hosts_and_repositories_are_whole_on_hosts_and_not_on_the_relay() {
    served(|simulator| {
        let hosts = get(simulator.address(), "/xrpc/com.atproto.sync.listHosts").json();
        let hosts = hosts["hosts"].as_array().expect("a list").clone();
        let mut found = Vec::new();
        for host in &hosts {
            let address: SocketAddr = host["hostname"].as_str().expect("a name").parse().expect("an address");
            let mut count = 0;
            let mut cursor = String::new();
            loop {
                let page =
                    get(address, &format!("/xrpc/com.atproto.sync.listRepos?limit=3&cursor={cursor}")).json();
                let repos = page["repos"].as_array().expect("a list");
                assert!(repos.len() <= 3);
                count += repos.len();
                found.extend(repos.iter().map(|repo| repo["did"].as_str().expect("a DID").to_owned()));
                match page["cursor"].as_str() {
                    Some(next) => next.clone_into(&mut cursor),
                    None => break,
                }
            }
            assert!(host["accountCount"].as_u64().expect("a number") <= count as u64);
        }
        let mut all: Vec<String> = (0..24).map(|index| did(simulator, index)).collect();
        all.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, all);
        let page = get(simulator.address(), "/xrpc/com.atproto.sync.listRepos?limit=1000").json();
        assert_eq!(page["repos"].as_array().expect("a list").len(), 16, "a third is missing on the relay");
        for bad in ["limit=0", "limit=1001", "limit=x", "cursor=x"] {
            assert_eq!(
                get(simulator.address(), &format!("/xrpc/com.atproto.sync.listRepos?{bad}")).status,
                400
            );
        }
    });
}

#[test]
fn accounts_that_are_away_are_refused_by_name_and_hidden_ones_are_not_listed() {
    served(|simulator| {
        let (did, address) = (did(simulator, 4), host(simulator, 4));
        let expected = [
            (Status::Deactivated, 400, "RepoDeactivated"),
            (Status::Suspended, 400, "RepoSuspended"),
            (Status::Takendown, 400, "RepoTakendown"),
            (Status::Deleted, 400, "RepoNotFound"),
        ];
        for (status, code, name) in expected {
            simulator.act(Act::Account { account: 4, status }).expect("it can be done");
            assert_eq!(get(address, &format!("{GET_REPO}{did}")).error(), (code, name.to_owned()));
            let said = get(address, &format!("/xrpc/com.atproto.sync.getRepoStatus?did={did}")).json();
            assert_eq!(said, json!({"did": did, "active": false, "status": status.name()}));
        }
        assert_eq!(get(simulator.address(), &format!("/{did}")).status, 200);
        simulator.act(Act::Tombstone { account: 4 }).expect("it can be done");
        assert_eq!(get(simulator.address(), &format!("/{did}")).status, 410);
        assert_eq!(get(simulator.address(), "/did:plc:nobody").status, 404);
        let hidden = self::did(simulator, 5);
        simulator.act(Act::Hide { account: 5, hidden: true }).expect("it can be done");
        let list = get(host(simulator, 5), "/xrpc/com.atproto.sync.listRepos?limit=1000").body;
        assert!(!String::from_utf8(list).expect("text").contains(&hidden));
        repo(&get(host(simulator, 5), &format!("{GET_REPO}{hidden}")));
    });
}

#[test]
fn an_account_that_moved_is_found_at_its_new_host_once_that_is_ready() {
    served(|simulator| {
        let (did, old) = (did(simulator, 6), host(simulator, 6));
        let number = simulator.world(|world| world.account(6).expect("an account").host());
        let to = (number + 1) % 3;
        let id = simulator.arm(Fault::GetRepoNotFound { did: did.clone() }, 1).expect("room");
        simulator.act(Act::Migrate { account: 6, host: to, announce: true }).expect("it can be done");
        let path = format!("{GET_REPO}{did}");
        assert_eq!(get(old, &path).error(), (404, "RepoNotFound".to_owned()));
        assert_eq!(get(simulator.hosts()[to as usize], &path).error(), (400, "RepoNotFound".to_owned()));
        repo(&get(simulator.hosts()[to as usize], &path));
        assert_eq!(simulator.fired(id), 1);
        let document = get(simulator.address(), &format!("/{did}"));
        let read = DidDocument::read(&did.parse().expect("a DID"), &document.body).expect("a document");
        assert_eq!(read.pds, Some(format!("http://{}", simulator.hosts()[to as usize])));
    });
}

#[test]
fn faults_of_repositories_come_and_are_counted() {
    served(|simulator| {
        let (did, address) = (did(simulator, 0), host(simulator, 0));
        simulator.act(Act::Burst { account: 0, commits: 3 }).expect("it can be done");
        let path = format!("{GET_REPO}{did}");
        let whole = get(address, &path);
        let old = simulator.arm(Fault::GetRepoOld { did: did.clone() }, 1).expect("room");
        simulator.act(Act::Burst { account: 0, commits: 3 }).expect("it can be done");
        let got = get(address, &path);
        assert!(got.body == whole.body && repo(&got).commit.rev < repo(&get(address, &path)).commit.rev);
        let cut = simulator.arm(Fault::GetRepoCut { did: did.clone() }, 1).expect("room");
        let got = get(address, &path);
        let half = Car::read(got.body.into(), &Limits::REPO).ok().and_then(|car| Repo::open(car).ok());
        assert!(half.is_none_or(|half| half.records(1_000_000, |_, _, _| {}).is_err()));
        let status = simulator.arm(Fault::GetRepoStatus { did: did.clone(), status: 502 }, 2).expect("room");
        assert_eq!(
            [get(address, &path).status, get(address, &path).status, get(address, &path).status],
            [502, 502, 200]
        );
        let headers = vec![("location".to_owned(), "http://127.0.0.1:1/".to_owned())];
        let redirect =
            Fault::GetRepoResponse { did: did.clone(), status: 302, headers, body: "x".to_owned() };
        let redirect = simulator.arm(redirect, 1).expect("room");
        let got = get(address, &path);
        assert!(got.status == 302 && got.head.contains("location: http://127.0.0.1:1/") && got.body == b"x");
        assert_eq!([old, cut, status, redirect].map(|id| simulator.fired(id)), [1, 1, 2, 1]);
    });
}

#[test]
fn faults_of_the_directory_come_and_are_counted() {
    served(|simulator| {
        let did = did(simulator, 2);
        let read = || {
            let got = get(simulator.address(), &format!("/{did}"));
            DidDocument::read(&did.parse().expect("a DID"), &got.body).ok()
        };
        let arm = |fault| simulator.arm(fault, 1).expect("room");
        let mut ids = vec![arm(Fault::PlcNoEndpoint { did: did.clone() })];
        assert!(read().is_some_and(|document| document.pds.is_none() && document.handle.is_some()));
        ids.push(arm(Fault::PlcMalformedEndpoint { did: did.clone() }));
        assert!(read().is_some_and(|document| document.pds.is_none() && document.handle.is_some()));
        ids.push(arm(Fault::PlcMalformedHandle { did: did.clone() }));
        assert!(read().is_some_and(|document| document.pds.is_some() && document.handle.is_none()));
        ids.push(arm(Fault::PlcStatus { did: did.clone(), status: 503 }));
        assert_eq!(get(simulator.address(), &format!("/{did}")).status, 503);
        assert!(read().is_some_and(|document| document.pds.is_some() && document.handle.is_some()));
        // One that hangs holds up nobody else, and ends with the server.
        ids.push(arm(Fault::PlcHang { did: did.clone() }));
        let mut hanging = TcpStream::connect(simulator.address()).expect("somebody listens");
        write!(hanging, "GET /{did} HTTP/1.1\r\nhost: x\r\n\r\n").expect("it is taken");
        while simulator.fired(ids[4]) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(get(simulator.address(), &format!("/{did}")).status, 200);
        assert!(ids.into_iter().all(|id| simulator.fired(id) == 1));
    });
}

#[test]
fn faults_of_lists_come_and_are_counted() {
    served(|simulator| {
        let relay = simulator.address();
        let arm = |fault| simulator.arm(fault, 1).expect("room");
        let mut ids = vec![arm(Fault::ListHostsStatus { status: 500 })];
        assert_eq!(get(relay, "/xrpc/com.atproto.sync.listHosts").status, 500);
        ids.push(arm(Fault::HostStatus { host: 1, status: "banned".to_owned() }));
        let hosts = get(relay, "/xrpc/com.atproto.sync.listHosts").json();
        assert_eq!(hosts["hosts"][1]["status"], "banned");
        let pds = simulator.hosts()[0];
        let list = |query: &str| get(pds, &format!("/xrpc/com.atproto.sync.listRepos?limit=2{query}"));
        let first = list("").json();
        let cursor = first["cursor"].as_str().expect("more than a page").to_owned();
        let at = format!("&cursor={cursor}");
        ids.push(arm(Fault::ListReposStatus { host: Some(0), cursor: Some(cursor.clone()), status: 504 }));
        assert_eq!([list("").status, list(&at).status, list(&at).status], [200, 504, 200]);
        ids.push(arm(Fault::ListReposRepeat { host: Some(0) }));
        assert_eq!(list(&at).json()["repos"], first["repos"]);
        ids.push(arm(Fault::ListReposLoop { host: Some(0) }));
        assert_eq!(list(&at).json()["cursor"], json!(cursor));
        ids.push(arm(Fault::ListReposShort { host: Some(0) }));
        let short = list("").json();
        assert!(
            short["repos"].as_array().is_some_and(|repos| repos.len() == 1) && short["cursor"].is_string()
        );
        assert_eq!(list("").json(), first);
        assert!(ids.into_iter().all(|id| simulator.fired(id) == 1));
    });
}

#[test]
fn connections_trickle_break_off_and_lie_about_their_length() {
    served(|simulator| {
        let path = "/xrpc/com.atproto.sync.listHosts";
        let whole = get(simulator.address(), path);
        assert_eq!(whole.length(), whole.body.len());
        let of = || path.to_owned();
        let arm = |fault| simulator.arm(fault, 1).expect("room");
        let ids = [
            arm(Fault::Trickle { path: of(), bytes: 100, pause_ms: 1 }),
            arm(Fault::EarlyClose { path: of(), bytes: 7 }),
            arm(Fault::WrongLength { path: of(), extra: 10 }),
        ];
        assert_eq!(get(simulator.address(), path).body, whole.body);
        let early = get(simulator.address(), path);
        assert_eq!((early.length(), early.body.len()), (whole.length(), 7));
        let wrong = get(simulator.address(), path);
        assert_eq!((wrong.length(), wrong.body.as_slice()), (whole.length() + 10, whole.body.as_slice()));
        assert!(ids.into_iter().all(|id| simulator.fired(id) == 1));
    });
}

#[test]
fn everything_can_be_done_over_http_too() {
    served(|simulator| {
        let relay = simulator.address();
        assert_eq!(get(relay, "/_oracle/firehose-tip").json(), json!({"seq": 0}));
        let did = did(simulator, 3);
        let operations = json!([{"op": "put", "path": "app.bsky.feed.post/a", "record": {"$type": "app.bsky.feed.post", "text": "x"}}]);
        let act = json!({"act": "write", "account": 3, "operations": operations});
        assert_eq!(post(relay, "/_oracle/act", &act).json(), json!({"seqs": [1]}));
        let many = post(relay, "/_oracle/act", &json!({"act": "burst", "account": 3, "commits": 150})).json();
        assert_eq!(many["seqs"].as_array().map(Vec::len), Some(150));
        let lie = json!({"act": "lie", "account": 3, "flaw": "badSignature"});
        assert_eq!(post(relay, "/_oracle/act", &lie).json(), json!({"seqs": [152]}));
        let ledger = get(relay, "/_oracle/ledger").json();
        assert_eq!(
            ledger["lies"][0],
            json!({"seq": 152, "did": did, "flaw": "badSignature", "path": null, "reason": null})
        );
        let records = get(relay, &format!("/_oracle/records?did={did}")).json();
        assert!(records["records"]["app.bsky.feed.post/a"].is_string());
        let account = get(relay, "/_oracle/account?index=3").json();
        assert_eq!(
            (account["did"].as_str(), account["status"].as_str()),
            (Some(did.as_str()), Some("active"))
        );
        let armed = post(
            relay,
            "/_oracle/faults",
            &json!({"fault": {"fault": "plcStatus", "did": did, "status": 500}}),
        )
        .json();
        assert_eq!(armed, json!({"id": 1}));
        assert_eq!(get(relay, &format!("/{did}")).status, 500);
        let faults = get(relay, "/_oracle/faults").json();
        assert_eq!(
            (faults["faults"][0]["fired"].as_u64(), faults["faults"][0]["left"].as_u64()),
            (Some(1), Some(0))
        );
        for (path, body) in
            [("act", json!({"act": "nothing"})), ("faults", json!({})), ("rate", json!({"rate": -1}))]
        {
            assert_eq!(post(relay, &format!("/_oracle/{path}"), &body).status, 400, "{path}");
        }
        assert_eq!(post(relay, "/_oracle/act", &json!({"act": "sync", "account": 99})).status, 400);
        assert_eq!(get(simulator.hosts()[0], "/_oracle/faults").status, 404, "only beside the relay");
        assert_eq!(request(relay, "DELETE", "/xrpc/com.atproto.sync.listHosts", "x", "").status, 405);
    });
}
