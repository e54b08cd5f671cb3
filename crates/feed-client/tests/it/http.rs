//! Over HTTP: what an application sees, and what becomes of every kind of answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use alluvium_env::Env;
use alluvium_feed_client::{
    After, CallError, CallErrorKind, Credentials, From, Hints, HttpTransport, Options, Server, Space,
    SyncError, Transport,
};
use alluvium_feed_protocol::{ErrorCode, Limits, ListFeedsRequest, Request, RequestId, Response};
use alluvium_feeds::{Gate, OpenGate, Principal};

use crate::support::{LONG, Peer, Script, Site, id, json, options, response, until};

/// What a feed has, in its order; `!` marks what has no final place.
fn read(space: &Space) -> Vec<String> {
    let blocks = space.read(&id("f"), &After::Start, 1000).expect("the file");
    let shown = |block: &alluvium_feed_client::Block| {
        let mark = if block.position.is_some() { "" } else { "!" };
        format!("{mark}{}", String::from_utf8_lossy(&block.data.0))
    };
    blocks.iter().map(shown).collect()
}

fn write(space: &Space, text: &str) {
    space.append(&id("f"), None, text.as_bytes().to_vec()).expect("the file");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_offline_reaches_others_once_there_is_a_server() {
    let (one, two) = (Peer::new(), Peer::new());
    let (one, two) = (one.client.space(&id("s")), two.client.space(&id("s")));
    write(&one, "a");
    write(&one, "b");
    assert_eq!(read(&one), ["!a", "!b"]);
    let folder = tempfile::tempdir().unwrap();
    let site = Site::start(&folder, None);
    let status = one.sync(&site.named(), LONG).await.unwrap();
    assert_eq!((status.blocks_to_push, status.blocks_to_pull, status.total_blocks), (0, 0, 2));
    two.replicate(&id("f"), From::Beginning).unwrap();
    two.sync(&site.named(), LONG).await.unwrap();
    assert_eq!(read(&two), ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn news_comes_by_a_request_that_waits_and_not_by_looking_again() {
    news_come(Site::named).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn news_comes_over_a_socket() {
    news_come(Site::socket).await;
}

async fn news_come(way: fn(&Site) -> Server) {
    let folder = tempfile::tempdir().expect("it works");
    let site = Site::start(&folder, None);
    let (one, two) = (Peer::new(), Peer::new());
    let (one, two) = (one.client.space(&id("s")), two.client.space(&id("s")));
    for space in [&one, &two] {
        space.replicate(&id("f"), From::Beginning).expect("it works");
    }
    let _running = (one.start(&way(&site)).expect("it works"), two.start(&way(&site)).expect("it works"));
    for number in 0..20 {
        let (writer, reader) = if number % 2 == 0 { (&one, &two) } else { (&two, &one) };
        write(writer, &number.to_string());
        until(reader, |reader| read(reader).contains(&number.to_string())).await;
    }
    for space in [&one, &two] {
        until(space, |space| space.status().expect("it works").is_done()).await;
        assert!(read(space).iter().all(|text| !text.starts_with('!')), "done, and not all in place");
    }
    assert_eq!(read(&one), read(&two));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_is_met_again() {
    met_again(Site::named).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_is_met_again_over_a_socket_and_what_was_missed_is_pulled() {
    met_again(Site::socket).await;
}

async fn met_again(way: fn(&Site) -> Server) {
    let folder = tempfile::tempdir().expect("it works");
    let site = Site::start(&folder, None);
    let peer = Peer::with(Options { backoff_ms_max: 100, ..options() });
    let space = peer.client.space(&id("s"));
    space.replicate(&id("f"), From::Beginning).expect("it works");
    let running = space.start(&way(&site)).expect("it works");
    // From here on a request waits at the server, which stopping it must not wait for.
    write(&space, "before");
    until(&space, |space| read(space) == ["before"]).await;
    let address = site.stop().await;
    write(&space, "meanwhile");
    until(&space, |space| space.status().expect("it works").last_error.is_some()).await;
    assert_eq!(read(&space), ["before", "!meanwhile"]);
    let site = Site::start(&folder, Some(address));
    until(&space, |space| read(space) == ["before", "meanwhile"]).await;
    let other_peer = Peer::new();
    let other = other_peer.client.space(&id("s"));
    write(&other, "of another");
    other.sync(&way(&site), LONG).await.expect("it works");
    until(&space, |space| read(space).len() == 3).await;
    drop(running);
    assert!(!space.status().expect("it works").connected);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_process_may_append_to_a_file_that_is_synchronised() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::start(&folder, None);
    let peer = Peer::new();
    let space = peer.client.space(&id("s"));
    let _running = space.start(&site.named()).unwrap();
    let other =
        alluvium_feed_client::Client::open(&peer.folder.path().join("r.sqlite"), None, options()).unwrap();
    assert!(peer.client.claim().unwrap().is_some_and(|_held| other.claim().unwrap().is_none()));
    write(&other.space(&id("s")), "from elsewhere");
    until(&space, |space| read(space) == ["from elsewhere"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_stands_for_the_first_position_since_then() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::start(&folder, None);
    let (one, two, three) = (Peer::new(), Peer::new(), Peer::new());
    let writer = one.client.space(&id("s"));
    write(&writer, "a");
    write(&writer, "b");
    writer.sync(&site.named(), LONG).await.unwrap();
    let early = two.client.space(&id("s"));
    early.replicate(&id("f"), From::Since(1)).unwrap();
    early.sync(&site.named(), LONG).await.unwrap();
    assert_eq!(read(&early), ["a", "b"]);
    let late = three.client.space(&id("s"));
    late.replicate(&id("f"), From::Since(u64::MAX >> 12)).unwrap();
    late.sync(&site.named(), LONG).await.unwrap();
    write(&writer, "c");
    writer.sync(&site.named(), LONG).await.unwrap();
    late.sync(&site.named(), LONG).await.unwrap();
    assert_eq!(read(&late), ["c"]);
}

const LISTING: &str = r#"{"_tag":"ListFeedsResponse","requestId":"r","feeds":[]}"#;

/// Asks for a listing, as request `r`.
async fn ask(server: &Server) -> Result<Response, CallError> {
    let transport = HttpTransport::new(server, Env::real()).expect("a server");
    let request_id = RequestId::parse("r").expect("a name");
    transport
        .call(&id("a/b"), Request::ListFeeds(ListFeedsRequest { request_id, ..Default::default() }))
        .await
}

fn error(code: &str, more: &str) -> String {
    format!(r#"{{"_tag":"Error","requestId":"r","code":"{code}","message":"m"{more}}}"#)
}

#[tokio::test]
async fn a_request_names_its_space_and_carries_the_token() {
    let script = Script::start(vec![json("200 OK", LISTING)]);
    assert!(matches!(ask(&script.named().token("secret")).await, Ok(Response::ListFeeds(_))));
    let requests = script.requests();
    assert!(requests[0].starts_with("post /feeds/v1/spaces/a%2fb/feeds http/1.1\r\n"), "{requests:?}");
    assert!(requests[0].contains("\r\nauthorization: bearer secret\r\n"), "{requests:?}");
}

#[tokio::test]
async fn a_refused_token_is_replaced_once() {
    let refused = json("401 Unauthorized", &error("unauthorized", ""));
    let script = Script::start(vec![refused.clone(), json("200 OK", LISTING)]);
    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    let source = move || Some(format!("token-{}", counted.fetch_add(1, Ordering::Relaxed)));
    let server = Server { credentials: Credentials::Source(Arc::new(source)), ..script.named() };
    let answer = ask(&server).await;
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    let script_again = Script::start(vec![refused]);
    let fixed = script_again.named().token("only-one");
    assert!(matches!(ask(&fixed).await, Ok(Response::Error(error)) if error.code == "unauthorized"));
    assert!(script.requests()[1].contains("bearer token-1"));
}

#[tokio::test]
async fn another_authority_is_gone_to_without_the_token_and_not_for_ever() {
    let elsewhere = Script::start(vec![json("200 OK", LISTING)]);
    let url = format!(r#","url":"http://{}""#, elsewhere.address);
    let script = Script::start(vec![json("421 Misdirected Request", &error("not_authority", &url))]);
    assert!(matches!(ask(&script.named().token("secret")).await, Ok(Response::ListFeeds(_))));
    assert!(!elsewhere.requests()[0].contains("authorization"));
    // One that names itself again and again.
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let ring = format!(r#","url":"http://{address}""#);
    let first = Script::start(vec![json("421 Misdirected Request", &error("not_authority", &ring))]);
    assert!(ask(&first.named()).await.is_err(), "nobody is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_a_client_keeps_to_what_the_server_accepts() {
    let folder = tempfile::tempdir().unwrap();
    let limits =
        Limits { append_blocks_max: 2, append_bytes_max: 1500, subscribe_feeds_max: 1, ..Limits::default() };
    let site = Site::with(&folder, None, Arc::new(OpenGate), limits);
    let peer = Peer::new();
    let space = peer.client.space(&id("s"));
    for feed in ["f", "g", "h"] {
        space.replicate(&id(feed), From::Beginning).unwrap();
    }
    for _ in 0..9 {
        write(&space, &"x".repeat(500));
    }
    // Whoever waits by a subscription that is extended meanwhile is refused, so nobody does.
    let status = space.sync(&site.named().hints(Hints::Poll), LONG).await.unwrap();
    assert_eq!((status.blocks_to_push, status.blocks_refused, site.refused()), (0, 0, 0));
}

/// Lets nobody in without a token.
struct Closed;

impl Gate for Closed {
    fn decide(&self, credentials: Option<&str>) -> Result<Principal, ErrorCode> {
        if credentials == Some("word") { Ok(Principal::anyone()) } else { Err(ErrorCode::Unauthorized) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_wants_a_token_ends_the_attempt_without_one_over_either_way() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::with(&folder, None, Arc::new(Closed), Limits::default());
    for server in [site.named(), site.socket()] {
        for token in [None, Some("wrong")] {
            let peer = Peer::new();
            let space = peer.client.space(&id("s"));
            write(&space, "a");
            let server = token.map_or_else(|| server.clone(), |token| server.clone().token(token));
            let refused = space.sync(&server, LONG).await;
            let is_told = |status: &alluvium_feed_client::SyncStatus| {
                status.stopped.as_ref().is_some_and(|reason| reason.starts_with("unauthorized"))
            };
            assert!(matches!(&refused, Err(SyncError::Refused(status)) if is_told(status)), "{refused:?}");
            assert!(space.sync(&server.token("word"), LONG).await.is_ok());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_authority_is_gone_to_over_a_socket_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::start(&folder, None);
    let url = format!(r#","url":"http://{}""#, site.address());
    // Refused before it was asked for anything by name.
    let refusal = error("not_authority", &url).replace("\"r\"", "\"\"");
    let script = Script::start(vec![json("421 Misdirected Request", &refusal)]);
    let peer = Peer::new();
    let space = peer.client.space(&id("s"));
    write(&space, "a");
    let server = Server::new(format!("ws://{}", script.address)).token("secret");
    let status = space.sync(&server, LONG).await.unwrap();
    assert_eq!(status.blocks_to_push, 0);
    assert!(script.requests()[0].contains("bearer secret"));
}

#[tokio::test]
async fn what_is_no_answer_is_none_and_what_is_too_large_is_not_read() {
    let html = response("200 OK", "content-type: text/html\r\n", "<p>Welcome to the hotel");
    let other = json("200 OK", &LISTING.replace("\"r\"", "\"x\""));
    let huge = response("200 OK", "content-type: application/json\r\n", &"[".repeat(100_000));
    let cut = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{".to_vec();
    for (bad, kind, complaint) in [
        (html, CallErrorKind::Status(200), "hotel"),
        (other, CallErrorKind::Nonsense, "another request"),
        (huge, CallErrorKind::TooLarge, "larger than"),
        (cut, CallErrorKind::Closed, "breaks off"),
    ] {
        let script = Script::start(vec![bad]);
        let server = Server { answer_bytes_max: 1000, ..script.named() };
        let error = ask(&server).await.unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(complaint), "{error:?}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_the_space_ends_the_attempt_with_its_reason() {
    let peer = Peer::new();
    let space = peer.client.space(&id("s"));
    write(&space, "a");
    let deleted = r#"{"_tag":"Error","requestId":"","code":"space_deleted","message":"gone"}"#;
    let script = Script::start(vec![json("410 Gone", deleted); 2]);
    let refused = space.sync(&script.named().hints(Hints::Poll), LONG).await;
    assert!(matches!(&refused, Err(SyncError::Refused(status)) if status.stopped.is_some()), "{refused:?}");
    assert_eq!(space.status().unwrap().blocks_to_push, 1);
}
