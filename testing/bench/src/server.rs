//! Servers that run for the length of one measurement: starting, waiting until ready, stopping, restarting.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::clock;
use crate::http::{Connection, Method, request};
use crate::procfs;
use crate::target::{Endpoint, Origin, Target};

/// How often a server that starts or stops is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The longest wait for a server to stop after a signal.
const STOP_TIME_MAX: Duration = Duration::from_mins(1);
/// The longest wait for one answer of a server that is starting.
const PROBE_TIME_MAX: Duration = Duration::from_secs(5);

/// How the benchmark starts servers.
#[derive(Clone, Debug)]
pub(crate) struct LaunchOptions {
    /// Where data directories are made; the system's temporary directory if not told.
    pub(crate) data_root: Option<PathBuf>,
    /// The path that streams live under.
    pub(crate) mount: String,
    /// Lets servers write to the benchmark's own standard error.
    pub(crate) show_output: bool,
    /// The longest wait for a server to answer after its start.
    pub(crate) ready_within: Duration,
    /// Presented with every request, to servers that want one.
    pub(crate) token: Option<String>,
    /// What is asked for to see whether a server answers, below where streams live: anything but a status of 500 and above
    /// will do.
    pub(crate) probe: &'static str,
    /// Host and port of the relay of a Jetstream.
    pub(crate) relay: Option<String>,
}

/// What is asked of a server of streams to see whether it answers.
pub(crate) const STREAM_PROBE: &str = "readiness-probe?offset=-1";

/// How a server is told to stop.
#[derive(Copy, Clone, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StopSignal {
    /// SIGTERM: it may tidy up.
    Term,
    /// SIGKILL: it may not.
    Kill,
}

/// A target that runs and answers.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) endpoint: Endpoint,
    /// Its process, if known.
    pub(crate) pid: Option<u32>,
    data_dir: Option<PathBuf>,
    launched: Option<Launched>,
}

/// A server that the benchmark has started; killed and its data removed when dropped.
#[derive(Debug)]
struct Launched {
    child: Child,
    command: String,
    options: LaunchOptions,
    dir: TempDir,
}

impl Drop for Launched {
    fn drop(&mut self) {
        // Fails only if it has ended already, which is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What restarting took.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Restart {
    /// From the signal to the end of the process.
    pub(crate) stop: Duration,
    /// From the start of the process to the first successful read.
    pub(crate) first_read: Duration,
}

impl Session {
    /// Starts the target with a fresh data directory, or finds the running one, and waits until it answers.
    pub(crate) async fn start(target: &Target, options: &LaunchOptions) -> anyhow::Result<Self> {
        let session = match &target.origin {
            Origin::Running(endpoint) => {
                let local = endpoint.address.ip().is_loopback();
                let found = || local.then(|| procfs::listener(endpoint.address.port())).flatten();
                let pid = target.pid.or_else(found);
                let data_dir = target.data_dir.clone();
                Self { endpoint: endpoint.clone(), pid, data_dir, launched: None }
            }
            Origin::Command(command) => {
                let dir = make_data_dir(options)?;
                let port = free_port()?;
                let child = launch(command, port, dir.path(), options)?;
                Self {
                    endpoint: Endpoint::local(port, &options.mount).with_token(options.token.as_deref()),
                    pid: Some(child.id()),
                    data_dir: Some(dir.path().to_owned()),
                    launched: Some(Launched {
                        child,
                        command: command.clone(),
                        options: options.clone(),
                        dir,
                    }),
                }
            }
        };
        let mut session = session;
        session
            .answers(options.probe, options.ready_within, |status| status < 500)
            .await
            .with_context(|| format!("waiting for `{}` to answer", target.name))?;
        Ok(session)
    }

    /// Whether this server can be restarted: the benchmark has to have started it.
    pub(crate) fn can_restart(&self) -> bool {
        self.launched.is_some()
    }

    /// Stops the server, starts it again on the same data, and waits until `resource` is read successfully.
    pub(crate) async fn restart(&mut self, signal: StopSignal, resource: &str) -> anyhow::Result<Restart> {
        let Some(launched) = &mut self.launched else { bail!("only a server started here can be restarted") };
        let (ready_within, port) = (launched.options.ready_within, self.endpoint.address.port());
        let stopping = clock::now();
        stop(&mut launched.child, signal).await?;
        let stop = stopping.elapsed();
        let starting = clock::now();
        launched.child = launch(&launched.command, port, launched.dir.path(), &launched.options)?;
        self.pid = Some(launched.child.id());
        self.answers(resource, ready_within, |status| status == 200)
            .await
            .context("waiting for the first read after a restart")?;
        Ok(Restart { stop, first_read: starting.elapsed() })
    }

    /// Ends the process of a server that was started here, for [`resume`](Self::resume) to go on with its data.
    pub(crate) async fn halt(&mut self, signal: StopSignal) -> anyhow::Result<()> {
        let Some(launched) = &mut self.launched else { bail!("only a server started here can be stopped") };
        stop(&mut launched.child, signal).await
    }

    /// Starts a stopped server again; it may not answer yet.
    pub(crate) fn resume(&mut self) -> anyhow::Result<()> {
        let port = self.endpoint.address.port();
        let Some(launched) = &mut self.launched else { bail!("only a server started here can be started") };
        launched.child = launch(&launched.command, port, launched.dir.path(), &launched.options)?;
        self.pid = Some(launched.child.id());
        Ok(())
    }

    /// Waits until a server that was started again answers.
    pub(crate) async fn ready(&mut self) -> anyhow::Result<()> {
        let Some(launched) = &self.launched else { bail!("only a server started here can be waited for") };
        let (probe, within) = (launched.options.probe, launched.options.ready_within);
        self.answers(probe, within, |status| status < 500).await.context("waiting for a restarted server")
    }

