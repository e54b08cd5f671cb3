//! TLS and HTTP/2 as clients see them: this project's own, curl, Node, and a page in a browser.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::certificates::Certificates;
use crate::check::Report;
use crate::clients::converse;
use crate::server::{Launch, Server};
use crate::tools;

/// The browser, by the names that distributions give it.
const BROWSERS: [&str; 2] = ["chromium", "chromium-browser"];
/// The longest wait for something that the server does by itself.
const SECONDS_MAX: Duration = Duration::from_secs(30);
/// How often it is looked meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// Runs the server with and without certificates, and everyone against it.
pub(crate) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let certificates = Certificates::new(scratch.path())?;
    let plain = Launch::new(binary, &scratch.path().join("plain"), &[]).start()?;
    let flags = [
        "--tls-cert",
        &certificates.certificate().display().to_string(),
        "--tls-key",
        &certificates.key().display().to_string(),
    ];
    let server = Launch::new(binary, &scratch.path().join("data"), &flags).start()?;
    let root = certificates.root();
    report.check("curl speaks each version, in plain text and over TLS", || versions(&plain, &server, &root));
    report.check("alluvium stream trusts a root of one's own, and no other with it", || {
        streams(binary, &server, &root, &certificates.certificate())
    });
    report.check("alluvium feed syncs over TLS, by requests and over a WebSocket", || {
        feeds(binary, &server, &root, scratch.path())
    });
    let node = tools::node_project()?;
    let script = |name: &str| {
        let mut script = Command::new("node");
        script
            .arg(name)
            .current_dir(&node)
            .env("ALLUVIUM_TEST_URL", format!("https://{}", server.address))
            .env("ALLUVIUM_TEST_PLAIN", format!("http://{}", plain.address))
            .env("ALLUVIUM_TEST_ROOT", &root)
            .env("ALLUVIUM_TEST_CERTIFICATE", certificates.certificate());
        script
    };
    converse("Node", script("http2.js"), report, |_| anyhow::bail!("there is nothing to restart"))?;
    let chromium = tools::debian_tool_of(&BROWSERS)?;
    let mut browser = script("browser.js");
    browser.env("ALLUVIUM_TEST_CHROMIUM", chromium);
    converse("Chromium", browser, report, |_| anyhow::bail!("there is nothing to restart"))?;
    report.check("new certificates are taken up without a connection lost, and broken ones are not", || {
        renewed(&server, &certificates)
    });
    report.check("a certificate that cannot be used is told of at the start", || {
        refused(binary, scratch.path())
    });
    report.check("both servers stop in peace", || {
        plain.stop()?;
        server.stop().map(drop)
    });
    Ok(())
}

/// Runs a program to its end.
fn output(command: &mut Command) -> Result<Output> {
    command.stdin(Stdio::null()).output().with_context(|| format!("run {command:?}"))
}

/// Runs a program that is to succeed, and gives what it said.
fn said(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {error}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

fn versions(plain: &Server, server: &Server, root: &Path) -> Result<()> {
    let (plain, tls) = (
        format!("http://{}/v1/stream/none", plain.address),
        format!("https://{}/v1/stream/none", server.address),
    );
    for (flag, url, version) in [
        ("--http1.1", &plain, "1.1"),
        ("--http2-prior-knowledge", &plain, "2"),
        // Offered an upgrade, the server goes on as it was asked first.
        ("--http2", &plain, "1.1"),
        ("--http1.1", &tls, "1.1"),
        ("--http2", &tls, "2"),
        ("--tls-max=1.2", &tls, "2"),
    ] {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--output", "/dev/null", "--write-out"])
            .arg("%{http_version} %{http_code}")
            .args(flag.split('='))
            .arg("--cacert")
            .arg(root)
            .arg(url);
        let got = said(&mut curl)?;
        ensure!(got == format!("{version} 404"), "{flag} {url}: `{got}`");
    }
    let location = said(
        Command::new("curl")
            .args(["--silent", "--include", "--request", "PUT", "--cacert"])
            .arg(root)
            .arg(format!("https://{}/v1/stream/located", server.address)),
    )?;
    ensure!(location.to_lowercase().contains("location: https://"), "{location}");
    Ok(())
}

fn alluvium(binary: &Path, server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command.args(arguments).env("ALLUVIUM_URL", format!("https://{}", server.address));
    command
}

fn streams(binary: &Path, server: &Server, root: &Path, other: &Path) -> Result<()> {
    let quick = ["--give-up-after", "1"];
    said(
        alluvium(binary, server, &["stream", "create", "cli/tls", "--content-type", "text/plain"])
            .arg("--tls-ca")
            .arg(root),
    )?;
    said(
        alluvium(binary, server, &["stream", "append", "cli/tls", "--message", "hello"])
            .env("ALLUVIUM_TLS_CA", root),
    )?;
    let read = said(alluvium(binary, server, &["stream", "read", "cli/tls"]).arg("--tls-ca").arg(root))?;
    ensure!(read.contains("hello"), "`{read}` was read");
    let top = ["top", "--once", "--interval", "1"];
    let shown = said(alluvium(binary, server, &top).arg("--tls-ca").arg(root))?;
    ensure!(shown.contains("ready"), "`{shown}` was shown");
    for refused in [
        output(alluvium(binary, server, &["stream", "read", "cli/tls"]).args(quick))?,
        output(&mut alluvium(binary, server, &top))?,
        output(
            alluvium(binary, server, &["stream", "read", "cli/tls"])
                .args(quick)
                .arg("--tls-ca")
                .arg(server_key(other)),
        )?,
    ] {
        ensure!(!refused.status.success(), "it was believed");
        ensure!(!refused.stderr.is_empty(), "nobody says why");
    }
    Ok(())
}

/// The key beside a certificate: in PEM, and no certificate.
fn server_key(certificate: &Path) -> std::path::PathBuf {
    certificate.with_file_name("key.pem")
}

fn feeds(binary: &Path, server: &Server, root: &Path, dir: &Path) -> Result<()> {
    for (scheme, file) in [("https", "requests"), ("wss", "socket")] {
        let url = format!("{scheme}://{}", server.address);
        let (one, other) = (dir.join(format!("{file}-1.sqlite")), dir.join(format!("{file}-2.sqlite")));
        let feed = |db: &Path, arguments: &[&str]| {
            let mut command = Command::new(binary);
            command
                .arg("feed")
                .arg("--db")
                .arg(db)
                .args(["--url", &url, "--tls-ca"])
                .arg(root)
                .args(arguments);
            said(&mut command)
        };
        feed(&one, &["append", file, "-m", "milk", "--sync"])?;
        feed(&other, &["replicate", file])?;
        feed(&other, &["sync"])?;
        let read = feed(&other, &["read", file])?;
        ensure!(read.contains("milk"), "{scheme}: `{read}` was read");
    }
    Ok(())
}

/// The certificate that new connections get.
fn shown(server: &Server, certificates: &Certificates) -> Result<String> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--output", "/dev/null", "--write-out", "%{certs}", "--cacert"])
        .arg(certificates.root())
        .arg(format!("https://{}/", server.address));
    let shown = said(&mut curl)?;
    ensure!(shown.contains("BEGIN CERTIFICATE"), "curl shows no certificate");
    Ok(shown)
}

