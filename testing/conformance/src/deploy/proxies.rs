//! The proxies of `deploy/` in front of a server, with paths, ports and certificates exchanged and nothing else.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{path, text};
use crate::certificates::Certificates;
use crate::check::Report;
use crate::server::{Launch, Server, free_address};
use crate::sight::{scrape, wait_until};
use crate::tools;

/// The server's silence is shorter than any proxy's patience, which the pages of the manual speak of; a test need not wait for it.
const LONG_POLL: &str = "2s";
/// Within this the server has to notice that a reader is gone: before it sends the comment that it sends into silence every 15 s,
/// which tells it of any reader.
const GONE_MAX: Duration = Duration::from_secs(10);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// One of them: its program, its Debian package and its file in `deploy/`.
#[derive(Clone, Copy, Debug)]
struct Kind {
    name: &'static str,
    package: &'static str,
    file: &'static str,
    /// What is exchanged in the file.
    exchanged: fn(&str, &Place) -> Vec<(String, String)>,
    command: fn(&Path, &Path) -> Command,
}

/// Where one is and what it stands before.
#[derive(Debug)]
struct Place {
    server: SocketAddr,
    proxy: SocketAddr,
    certificate: PathBuf,
    key: PathBuf,
    /// Both in one file.
    pair: PathBuf,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "nginx",
        package: "nginx-light",
        file: "nginx.conf",
        exchanged: |_, place| {
            vec![
                pair("server 127.0.0.1:4437;", format!("server {};", place.server)),
                pair("listen 8443 ssl http2;", format!("listen {} ssl http2;", place.proxy)),
                pair("/etc/alluvium/fullchain.pem", place.certificate.display().to_string()),
                pair("/etc/alluvium/key.pem", place.key.display().to_string()),
                pair("http {", "http {\n    access_log off;".to_owned()),
            ]
        },
        command: |file, dir| {
            let mut nginx = Command::new("nginx");
            let pid = dir.join("nginx.pid");
            nginx.arg("-c").arg(file).arg("-g");
            nginx.arg(format!("daemon off; error_log stderr; pid {};", pid.display()));
            nginx
        },
    },
    Kind {
        name: "haproxy",
        package: "haproxy",
        file: "haproxy.cfg",
        exchanged: |_, place| {
            vec![
                pair("server alluvium 127.0.0.1:4437", format!("server alluvium {}", place.server)),
                pair("bind :8443", format!("bind {}", place.proxy)),
                pair("/etc/alluvium/haproxy.pem", place.pair.display().to_string()),
            ]
        },
        command: |file, _| {
            let mut haproxy = Command::new("haproxy");
            haproxy.args(["-db", "-f"]).arg(file);
            haproxy
        },
    },
    Kind {
        name: "caddy",
        package: "caddy",
        file: "Caddyfile",
        exchanged: |_, place| {
            let (certificate, key) = (place.certificate.display(), place.key.display());
            let site = format!("https://localhost:{} {{\n\ttls {certificate} {key}", place.proxy.port());
            let general = "{\n\tadmin off\n\tauto_https disable_redirects\n}\n";
            vec![
                pair("streams.example {", format!("{general}{site}")),
                pair("reverse_proxy 127.0.0.1:4437", format!("reverse_proxy {}", place.server)),
            ]
        },
        command: |file, dir| {
            let mut caddy = Command::new("caddy");
            caddy.args(["run", "--adapter", "caddyfile", "--config"]).arg(file);
            caddy.env("HOME", dir).env("XDG_DATA_HOME", dir).env("XDG_CONFIG_HOME", dir);
            caddy
        },
    },
];

/// nginx as it must not be, so that it is seen that the script notices.
const GATHERING: Kind = Kind {
    exchanged: |config, place| {
        let mut all = (KINDS[0].exchanged)(config, place);
        all.push(pair("proxy_buffering off;", "proxy_buffering on;".to_owned()));
        all
    },
    ..KINDS[0]
};

fn pair(from: &str, to: String) -> (String, String) {
    (from.to_owned(), to)
}

