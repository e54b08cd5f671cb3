//! A disk that is getting full: the server warns, then takes no more data, and takes it again once there is room, of its own
//! making or by others. Until then everything else goes on.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::check::Report;
use crate::http::{Connection, Response, read_all};
use crate::server::{Launch, Server, Store};

/// What the server is told: data is refused below the first, and the log warns below the second.
const FREE_MIN_MIB: u32 = 24;
const FREE_WARN_MIB: u32 = 40;
const MIB: f64 = 1_048_576.0;
/// Streams, each of an append of nearly a MiB.
const STREAMS: u32 = 24;
const APPEND_BYTES: usize = 1_000_000;
/// The longest wait for the server to look at its disk, which it does once a second, and for folds.
const WAIT_MAX: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A disk of 128 MiB, what of it is taken by others, and a server on it.
struct World<'a> {
    disk: &'a Path,
    ballast: PathBuf,
    server: Server,
    connection: Connection,
    /// What its metrics call the disk.
    what: &'static str,
}

/// Runs on an empty disk of 128 MiB.
pub(super) fn run(binary: &Path, disk: &Path, report: &mut Report) -> Result<()> {
    for store in [Store::Engine, Store::Sqlite] {
        let mut world = World::start(binary, disk, store)?;
        let name = |what: &str| format!("{store:?}: {what}");
        report.check(&name("a disk with little room is a warning, and nothing is refused"), || world.low());
        report.check(&name("with less than `disk-free-min` all that adds data is refused as 507"), || {
            world.short(store)
        });
        report.check(&name("reading goes on, and so does deleting"), || world.reads_and_deletes());
        report.check(&name("a little more room changes nothing, so that it does not flap"), || world.holds());
        if store == Store::Engine {
            report.check(&name("what deletions free comes back by folding, and data is taken again"), || {
                world.delete_all()
            });
        }
        report.check(&name("with room that others give, data is taken again"), || world.relieved());
        let World { server, ballast, .. } = world;
        server.stop()?;
        drop(fs::remove_file(ballast));
        fs::remove_dir_all(disk.join("data"))?;
    }
    Ok(())
}

impl<'a> World<'a> {
    fn start(binary: &Path, disk: &'a Path, store: Store) -> Result<Self> {
        let flags = [
            "--segment-bytes",
            "2MiB",
            "--append-bytes-max",
            "1MiB",
            "--shards",
            "1",
            "--disk-free-min",
            "24MiB",
            "--disk-free-warn",
            "40MiB",
        ];
        fs::create_dir_all(disk.join("data"))?;
        let launch = Launch::new(binary, &disk.join("data/server"), &flags).with_store(store);
        let server = launch.start()?;
        let connection = Connection::open(server.address)?;
        let what = if store == Store::Engine { "data" } else { "sqlite" };
        let mut world = Self { disk, ballast: disk.join("ballast"), server, connection, what };
        for number in 0..STREAMS {
            let stream = format!("/v1/stream/s{number}");
            world.call("PUT", &stream, &[])?.expect(&[201], "a create")?;
            world.append(&stream)?.expect(&[204], "an append")?;
        }
        world.append_block(1)?.expect(&[200], "an append to a feed")?;
        Ok(world)
    }

    fn call(&mut self, method: &str, target: &str, body: &[u8]) -> Result<Response> {
        let headers = [("content-type", "application/octet-stream")];
        Ok(self.connection.call(method, target, &headers, body)?)
    }

    fn append(&mut self, stream: &str) -> Result<Response> {
        self.call("POST", stream, &vec![b'x'; APPEND_BYTES])
    }

    fn append_block(&mut self, position: u64) -> Result<Response> {
        super::append_to_feed(&mut self.connection, position)
    }

    fn metric(&mut self, name: &str) -> Result<f64> {
        let text = self.connection.call("GET", "/metrics", &[], &[])?.body;
        let shown = alluvium_metrics::parse(std::str::from_utf8(&text)?)?;
        shown.value(name, &[("what", self.what)]).ok_or_else(|| anyhow::anyhow!("no `{name}`"))
    }

    /// Has others take or give back room until so much is free, and waits until the server has seen it.
    fn leave(&mut self, free_mib: u32) -> Result<()> {
        // Within a MiB, and again and again: folds and logs come and go.
        self.wait("free bytes", |world| {
            world.take(u64::from(free_mib) << 20)?;
            let seen = world.metric("alluvium_disk_free_bytes")?;
            Ok((seen - f64::from(free_mib) * MIB).abs() < MIB)
        })
    }

