//! A server, its archive, and clients of both kinds.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::Arc;

use alluvium_atproto::cbor::{Map, Value, encode};
use alluvium_env::sim::SeededRandom;
use alluvium_http::Front;
use alluvium_jetstream::Options;
pub(crate) use alluvium_jetstream_world::{BEGIN, DIR, LONG};
use alluvium_jss::{Event, Kind};
use alluvium_websocket::{ConnectError, ConnectOptions, Connected, Message, Stream, WebSocket, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The shared world, with clients.
pub(crate) struct World(alluvium_jetstream_world::World);

impl Deref for World {
    type Target = alluvium_jetstream_world::World;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Self {
        Self(alluvium_jetstream_world::World::new(options))
    }

    /// Behind a proxy on this machine that says who asks.
    pub(crate) fn behind_proxy(options: Options) -> Self {
        Self(alluvium_jetstream_world::World::fronted(options, proxied(), |_| {}))
    }

    /// The same, and only what is in no block is in memory.
    pub(crate) fn cold(options: Options) -> Self {
        let change = |archive: &mut alluvium_jetstream_archive::Options| archive.hot_bytes = 0;
        Self(alluvium_jetstream_world::World::fronted(options, proxied(), change))
    }

    /// One that takes queries of so many bytes.
    pub(crate) fn with_long_queries(query_bytes_max: usize) -> Self {
        let front = Front { query_bytes_max, ..Front::default() };
        Self(alluvium_jetstream_world::World::fronted(Options::default(), front, |_| {}))
    }

    /// With files that the system keeps.
    pub(crate) fn real(dir: &Path) -> Self {
        Self(alluvium_jetstream_world::World::real(dir))
    }

    pub(crate) async fn subscribe(&self, target: &str) -> Subscribed {
        self.try_subscribe(target, ConnectOptions::default()).await.expect("a subscription")
    }

    pub(crate) async fn try_subscribe(
        &self,
        target: &str,
        options: ConnectOptions,
    ) -> Result<Subscribed, ConnectError> {
        let url = format!("ws://{}{target}", self.address());
        connect(&url, options, Arc::new(SeededRandom::new(7))).await.map(Subscribed)
    }

    /// The status and the text of a refused subscription.
    pub(crate) async fn refused(&self, target: &str) -> (u16, String) {
        match self.try_subscribe(target, ConnectOptions::default()).await {
            Err(ConnectError::Refused(refusal)) => {
                (refusal.status.as_u16(), String::from_utf8_lossy(&refusal.body).into_owned())
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("{target} was not refused"),
        }
    }

    pub(crate) async fn get(&self, target: &str, headers: &str) -> Answer {
        self.ask(&format!("GET {target} HTTP/1.1\r\n{headers}"), b"").await
    }

    pub(crate) async fn post(&self, target: &str, body: &str) -> Answer {
        let head = format!(
            "POST {target} HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        );
        self.ask(&head, body.as_bytes()).await
    }

    pub(crate) async fn ask(&self, head: &str, body: &[u8]) -> Answer {
        let mut socket = TcpStream::connect(self.address()).await.expect("the server listens");
        let request = [format!("{head}host: x\r\nconnection: close\r\n\r\n").as_bytes(), body].concat();
        socket.write_all(&request).await.expect("sent");
        let mut answer = Vec::new();
        tokio::time::timeout(LONG, socket.read_to_end(&mut answer))
            .await
            .expect("in time")
            .expect("an answer");
        Answer::parse(&answer)
    }
}

fn proxied() -> Front {
    Front { trusted_proxies: "127.0.0.1".parse().expect("an address"), ..Front::default() }
}

/// An answer off the wire.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8(bytes[..end].to_vec()).expect("text").to_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Self { status, head, body: bytes[end + 4..].to_vec() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// A client of a live feed.
pub(crate) struct Subscribed(pub(crate) Connected);

impl Subscribed {
    pub(crate) fn socket(&mut self) -> &mut WebSocket<Stream> {
        &mut self.0.socket
    }

    pub(crate) async fn message(&mut self) -> Message {
        let next = tokio::time::timeout(LONG, self.socket().next()).await.expect("in time");
        next.expect("no fault").expect("a message")
    }

    pub(crate) async fn text(&mut self) -> String {
        match self.message().await {
            Message::Text(text) => text.as_str().to_owned(),
            Message::Binary(_) => panic!("a binary message"),
        }
    }

    /// The numbers of the next messages.
    pub(crate) async fn seqs(&mut self, count: usize) -> Vec<u64> {
        let mut seqs = Vec::new();
        for _ in 0..count {
            seqs.push(seq_of(&self.text().await));
        }
        seqs
    }

    pub(crate) async fn say(&mut self, text: &str) {
        self.socket().send(&Message::text(text.to_owned())).await.expect("sent");
    }

    /// Waits for the end, and returns the code and reason of the close frame.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        while tokio::time::timeout(LONG, self.socket().next())
            .await
            .expect("in time")
            .expect("no fault")
            .is_some()
        {}
        let close = self.socket().closed_by_peer().expect("a close frame");
        (close.code.get(), close.reason.as_str().to_owned())
    }
}

pub(crate) fn seq_of(text: &str) -> u64 {
    let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let seq = [&value["cursor"], &value["payload"]["seq"]].into_iter().find_map(serde_json::Value::as_u64);
    seq.unwrap_or_else(|| panic!("no number in {text}"))
}

/// A record of an account.
pub(crate) fn record(did: &str, collection: &str, text: &str) -> Event {
    let entries =
        [("$type", collection), ("text", text)].map(|(k, v)| (k.to_owned(), Value::Text(v.to_owned())));
    Event {
        witnessed_at: 0,
        indexed_at: 0,
        kind: Kind::Create,
        did: did.to_owned(),
        collection: collection.to_owned(),
        rkey: format!("k{text}"),
        rev: "3mptbypluud2a".to_owned(),
        payload: encode(&Value::Map(Map::from_entries(entries.into()).expect("two keys"))).into(),
    }
}

/// An event of another kind.
pub(crate) fn event(kind: Kind, did: &str) -> Event {
    let did_value = Value::Text(did.to_owned());
    let body = Map::from_entries(vec![("did".to_owned(), did_value)]).expect("one key");
    Event {
        kind,
        collection: String::new(),
        rkey: String::new(),
        payload: encode(&Value::Map(body)).into(),
        ..record(did, "", "")
    }
}

/// `count` records of two accounts in two collections.
pub(crate) fn records(count: usize) -> Vec<Event> {
    let one = |n: usize| {
        let did = ["did:web:a.example", "did:web:b.example"][n % 2];
        let collection = ["app.example.note", "app.example.like"][n / 2 % 2];
        record(did, collection, &n.to_string())
    };
    (0..count).map(one).collect()
}