pub(super) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    tools::debian_tool("curl")?;
    for kind in KINDS {
        tools::debian_program(kind.name, kind.package)?;
    }
    let scratch = tempfile::tempdir()?;
    let certificates = Certificates::new(scratch.path())?;
    let certificates = &certificates;
    // All at once: most of it is waiting.
    let (results, noticed) = thread::scope(|scope| {
        let noticed =
            scope.spawn(|| notices_gathering(binary, &scratch.path().join("gathering"), certificates));
        let all = KINDS.map(|kind| {
            let dir = scratch.path().join(kind.name);
            (kind, scope.spawn(move || tried(kind, binary, &dir, certificates)))
        });
        (all.map(|(kind, thread)| (kind, joined(thread))), joined(noticed))
    });
    for (kind, result) in results {
        match result {
            Ok(found) => found.into_iter().for_each(|(what, result)| {
                report.check(&format!("{}: {what}", kind.name), || result);
            }),
            Err(error) => report.check(kind.name, || Err(error)),
        }
    }
    report.check("nginx with `proxy_buffering on` is noticed", || noticed);
    Ok(())
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked")))
}

/// A check and how it went.
type Found = (String, Result<()>);

/// A proxy that runs; killed when dropped.
#[derive(Debug)]
struct Proxy {
    child: Child,
    url: String,
    root: PathBuf,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // nginx has processes of its own, which it ends with this signal; killed, it would leave them.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            // It may have ended by itself; then there is nobody to signal.
            let _ended = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        drop(self.child.wait());
    }
}

impl Proxy {
    fn start(kind: Kind, place: &Place, dir: &Path, root: PathBuf) -> Result<Self> {
        let mut config = text(kind.file)?;
        for (from, to) in (kind.exchanged)(&config, place) {
            ensure!(config.contains(&from), "`{from}` is not in `{}`", kind.file);
            config = config.replace(&from, &to);
        }
        let file = dir.join(kind.file);
        fs::write(&file, config)?;
        let log = fs::File::create(dir.join("log"))?;
        let mut command = (kind.command)(&file, dir);
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {command:?}"))?;
        let url = format!("https://localhost:{}", place.proxy.port());
        let proxy = Self { child, url, root };
        let told = || fs::read_to_string(dir.join("log")).unwrap_or_default();
        proxy.await_ready().with_context(told)?;
        Ok(proxy)
    }

    fn curl(&self, words: &[&str]) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--no-buffer", "--max-time", "60", "--cacert"])
            .arg(&self.root);
        curl.args(words).stdin(Stdio::null());
        curl
    }

    fn status(&self, words: &[&str], path: &str) -> Result<String> {
        let Output { stdout, .. } = self
            .curl(words)
            .args(["--output", "/dev/null", "--write-out", "%{http_code}"])
            .arg(format!("{}{path}", self.url))
            .output()?;
        Ok(String::from_utf8(stdout)?)
    }

    fn await_ready(&self) -> Result<()> {
        wait_until("the server, through the proxy", || Ok(self.status(&[], "/readyz")? == "200"))
    }
}

/// A server, and a proxy in front of it.
fn both(kind: Kind, binary: &Path, dir: &Path, certificates: &Certificates) -> Result<(Server, Proxy)> {
    fs::create_dir_all(dir)?;
    let flags = ["--trusted-proxies", "127.0.0.1", "--long-poll-timeout", LONG_POLL];
    let mut launch = Launch::new(binary, &dir.join("data"), &flags);
    launch.listen = free_address()?;
    let server = launch.start()?;
    let place = Place {
        server: server.address,
        proxy: free_address()?,
        certificate: certificates.certificate(),
        key: certificates.key(),
        pair: dir.join("pair.pem"),
    };
    fs::write(&place.pair, fs::read_to_string(&place.certificate)? + &fs::read_to_string(&place.key)?)?;
    let proxy = Proxy::start(kind, &place, dir, certificates.root())?;
    Ok((server, proxy))
}

