//! The programs of `docs/subscriptions.md`, taken from there and run.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::check::Report;
use crate::http::Connection;
use crate::server::Launch;
use crate::tools;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/subscriptions.md");
/// The longest wait for a worker to say something.
const SILENCE_MAX: Duration = Duration::from_secs(40);

/// The programs of a language on the page, in their order.
fn programs(page: &str, language: &str) -> Vec<String> {
    let opening = format!("\n```{language}\n");
    page.split(&opening)
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("\n```")?.0.to_owned() + "\n"))
        .collect()
}

/// A worker that ends with the test.
struct Worker {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Worker {
    fn start(command: &mut Command, url: &str, port: u16) -> Result<Self> {
        let mut child = command
            .env("ALLUVIUM_URL", url)
            .env("PORT", port.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("run {command:?}"))?;
        let output = BufReader::new(child.stdout.take().context("no stdout")?);
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// Waits until it has printed these lines, in any order and perhaps repeated.
    fn says(&self, expected: &[String]) -> Result<()> {
        let mut missing = expected.to_vec();
        let deadline = Instant::now() + SILENCE_MAX;
        while !missing.is_empty() {
            let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) else {
                bail!("a worker did not print {missing:?}");
            };
            missing.retain(|wanted| *wanted != line);
        }
        Ok(())
    }
}

fn shell(script: &str, url: &str, port: u16) -> Result<()> {
    tools::run(
        Command::new("sh").args(["-e", "-c", script]).env("ALLUVIUM_URL", url).env("PORT", port.to_string()),
    )
}

pub(super) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let page = fs::read_to_string(PAGE).with_context(|| format!("read `{PAGE}`"))?;
    let (node, python, shells) = (programs(&page, "js"), programs(&page, "python"), programs(&page, "sh"));
    ensure!((node.len(), python.len(), shells.len()) == (1, 1, 2), "the page has other programs than it had");
    let scratch = tempfile::tempdir()?;
    let flags = ["--webhook-loopback", "yes", "--long-poll-timeout", "5s"];
    let server = Launch::new(binary, &scratch.path().join("data"), &flags).start()?;
    let url = format!("http://{}", server.address);
    // Free now, and nobody else's in the short time until the worker takes it.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let (node_file, python_file) = (scratch.path().join("worker.mjs"), scratch.path().join("worker.py"));
    fs::write(&node_file, &node[0])?;
    fs::write(&python_file, &python[0])?;
    let by_webhook = Worker::start(Command::new("node").arg(&node_file), &url, port)?;
    wait_for(SocketAddr::from(([127, 0, 0, 1], port)))?;
    shell(&shells[0], &url, port)?;
    let by_claim = Worker::start(Command::new("python3").arg("-u").arg(&python_file), &url, port)?;
    shell(&shells[1], &url, port)?;
    let said = |who: &str, what: &str| {
        format!("{who} jobs/1 {{\"do\":{}\"{what}\"}}", if who == "python" { " " } else { "" })
    };
    report.check("the worker of the documentation in Node is woken by webhook", || {
        by_webhook.says(&[said("node", "this"), said("node", "that")])
    });
    report.check("the worker of the documentation in Python claims what it is woken for", || {
        by_claim.says(&[said("python", "this"), said("python", "that")])
    });
    let mut connection = Connection::open(server.address)?;
    let json = [("content-type", "application/json")];
    for number in 2..40 {
        let body = format!("{{\"number\":{number}}}");
        connection
            .send("PUT", &format!("jobs/{number}"), &json, body.as_bytes())?
            .expect(&[201], "create")?;
    }
    report.check("and of every stream that comes later, both of them", || {
        by_webhook.says(&(2..40).map(|n| format!("node jobs/{n} {{\"number\":{n}}}")).collect::<Vec<_>>())?;
        by_claim.says(&(2..40).map(|n| format!("python jobs/{n} {{\"number\": {n}}}")).collect::<Vec<_>>())
    });
    drop((by_webhook, by_claim));
    server.stop()?;
    Ok(())
}

/// Waits until somebody listens there.
fn wait_for(address: SocketAddr) -> Result<()> {
    let deadline = Instant::now() + SILENCE_MAX;
    while TcpStream::connect(address).is_err() {
        ensure!(Instant::now() < deadline, "nobody listens on {address}");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
