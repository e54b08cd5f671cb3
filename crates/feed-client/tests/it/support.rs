//! A server of feeds over real sockets, and one that says what a script says.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use alluvium_env::Env;
use alluvium_feed_client::{Client, Id, Options, Server, Space};
use alluvium_feed_store::Durability;
use alluvium_feeds::http::{Surface, SurfaceOptions};
use alluvium_feeds::{Gate, OpenGate, Service};
use alluvium_http::{ResponseBudget, ServerOptions, Shutdown, bind};
use tempfile::TempDir;

/// Far longer than anything takes here.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) fn id(text: &str) -> Id {
    Id::parse(text).expect("an identifier")
}

/// A server of feeds.
pub(crate) struct Site {
    service: Arc<Service>,
    server: alluvium_http::Server<Surface>,
    shutdown: Shutdown,
}

impl Site {
    /// A server over a folder, at an address that may be one that it had before.
    pub(crate) fn start(folder: &TempDir, address: Option<SocketAddr>) -> Self {
        Self::with(folder, address, Arc::new(OpenGate), alluvium_feeds::Limits::default())
    }

    /// One that lets in whom its gate lets in, and accepts so much.
    pub(crate) fn with(
        folder: &TempDir,
        address: Option<SocketAddr>,
        gate: Arc<dyn Gate>,
        limits: alluvium_feeds::Limits,
    ) -> Self {
        let options =
            alluvium_feeds::Options { durability: Durability::Process, limits, ..Default::default() };
        let service = Arc::new(Service::open(folder.path(), Env::real(), options).expect("a service"));
        let shutdown = Shutdown::new();
        let surface = Surface::new(Arc::clone(&service), gate, SurfaceOptions::default(), shutdown.clone());
        let address = address.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let listener = bind(address).expect("a free port");
        let options = ServerOptions {
            reactors: 1,
            heavy_reactors: 0,
            connections_max: 100,
            header_bytes_max: 16 * 1024,
            idle_timeout: LONG,
            responses: Arc::new(ResponseBudget::new(64 * 1024 * 1024)),
        };
        let server =
            alluvium_http::Server::start(listener, surface, options, shutdown.clone()).expect("threads");
        Self { service, server, shutdown }
    }

    /// Messages that were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.service.counted().refused
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub(crate) fn named(&self) -> Server {
        Server::new(format!("http://{}", self.address()))
    }

    /// The same over a WebSocket.
    pub(crate) fn socket(&self) -> Server {
        Server::new(format!("ws://{}", self.address()))
    }

    /// Stops it, and gives its address.
    pub(crate) async fn stop(self) -> SocketAddr {
        let address = self.address();
        self.shutdown.trigger();
        self.server.drain(LONG).await;
        self.service.close();
        address
    }
}

/// A client in a folder of its own, that looks for news by itself only after hours.
pub(crate) struct Peer {
    pub(crate) client: Client,
    pub(crate) folder: TempDir,
}

impl Peer {
    pub(crate) fn new() -> Self {
        Self::with(Options { poll_live_ms: 3_600_000, poll_ms: 3_600_000, ..options() })
    }

    pub(crate) fn with(options: Options) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let client = Client::open(&folder.path().join("r.sqlite"), None, options).expect("a file");
        Self { client, folder }
    }
}

/// Waits until a space has what is wanted.
pub(crate) async fn until(space: &Space, done: impl Fn(&Space) -> bool) {
    let mut changes = space.changes();
    let waiting = async {
        while !done(space) {
            changes.changed().await.expect("it is open");
        }
    };
    tokio::time::timeout(LONG, waiting).await.expect("it comes to that");
}

pub(crate) fn options() -> Options {
    Options { durability: Durability::Process, push_delay_ms: 0, ..Options::default() }
}

/// A server that gives scripted responses, one to each request, and the requests it got.
pub(crate) struct Script {
    pub(crate) address: SocketAddr,
    thread: JoinHandle<Vec<String>>,
}

impl Script {
    /// Each response is written as it is; a connection serves one request.
    pub(crate) fn start(responses: Vec<Vec<u8>>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let thread = std::thread::spawn(move || {
            let serve = |response: &Vec<u8>| {
                let (mut socket, _) = listener.accept().expect("a connection");
                let request = request_of(&mut socket);
                // The client may have seen enough.
                drop(socket.write_all(response));
                request
            };
            responses.iter().map(serve).collect()
        });
        Self { address, thread }
    }

    pub(crate) fn named(&self) -> Server {
        Server::new(format!("http://{}", self.address))
    }

    /// The heads of the requests, once all responses are given.
    pub(crate) fn requests(self) -> Vec<String> {
        self.thread.join().expect("the script runs to its end")
    }
}

/// Reads a request and gives its head.
fn request_of(socket: &mut TcpStream) -> String {
    socket.set_read_timeout(Some(LONG)).expect("a timeout");
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("text").to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
    socket.read_exact(&mut body).expect("a body");
    head
}

/// A response with a body, as it goes over the wire.
pub(crate) fn response(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
        .into_bytes()
}

/// A response in JSON.
pub(crate) fn json(status: &str, body: &str) -> Vec<u8> {
    response(status, "content-type: application/json\r\n", body)
}
