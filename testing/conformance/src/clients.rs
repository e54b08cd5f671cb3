//! The published clients of the protocol, driven over restarts of the server.
//!
//! A client script is an ordinary program of its language. It cannot restart the server itself, so it asks: it
//! prints a line, this side does it and answers with `done`. What it prints:
//!
//! * `RESTART graceful` and `RESTART kill` – stop (SIGTERM) or kill (SIGKILL) the server and start it again on
//!   the same port and data;
//! * `CHECK <name>` – the claim that the lines up to the next `OK` or the script's failure are about;
//! * `OK` – the claim holds.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::check::Report;
use crate::server::{Launch, Server, Store};
use crate::tools;

/// Runs each client's script against a server of its own.
pub(crate) fn run(binary: &Path, store: Store, report: &mut Report) -> Result<()> {
    let node = tools::node_project()?;
    let mut javascript = Command::new("node");
    javascript.arg("clients.js").current_dir(&node);
    drive("npm @durable-streams/client", javascript, (binary, store), report)?;

    let (dir, interpreter) = tools::python_project()?;
    let mut python = Command::new(interpreter);
    python.args(["-u", "clients.py"]).current_dir(&dir);
    drive("PyPI durable-streams", python, (binary, store), report)
}

/// Runs a script against a server of its own, and gives it the restarts that it asks for.
pub(crate) fn drive(
    client: &str,
    mut script: Command,
    (binary, store): (&Path, Store),
    report: &mut Report,
) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let flags = ["--long-poll-timeout", "2s"];
    let launch = Launch::new(binary, &scratch.path().join("data"), &flags).with_store(store);
    let mut server = Some(launch.start()?);
    script.env("ALLUVIUM_TEST_URL", format!("http://{}", server.as_ref().context("it runs")?.address));
    converse(client, script, report, |how| {
        server = Some(restart(server.take().context("it runs")?, how)?);
        Ok(())
    })?;
    server.context("it runs")?.stop()?;
    Ok(())
}

/// Runs a script and listens to what it says.
pub(crate) fn converse(
    client: &str,
    mut script: Command,
    report: &mut Report,
    mut restart: impl FnMut(&str) -> Result<()>,
) -> Result<()> {
    let mut child = script
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {script:?}"))?;
    let mut answers = child.stdin.take().context("no stdin")?;
    let requests = BufReader::new(child.stdout.take().context("no stdout")?);
    let mut claim = None;
    for line in requests.lines() {
        let line = line?;
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("CHECK", name) => claim = Some(format!("{client}: {name}")),
            ("OK", _) => {
                let name = claim.take().context("`OK` without a claim")?;
                report.check(&name, || Ok(()));
            }
            ("RESTART", how) => {
                restart(how)?;
                answers.write_all(b"done\n")?;
            }
            _ => println!("        {line}"),
        }
    }
    let status = child.wait()?;
    match claim {
        Some(name) => report.check(&name, || bail!("the script ended with {status}")),
        None => ensure!(status.success(), "{client}: the script ended with {status} after its last claim"),
    }
    Ok(())
}

fn restart(server: Server, how: &str) -> Result<Server> {
    let launch = match how {
        "graceful" => server.stop()?,
        "kill" => server.kill()?,
        other => bail!("a script asked for a restart of kind `{other}`"),
    };
    launch.start()
}