    /// Has others take or give back room until so many bytes are free, if they have so much.
    fn take(&self, wanted: u64) -> Result<()> {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&self.ballast)?;
        let length = file.metadata()?.len();
        let disk = rustix::fs::statvfs(self.disk)?;
        let free = disk.f_bavail * disk.f_frsize;
        if free > wanted {
            file.write_all(&vec![1; usize::try_from(free - wanted)?])?;
        } else {
            file.set_len(length.saturating_sub(wanted - free))?;
        }
        Ok(())
    }

    fn wait(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + WAIT_MAX;
        while !is_so(self)? {
            ensure!(Instant::now() < deadline, "{what}: not within {WAIT_MAX:?}");
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn level(&mut self, expected: f64) -> Result<()> {
        let level = self.metric("alluvium_disk_level")?;
        ensure!((level - expected).abs() < 0.1, "the level is {level}, not {expected}");
        Ok(())
    }

    fn low(&mut self) -> Result<()> {
        self.level(0.0)?;
        self.leave(FREE_WARN_MIB - 8)?;
        self.level(1.0)?;
        ensure!(self.server.output().contains("less room than `disk-free-warn`"), "the log does not say so");
        self.append("/v1/stream/s0")?.expect(&[204], "an append to a disk with little room")?;
        self.append_block(2)?.expect(&[200], "an append to a feed")?;
        self.call("GET", "/readyz", &[])?.expect(&[200], "/readyz")?;
        Ok(())
    }

    fn short(&mut self, store: Store) -> Result<()> {
        self.leave(FREE_MIN_MIB - 6)?;
        self.level(2.0)?;
        let refused = |response: Response, doing: &str| -> Result<()> {
            let code = response.code();
            let response = response.expect(&[507], doing)?;
            let code = response.header("alluvium-error").map_or(code, str::to_owned);
            ensure!(code.eq_ignore_ascii_case("storage_full"), "{doing}: {code}");
            Ok(())
        };
        for number in 0..STREAMS {
            refused(self.append(&format!("/v1/stream/s{number}"))?, "an append")?;
        }
        refused(self.call("PUT", "/v1/stream/new", &[])?, "a create")?;
        // Nothing of a feed is on the disk of another file by chance.
        refused(self.append_block(3)?, "an append to a feed")?;
        if store == Store::Engine {
            refused(self.call("PUT", "/ds/bucket", &[])?, "a bucket")?;
            let body = br#"{"type":"pull-wake","wake_stream":"wakes","pattern":"*"}"#;
            let headers = [("content-type", "application/json")];
            let target = "/v1/stream/__ds/subscriptions/late";
            refused(self.connection.call("PUT", target, &headers, body)?, "a subscription")?;
            ensure!(
                self.metric("alluvium_disk_refused_total")? >= f64::from(STREAMS),
                "they are not counted"
            );
        }
        let answer = self.call("GET", "/readyz", &[])?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        ensure!(answer.status == 503 && text.contains("disk-free-min"), "/readyz: {} {text}", answer.status);
        let free = self.metric("alluvium_disk_free_bytes")?;
        ensure!(free > f64::from(FREE_MIN_MIB - 8) * MIB, "what was refused took room all the same: {free}");
        Ok(())
    }

    fn reads_and_deletes(&mut self) -> Result<()> {
        for number in 1..STREAMS {
            let read = read_all(&mut self.connection, &format!("s{number}"))?;
            let bytes: usize = read.iter().map(Vec::len).sum();
            ensure!(bytes == APPEND_BYTES, "{bytes} bytes");
        }
        super::check_feed(&mut self.connection, 2)?;
        self.call("DELETE", "/v1/stream/s0", &[])?.expect(&[204], "a deletion")?;
        self.call("GET", "/v1/stream/s0?offset=-1", &[])?.expect(&[404], "a read of what was deleted")?;
        Ok(())
    }

    fn holds(&mut self) -> Result<()> {
        self.leave(FREE_MIN_MIB + 3)?;
        self.level(2.0)?;
        self.append_block(3)?.expect(&[507], "an append to a feed")?;
        Ok(())
    }

    fn delete_all(&mut self) -> Result<()> {
        for number in 1..STREAMS {
            let deleted = self.call("DELETE", &format!("/v1/stream/s{number}"), &[])?;
            deleted.expect(&[204], "a deletion")?;
        }
        self.wait("data is taken", |world| Ok(world.call("PUT", "/v1/stream/new", &[])?.status == 201))?;
        self.append("/v1/stream/new")?.expect(&[204], "an append")?;
        self.call("GET", "/readyz", &[])?.expect(&[200], "/readyz")?;
        Ok(())
    }

    fn relieved(&mut self) -> Result<()> {
        drop(fs::remove_file(&self.ballast));
        self.wait("the disk has room", |world| Ok(world.metric("alluvium_disk_level")? < 0.5))?;
        self.append_block(3)?.expect(&[200], "an append to a feed")?;
        self.call("PUT", "/v1/stream/last", &[])?.expect(&[201], "a create")?;
        self.append("/v1/stream/last")?.expect(&[204], "an append")?;
        ensure!(self.server.output().contains("room"), "the log does not say so");
        Ok(())
    }
}
