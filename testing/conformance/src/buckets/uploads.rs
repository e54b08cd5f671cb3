//! Snapshots while they arrive: limits, slowness, and what happens to the stream meanwhile.

use std::net::SocketAddr;
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use super::api::{Api, BYTES, JSON, has, refused};
use super::cover::Suite;
use crate::http::{Connection, Response};

/// The limit of a snapshot on the server under test, as its flag says.
pub(super) const SNAPSHOT_BYTES_MAX: usize = 3 << 20;
/// Appends during one upload.
const APPENDS: u32 = 1_000;
/// What of a snapshot is sent between two of them.
const PIECE_BYTES: usize = 3_000;

pub(super) fn run(suite: &mut Suite<'_>, address: SocketAddr) {
    let mut api = Api::new(address);
    let Ok(bucket) = api.bucket("uploads") else {
        return suite.check("SN-6", "a bucket for the checks", || bail!("cannot be made"));
    };
    let mut check = |ids: &str, name: &str, body: fn(&mut Api, &str) -> Result<()>| {
        let path = format!("{bucket}/{}", ids.replace([' ', '#'], "_"));
        suite.check(ids, name, || body(&mut api, &path));
    };
    check("SN-6 #25", "a snapshot at the limit, and one byte more", limit);
    check("SN-10 SN-11 #26", "1,000 appends are acknowledged while a snapshot trickles in", appends_go_on);
    check("SN-17 SN-13 #27", "a newer snapshot overtakes a slow one", overtaken);
    check("SN-4 SN-13 #28", "a stream that is made anew during an upload", made_anew);
    check("SN-16", "an upload that breaks off leaves nothing", broken_off);
    check("SN-9", "a reader of a snapshot is not disturbed by its successor", read_while_replaced);
    check("SN-17", "publications that race end at the newest", race);
}

/// An upload that has begun.
struct Upload(Connection);

impl Upload {
    fn begin(api: &Api, path: &str, offset: &str, length: Option<usize>) -> Result<Self> {
        let mut connection = Connection::open(api.address)?;
        let length = length.map(|length| length.to_string());
        let framing = match &length {
            Some(length) => ("content-length", length.as_str()),
            None => ("transfer-encoding", "chunked"),
        };
        let headers = [framing, ("content-type", BYTES)];
        connection.begin("PUT", &format!("{path}/snapshot/{offset}"), &headers)?;
        Ok(Self(connection))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.0.write(bytes)?)
    }

    fn chunk(&mut self, bytes: &[u8]) -> Result<()> {
        self.send(format!("{:x}\r\n", bytes.len()).as_bytes())?;
        self.send(bytes)?;
        self.send(b"\r\n")
    }

    fn finish(mut self) -> Result<Response> {
        Ok(self.0.finish()?)
    }
}

fn limit(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc", b"de"])?;
    api.published(path, &x[1], b"before")?;
    let body: Vec<u8> = (0..251).cycle().take(SNAPSHOT_BYTES_MAX + 1).collect();
    let unchanged = |api: &mut Api| -> Result<()> {
        let read = api.get(&format!("{path}/snapshot/{}", x[1]))?.expect(&[200], "read")?;
        ensure!(read.body == b"before", "the snapshot has changed");
        has(&api.head(path)?, "stream-snapshot-offset", Some(&x[1]))
    };
    let mut announced = Upload::begin(api, path, &x[2], Some(body.len()))?;
    announced.send(&body)?;
    refused(&announced.finish()?, 413, "snapshot_too_large")?;
    unchanged(api)?;
    let mut chunked = Upload::begin(api, path, &x[2], None)?;
    for piece in body.chunks(100_000) {
        chunked.chunk(piece)?;
    }
    chunked.send(b"0\r\n\r\n")?;
    refused(&chunked.finish()?, 413, "snapshot_too_large")?;
    unchanged(api)?;
    let fits = &body[..SNAPSHOT_BYTES_MAX];
    let mut chunked = Upload::begin(api, path, &x[2], None)?;
    for piece in fits.chunks(100_000) {
        chunked.chunk(piece)?;
    }
    chunked.send(b"0\r\n\r\n")?;
    chunked.finish()?.expect(&[204], "at the limit, chunked")?;
    ensure!(api.get(&format!("{path}/snapshot/{}", x[2]))?.body == fits, "other bytes");
    api.published(path, &x[2], fits)?;
    ensure!(api.bootstrap(path)?.snapshot.body == fits, "other bytes in the bootstrap");
    Ok(())
}