fn until(what: &str, mut is: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + SECONDS_MAX;
    while !is()? {
        ensure!(Instant::now() < deadline, "{what}: not within {} s", SECONDS_MAX.as_secs());
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn renewed(server: &Server, certificates: &Certificates) -> Result<()> {
    let url = format!("https://{}/v1/stream/kept", server.address);
    let curl = |arguments: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--no-buffer", "--cacert"]).arg(certificates.root());
        curl.args(arguments);
        curl
    };
    said(&mut curl(&["--request", "PUT", "--header", "content-type: text/plain", &url]))?;
    let mut tail = curl(&["--http2", &format!("{url}?offset=-1&live=sse")])
        .stdout(Stdio::piped())
        .spawn()
        .context("run curl")?;
    let mut heard = tail.stdout.take().context("no stdout")?;
    read_until(&mut heard, b"control")?;
    let shown = || shown(server, certificates);
    let first = shown()?;
    // By a signal, at once; and then by itself.
    certificates.renew()?;
    kill_process(Pid::from_raw(i32::try_from(server.pid())?).context("no process")?, Signal::HUP)?;
    until("a signal", || Ok(shown()? != first))?;
    let second = shown()?;
    certificates.renew()?;
    until("a change", || Ok(shown()? != second))?;
    let third = shown()?;
    std::fs::write(certificates.certificate(), "-----BEGIN CERTIFICATE-----\nnothing\n")?;
    until("the log of a broken one", || Ok(server.output().contains("the old ones stay in use")))?;
    ensure!(shown()? == third, "another certificate is in use");
    certificates.renew()?;
    until("the next good one", || Ok(shown()? != third))?;
    // The tail that was there before all of this is there still.
    said(&mut curl(&[
        "--request",
        "POST",
        "--header",
        "content-type: text/plain",
        "--data",
        "kept-alive",
        &url,
    ]))?;
    read_until(&mut heard, b"kept-alive")?;
    tail.kill()?;
    tail.wait()?;
    Ok(())
}

fn read_until(stream: &mut impl Read, wanted: &[u8]) -> Result<()> {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(wanted) {
        ensure!(stream.read(&mut byte)? == 1, "it ends before {}", String::from_utf8_lossy(wanted));
        seen.extend(byte);
    }
    Ok(())
}

fn refused(binary: &Path, dir: &Path) -> Result<()> {
    let bad = dir.join("bad.pem");
    std::fs::write(&bad, "nothing")?;
    for (flags, code, word) in [
        (vec!["--tls-cert", "bad.pem", "--tls-key", "key.pem"], 78, "bad.pem"),
        (vec!["--tls-cert", "cert.pem", "--tls-key", "missing.pem"], 78, "missing.pem"),
        (vec!["--tls-cert", "cert.pem"], 78, "tls-key"),
    ] {
        let mut serve = Command::new(binary);
        serve
            .current_dir(dir)
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir", "refused"])
            .args(&flags);
        let output = output(&mut serve)?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(code), "{flags:?}: {}: {error}", output.status);
        ensure!(error.contains(word), "{flags:?}: {error}");
    }
    ensure!(!dir.join("refused").exists(), "a data directory was made");
    Ok(())
}
