//! The network that is made up: `alluvium jetstream simulate`, as whoever tries it finds it.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::check::Report;
use crate::http::{Connection, Response};

const ACCOUNTS: u32 = 30;
/// Events before the start.
const PAST: u32 = 200;

/// Starts networks and asks them what a consumer would ask.
pub(crate) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let network = Network::start(binary, 7)?;
    report.check("documents lead to hosts that serve repositories", || repositories(network.address));
    report.check("the relay sends its past to a cursor of 0", || subscription(network.address));
    report.check("an armed fault comes once and is counted", || fault(network.address));
    report.check("the same seed gives the same network, another seed another", || {
        let (same, other) = (Network::start(binary, 7)?, Network::start(binary, 8)?);
        let heads = heads(network.address)?;
        ensure!(heads == self::heads(same.address)?, "seed 7 twice differs");
        ensure!(heads != self::heads(other.address)?, "seeds 7 and 8 agree");
        same.stop()?;
        other.stop()
    });
    report.check("a signal ends it with success", || network.stop());
    report.check("a number that no network can have is refused", || {
        let refused = Command::new(binary).args(["jetstream", "simulate", "--accounts", "0"]).output()?;
        let error = String::from_utf8_lossy(&refused.stderr);
        ensure!(refused.status.code() == Some(2) && error.contains("--accounts"), "{refused:?}");
        Ok(())
    });
    Ok(())
}

/// A network, as a process.
pub(crate) struct Network {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Network {
    fn start(binary: &Path, seed: u32) -> Result<Self> {
        Self::with_rate(binary, seed, 0)
    }

    /// A network that goes on by itself, with this many events in a second.
    pub(crate) fn with_rate(binary: &Path, seed: u32, rate: u32) -> Result<Self> {
        let mut child = Command::new(binary)
            .args(["jetstream", "simulate", "--listen", "127.0.0.1:0", "--rate", &rate.to_string()])
            .args(["--seed", &seed.to_string(), "--accounts", &ACCOUNTS.to_string()])
            .args(["--past", &PAST.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().context("no stdout")?;
        let line =
            BufReader::new(output).lines().map_while(Result::ok).find(|line| line.starts_with("directory"));
        let address = line.as_deref().and_then(|line| line.split_once("http://")).context("no directory")?.1;
        let address = address.trim().parse().context(line.clone().unwrap_or_default())?;
        Ok(Self { child, address })
    }

    pub(crate) fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "ended with {status}");
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Already ended and waited for, unless a check failed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn get(address: SocketAddr, path: &str) -> Result<Response> {
    Ok(Connection::open(address)?.call("GET", path, &[], b"")?)
}

fn get_json(address: SocketAddr, path: &str) -> Result<Value> {
    let got = get(address, path)?.expect(&[200], path)?;
    Ok(serde_json::from_slice(&got.body)?)
}

fn did(address: SocketAddr, index: u32) -> Result<String> {
    let account = get_json(address, &format!("/_oracle/account?index={index}"))?;
    Ok(account["did"].as_str().context("no DID")?.to_owned())
}

fn heads(address: SocketAddr) -> Result<Vec<(Value, Value)>> {
    let head = |index| {
        let account = get_json(address, &format!("/_oracle/account?index={index}"))?;
        Ok((account["did"].clone(), account["head"].clone()))
    };
    (0..ACCOUNTS).map(head).collect()
}

fn repositories(address: SocketAddr) -> Result<()> {
    let mut served = 0;
    for index in 0..ACCOUNTS {
        let account = get_json(address, &format!("/_oracle/account?index={index}"))?;
        let did = account["did"].as_str().context("no DID")?;
        let document = get_json(address, &format!("/{did}"))?;
        let endpoint = document["service"][0]["serviceEndpoint"].as_str().context("no host")?;
        let host: SocketAddr = endpoint.strip_prefix("http://").context("no address")?.parse()?;
        let got = get(host, &format!("/xrpc/com.atproto.sync.getRepo?did={did}"))?;
        if account["status"] == "active" {
            let kind = got.header("content-type").map(str::to_owned);
            ensure!(
                got.status == 200 && kind.as_deref() == Some("application/vnd.ipld.car"),
                "{did}: {kind:?}"
            );
            served += 1;
        } else {
            ensure!(got.status == 400, "{did} is away and has status {}", got.status);
        }
    }
    ensure!(served > 20, "{served} are active");
    Ok(())
}

fn subscription(address: SocketAddr) -> Result<()> {
    let mut socket = Connection::open(address)?;
    let headers = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    socket.begin("GET", "/xrpc/com.atproto.sync.subscribeRepos?cursor=0", &headers)?;
    let head = socket.read_head()?;
    ensure!(head.status == 101, "status {}", head.status);
    // RFC 6455, section 1.3.
    ensure!(head.header("sec-websocket-accept") == Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "another key");
    let tip = get_json(address, "/_oracle/firehose-tip")?["seq"].as_u64().context("no tip")?;
    ensure!(tip >= u64::from(PAST), "{tip} frames");
    for number in 1..=tip {
        let message = message(&mut socket)?;
        // `{"t": "#…", "op": 1}` in DAG-CBOR.
        ensure!(message.starts_with(b"\xa2at"), "message {number}: {message:?}");
    }
    Ok(())
}

/// One binary message in one frame, as servers send them (RFC 6455, section 5.2).
fn message(socket: &mut Connection) -> Result<Vec<u8>> {
    let mut head = [0; 2];
    socket.read_exact(&mut head)?;
    ensure!(head[0] == 0x82 && head[1] < 0x80, "not a whole binary message: {head:x?}");
    let mut length = [0; 8];
    match head[1] {
        126 => socket.read_exact(&mut length[6..])?,
        127 => socket.read_exact(&mut length)?,
        short => length[7] = short,
    }
    let mut message = vec![0; usize::try_from(u64::from_be_bytes(length))?];
    socket.read_exact(&mut message)?;
    Ok(message)
}

fn fault(address: SocketAddr) -> Result<()> {
    let did = did(address, 1)?;
    let arm = json!({"fault": {"fault": "plcStatus", "did": did, "status": 503}, "count": 1}).to_string();
    let armed = Connection::open(address)?.call("POST", "/_oracle/faults", &[], arm.as_bytes())?;
    armed.expect(&[200], "arm a fault")?;
    for status in [503, 200] {
        get(address, &format!("/{did}"))?.expect(&[status], "read a document")?;
    }
    let faults = get_json(address, "/_oracle/faults")?;
    ensure!(faults["faults"][0]["fired"] == 1 && faults["faults"][0]["left"] == 0, "{faults}");
    Ok(())
}