fn tried(kind: Kind, binary: &Path, dir: &Path, certificates: &Certificates) -> Result<Vec<Found>> {
    let (mut server, proxy) = both(kind, binary, dir, certificates)?;
    let mut found = script(&proxy)?;
    for version in ["--http1.1", "--http2"] {
        found.push((
            format!("a reader that has gone is gone at the server, with {version}"),
            gone(&proxy, &server, version),
        ));
    }
    let mut launch = server.stop()?;
    launch.flags.extend(["--address-append-bytes-per-s", "1"].map(str::to_owned));
    server = launch.start()?;
    let again = proxy.await_ready();
    let ok = again.is_ok();
    found.push(("it finds the server again".to_owned(), again));
    if ok {
        found.push(("a client is one address, whatever it says".to_owned(), addresses(&proxy)));
    }
    server.stop()?;
    Ok(found)
}

fn notices_gathering(binary: &Path, dir: &Path, certificates: &Certificates) -> Result<()> {
    let (server, proxy) = both(GATHERING, binary, dir, certificates)?;
    let found = script(&proxy)?;
    let failed: Vec<&str> =
        found.iter().filter(|(_, result)| result.is_err()).map(|(what, _)| what.as_str()).collect();
    let is_it = |what: &&str| what.starts_with("an event comes") && what.contains("over HTTP/1.1");
    ensure!(failed.len() == 1 && failed.iter().all(is_it), "what failed: {failed:?}");
    server.stop().map(drop)
}

/// What `check-proxy.sh` says, line by line.
fn script(proxy: &Proxy) -> Result<Vec<Found>> {
    let output = Command::new("bash")
        .arg(path("check-proxy.sh"))
        .arg(&proxy.url)
        .env("CURL_CA_BUNDLE", &proxy.root)
        .env_remove("TOKEN")
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8(output.stdout)?;
    let mut found: Vec<Found> = said
        .lines()
        .filter_map(|line| {
            let (outcome, what) = line.split_once(' ')?;
            let what = what.trim().to_owned();
            let result = (outcome == "ok").then_some(()).context("`check-proxy.sh` says so");
            Some((what, result))
        })
        .collect();
    let all_ok = found.iter().all(|(_, result)| result.is_ok());
    let agrees = found.len() >= 9 && output.status.success() == all_ok;
    let result = agrees.then_some(()).with_context(|| {
        format!("{} after {said}{}", output.status, String::from_utf8_lossy(&output.stderr))
    });
    found.push(("the script ends as it should".to_owned(), result));
    Ok(found)
}

/// Readers of events that the server holds.
fn readers(server: &Server) -> Result<f64> {
    let metrics = scrape(server.address)?;
    metrics.value("alluvium_waiters", &[("kind", "subscriber")]).context("no such metric")
}

fn gone(proxy: &Proxy, server: &Server, version: &str) -> Result<()> {
    let stream = "/v1/stream/gone";
    proxy.status(&["--request", "PUT", "--header", "content-type: text/plain"], stream)?;
    let before = readers(server)?;
    let mut reader = proxy
        .curl(&[version])
        .arg(format!("{}{stream}?offset=-1&live=sse", proxy.url))
        .stdout(Stdio::null())
        .spawn()?;
    let there = wait_until("a reader", || Ok(readers(server)? > before));
    reader.kill()?;
    reader.wait()?;
    there?;
    let deadline = Instant::now() + GONE_MAX;
    while readers(server)? > before {
        ensure!(Instant::now() < deadline, "the server still holds it after {} s", GONE_MAX.as_secs());
        thread::sleep(LOOK);
    }
    Ok(())
}

/// What one client has used up, it has used up under all names that it makes up; another has not.
fn addresses(proxy: &Proxy) -> Result<()> {
    let body = "x".repeat(1000);
    let append = |interface: &str, header: &str| {
        let words = ["--interface", interface, "--header", header, "--header", "content-type: text/plain"];
        proxy.status(&[&words[..], &["--data", &body]].concat(), "/v1/stream/gone")
    };
    let of = |interface: &str, header: &str, due: &str| {
        let status = append(interface, header)?;
        ensure!(status == due, "{interface} with `{header}`: {status} where {due} was due");
        Ok(())
    };
    of("127.0.0.2", "X-Forwarded-For: 192.0.2.1", "204")?;
    of("127.0.0.2", "X-Forwarded-For: 192.0.2.2", "429")?;
    of("127.0.0.2", "Forwarded: for=192.0.2.3", "429")?;
    of("127.0.0.3", "X-Forwarded-For: 192.0.2.2", "204")
}
