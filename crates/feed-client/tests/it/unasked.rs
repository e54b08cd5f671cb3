//! A server that tells of news that aren't there, whenever it is asked anything: over either way, it is asked about them
//! once, and then left alone. Waits are hours here, so that what is counted is what is asked at once.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium_env::Env;
use alluvium_feed_client::{From, Options, Server};
use alluvium_feed_protocol::{
    Advanced, Block, BlocksPushed, Data, Encoding, FeedAdvanced, Id, QueryRequest, QueryResponse, Request,
    Response, Token,
};
use alluvium_feed_store::Durability;
use alluvium_feeds::{Principal, Service};
use alluvium_websocket::{AcceptOptions, ConnectionOptions, Message, WebSocket, accept};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use ureq::http;

use crate::support::{Peer, id, options, until};

/// What is told after an answer of the server: of this subscription, with the highest position that there is.
type Lie = fn(Id, u64) -> Advanced;

/// What a liar was asked.
#[derive(Debug, Default)]
struct Asked {
    queries: AtomicU64,
    /// Of those that may be held back, that is.
    waiting: AtomicU64,
}

/// A service that answers what is so, and tells lies.
struct Liar {
    service: Service,
    lie: Lie,
    asked: Asked,
    /// How often it has lied.
    count: AtomicU64,
    _folder: TempDir,
}

impl Liar {
    async fn start(lie: Lie) -> (Arc<Self>, SocketAddr) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let options = alluvium_feeds::Options { durability: Durability::Process, ..Default::default() };
        let service = Service::open(folder.path(), Env::real(), options).expect("a service");
        let (asked, count) = (Asked::default(), AtomicU64::new(0));
        let liar = Arc::new(Self { service, lie, asked, count, _folder: folder });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let accepting = Arc::clone(&liar);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&accepting).serve(socket));
            }
        });
        (liar, address)
    }

    /// One connection, until it ends in whatever way.
    async fn serve(self: Arc<Self>, mut socket: TcpStream) {
        while let Some(head) = head_of(&mut socket).await {
            if head.headers().contains_key("upgrade") {
                let options = AcceptOptions { subprotocols: &["feeds.v1.cbor"], deflate: None };
                let accepted = accept(&head, &options).expect("a handshake");
                socket.write_all(&written(&accepted.response)).await.expect("a client");
                return self.talk(WebSocket::server(socket, None, ConnectionOptions::default())).await;
            }
            let length = head.headers()["content-length"].to_str().expect("text");
            let mut body = vec![0; length.parse().expect("a number")];
            socket.read_exact(&mut body).await.expect("a body");
            let request = Encoding::Cbor.decode_request(&body, None).expect("a request");
            let body = Encoding::Cbor.encode(&self.answer(request)).expect("an answer");
            let head = format!("content-type: application/cbor\r\ncontent-length: {}\r\n\r\n", body.len());
            let response = [format!("HTTP/1.1 200 OK\r\n{head}").as_bytes(), &body].concat();
            if socket.write_all(&response).await.is_err() {
                return;
            }
        }
    }

    async fn talk(&self, mut socket: WebSocket<TcpStream>) {
        let mut subscription = None;
        while let Ok(Some(frame)) = socket.next().await {
            let request = Encoding::Cbor.decode_request(frame.payload(), None).expect("a request");
            let response = self.answer(request);
            if let Response::Subscribe(answer) = &response {
                subscription = Some(answer.subscription_id.clone());
            }
            let mut frames = vec![Encoding::Cbor.encode(&response).expect("an answer")];
            for _ in 0..5 {
                let lie = subscription.clone().map(|subscription| (self.lie)(subscription, self.next()));
                frames.extend(lie.map(|lie| Encoding::Cbor.encode(&lie).expect("a message")));
            }
            for frame in frames {
                if socket.send(&Message::binary(frame)).await.is_err() {
                    return;
                }
            }
        }
    }

    /// A position that nothing has, further each time.
    fn next(&self) -> u64 {
        1_000_000 + self.count.fetch_add(1, Ordering::Relaxed)
    }

    /// What is so; but what would be held back is answered at once, with news.
    fn answer(&self, request: Request) -> Response {
        let is_waiting = matches!(&request, Request::Query(query) if query.wait_ms.is_some());
        if matches!(request, Request::Query(_)) {
            let asked = if is_waiting { &self.asked.waiting } else { &self.asked.queries };
            asked.fetch_add(1, Ordering::SeqCst);
        }
        let request = match request {
            Request::Query(query) => Request::Query(QueryRequest { wait_ms: None, ..query }),
            request => request,
        };
        let response = self.service.handle_blocking(&Principal::anyone(), &id("s"), request, None);
        match response {
            Response::Query(page) if is_waiting => {
                let position = self.next();
                Response::Query(QueryResponse {
                    blocks: vec![news(position)],
                    next_cursor: position,
                    max_position: position,
                    ..page
                })
            }
            response => response,
        }
    }
}

