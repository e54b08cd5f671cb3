//! A client as its user has it: the command line, over a file, killed at any moment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// How long a last synchronisation may take.
const GIVE_UP_SECONDS: &str = "60";

/// What became of a text that was to be appended.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    /// The command said that it is in the file.
    Written,
    /// The command was killed: it may be.
    Unknown,
}

/// A file and the process that synchronises it.
#[derive(Debug)]
pub(crate) struct Client {
    binary: PathBuf,
    file: PathBuf,
    url: String,
    space: String,
    follower: Option<Child>,
}

/// A block as a feed shows it: position, sequence, author, text.
pub(crate) type Shown = (Option<u64>, u64, String, String);

impl Client {
    /// A client that replicates every feed of a space.
    pub(crate) fn new(binary: &Path, file: PathBuf, url: &str) -> Result<Self> {
        Self::replicating(binary, file, url, "crash", "--all")
    }

    /// A client that replicates one feed of a space, or all with `--all`.
    pub(crate) fn replicating(
        binary: &Path,
        file: PathBuf,
        url: &str,
        space: &str,
        feed: &str,
    ) -> Result<Self> {
        let (binary, url, space) = (binary.to_owned(), url.to_owned(), space.to_owned());
        let client = Self { binary, file, url, space, follower: None };
        client.run(&["replicate", feed])?;
        Ok(client)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ALLUVIUM_") {
                command.env_remove(name);
            }
        }
        command.arg("feed").args(arguments).arg("--db").arg(&self.file).args(["--url", &self.url]);
        command.args(["--space", &self.space, "--quiet", "--give-up-after", GIVE_UP_SECONDS]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Result<Output> {
        let output = self.command(arguments).output().context("run the client")?;
        ensure!(
            output.status.success(),
            "`feed {}` on {}: {}: {}",
            arguments.join(" "),
            self.file.display(),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(output)
    }

    /// Starts to synchronise, if it doesn't yet.
    pub(crate) fn follow(&mut self) -> Result<()> {
        if self.follower.is_none() {
            let child =
                self.command(&["sync", "--follow"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            self.follower = Some(child.context("start a client")?);
        }
        Ok(())
    }

    /// SIGKILL, if it runs.
    pub(crate) fn kill(&mut self) -> Result<()> {
        if let Some(mut follower) = self.follower.take() {
            follower.kill()?;
            follower.wait()?;
        }
        Ok(())
    }

    /// Appends texts to a feed, all or none; killed after a while if that is given.
    pub(crate) fn append(&self, feed: &str, texts: &[String], kill_after: Option<Duration>) -> Result<Fate> {
        let mut arguments = vec!["append", feed];
        for text in texts {
            arguments.extend(["--message", text]);
        }
        let Some(kill_after) = kill_after else {
            self.run(&arguments)?;
            return Ok(Fate::Written);
        };
        let mut child = self.command(&arguments).spawn().context("start an append")?;
        thread::sleep(kill_after);
        child.kill()?;
        let status = child.wait()?;
        Ok(if status.success() { Fate::Written } else { Fate::Unknown })
    }

    /// Synchronises until nothing is left to do.
    pub(crate) fn sync(&self) -> Result<()> {
        self.run(&["sync"]).map(drop)
    }

    /// What is left to do, and what was set aside.
    pub(crate) fn status(&self) -> Result<Value> {
        Ok(serde_json::from_slice(&self.run(&["status", "--json"])?.stdout)?)
    }

    /// What is known of every feed in the file.
    pub(crate) fn listed(&self) -> Result<Vec<Value>> {
        lines(&self.run(&["ls", "--json"])?)
    }

    /// Every feed in the file, in its order.
    pub(crate) fn feeds(&self) -> Result<BTreeMap<String, Vec<Shown>>> {
        let mut feeds = BTreeMap::new();
        for feed in self.listed()? {
            let name = text(&feed, "feed");
            let blocks = lines(&self.run(&["read", &name, "--json"])?)?;
            let shown = blocks.iter().map(|block| {
                let sequence = block["sequence"].as_u64().unwrap_or(u64::MAX);
                (block["position"].as_u64(), sequence, text(block, "actor"), text(block, "text"))
            });
            feeds.insert(name, shown.collect());
        }
        Ok(feeds)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // What is left of a failed check must not outlive it.
        drop(self.kill());
    }
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

fn lines(output: &Output) -> Result<Vec<Value>> {
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).context("a line of JSON")).collect()
}
