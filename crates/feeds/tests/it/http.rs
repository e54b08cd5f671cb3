//! The surface over real sockets: the same script as over the handler itself, in both encodings, and the feed as a
//! stream.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use alluvium_feed_protocol::{
    Encoding, ErrorCode, ListFeedsRequest, Message, Operation, QueryRequest, Request, Response,
    SubscribeRequest,
};
use alluvium_feeds::http::{Surface, SurfaceOptions};
use alluvium_feeds::{Gate, OpenGate, Principal};
use alluvium_http::{ResponseBudget, Server, ServerOptions, Shutdown, bind};

use crate::support::{Authority, append, block, id};

/// Far longer than anything takes here.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) struct Site {
    pub(crate) authority: Authority,
    pub(crate) server: Server<Surface>,
}

/// An answer off the wire.
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("an answer in JSON")
    }
}

impl Site {
    pub(crate) fn open(gate: Arc<dyn Gate>, options: SurfaceOptions) -> Self {
        Self::over(Authority::new(), gate, options)
    }

    /// The surface over an authority that is there.
    pub(crate) fn over(authority: Authority, gate: Arc<dyn Gate>, options: SurfaceOptions) -> Self {
        let shutdown = Shutdown::new();
        let surface = Surface::new(Arc::clone(authority.service()), gate, options, shutdown.clone());
        let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
        let options = ServerOptions {
            reactors: 1,
            heavy_reactors: 0,
            connections_max: 100,
            header_bytes_max: 16 * 1024,
            idle_timeout: LONG,
            responses: Arc::new(ResponseBudget::new(64 * 1024 * 1024)),
        };
        let server = Server::start(listener, surface, options, shutdown).expect("threads");
        Self { authority, server }
    }

    /// Stops the surface and then the authority, whose folder stays.
    pub(crate) fn stop(self) -> Authority {
        let Self { mut authority, server } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(server.drain(LONG));
        authority.service().close();
        authority.service = None;
        authority
    }

    pub(crate) fn anyone() -> Self {
        Self::open(Arc::new(OpenGate), SurfaceOptions::default())
    }

    pub(crate) fn connect(&self, head: &str, body: &[u8]) -> BufReader<TcpStream> {
        let mut socket = TcpStream::connect(self.server.address()).expect("the server listens");
        socket.set_read_timeout(Some(LONG)).expect("a timeout");
        let length = body.len();
        write!(socket, "{head}\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n")
            .expect("sent");
        socket.write_all(body).expect("sent");
        BufReader::new(socket)
    }

    pub(crate) fn ask(&self, head: &str, body: &[u8]) -> Answer {
        let mut reader = self.connect(head, body);
        let (status, headers) = head_of(&mut reader);
        let mut body = Vec::new();
        reader.read_to_end(&mut body).expect("a whole answer");
        Answer { status, headers, body }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1"), b"")
    }

    pub(crate) fn post(&self, operation: &str, encoding: Encoding, body: &[u8]) -> Answer {
        let media_type = encoding.media_type();
        let head = format!("POST /feeds/v1/spaces/space/{operation} HTTP/1.1\r\ncontent-type: {media_type}");
        self.ask(&head, body)
    }
}

pub(crate) fn head_of(reader: &mut impl BufRead) -> (u16, Vec<(String, String)>) {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a head");
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let status = lines[0].split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let pair =
        |line: &String| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    (status, lines[1..].iter().filter_map(pair).collect())
}

