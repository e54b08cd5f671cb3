//! What stays open ends when its caller may not go on: by time, and by a change of the file.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use alluvium_env::OsRandom;
use alluvium_websocket::{CloseCode, ConnectOptions, Message, connect};
use anyhow::{Context, Result, bail, ensure};
use http::{HeaderMap, HeaderValue};
use serde_json::json;
use std::sync::Arc;
use tokio::runtime;

use super::{Asker, Signer, Tokens, start, with};
use crate::check::Report;
use crate::http::Connection;
use crate::server::Launch;

/// Well before a response would end by itself, which is after a minute.
const TIME_MAX: Duration = Duration::from_secs(30);
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

pub(super) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let mut tokens = Tokens::make(binary, scratch.path(), &[("operator", &["admin"])])?;
    let signer = Signer::new(3)?;
    signer.issue(&tokens)?;
    let kept = fs::read_to_string(&tokens.file)?;
    for name in ["first", "second", "third", "fourth"] {
        tokens.add(binary, name, &["read", "write"], &[])?;
    }
    let flags = ["--long-poll-timeout", "50s"];
    let logged = start(
        with(Launch::new(binary, &scratch.path().join("data"), &flags), &tokens.flags()),
        scratch.path(),
    )?;
    let address = logged.server.address;
    let operator = Asker::new(address, Some(tokens.of("operator")));
    operator.ask("PUT", "/v1/stream/x", &JSON, b"[1]")?.expect(&[201], "make a stream")?;
    let block = json!({"feedId": "f", "actorId": "w", "sequence": 0, "data": "eA=="});
    let body = json!({"requestId": "a", "blocks": [block]}).to_string();
    operator.ask("POST", "/feeds/v1/spaces/s/append", &JSON, body.as_bytes())?.expect(&[200], "append")?;

    let mut all: Vec<String> = Vec::new();
    for (what, open) in OPEN {
        let short_lived = signer.sign("read write", 3)?;
        report.check(&format!("{what} ends with the time of a token"), || {
            open(address, &short_lived, &mut || Ok(()))
        });
        all.push(short_lived);
    }
    // One after the other is taken out of the file.
    let names = ["first", "second", "third", "fourth"];
    for ((what, open), name) in OPEN.into_iter().zip(names) {
        report.check(&format!("{what} ends when its token is taken back"), || {
            let token = tokens.of(name).to_owned();
            let mut left = kept.clone();
            let rest = fs::read_to_string(&tokens.file)?;
            let entries = rest[kept.len()..].split("[[token]]\n").filter(|entry| !entry.is_empty());
            for entry in entries.filter(|entry| !entry.contains(&format!("\"{name}\""))) {
                left.push_str("[[token]]\n");
                left.push_str(entry);
            }
            open(address, &token, &mut || Ok(fs::write(&tokens.file, &left)?))
        });
    }
    let held = tokens.all();
    logged.finish(
        "open streams",
        &[&held[..], &all.iter().map(String::as_str).collect::<Vec<_>>()].concat(),
        report,
    );
    Ok(())
}

/// Opens something with a token, has done what ends it, and waits until it ends as it should.
type Open = fn(SocketAddr, &str, &mut dyn FnMut() -> Result<()>) -> Result<()>;

const OPEN: [(&str, Open); 4] = [
    ("an event stream", |address, token, end| events(address, token, "/v1/stream/x?offset=-1&live=sse", end)),
    ("an event stream of a feed", |address, token, end| {
        events(address, token, "/feeds/v1/spaces/s/streams/f?offset=-1&live=sse", end)
    }),
    ("a long-poll", long_poll),
    ("a socket of feeds", socket),
];

/// The last chunk comes: an orderly end, as at any other time, and not a broken connection.
fn events(address: SocketAddr, token: &str, target: &str, end: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let began = Instant::now();
    let (mut connection, answer): (Connection, _) =
        Asker::new(address, Some(token)).open("GET", target, &[], b"")?;
    ensure!(answer.status == 200, "status {}", answer.status);
    let mut body = Vec::new();
    ensure!(connection.read_chunk(&mut body)?, "it has ended at once");
    end()?;
    while connection.read_chunk(&mut body)? {}
    ensure!(began.elapsed() < TIME_MAX, "it has ended after {:?}", began.elapsed());
    ensure!(String::from_utf8_lossy(&body).contains("event: control"), "it was no event stream");
    Asker::new(address, Some(token)).ask("GET", target, &[], b"")?.expect(&[401], "come again").map(drop)
}

fn long_poll(address: SocketAddr, token: &str, end: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let began = Instant::now();
    let asker = Asker::new(address, Some(token));
    let tail =
        asker.ask("HEAD", "/v1/stream/x", &[], b"")?.expect(&[200], "ask for the tail")?.next_offset()?;
    let target = format!("/v1/stream/x?offset={tail}&live=long-poll");
    let mut connection = Connection::open(address)?;
    connection.begin("GET", &target, &[("authorization", &format!("Bearer {token}"))])?;
    end()?;
    let answer = connection.read_head()?;
    ensure!(answer.status == 401, "status {}", answer.status);
    ensure!(began.elapsed() < TIME_MAX, "it has ended after {:?}", began.elapsed());
    Ok(())
}

fn socket(address: SocketAddr, token: &str, end: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let talking = async {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::try_from(format!("Bearer {token}"))?);
        let options = ConnectOptions { headers, ..ConnectOptions::default() };
        let url = format!("ws://{address}/feeds/v1/spaces/s/ws");
        let mut socket = connect(&url, options, Arc::new(OsRandom)).await?.socket;
        let query = json!({"_tag": "QueryRequest", "requestId": "q"});
        socket.send(&Message::text(query.to_string())).await?;
        let answer = socket.next().await?.context("it has ended at once")?;
        ensure!(String::from_utf8_lossy(&answer.into_payload()).contains("QueryResponse"), "no answer");
        end()?;
        while socket.next().await?.is_some() {}
        let close = socket.closed_by_peer().context("no close frame")?;
        ensure!(close.code == CloseCode::POLICY, "closed with {close:?}");
        Ok(())
    };
    runtime.block_on(async {
        match tokio::time::timeout(TIME_MAX, talking).await {
            Ok(talked) => talked,
            Err(_elapsed) => bail!("it goes on"),
        }
    })
}
