//! A thousand subscribers of one space, some of which never read: everyone else hears of every append in time.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use alluvium_env::OsRandom;
use alluvium_websocket::{ConnectOptions, ConnectionOptions, Message, Stream, WebSocket, connect};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::runtime;
use tokio::task::JoinSet;

use crate::check::Report;
use crate::http::Connection;
use crate::procfs;
use crate::server::Launch;

/// Far longer than anything takes here.
const SECONDS_MAX: Duration = Duration::from_mins(2);
/// Connections that are opened at the same time.
const OPENING_MAX: usize = 50;
/// Bytes of blocks that there are before anyone subscribes, so that readers who do not read have something to leave.
const HISTORY_BLOCKS: u64 = 40;
const HISTORY_BLOCK_BYTES: usize = 100 * 1024;
/// What the server may grow by, for each reader that does not read and for each that does.
const SLOW_BYTES_MAX: u64 = 16 * 1024 * 1024;
const QUICK_BYTES_MAX: u64 = 64 * 1024;

/// How many.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Subscribers that read.
    #[arg(long, default_value_t = 980)]
    quick: u64,
    /// Subscribers that ask for much and read nothing.
    #[arg(long, default_value_t = 20)]
    slow: u64,
    /// Appends that are made.
    #[arg(long, default_value_t = 50)]
    appends: u64,
}

/// Opens the sockets, appends, and waits until everyone who reads has heard of the last position.
pub(crate) fn run(binary: &Path, options: &Options, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let server = Launch::new(binary, &scratch.path().join("data"), &[]).start()?;
    let (address, pid) = (server.address, server.pid());
    fill(address)?;
    let before = procfs::resident_bytes(pid)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let name = format!(
        "{} subscribers of one space hear of every append while {} others read nothing",
        options.quick, options.slow
    );
    report.check(&name, || {
        let crowd = async { tokio::time::timeout(SECONDS_MAX, crowd(address, options)).await? };
        let slow = runtime.block_on(crowd)?;
        let grown = procfs::resident_bytes(pid)?.saturating_sub(before);
        println!("        {} MiB more memory with all of them", grown >> 20);
        let allowed = options.slow * SLOW_BYTES_MAX + options.quick * QUICK_BYTES_MAX;
        ensure!(grown <= allowed, "{} MiB more where {} are allowed", grown >> 20, allowed >> 20);
        drop(slow);
        Ok(())
    });
    report.check("the server stops in peace with all of them connected", || {
        let _held = runtime.block_on(async {
            let mut held = Vec::new();
            for number in 0..options.quick.min(100) {
                held.push(subscribed(address, number).await?);
            }
            anyhow::Ok(held)
        })?;
        // Nobody answers the close frames: the time for that is the server's own.
        server.stop().map(drop)
    });
    Ok(())
}

fn fill(address: SocketAddr) -> Result<()> {
    let mut connection = Connection::open(address)?;
    let data = "A".repeat(HISTORY_BLOCK_BYTES / 3 * 4);
    for sequence in 0..HISTORY_BLOCKS {
        append(&mut connection, "history", sequence, &data)?;
    }
    Ok(())
}

/// Appends a block and returns its position.
fn append(connection: &mut Connection, feed: &str, sequence: u64, data: &str) -> Result<u64> {
    let block = json!({ "feedId": feed, "actorId": "writer", "sequence": sequence, "data": data });
    let body = json!({ "requestId": "a", "blocks": [block] }).to_string();
    let headers = [("content-type", "application/json")];
    let answer = connection.call("POST", "/feeds/v1/spaces/crowd/append", &headers, body.as_bytes())?;
    ensure!(answer.status == 200, "status {}", answer.status);
    let answer: Value = serde_json::from_slice(&answer.body)?;
    answer["positions"][0].as_u64().context("no position")
}

async fn crowd(address: SocketAddr, options: &Options) -> Result<Vec<WebSocket<Stream>>> {
    let began = Instant::now();
    let mut slow = Vec::new();
    for number in 0..options.slow {
        let mut socket = subscribed(address, number).await?;
        for request in 0..32 {
            let query =
                json!({ "_tag": "QueryRequest", "requestId": format!("q{request}"), "maxBytes": 1_000_000 });
            socket.send(&Message::text(query.to_string())).await?;
        }
        slow.push(socket);
    }
    let mut opening = JoinSet::new();
    let mut quick = Vec::new();
    for number in 0..options.quick {
        if opening.len() == OPENING_MAX {
            quick.extend(opening.join_next().await.transpose()?.transpose()?);
        }
        opening.spawn(subscribed(address, number));
    }
    while let Some(opened) = opening.join_next().await {
        quick.push(opened??);
    }
    println!(
        "        {} sockets open after {:.1} s",
        quick.len() + slow.len(),
        began.elapsed().as_secs_f64()
    );
    let last = HISTORY_BLOCKS + options.appends;
    let mut hearing = JoinSet::new();
    for socket in quick {
        hearing.spawn(hear(socket, last));
    }
    let began = Instant::now();
    let appends = options.appends;
    let writing = tokio::task::spawn_blocking(move || {
        let mut connection = Connection::open(address)?;
        let mut position = 0;
        for sequence in 0..appends {
            position = append(&mut connection, "live", sequence, "eA==")?;
        }
        anyhow::Ok(position)
    });
    ensure!(writing.await?? == last, "positions are not what they should be");
    let (mut heard, mut hints) = (0, 0);
    while let Some(outcome) = hearing.join_next().await {
        hints += outcome??;
        heard += 1;
    }
    ensure!(heard == options.quick, "{heard} of {} heard of the last append", options.quick);
    println!(
        "        {appends} appends, {hints} hints to {heard} readers in {:.2} s",
        began.elapsed().as_secs_f64()
    );
    Ok(slow)
}

/// A connection with a subscription to everything.
async fn subscribed(address: SocketAddr, number: u64) -> Result<WebSocket<Stream>> {
    let url = format!("ws://{address}/feeds/v1/spaces/crowd/ws");
    let connection = ConnectionOptions { ping_interval: None, ..ConnectionOptions::default() };
    let options = ConnectOptions { connection, timeout: SECONDS_MAX, ..ConnectOptions::default() };
    let mut socket = connect(&url, options, Arc::new(OsRandom)).await?.socket;
    let request = json!({
        "_tag": "SubscribeRequest", "requestId": number.to_string(), "feedIds": ["live"], "push": "hint",
    });
    socket.send(&Message::text(request.to_string())).await?;
    let answer = socket.next().await?.context("closed early")?;
    let answer: Value = serde_json::from_slice(answer.payload())?;
    ensure!(
        answer["_tag"] == "SubscribeResponse" && answer["requestId"] == json!(number.to_string()),
        "{answer}"
    );
    Ok(socket)
}

/// Reads hints until one has the last position. Returns how many came.
async fn hear(mut socket: WebSocket<Stream>, last: u64) -> Result<u64> {
    let (mut position, mut hints) = (0, 0);
    while position < last {
        let message = socket.next().await?.context("closed early")?;
        let hint: Value = serde_json::from_slice(message.payload())?;
        ensure!(hint["_tag"] == "FeedAdvanced" && hint["feedIds"] == json!(["live"]), "{hint}");
        let told = hint["position"].as_u64().context("no position")?;
        ensure!(told > position, "position {told} after {position}");
        (position, hints) = (told, hints + 1);
    }
    Ok(hints)
}