/// One of each kind of request, and how the path calls it.
pub(crate) fn script() -> Vec<(&'static str, Operation, Request)> {
    let one = append(vec![block("f", "a", 0, "x"), block("g", "a", 0, "y")]);
    vec![
        ("append", Operation::Append, Request::Append(one.clone())),
        ("append", Operation::Append, Request::Append(one)),
        ("query", Operation::Query, Request::Query(QueryRequest::default())),
        (
            "query",
            Operation::Query,
            Request::Query(QueryRequest { cursor: Some(1), ..QueryRequest::default() }),
        ),
        (
            "query",
            Operation::Query,
            Request::Query(QueryRequest { subscription_id: Some(id("no")), ..QueryRequest::default() }),
        ),
        (
            "subscribe",
            Operation::Subscribe,
            Request::Subscribe(SubscribeRequest { all: Some(true), ..SubscribeRequest::default() }),
        ),
        ("feeds", Operation::ListFeeds, Request::ListFeeds(ListFeedsRequest::default())),
    ]
}

#[test]
fn the_same_script_gives_the_same_answers_over_each_transport() {
    let direct = Authority::new();
    let (json, cbor) = (Site::anyone(), Site::anyone());
    for (path, operation, request) in script() {
        let expected = direct.handle(request.clone());
        for (site, encoding) in [(&json, Encoding::Json), (&cbor, Encoding::Cbor)] {
            let answer = site.post(path, encoding, &encoding.encode(&request).unwrap());
            assert_eq!(answer.header("content-type"), Some(encoding.media_type()));
            let message = encoding.decode_message(&answer.body, Some(operation)).unwrap();
            assert_eq!(message, Message::Response(expected.clone()), "{path} {encoding:?}");
            let status = if let Response::Error(error) = &expected {
                ErrorCode::parse(&error.code).unwrap().http_status()
            } else {
                200
            };
            assert_eq!(answer.status, status);
        }
    }
}

#[test]
fn a_message_may_be_named_by_its_tag_and_answered_in_the_other_encoding() {
    let site = Site::anyone();
    let body = br#"{"_tag":"ListFeedsRequest","requestId":"7"}"#;
    let answer = site.ask("POST /feeds/v1/spaces/space HTTP/1.1\r\naccept: application/cbor", body);
    let message = Encoding::Cbor.decode_message(&answer.body, None).unwrap();
    assert!(
        matches!(message, Message::Response(Response::ListFeeds(list)) if list.request_id.as_str() == "7")
    );
}

