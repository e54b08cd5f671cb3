//! A Jetstream that only tokens open: its live feeds end with their token, and its commands present one.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use alluvium_env::OsRandom;
use alluvium_websocket::{CloseCode, ConnectError, ConnectOptions, Stream, WebSocket, connect};
use anyhow::{Context, Result, bail, ensure};
use http::{HeaderMap, HeaderValue};
use tokio::runtime::Runtime;

use super::{Asker, Signer, Tokens, start, with};
use crate::check::Report;
use crate::http::Connection;
use crate::server::Launch;
use crate::simulator::Network;

/// The live feeds.
const FEEDS: [&str; 3] = ["/subscribe", "/subscribe-v2", "/xrpc/network.bsky.jetstream.subscribeEvents"];
/// Well before an event stream would end by itself, which is after a minute.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Exit code of a client that is refused.
const EXIT_DENIED: i32 = 8;

pub(super) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let mut tokens = Tokens::make(binary, scratch.path(), &[("operator", &["admin"])])?;
    let signer = Signer::new(4)?;
    signer.issue(&tokens)?;
    tokens.append("[anyone]\nscopes = []\n")?;
    let kept = std::fs::read_to_string(&tokens.file)?;
    tokens.add(binary, "reader", &["read"], &[])?;
    let network = Network::with_rate(binary, 5, 0)?;
    let (relay, plc) = (format!("ws://{}", network.address), format!("http://{}", network.address));
    let flags = ["--relay", &relay, "--plc", &plc, "--start-cursor", "0", "--allow-private"];
    let small = ["--segment-bytes", "20000", "--block-rows", "16", "--token-in-query"];
    let mut launch = Launch::new(binary, &scratch.path().join("data"), &[&flags[..], &small].concat());
    launch.program.push("jetstream".to_owned());
    let logged = start(with(launch, &tokens.flags()), scratch.path())?;
    let address = logged.server.address;
    let operator = Asker::new(address, Some(tokens.of("operator")));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    report.check("the archive of a closed Jetstream fills", || filled(operator));

    let token = tokens.of("reader").to_owned();
    report.check("a token is found in a query of any length, and the rest of it counts", || {
        long_query(&runtime, address, &token)
    });
    report.check("`jetstream tail` and `backfill` present the token of a flag, a variable or a file", || {
        commands(binary, address, &tokens)
    });
    let short_lived = signer.sign("read", 4)?;
    report.check("all live feeds end with the time of a token, and so does the stream of events", || {
        runtime.block_on(ended(address, &short_lived, || Ok(())))
    });
    report.check("and when the token is taken back", || {
        runtime.block_on(ended(address, &token, || Ok(std::fs::write(&tokens.file, &kept)?)))
    });
    let held = tokens.all();
    logged.finish("a closed Jetstream's feeds", &[&held[..], &[&short_lived]].concat(), report);
    network.stop()
}

