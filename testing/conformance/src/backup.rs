//! Backups of a server that everybody uses: taken again and again while writers go on, brought back, and looked through.
//!
//! What was acknowledged before a backup began must be in it. What came later may be, but of each stream only a first part
//! of what was written, and nothing torn: a fork with its source, a snapshot with its stream. Clients of feeds that have
//! seen more than the restored server find out, and give back what it lacks.

mod feeds;
mod load;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use self::load::Load;
use crate::check::Report;
use crate::http::Connection;
use crate::server::{Launch, Store};

/// Backups that are taken under load.
const BACKUPS: usize = 3;
/// Acknowledged writes between two of them.
const WRITES: u64 = 1500;
/// Small segments, so that folds go on meanwhile.
const FLAGS: &[&str] = &["--shards", "3", "--segment-bytes", "2MiB", "--append-bytes-max", "512KiB"];

/// Takes backups under load, brings them back, and compares.
pub(crate) fn run(binary: &Path, store: Store, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let tool = Tool { binary: binary.to_owned(), folder: scratch.path().to_owned(), store };
    streams(&tool, report)?;
    if store == Store::Engine {
        feeds::run(&tool, report)?;
        crate::jetstream::backups(binary, report);
    }
    Ok(())
}

/// The commands under test.
struct Tool {
    binary: PathBuf,
    folder: PathBuf,
    store: Store,
}

impl Tool {
    /// A server on a data directory of this name, which takes backups.
    fn launch(&self, name: &str) -> Launch {
        let backups = self.backup("").display().to_string();
        let flags = [FLAGS, &["--backup-dir", &backups]].concat();
        Launch::new(&self.binary, &self.folder.join(name), &flags).with_store(self.store)
    }

    fn backup(&self, name: &str) -> PathBuf {
        self.folder.join("backups").join(name)
    }

    fn output(&self, arguments: &[&str]) -> Result<Output> {
        Command::new(&self.binary).args(arguments).output().context("run a command")
    }

    /// Runs a command that must succeed; what it printed.
    fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = self.output(arguments)?;
        let said = String::from_utf8_lossy(&output.stderr);
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "`{}`: {}: {told}{said}", arguments.join(" "), output.status);
        Ok(told)
    }

    /// `--store`, for what is in a data directory of this name.
    fn store_flags(&self, name: &str) -> Vec<String> {
        match self.store {
            Store::Engine => Vec::new(),
            Store::Sqlite => {
                let file = self.folder.join(name).with_extension("sqlite");
                vec!["--store".to_owned(), format!("sqlite:{}", file.display())]
            }
        }
    }

    fn take(&self, address: SocketAddr, name: &str) -> Result<String> {
        self.run(&["backup", "--url", &format!("http://{address}"), name])
    }

    /// Brings a backup back as a data directory of this name.
    fn restore(&self, backup: &Path, name: &str) -> Result<()> {
        let (backup, dir) = (backup.display().to_string(), self.folder.join(name).display().to_string());
        let store = self.store_flags(name);
        let mut arguments = vec!["restore", &backup, &dir];
        arguments.extend(store.iter().map(String::as_str));
        self.run(&arguments).map(drop)
    }

    /// Has a data directory of this name, or a backup, looked through: nothing may be wrong.
    fn check(&self, dir: &Path, name: &str) -> Result<String> {
        let dir = dir.display().to_string();
        let store = self.store_flags(name);
        let mut arguments = vec!["check", &dir];
        // A backup brings its own.
        arguments.extend(store.iter().map(String::as_str).filter(|_| !name.is_empty()));
        self.run(&arguments)
    }
}

fn streams(tool: &Tool, report: &mut Report) -> Result<()> {
    let server = tool.launch("data").start()?;
    let load = Load::start(server.address, tool.store)?;
    let mut marks = Vec::new();
    for nth in 0..BACKUPS {
        load.wait_for(WRITES)?;
        let floor = load.acknowledged();
        let began = Instant::now();
        let told = tool.take(server.address, &format!("live-{nth}"))?;
        println!("        {:.2} s: {}", began.elapsed().as_secs_f64(), told.trim());
        marks.push((floor, load.acknowledged()));
    }
    report.check("a name is used once, and a name is no path", || {
        let url = format!("http://{}", server.address);
        for (name, code) in [("live-0", 4), ("..", 1), (".lock", 1), ("x.partial", 1)] {
            let output = tool.output(&["backup", "--url", &url, name])?;
            ensure!(output.status.code() == Some(code), "`{name}`: {:?}", output.status.code());
        }
        let listed = Connection::open(server.address)?.call("GET", "/admin/v1/backups", &[], &[])?;
        let listed: serde_json::Value = serde_json::from_slice(&listed.expect(&[200], "list")?.body)?;
        ensure!(listed["backups"].as_array().map_or(0, Vec::len) == BACKUPS, "{listed}");
        Ok(())
    });
    report.check("what a server uses is not looked through", || {
        let dir = tool.folder.join("data");
        let store = tool.store_flags("data");
        let arguments: Vec<String> =
            ["check".to_owned(), dir.display().to_string()].into_iter().chain(store).collect();
        let output = tool.output(&arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
        ensure!(output.status.code() == Some(2), "{output:?}");
        Ok(())
    });
    load.wait_for(WRITES)?;
    let launch = server.kill()?;
    load.stop()?;
    report.check("after kill -9 under load nothing is wrong in the files", || {
        println!("        {}", tool.check(&launch.data_dir, "data")?.trim());
        Ok(())
    });
    for (nth, (floor, end)) in marks.into_iter().enumerate() {
        let name = format!("restored-{nth}");
        report.check(&format!("backup {nth}: as acknowledged when it began, and nothing torn"), || {
            let backup = tool.backup(&format!("live-{nth}"));
            tool.check(&backup, "")?;
            tool.restore(&backup, &name)?;
            let server = tool.launch(&name).start()?;
            load.verify(server.address, &floor, &end)?;
            server.stop()?;
            Ok(())
        });
    }
    offline(tool, &load, report);
    Ok(())
}

/// A backup without a server has what a server would recover.
fn offline(tool: &Tool, load: &Load, report: &mut Report) {
    report.check("a backup without a server has everything that was acknowledged", || {
        let (dir, target) = (tool.folder.join("data"), tool.folder.join("offline"));
        let store = tool.store_flags("data");
        let arguments =
            ["backup".to_owned(), dir.display().to_string(), target.display().to_string()].into_iter();
        let arguments: Vec<String> = arguments.chain(store).collect();
        tool.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
        tool.restore(&target, "restored-offline")?;
        let server = tool.launch("restored-offline").start()?;
        load.verify(server.address, &load.acknowledged(), &load.acknowledged())?;
        server.stop()?;
        Ok(())
    });
}