#[test]
fn what_is_no_request_is_refused_in_the_shape_of_the_protocol() {
    let site = Site::anyone();
    let status = |head: &str, body: &[u8]| {
        let answer = site.ask(head, body);
        let json = answer.json();
        let code = json["code"].as_str().unwrap();
        assert!(!code.is_empty() && json["_tag"] == "Error");
        assert_eq!(answer.header("alluvium-error"), Some(code));
        answer.status
    };
    assert_eq!(status("POST /feeds/v1/spaces/space/append HTTP/1.1", b"{"), 400);
    assert_eq!(status("POST /feeds/v1/spaces/space/append HTTP/1.1\r\ncontent-type: text/html", b"{}"), 415);
    assert_eq!(status("POST /feeds/v1/spaces/space/dance HTTP/1.1", b"{}"), 404);
    assert_eq!(status("GET /feeds/v1/spaces/space/append HTTP/1.1", b""), 405);
    assert_eq!(status("POST /feeds/v1/spaces/%00/append HTTP/1.1", b"{}"), 400);
    assert_eq!(status("POST /feeds/v1/spaces/space/streams/f HTTP/1.1", b"{}"), 405);
    let bad = site.post("query", Encoding::Json, br#"{"requestId":"mine","cursor":1.5}"#);
    assert_eq!((bad.status, &bad.json()["requestId"]), (400, &serde_json::json!("mine")));
    let large = vec![b' '; 8 * 1024 * 1024 + 1];
    assert_eq!(status("POST /feeds/v1/spaces/space/append HTTP/1.1", &large), 413);
}

#[test]
fn a_refusal_has_the_encoding_that_its_request_accepts() {
    let site = Site::anyone();
    let tag = |head: &str, body: &[u8], encoding: Encoding| {
        let answer = site.ask(head, body);
        assert_eq!(answer.header("content-type"), Some(encoding.media_type()), "{head}");
        let message = encoding.decode_message(&answer.body, None).unwrap();
        assert!(matches!(message, Message::Response(Response::Error(_))), "{head}: {message:?}");
    };
    let cbor = "content-type: application/cbor";
    for path in ["query", "append", "dance"] {
        let post = format!("POST /feeds/v1/spaces/space/{path} HTTP/1.1");
        tag(&format!("{post}\r\n{cbor}"), b"\xff", Encoding::Cbor);
        tag(&format!("{post}\r\n{cbor}\r\naccept: application/json"), b"\xff", Encoding::Json);
        tag(&format!("{post}\r\naccept: application/cbor"), b"{", Encoding::Cbor);
        let accept = "accept: application/cbor;q=0.4, application/json;q=0.5";
        tag(&format!("{post}\r\n{cbor}\r\n{accept}"), b"\xff", Encoding::Json);
        tag(&format!("{post}\r\ncontent-type: text/html"), b"", Encoding::Json);
    }
    tag("GET /feeds/v1/spaces/space/append HTTP/1.1\r\naccept: application/cbor", b"", Encoding::Cbor);
}

/// Lets in whoever knows the word, to read only.
struct WordGate;

impl Gate for WordGate {
    fn decide(&self, credentials: Option<&str>) -> Result<Principal, ErrorCode> {
        match credentials {
            Some("word") => Ok(Principal { may_append: false, ..Principal::anyone() }),
            _ => Err(ErrorCode::Unauthorized),
        }
    }
}

#[test]
fn the_gate_decides_for_every_path() {
    let site = Site::open(Arc::new(WordGate), SurfaceOptions::default());
    assert_eq!(site.get("/feeds/v1/spaces/space/streams/f").status, 401);
    assert_eq!(site.post("feeds", Encoding::Json, b"{}").status, 401);
    let known = |operation: &str, body: &[u8]| {
        let head = format!("POST /feeds/v1/spaces/space/{operation} HTTP/1.1\r\nauthorization: Bearer word");
        site.ask(&head, body).status
    };
    assert_eq!(known("feeds", b"{}"), 200);
    assert_eq!(known("append", br#"{"blocks":[]}"#), 403);
}

#[test]
fn a_feed_is_a_stream_to_catch_up_with() {
    let site = Site::anyone();
    site.authority
        .append(append((0..3).map(|n| block(if n == 1 { "g" } else { "f" }, "a", n, "x")).collect()));
    let answer = site.get("/feeds/v1/spaces/space/streams/f?offset=-1");
    let positions: Vec<_> =
        answer.json().as_array().unwrap().iter().map(|b| b["position"].as_u64().unwrap()).collect();
    assert_eq!((answer.status, positions), (200, vec![1, 3]));
    let next = answer.header("stream-next-offset").unwrap().to_owned();
    assert_eq!((&next[..16], answer.header("stream-up-to-date")), ("0000000000000003", Some("true")));
    site.authority.append(append(vec![block("f", "a", 9, "new")]));
    let answer = site.get(&format!("/feeds/v1/spaces/space/streams/f?offset={next}"));
    assert_eq!(answer.json().as_array().unwrap().len(), 1);
    let now = site.get("/feeds/v1/spaces/space/streams/f?offset=now");
    assert_eq!(
        (&now.body[..], &now.header("stream-next-offset").unwrap()[..16]),
        (&b"[]"[..], "0000000000000004")
    );
    assert_eq!(site.get("/feeds/v1/spaces/space/streams/f?offset=7").status, 400);
}

#[test]
fn a_long_poll_is_answered_by_the_next_block_or_with_nothing() {
    let options =
        SurfaceOptions { long_poll_timeout: Duration::from_millis(50), ..SurfaceOptions::default() };
    let brief = Site::open(Arc::new(OpenGate), options);
    let nothing = brief.get("/feeds/v1/spaces/space/streams/f?offset=now&live=long-poll");
    assert_eq!((nothing.status, nothing.body.len()), (204, 0));
    let site = Site::anyone();
    site.authority.append(append(vec![block("f", "a", 0, "x")]));
    let head = "GET /feeds/v1/spaces/space/streams/f?offset=0000000000000001_0000000000000000&live=long-poll HTTP/1.1";
    let mut waiting = site.connect(head, b"");
    site.post(
        "append",
        Encoding::Json,
        br#"{"blocks":[{"feedId":"f","actorId":"a","sequence":1,"data":"eA=="}]}"#,
    );
    let (status, _) = head_of(&mut waiting);
    let mut body = String::new();
    waiting.read_to_string(&mut body).unwrap();
    assert!(status == 200 && body.contains("\"position\":2"), "{body}");
}

#[test]
fn an_event_stream_has_what_is_there_and_what_follows() {
    let site = Site::anyone();
    site.authority.append(append(vec![block("f", "a", 0, "x")]));
    let mut reader = site.connect("GET /feeds/v1/spaces/space/streams/f?offset=-1&live=sse HTTP/1.1", b"");
    let (status, headers) = head_of(&mut reader);
    assert_eq!(status, 200);
    assert!(headers.contains(&("content-type".to_owned(), "text/event-stream".to_owned())));
    let mut until = |wanted: &str| loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the stream ended before {wanted}");
        if line.contains(wanted) {
            return line;
        }
    };
    until("event: data");
    assert!(until("data:[").contains("\"position\":1"));
    assert!(until("streamNextOffset").contains("\"0000000000000001_"));
    site.post(
        "append",
        Encoding::Json,
        br#"{"blocks":[{"feedId":"f","actorId":"a","sequence":1,"data":"eA=="}]}"#,
    );
    assert!(until("data:[").contains("\"position\":2"));
    assert!(until("streamNextOffset").contains("\"upToDate\":true"));
}

#[test]
fn who_sends_first_and_reads_then_sees_why_it_was_refused_and_may_go_on() {
    let site = Site::open(Arc::new(WordGate), SurfaceOptions::default());
    let body = vec![b' '; 3 * 1024 * 1024];
    for (head, status) in [
        ("POST /feeds/v1/spaces/space/dance HTTP/1.1", 404),
        ("PUT /feeds/v1/spaces/space/append HTTP/1.1", 405),
        ("POST /feeds/v1/spaces/space/append HTTP/1.1", 401),
        (
            "POST /feeds/v1/spaces/space/append HTTP/1.1\r\nauthorization: Bearer word\r\ncontent-type: a/b",
            415,
        ),
    ] {
        let mut socket = TcpStream::connect(site.server.address()).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        for _ in 0..2 {
            write!(socket, "{head}\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len()).unwrap();
            socket.write_all(&body).unwrap();
            let mut reader = BufReader::new(&socket);
            let (answered, headers) = head_of(&mut reader);
            assert_eq!(answered, status, "{head}");
            let length =
                headers.iter().find(|(name, _)| name == "content-length").unwrap().1.parse().unwrap();
            let mut answer = vec![0; length];
            reader.read_exact(&mut answer).unwrap();
        }
    }
}

#[test]
fn a_warning_stands_in_the_head_too() {
    let site = Site::anyone();
    let old = br#"{"blocks":[{"actorId":"a","sequence":0,"timestamp":1,"data":"eA=="}]}"#;
    let answer = site.post("append", Encoding::Json, old);
    assert_eq!(answer.status, 200);
    assert!(answer.header("alluvium-warning").is_some_and(|warning| warning.contains("clock")));
    let now =
        site.post("append", Encoding::Json, br#"{"blocks":[{"actorId":"a","sequence":1,"data":"eA=="}]}"#);
    assert_eq!(now.header("alluvium-warning"), None);
}
