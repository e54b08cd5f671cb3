//! The programs of `docs/subscriptions.md`, taken from there and run.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::access::Tokens;
use crate::check::Report;
use crate::http::Connection;
use crate::server::{Launch, free_address};
use crate::tools;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/subscriptions.md");
/// The longest wait for a worker to say something.
const SILENCE_MAX: Duration = Duration::from_secs(40);
const FLAGS: [&str; 4] = ["--webhook-loopback", "yes", "--long-poll-timeout", "5s"];

/// The programs of a language on the page, in their order.
fn programs(page: &str, language: &str) -> Vec<String> {
    let opening = format!("\n```{language}\n");
    page.split(&opening)
        .skip(1)
        .filter_map(|rest| Some(rest.split_once("\n```")?.0.to_owned() + "\n"))
        .collect()
}

/// What they are run with: where the server is, where the receiver of webhooks listens, and the token for the server, which is
/// empty where there is none.
struct Setting<'a> {
    url: &'a str,
    port: u16,
    token: &'a str,
}

impl Setting<'_> {
    fn put_into<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let Self { url, port, token } = self;
        command.env("ALLUVIUM_URL", url).env("PORT", port.to_string()).env("ALLUVIUM_TOKEN", token)
    }

    fn shell(&self, script: &str) -> Result<()> {
        tools::run(self.put_into(Command::new("sh").args(["-e", "-c", script])))
    }
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
    fn start(command: &mut Command, setting: &Setting<'_>) -> Result<Self> {
        let mut child = setting
            .put_into(command)
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

/// The programs, as they are on the page.
struct Page {
    /// The workers, in files.
    node: PathBuf,
    python: PathBuf,
    /// What makes the subscriptions, and what appends.
    shells: [String; 2],
}

impl Page {
    fn read(folder: &Path) -> Result<Self> {
        let page = fs::read_to_string(PAGE).with_context(|| format!("read `{PAGE}`"))?;
        let program = |language: &str| {
            let [program] =
                programs(&page, language).try_into().ok().context("one program is on the page")?;
            anyhow::Ok::<String>(program)
        };
        let shells =
            programs(&page, "sh").try_into().ok().context("the page has other commands than it had")?;
        let (node, python) = (folder.join("worker.mjs"), folder.join("worker.py"));
        fs::write(&node, program("js")?)?;
        fs::write(&python, program("python")?)?;
        Ok(Self { node, python, shells })
    }

    fn in_python(&self) -> Command {
        let mut command = Command::new("python3");
        command.arg("-u").arg(&self.python);
        command
    }
}

pub(super) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let page = Page::read(scratch.path())?;
    open(binary, &page, &scratch.path().join("open"), report)?;
    guarded(binary, &page, scratch.path(), report)
}

/// On a server that lets everyone in.
fn open(binary: &Path, page: &Page, data_dir: &Path, report: &mut Report) -> Result<()> {
    let server = Launch::new(binary, data_dir, &FLAGS).start()?;
    let setting = Setting { url: &format!("http://{}", server.address), port: free_port()?, token: "" };
    let by_webhook = Worker::start(Command::new("node").arg(&page.node), &setting)?;
    wait_for(SocketAddr::from(([127, 0, 0, 1], setting.port)))?;
    setting.shell(&page.shells[0])?;
    let by_claim = Worker::start(&mut page.in_python(), &setting)?;
    setting.shell(&page.shells[1])?;
    report.check("the worker of the documentation in Node is woken by webhook", || {
        by_webhook.says(&first_said("node"))
    });
    report.check("the worker of the documentation in Python claims what it is woken for", || {
        by_claim.says(&first_said("python"))
    });
    let mut connection = Connection::open(server.address)?;
    let append = |connection: &mut Connection, numbers: Range<u8>| {
        for number in numbers {
            let body = format!("{{\"number\":{number}}}");
            connection
                .send(
                    "PUT",
                    &format!("jobs/{number}"),
                    &[("content-type", "application/json")],
                    body.as_bytes(),
                )?
                .expect(&[201], "create")?;
        }
        anyhow::Ok(())
    };
    let both_say = |numbers: Range<u8>| {
        by_webhook.says(
            &numbers.clone().map(|n| format!("node jobs/{n} {{\"number\":{n}}}")).collect::<Vec<_>>(),
        )?;
        by_claim.says(&numbers.map(|n| format!("python jobs/{n} {{\"number\": {n}}}")).collect::<Vec<_>>())
    };
    append(&mut connection, 2..40)?;
    report.check("and of every stream that comes later, both of them", || both_say(2..40));
    let server = server.kill()?.start()?;
    append(&mut Connection::open(server.address)?, 40..45)?;
    report.check("both go on when the server was killed and started again", || both_say(40..45));
    drop((by_webhook, by_claim));
    server.stop()?;
    Ok(())
}

/// On a server with an access file, with the scopes that the page tells and no others.
fn guarded(binary: &Path, page: &Page, scratch: &Path, report: &mut Report) -> Result<()> {
    let tokens = Tokens::make(
        binary,
        scratch,
        &[
            ("setup", &["admin:/v1/stream/__ds/subscriptions", "write:/v1/stream/wake"]),
            ("node", &["read:/v1/stream/jobs"]),
            (
                "python",
                &["read:/v1/stream/jobs", "read:/v1/stream/wake", "write:/v1/stream/__ds/subscriptions/pool"],
            ),
            ("writer", &["write:/v1/stream/jobs"]),
        ],
    )?;
    let mut launch = Launch::new(binary, &scratch.join("guarded"), &FLAGS);
    launch.flags.extend(tokens.flags());
    let server = launch.start()?;
    let (url, port) = (format!("http://{}", server.address), free_port()?);
    let with = |token| Setting { url: &url, port, token };
    let by_webhook = Worker::start(Command::new("node").arg(&page.node), &with(tokens.of("node")))?;
    wait_for(SocketAddr::from(([127, 0, 0, 1], port)))?;
    with(tokens.of("setup")).shell(&page.shells[0])?;
    let by_claim = Worker::start(&mut page.in_python(), &with(tokens.of("python")))?;
    with(tokens.of("writer")).shell(&page.shells[1])?;
    report.check("with an access file both work with the scopes that the page tells", || {
        by_webhook.says(&first_said("node"))?;
        by_claim.says(&first_said("python"))
    });
    report.check("a worker that is refused ends, and tells why", || {
        let mut refused = page.in_python();
        let output = with("another").put_into(&mut refused).output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success() && told.contains("invalid_token"), "{}: {told}", output.status);
        Ok(())
    });
    drop((by_webhook, by_claim));
    server.stop()?;
    Ok(())
}

/// What a worker prints of what the page appends.
fn first_said(who: &str) -> [String; 2] {
    let space = if who == "python" { " " } else { "" };
    ["this", "that"].map(|what| format!("{who} jobs/1 {{\"do\":{space}\"{what}\"}}"))
}

/// A port that is free now, and nobody else's in the short time until a worker takes it.
fn free_port() -> Result<u16> {
    Ok(free_address()?.port())
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