    /// The data directory, if it is known.
    pub(crate) fn data_dir(&self) -> Option<&Path> {
        self.data_dir.as_deref()
    }

    /// Ends a server that the benchmark has started, and removes its data.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        match &mut self.launched {
            Some(launched) => stop(&mut launched.child, StopSignal::Term).await,
            None => Ok(()),
        }
    }

    /// Bytes and files of the data directory, if it is known.
    pub(crate) fn disk_use(&self) -> Option<DiskUse> {
        self.data_dir.as_deref().map(DiskUse::of)
    }

    /// Asks for `resource` until the status of an answer is `wanted`.
    async fn answers(
        &mut self,
        resource: &str,
        within: Duration,
        wanted: impl Fn(u16) -> bool,
    ) -> anyhow::Result<()> {
        let start = clock::now();
        let bytes = request(Method::Get, &self.endpoint, resource, None);
        loop {
            // Connecting by hand first: while nothing listens, refusals are the normal case and come at once.
            if TcpStream::connect(self.endpoint.address).await.is_ok() {
                let status = tokio::time::timeout(PROBE_TIME_MAX, probe(&self.endpoint, &bytes)).await;
                if status.is_ok_and(|status| status.is_ok_and(&wanted)) {
                    return Ok(());
                }
            }
            if let Some(launched) = &mut self.launched
                && let Some(status) = launched.child.try_wait().context("looking at the server's process")?
            {
                bail!("the server ended with {status}; `--show-server-output` shows what it says");
            }
            if start.elapsed() > within {
                bail!("no answer within {} s", within.as_secs());
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

async fn probe(endpoint: &Endpoint, bytes: &[u8]) -> anyhow::Result<u16> {
    const PROBE_BUFFER_BYTES: usize = 16 * 1024;
    let mut connection = Connection::open(endpoint.address, PROBE_BUFFER_BYTES).await?;
    Ok(connection.exchange(bytes).await?.status)
}

fn make_data_dir(options: &LaunchOptions) -> anyhow::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("alluvium-bench-");
    match &options.data_root {
        Some(root) => builder.tempdir_in(root),
        None => builder.tempdir(),
    }
    .context("making a data directory")
}

/// A port that is free now. Another process could take it before the server does; then the start fails.
fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("looking for a free port")?;
    Ok(listener.local_addr().context("looking for a free port")?.port())
}

/// The shell splits the command as its author expects; `exec` makes the server the child itself, so that
/// signals and CPU times are the server's.
fn launch(command: &str, port: u16, dir: &Path, options: &LaunchOptions) -> anyhow::Result<Child> {
    let output = || if options.show_output { Stdio::inherit() } else { Stdio::null() };
    Command::new("sh")
        .arg("-c")
        .arg(format!("exec {}", fill_in(command, port, dir, options.relay.as_deref())))
        .stdin(Stdio::null())
        // Standard output is the report's.
        .stdout(Stdio::null())
        .stderr(output())
        .spawn()
        .with_context(|| format!("starting `{command}`"))
}

fn fill_in(command: &str, port: u16, dir: &Path, relay: Option<&str>) -> String {
    let dir = dir.display().to_string().replace('\'', r"'\''");
    let command = command.replace("{port}", &port.to_string()).replace("{dir}", &format!("'{dir}'"));
    relay.map_or(command.clone(), |relay| command.replace("{relay}", relay))
}

async fn stop(child: &mut Child, signal: StopSignal) -> anyhow::Result<()> {
    let signal = match signal {
        StopSignal::Term => Signal::TERM,
        StopSignal::Kill => Signal::KILL,
    };
    if child.try_wait().context("looking at the server's process")?.is_some() {
        return Ok(());
    }
    kill_process(Pid::from_child(child), signal).context("signalling the server")?;
    let start = clock::now();
    while child.try_wait().context("looking at the server's process")?.is_none() {
        if start.elapsed() > STOP_TIME_MAX {
            bail!("the server did not stop within {} s", STOP_TIME_MAX.as_secs());
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// What a data directory takes on disk.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskUse {
    /// Allocated bytes, as `du` counts.
    pub(crate) bytes: u64,
    pub(crate) files: u64,
}

impl DiskUse {
    /// Adds up a directory. Files that vanish meanwhile are not counted.
    fn of(dir: &Path) -> Self {
        const BLOCK_BYTES: u64 = 512;
        let mut sum = Self::default();
        let mut pending = vec![dir.to_owned()];
        while let Some(dir) = pending.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                let Ok(metadata) = entry.metadata() else { continue };
                sum.bytes += metadata.blocks() * BLOCK_BYTES;
                if metadata.is_dir() {
                    pending.push(entry.path());
                } else {
                    sum.files += 1;
                }
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_in_and_the_directory_is_quoted() {
        let dir = Path::new("/tmp/it's here");
        let filled = fill_in("serve -p {port} -d {dir}/x", 4437, dir, None);
        assert_eq!(filled, r"serve -p 4437 -d '/tmp/it'\''s here'/x");
        let filled = fill_in("serve --relay ws://{relay} -p {port}", 80, dir, Some("127.0.0.1:7777"));
        assert_eq!(filled, "serve --relay ws://127.0.0.1:7777 -p 80");
    }

    #[test]
    fn files_are_counted_in_all_levels() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("inner")).unwrap();
        for name in ["a", "inner/b"] {
            std::fs::copy("/proc/self/status", dir.path().join(name)).unwrap();
        }
        let sum = DiskUse::of(dir.path());
        assert_eq!(sum.files, 2);
        assert!(sum.bytes > 0);
    }
}