fn appends_go_on(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc"])?;
    let body: Vec<u8> = (0..251).cycle().take(PIECE_BYTES * APPENDS as usize).collect();
    let mut upload = Upload::begin(api, path, &x[1], Some(body.len()))?;
    // The next piece is only sent after an append, so one that waited for the upload would never be answered. On its
    // way the upload is on the disk in many parts.
    for (number, piece) in (0..APPENDS).zip(body.chunks(PIECE_BYTES)) {
        api.append(path, BYTES, &number.to_be_bytes())?;
        refused(&api.get(&format!("{path}/snapshot"))?, 404, "snapshot_not_found")?;
        upload.send(piece)?;
    }
    upload.finish()?.expect(&[204], "publish")?;
    let bootstrap = api.bootstrap(path)?;
    ensure!(bootstrap.snapshot_offset == x[1] && bootstrap.messages.len() == APPENDS as usize, "messages");
    ensure!(bootstrap.snapshot.body == body, "the snapshot's bytes");
    Ok(())
}

fn overtaken(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc", b"de"])?;
    let mut slow = Upload::begin(api, path, &x[1], Some(10))?;
    slow.send(b"01234")?;
    api.published(path, &x[2], b"newer")?;
    slow.send(b"56789")?;
    refused(&slow.finish()?, 410, "retained")?;
    ensure!(api.bootstrap(path)?.snapshot.body == b"newer", "the newer one stays");
    Ok(())
}

fn made_anew(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc"])?;
    let mut slow = Upload::begin(api, path, &x[1], Some(10))?;
    slow.send(b"01234")?;
    api.delete(path)?.expect(&[204], "delete")?;
    api.stream(path, &[b"xyz"])?;
    slow.send(b"56789")?;
    let response = slow.finish()?;
    refused(&response, 409, "stream_changed")?;
    has(&api.head(path)?, "stream-snapshot-offset", None)?;
    ensure!(api.read(path, "-1")?.0 == b"xyz", "the new stream's content");
    let gone = format!("{path}-gone");
    let x = api.stream(&gone, &[b"abc"])?;
    let mut slow = Upload::begin(api, &gone, &x[1], Some(10))?;
    slow.send(b"01234")?;
    api.delete(&gone)?.expect(&[204], "delete")?;
    slow.send(b"56789")?;
    refused(&slow.finish()?, 404, "not_found")
}

fn broken_off(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc"])?;
    for _ in 0..20 {
        let mut upload = Upload::begin(api, path, &x[1], Some(1 << 20))?;
        upload.send(&vec![1; 300_000])?;
        drop(upload);
    }
    refused(&api.get(&format!("{path}/snapshot"))?, 404, "snapshot_not_found")?;
    ensure!(api.read(path, "-1")?.0 == b"abc", "nothing is gone");
    api.published(path, &x[1], b"whole")?;
    Ok(())
}

fn read_while_replaced(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc"])?;
    let old: Vec<u8> = (0..253).cycle().take(SNAPSHOT_BYTES_MAX).collect();
    api.published(path, &x[1], &old)?;
    let mut reader = Connection::open(api.address)?;
    reader.begin("GET", &format!("{path}/snapshot/{}", x[1]), &[])?;
    let head = reader.read_head()?;
    for round in 0..5_u8 {
        api.publish(path, &x[1], &[("content-type", JSON)], &[b'0' + round])?.expect(&[204], "replace")?;
    }
    ensure!(reader.read_body(head, false)?.body == old, "other bytes");
    Ok(())
}

fn race(api: &mut Api, path: &str) -> Result<()> {
    let appends: Vec<Vec<u8>> = (0..20_u8).map(|number| vec![number; 3]).collect();
    let x = api.stream(path, &appends.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
    let address = api.address;
    let statuses = thread::scope(|scope| {
        let publishing: Vec<_> = x
            .iter()
            .map(|offset| scope.spawn(|| Api::new(address).publish(path, offset, &[], offset.as_bytes())))
            .collect();
        publishing
            .into_iter()
            .map(|thread| Ok(thread.join().map_err(|_| anyhow::anyhow!("panicked"))??.status))
            .collect::<Result<Vec<u16>>>()
    })?;
    ensure!(statuses.iter().all(|status| matches!(status, 204 | 410)), "{statuses:?}");
    let last = x.last().context("an offset")?;
    ensure!(statuses.last() == Some(&204), "the newest is refused: {statuses:?}");
    let bootstrap = api.bootstrap(path)?;
    ensure!(
        bootstrap.snapshot_offset == *last && bootstrap.snapshot.body == last.as_bytes(),
        "the newest wins"
    );
    Ok(())
}
