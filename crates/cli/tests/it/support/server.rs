//! The binary as a server.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout};

use tempfile::TempDir;

use super::{Cli, signal};

/// A running `alluvium serve`; killed, and its data removed, when dropped.
pub(crate) struct Server {
    /// The process, and its standard output, which it must not lose.
    running: (Child, BufReader<ChildStdout>),
    /// `http` or `https`.
    scheme: String,
    address: String,
    data: TempDir,
    flags: String,
}

impl Server {
    /// Starts on a free port and an empty data directory, and waits until it listens.
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    /// As [`start`](Self::start), with further flags, separated by space.
    pub(crate) fn start_with(flags: &str) -> Self {
        let data = TempDir::new().unwrap();
        let (running, scheme, address) = launch("127.0.0.1:0", &data, flags);
        Self { running, scheme, address, data, flags: flags.to_owned() }
    }

    /// One that keeps its streams in a SQLite file beside what else it has.
    pub(crate) fn on_sqlite(flags: &str) -> Self {
        let data = TempDir::new().unwrap();
        let flags = format!("{flags} --store sqlite:{}", data.path().join("streams.sqlite").display());
        let (running, scheme, address) = launch("127.0.0.1:0", &data, &flags);
        Self { running, scheme, address, data, flags }
    }

    /// Servers with further flags, one after the other: what is asserted holds whatever keeps the streams.
    pub(crate) fn of_each_store(flags: &'static str) -> impl Iterator<Item = Self> {
        [Self::start_with, Self::on_sqlite].into_iter().map(move |start| start(flags))
    }

    /// Asks it to stop (SIGTERM).
    pub(crate) fn terminate(&self) {
        signal(&self.running.0, "TERM");
    }

    /// Waits for its end and returns its exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.running.0.wait().unwrap().code()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running.0.id()
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn data(&self) -> &std::path::Path {
        self.data.path()
    }

    /// Kills it without warning (SIGKILL).
    pub(crate) fn kill(&mut self) {
        self.running.0.kill().unwrap();
        self.running.0.wait().unwrap();
    }

    /// Starts it again on the address and data that it had.
    pub(crate) fn restart(&mut self) {
        self.restart_with(&self.flags.clone());
    }

    /// As [`restart`](Self::restart), with other flags.
    pub(crate) fn restart_with(&mut self, flags: &str) {
        self.running = launch(&self.address, &self.data, flags).0;
    }

    /// What it says of itself at the start, after its address.
    pub(crate) fn announced(&mut self) -> String {
        let mut announced = String::from("\n");
        while !announced.contains("\ntry ") {
            assert!(self.running.1.read_line(&mut announced).unwrap() > 0, "{announced}");
        }
        announced
    }

    /// What an ended server has logged.
    pub(crate) fn log(&mut self) -> String {
        std::io::read_to_string(self.running.0.stderr.take().unwrap()).unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// `alluvium stream …` for this server.
    pub(crate) fn stream(&self, arguments: &str) -> Cli {
        Cli::stream(&self.url(), arguments)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already dead after `kill`, which is as well.
        drop(self.running.0.kill());
        drop(self.running.0.wait());
    }
}

fn launch(listen: &str, data: &TempDir, flags: &str) -> ((Child, BufReader<ChildStdout>), String, String) {
    let cli = Cli::new(&format!("serve {flags} --listen"))
        .arg(listen)
        .arg("--data-dir")
        .arg(data.path().to_str().unwrap());
    let mut process = cli.spawn();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    while stdout.read_line(&mut line).unwrap() > 0 {
        if let Some((before, address)) = line.split_once("://") {
            let scheme = before.split_whitespace().last().unwrap_or_default().to_owned();
            return ((process, stdout), scheme, address.trim().to_owned());
        }
        line.clear();
    }
    let output = process.wait_with_output().unwrap();
    panic!("the server did not start: {}", String::from_utf8_lossy(&output.stderr));
}
