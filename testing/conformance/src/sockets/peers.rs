//! This project's WebSockets against other implementations: npm `ws` and `PyPI` `websockets`, each as client and as server.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use alluvium_env::OsRandom;
use alluvium_websocket::{CloseCode, ConnectOptions, Connected, connect};
use anyhow::{Context, Result, bail, ensure};

use super::{echo, messages};
use crate::check::Report;
use crate::clients::converse;
use crate::tools;

/// Far longer than an exchange takes.
const EXCHANGE_SECONDS_MAX: Duration = Duration::from_mins(1);

/// Both roles, with each implementation.
pub(crate) fn run(report: &mut Report) -> Result<()> {
    let node = tools::node_project()?;
    let (python_dir, interpreter) = tools::python_project()?;
    let javascript = |role: &str| command(Path::new("node"), &["sockets.js", role], &node);
    let python = |role: &str| command(&interpreter, &["-u", "sockets.py", role], &python_dir);

    let server = echo::start()?;
    let url = format!("ws://{}", server.address());
    for (name, mut script) in
        [("npm ws as client", javascript("client")), ("PyPI websockets as client", python("client"))]
    {
        script.env("ALLUVIUM_TEST_URL", &url);
        converse(name, script, report, |_| bail!("there is nothing to restart"))?;
    }
    for (name, script) in
        [("npm ws as server", javascript("server")), ("PyPI websockets as server", python("server"))]
    {
        let peer = Peer::start(script)?;
        for (kind, url) in &peer.servers {
            for path in echo::PATHS {
                report.check(&format!("{name}, {kind}, with our client's {path}"), || exchange(url, path));
            }
        }
    }
    Ok(())
}

fn command(program: &Path, arguments: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(dir);
    command
}

/// A server of another implementation; killed when dropped.
struct Peer {
    child: Child,
    /// How each of its servers compresses, and where it is.
    servers: Vec<(String, String)>,
}

impl Peer {
    /// Starts a script that prints a line `SERVER <kind> <url>` for each of its servers, and then `READY`.
    fn start(mut script: Command) -> Result<Self> {
        let mut child = script.stdout(Stdio::piped()).spawn().with_context(|| format!("run {script:?}"))?;
        let lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        let mut peer = Self { child, servers: Vec::new() };
        for line in lines {
            let line = line?;
            if line == "READY" {
                ensure!(!peer.servers.is_empty(), "no servers");
                return Ok(peer);
            }
            let server = line.strip_prefix("SERVER ").and_then(|rest| rest.rsplit_once(' '));
            let (kind, url) = server.with_context(|| format!("`{line}` names no server"))?;
            peer.servers.push((kind.to_owned(), url.to_owned()));
        }
        bail!("the script ended before its servers were ready")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sends every message and expects it back, then closes.
fn exchange(url: &str, path: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { tokio::time::timeout(EXCHANGE_SECONDS_MAX, exchanged(url, path)).await? })
}

async fn exchanged(url: &str, path: &str) -> Result<()> {
    let options = ConnectOptions {
        subprotocols: vec!["echo".to_owned()],
        deflate: echo::deflate(path),
        ..ConnectOptions::default()
    };
    let Connected { socket, agreed, .. } = connect(url, options, Arc::new(OsRandom)).await?;
    ensure!(agreed.subprotocol.as_deref() == Some("echo"), "subprotocol {:?}", agreed.subprotocol);
    ensure!(agreed.deflate.is_none() || echo::deflate(path).is_some(), "compression that was not asked for");
    let (mut receiver, mut sender) = socket.split();
    let sending = async {
        for message in messages::all() {
            sender.send(&message).await?;
        }
        anyhow::Ok(sender)
    };
    let receiving = async {
        for (number, sent) in messages::all().enumerate() {
            let came = receiver.next().await?.context("closed early")?;
            ensure!(came == sent, "message {number} came back changed");
        }
        Ok(())
    };
    let (mut sender, ()) = tokio::try_join!(sending, receiving)?;
    sender.begin_close(CloseCode::new(4001).context("a valid code")?, "bye");
    ensure!(receiver.next().await?.is_none(), "more messages than were sent");
    let close = receiver.closed_by_peer().context("no close frame")?;
    ensure!(close.code.get() == 4001, "closed with {}", close.code);
    Ok(())
}