/// The head of a request, if one comes.
async fn head_of(socket: &mut TcpStream) -> Option<http::Request<()>> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).await.ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("text");
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or_default().split(' ');
    let mut request = http::Request::builder()
        .method(first.next().unwrap_or_default())
        .uri(first.next().unwrap_or_default());
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        request = request.header(name, value);
    }
    Some(request.body(()).expect("a head"))
}

fn written(response: &http::Response<()>) -> Vec<u8> {
    let mut head = b"HTTP/1.1 101 Switching Protocols\r\n".to_vec();
    for (name, value) in response.headers() {
        head.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    [head, b"\r\n".to_vec()].concat()
}

fn news(position: u64) -> Block {
    Block {
        feed_id: Some(id("f")),
        namespace: None,
        position: Some(position),
        sequence: position,
        actor_id: id("liar"),
        prev_sequence: None,
        prev_actor_id: None,
        timestamp: None,
        data: Data::from(b"not so".to_vec()),
        encryption_key_id: None,
        iv: None,
        signature: None,
    }
}

fn hint(subscription_id: Id, position: u64) -> Advanced {
    Advanced::FeedAdvanced(FeedAdvanced {
        space_id: id("s"),
        subscription_id,
        position,
        feed_ids: vec![id("f")],
        count: 1,
    })
}

/// Blocks of a history that isn't this one.
fn foreign(subscription_id: Id, position: u64) -> Advanced {
    Advanced::BlocksPushed(BlocksPushed {
        space_id: id("s"),
        subscription_id,
        after: 0,
        blocks: vec![news(position)],
        position,
        server_token: Token::from_random(u128::from(position)),
        check: None,
    })
}

/// Blocks that follow on something that isn't here.
fn far(subscription_id: Id, position: u64) -> Advanced {
    let Advanced::BlocksPushed(pushed) = foreign(subscription_id, position) else {
        unreachable!("just made")
    };
    Advanced::BlocksPushed(BlocksPushed { after: position - 1, ..pushed })
}

/// How often a liar is asked while a client pushes a number of blocks, once it has found out: with and without waiting.
async fn asked_while_pushing(lie: Lie, scheme: &str, blocks: u64) -> (u64, u64) {
    let hours = 3_600_000;
    let options = Options {
        backoff_ms_min: hours,
        backoff_ms_max: hours,
        poll_ms: hours,
        poll_live_ms: hours,
        ..options()
    };
    let (liar, address) = Liar::start(lie).await;
    let peer = Peer::with(options);
    let space = peer.client.space(&id("s"));
    space.replicate(&id("f"), From::Beginning).expect("the file");
    let running = space.start(&Server::new(format!("{scheme}://{address}"))).expect("a runtime");
    until(&space, |space| space.status().expect("the file").hints_wait_until.is_some()).await;
    let counted = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
    let before = (counted(&liar.asked.queries), counted(&liar.asked.waiting));
    for number in 0..blocks {
        space.append(&id("f"), None, number.to_string().into_bytes()).expect("the file");
        until(&space, |space| space.status().expect("the file").blocks_to_push == 0).await;
    }
    drop(running);
    (counted(&liar.asked.queries) - before.0, counted(&liar.asked.waiting) - before.1)
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_socket_what_is_told_and_is_not_so_is_looked_at_once() {
    let lies: [(&str, Lie); 3] = [("a hint", hint), ("another history", foreign), ("too far", far)];
    for (what, lie) in lies {
        let (queries, _) = asked_while_pushing(lie, "ws", 30).await;
        // What was pushed is pulled, to settle it.
        assert!(queries <= 2 * 30, "{what}: {queries} queries");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_a_server_that_has_news_that_are_not_so_is_not_asked_for_more() {
    let (queries, waiting) = asked_while_pushing(hint, "http", 200).await;
    assert!(queries <= 2 * 200, "{queries} queries");
    // One that was under way, and one that was about to begin.
    assert!(waiting <= 2, "{waiting} questions for news");
}