fn filled(operator: Asker<'_>) -> Result<()> {
    let began = Instant::now();
    loop {
        let answer = operator.whole("GET", "/status", &[], b"")?.expect(&[200], "the state")?;
        let status: serde_json::Value = serde_json::from_slice(&answer.body)?;
        if status["archive"]["segments"].as_u64() > Some(0) && status["relay"]["inFlight"] == 0 {
            return Ok(());
        }
        ensure!(began.elapsed() < TIME_MAX, "it does not: {status}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn options(token: &str) -> Result<ConnectOptions> {
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::try_from(format!("Bearer {token}"))?);
    Ok(ConnectOptions { headers, ..ConnectOptions::default() })
}

fn long_query(runtime: &Runtime, address: SocketAddr, token: &str) -> Result<()> {
    let others = "&dids=did:web:nobody.example".repeat(5000);
    for (first, last) in
        [(format!("access_token={token}"), String::new()), (String::new(), format!("&access_token={token}"))]
    {
        let target = format!("/streams/events?offset=-1&{first}{others}{last}");
        let answer = Asker::new(address, None).whole("GET", &target, &[], b"")?.expect(&[200], "read")?;
        ensure!(answer.body == b"[]", "the filter does not count");
        runtime.block_on(async {
            let url = format!("ws://{address}{}?{first}{others}{last}", FEEDS[2]);
            connect(&url, ConnectOptions::default(), Arc::new(OsRandom)).await.map(drop)
        })?;
    }
    let target = format!("/streams/events?offset=-1{others}");
    Asker::new(address, None).ask("GET", &target, &[], b"")?.expect(&[401], "read without").map(drop)
}

/// Opens everything that stays open, does what ends it, and waits until all of it has ended as it should.
async fn ended(address: SocketAddr, token: &str, end: impl FnOnce() -> Result<()>) -> Result<()> {
    let began = Instant::now();
    let mut sockets = Vec::new();
    for feed in FEEDS {
        let url = format!("ws://{address}{feed}?cursor=1");
        let mut socket = connect(&url, options(token)?, Arc::new(OsRandom)).await?.socket;
        socket.next().await?.with_context(|| format!("{feed} has ended at once"))?;
        sockets.push((feed, socket));
    }
    let asker = Asker::new(address, Some(token));
    let (mut stream, answer): (Connection, _) =
        asker.open("GET", "/streams/events?offset=now&live=sse", &[], b"")?;
    ensure!(answer.status == 200, "status {}", answer.status);
    end()?;
    let closing = async |feed: &str, mut socket: WebSocket<Stream>| {
        let mut last = String::new();
        while let Some(message) = socket.next().await? {
            last = String::from_utf8_lossy(&message.into_payload()).into_owned();
        }
        let close = socket.closed_by_peer().with_context(|| format!("{feed}: no close frame"))?;
        ensure!(close.code == CloseCode::POLICY, "{feed} was closed with {close:?}");
        // The newest feed has a message for it.
        ensure!(feed != FEEDS[2] || last.contains("\"InvalidToken\""), "{feed}: {last}");
        match connect(&format!("ws://{address}{feed}"), options(token)?, Arc::new(OsRandom)).await {
            Err(ConnectError::Refused(refusal)) if refusal.status == 401 => Ok(()),
            Ok(_) => bail!("{feed}: it is let in again"),
            Err(error) => Err(error.into()),
        }
    };
    for (feed, socket) in sockets {
        match tokio::time::timeout(TIME_MAX, closing(feed, socket)).await {
            Ok(closed) => closed?,
            Err(_elapsed) => bail!("{feed} goes on"),
        }
    }
    let mut body = Vec::new();
    while stream.read_chunk(&mut body)? {}
    ensure!(String::from_utf8_lossy(&body).contains("event: control"), "it was no event stream");
    ensure!(began.elapsed() < TIME_MAX, "the event stream has ended after {:?}", began.elapsed());
    Ok(())
}

fn commands(binary: &Path, address: SocketAddr, tokens: &Tokens) -> Result<()> {
    let url = format!("http://{address}");
    let file = tokens.file.with_extension("reader").display().to_string();
    let token = tokens.of("reader");
    let run = |command: &str, arguments: &[&str], variable: (&str, &str)| -> Result<Output> {
        let mut all = Command::new(binary);
        all.args(["jetstream", command, &url, "--count", "3", "--cursor", "1", "--give-up-after", "20"]);
        all.args(arguments).env_remove("ALLUVIUM_TOKEN").env_remove("ALLUVIUM_TOKEN_FILE");
        all.env(variable.0, variable.1).stdin(Stdio::null()).output().context("run it")
    };
    for command in ["tail", "backfill"] {
        for (arguments, variable) in [
            (&["--token", token][..], ("UNUSED", "")),
            (&["--token-file", &file], ("UNUSED", "")),
            (&[], ("ALLUVIUM_TOKEN", token)),
            (&[], ("ALLUVIUM_TOKEN_FILE", file.as_str())),
        ] {
            let output = run(command, arguments, variable)?;
            let (lines, said) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
            ensure!(output.status.success(), "{command} by {:?}: {said}", (arguments.first(), variable.0));
            ensure!(lines.lines().count() == 3, "{command}: {lines}");
            ensure!(!said.contains(token), "{command} has shown the token");
        }
        for arguments in [&[][..], &["--token", "another"]] {
            let output = run(command, arguments, ("UNUSED", ""))?;
            ensure!(output.status.code() == Some(EXIT_DENIED), "{command} without a token: {output:?}");
        }
    }
    Ok(())
}
