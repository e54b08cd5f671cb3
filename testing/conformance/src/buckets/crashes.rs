//! Publications and `kill -9`: what was acknowledged is there, and snapshot and floor are never apart.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::api::{Api, BYTES, has, refused};
use super::cover::Suite;
use crate::http::Connection;
use crate::random::Random;
use crate::server::{Launch, Server};

/// Kills under publications.
const KILLS: u32 = 8;
/// The longest wait for the first publications after a start.
const PROGRESS_MAX: Duration = Duration::from_secs(30);

pub(super) fn run(suite: &mut Suite<'_>, binary: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let flags = ["--shards", "2", "--segment-bytes", "2MiB", "--append-bytes-max", "1MiB"];
    let mut server = Some(Launch::new(binary, &scratch.path().join("data"), &flags).start()?);
    suite.check("SN-16 BK-11 #30", "kill -9 under publications, again and again", || killed(&mut server));
    suite.check("SN-16", "kill -9 in the middle of an upload", || killed_in_upload(&mut server));
    Ok(())
}

/// Appends and publishes in turn; each snapshot says how many messages it folds. Ends when the server does.
fn publish_until_killed(address: SocketAddr, path: &str, from: u32, acknowledged: &AtomicU32) {
    let mut api = Api::new(address);
    let mut random = Random::new(u64::from(from));
    for number in from.. {
        let length = 1 + random.below(60_000) as usize;
        let body = [number.to_be_bytes().as_slice(), &vec![0; length]].concat();
        let published = api
            .append(path, BYTES, &number.to_be_bytes())
            .and_then(|offset| api.publish(path, &offset, &[], &body))
            .is_ok_and(|response| response.status == 204);
        if !published {
            return;
        }
        acknowledged.store(number, Ordering::Relaxed);
    }
}

fn killed(server: &mut Option<Server>) -> Result<()> {
    let mut api = Api::new(server.as_ref().context("a server")?.address);
    let path = format!("{}/killed", api.bucket("crashes")?);
    api.create(&path, BYTES)?;
    let (acknowledged, mut next) = (AtomicU32::new(0), 1);
    for kill in 0..KILLS {
        let running = server.take().context("a server")?;
        let address = running.address;
        let launch = thread::scope(|scope| {
            scope.spawn(|| publish_until_killed(address, &path, next, &acknowledged));
            // Each time after another number of them, so that the kill falls at another place.
            let deadline = Instant::now() + PROGRESS_MAX;
            while acknowledged.load(Ordering::Relaxed) < next + 3 * kill && Instant::now() < deadline {
                thread::yield_now();
            }
            running.kill()
        })?;
        *server = Some(launch.start()?);
        let mut api = Api::new(address);
        let bootstrap = api.bootstrap(&path)?;
        let folded = bootstrap.snapshot.body.get(..4).context("a snapshot")?;
        let folded = u32::from_be_bytes(folded.try_into()?);
        ensure!(
            folded >= acknowledged.load(Ordering::Relaxed),
            "a publication that was acknowledged is lost"
        );
        has(&api.head(&path)?, "stream-snapshot-offset", Some(&bootstrap.snapshot_offset))?;
        let due = format!("{folded:016x}_{:016x}", u64::from(folded) * 4);
        ensure!(bootstrap.snapshot_offset == due, "the snapshot of {folded} messages is at another offset");
        refused(&api.get(&format!("{path}?offset=-1"))?, 410, "retained")?;
        ensure!(api.read(&path, &due)?.0 == bootstrap.content(), "the floor is not at the snapshot");
        let messages = u32::try_from(bootstrap.messages.len())?;
        ensure!(messages <= 1, "{messages} messages after the snapshot");
        next = folded + messages + 1;
    }
    Ok(())
}

fn killed_in_upload(server: &mut Option<Server>) -> Result<()> {
    let running = server.take().context("a server")?;
    let mut api = Api::new(running.address);
    let path = "/ds/crashes/upload";
    let x = api.stream(path, &[b"abc", b"de"])?;
    api.published(path, &x[1], b"before")?;
    let mut upload = Connection::open(api.address)?;
    upload.begin("PUT", &format!("{path}/snapshot/{}", x[2]), &[("content-length", "4000000")])?;
    upload.write(&vec![7; 3_500_000])?;
    // Acknowledged after most of the upload has reached the server.
    api.append(path, BYTES, b"fgh")?;
    *server = Some(running.kill()?.start()?);
    let mut api = Api::new(server.as_ref().context("a server")?.address);
    let bootstrap = api.bootstrap(path)?;
    ensure!(bootstrap.snapshot.body == b"before" && bootstrap.snapshot_offset == x[1], "the old snapshot");
    ensure!(bootstrap.bodies() == [&b"de"[..], b"fgh"], "the messages");
    api.published(path, &x[2], b"after")?;
    ensure!(api.bootstrap(path)?.snapshot.body == b"after", "the new snapshot");
    Ok(())
}
