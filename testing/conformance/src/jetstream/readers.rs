//! `alluvium jetstream backfill` and `tail`, and the library behind them, against a server that is killed while they
//! read, killed themselves, and sent to the archive where a live feed no longer reaches.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use alluvium_env::{Clock as _, Env, SystemClock};
use alluvium_jetstream_archive::{Archive, Batch, FjallStore, Options};
use alluvium_jetstream_client::{Client, Config, Cursor, Mode};
use alluvium_jetstream_wire::Wire;
use alluvium_jss::{Event, Kind};
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::paths::{self, Packing};
use super::told::{self, Told};
use super::world::{SMALL, World, same, steady};
use crate::check::Report;
use crate::http::Connection;
use crate::random::Random;
use crate::server::Launch;

/// Far longer than a reader takes for what is there.
const READ_SECONDS_MAX: Duration = Duration::from_mins(1);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How often reader and server are killed.
const ROUNDS: u32 = 8;
/// The age of the archive that live feeds no longer reach back to.
const AGE_US: i64 = 48 * 3_600_000_000;
/// Events of it.
const AGED: u64 = 160;

pub(super) fn run(binary: &Path, report: &mut Report) {
    report.check("a reader and its server, killed again and again: every event once and in order", || {
        killed(binary)
    });
    report
        .check("a cursor that is too old: refused by name, and the reader goes on from the archive", || {
            too_old(binary)
        });
}

/// A reader as a process.
struct Reader(Child);

impl Reader {
    fn start(binary: &Path, arguments: &[&str], output: Stdio) -> Result<Self> {
        let mut command = Command::new(binary);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ALLUVIUM_") {
                command.env_remove(name);
            }
        }
        command.arg("jetstream").args(arguments).arg("--quiet").stdin(Stdio::null()).stderr(Stdio::inherit());
        Ok(Self(command.stdout(output).spawn().context("start a reader")?))
    }

    fn kill(mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }

    /// SIGINT: it ends with the code of that, and keeps its cursor.
    fn interrupt(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.0), Signal::INT)?;
        let status = self.0.wait()?;
        ensure!(status.code() == Some(130), "a reader ended with {status}");
        Ok(())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Already ended and waited for, unless a check failed.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn read_lines(text: &str) -> Result<Vec<Told>> {
    // A line that a crash cut short is behind what the cursor covers.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| told::of_line(&serde_json::from_str::<Value>(line)?)).collect()
}

/// Waits until the kept cursor is behind this event.
fn await_cursor(file: &Path, tip: u64) -> Result<()> {
    let deadline = Instant::now() + READ_SECONDS_MAX;
    loop {
        let kept = fs::read_to_string(file).unwrap_or_default();
        let kept: Value = serde_json::from_str(&kept).unwrap_or_default();
        let next = kept["cursor"].as_str().and_then(|next| next.parse::<u64>().ok());
        if next.is_some_and(|next| next > tip) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the reader does not come to event {tip}: {kept}");
        thread::sleep(LOOK_INTERVAL);
    }
}

fn killed(binary: &Path) -> Result<()> {
    let mut world = World::new(binary, steady(201), SMALL)?;
    world.run(120)?;
    world.start()?;
    world.caught_up()?;
    let folder = tempfile::tempdir()?;
    let (output, cursor) = (folder.path().join("events.ndjson"), folder.path().join("events.cursor"));
    let text = |path: &PathBuf| path.display().to_string();
    let (url, out, kept) = (world.url(), text(&output), text(&cursor));
    let backfill = ["backfill", &url, "--follow", "--output", &out, "--cursor-file", &kept];
    let follow = || Reader::start(binary, &backfill, Stdio::null());
    // The library, in this process, over all of it.
    let client = Client::new(Config::new(world.url()), Env::real())?;
    let (sender, listened) = std::sync::mpsc::channel();
    let listening = world.runtime.spawn(async move {
        let mut events = client.events(Cursor::After(0), Mode::Whole)?;
        while let Some(event) = events.next().await? {
            if sender.send(event.line).is_err() {
                break;
            }
        }
        anyhow::Ok(())
    });
    let mut random = Random::new(7);
    let mut reader = follow()?;
    for round in 0..ROUNDS {
        world.run(25)?;
        // Whatever it is doing by then: starting, downloading, changing over, following.
        thread::sleep(Duration::from_millis(random.below(150).into()));
        if round % 2 == 0 {
            reader.kill()?;
            reader = follow()?;
        }
        if round % 3 == 1 {
            world.kill()?;
            world.run(10)?;
            world.start()?;
        }
    }
    world.conclude(0..24)?;
    let events = world.caught_up()?;
    let tip = events.last().context("events")?.seq;
    await_cursor(&cursor, tip)?;
    reader.interrupt()?;
    same(&read_lines(&fs::read_to_string(&output)?)?, &events).context("the reader's file")?;
    let mut heard = Vec::new();
    while heard.last().is_none_or(|last: &Told| last.seq < tip) {
        let line = listened.recv_timeout(READ_SECONDS_MAX).context("the library has stopped")?;
        heard.push(told::of_line(&serde_json::from_str(&line)?)?);
    }
    listening.abort();
    same(&heard, &events).context("the library")?;
    // The archive alone, and the live feed alone.
    let sealed = paths::segments(world.address())?.last().context("a segment")?.2;
    let archived = Command::new(binary).args(["jetstream", "backfill", &url, "--quiet"]).output()?;
    ensure!(archived.status.success(), "{archived:?}");
    let archived = read_lines(&String::from_utf8(archived.stdout)?)?;
    same(&archived, &events[..events.partition_point(|event| event.seq <= sealed)]).context("backfill")?;
    let count = events.len().to_string();
    let live = Command::new(binary)
        .args(["jetstream", "tail", &url, "--quiet", "--cursor", "1", "--count", &count])
        .output()?;
    ensure!(live.status.success(), "{live:?}");
    same(&read_lines(&String::from_utf8(live.stdout)?)?, &events).context("tail")?;
    world.stop()
}

/// An archive with segments of two days ago.
fn aged(data_dir: &Path) -> Result<()> {
    fs::create_dir_all(data_dir.join("meta"))?;
    let store = Arc::new(FjallStore::open(&data_dir.join("meta"))?);
    let mut options = Options::new(data_dir.join("segments"));
    (options.blocks.block_rows, options.segment_bytes) = (16, 2_000);
    let (archive, _) = Archive::open(Env::real(), store, options)?;
    let begin = i64::try_from(SystemClock.now_us())? - AGE_US;
    for number in 0..AGED {
        let did = format!("did:plc:{number:024}");
        let body = [
            ("did", alluvium_atproto::cbor::Value::Text(did.clone())),
            ("seq", alluvium_atproto::cbor::Value::Integer(i64::try_from(number)?)),
            ("time", alluvium_atproto::cbor::Value::Text("2026-01-01T00:00:00.000Z".to_owned())),
        ];
        let body = body.map(|(key, value)| (key.to_owned(), value));
        let body = alluvium_atproto::cbor::Map::from_entries(body.into()).context("a body")?;
        let payload = alluvium_atproto::cbor::encode(&alluvium_atproto::cbor::Value::Map(body)).into();
        let event = Event {
            witnessed_at: begin + i64::try_from(number)? * 1000,
            indexed_at: 0,
            kind: Kind::Identity,
            did,
            collection: String::new(),
            rkey: String::new(),
            rev: String::new(),
            payload,
        };
        archive.submit(Batch { events: vec![event], ..Batch::default() })?;
        archive.commit_waiting()?;
    }
    archive.request_rotation()?;
    archive.commit_waiting()?;
    Ok(())
}

fn too_old(binary: &Path) -> Result<()> {
    let mut world = World::new(binary, steady(202), SMALL)?;
    aged(&world.data_dir)?;
    world.start()?;
    let address = world.address();
    refused(&world)?;
    // The reader begins in the archive although it wants the live feed, and changes over to it.
    for form in ["v2", "events"] {
        world.run(30)?;
        let before = next_seq(address)?;
        world.run(20)?;
        let last = await_more(address, before)?;
        let count = (last - 4).to_string();
        let url = world.url();
        let read = Command::new(binary)
            .args(["jetstream", "tail", &url, "--quiet", "--cursor", "5", "--form", form, "--count", &count])
            .output()?;
        ensure!(read.status.success(), "{read:?}");
        let text = String::from_utf8(read.stdout)?;
        let seqs: Vec<u64> = match form {
            "v2" => read_lines(&text)?.iter().map(|event| event.seq).collect(),
            _ => text
                .lines()
                .map(|line| {
                    let event = told::of_message(&serde_json::from_str(line)?)?;
                    Ok(event.context("an event")?.seq)
                })
                .collect::<Result<_>>()?,
        };
        ensure!(seqs.iter().copied().eq(5..=last), "{form}: {seqs:?} up to {last}");
    }
    // A reader that was away for longer than the feed keeps: stopped in the archive, gone on with behind it.
    resumed(binary, &world.launch, &world.url())?;
    world.stop()
}

/// What each feed says of the first event, which it no longer reaches.
fn refused(world: &World) -> Result<()> {
    let headers = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    for (wire, mark) in [(Wire::V2, "cursor too old"), (Wire::Events, "\"CursorTooOld\"")] {
        let target = format!("{}?cursor=1", paths::path(wire));
        let answer = Connection::open(world.address())?.call("GET", &target, &headers, b"")?;
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        ensure!(answer.status == 400 && body.contains(mark), "{target}: {} {body}", answer.status);
    }
    let floor = paths::segments(world.address())?;
    let floor = floor.iter().rev().nth(1).context("two segments")?.2 + 1;
    let feed = paths::feed(world.address(), (Wire::V1, Packing::Plain), "cursor=1", AGED);
    let first = world.runtime.block_on(feed)?.first().context("an event")?.seq;
    ensure!(first == floor, "the oldest feed begins with {first} and not with {floor}");
    let page = paths::get(world.address(), "/streams/events?offset=0000000000000001_0000000000000000", &[])?;
    ensure!(page.status == 410, "the stream of events answers {}", page.status);
    Ok(())
}

fn next_seq(address: std::net::SocketAddr) -> Result<u64> {
    let status: Value = serde_json::from_slice(&paths::get(address, "/status", &[])?.body)?;
    status["nextSeq"].as_u64().context("nextSeq")
}

/// Waits until there is an event with this number or a later one, and returns the last there is.
fn await_more(address: std::net::SocketAddr, seq: u64) -> Result<u64> {
    let deadline = Instant::now() + READ_SECONDS_MAX;
    loop {
        let next = next_seq(address)?;
        if next > seq {
            return Ok(next - 1);
        }
        ensure!(Instant::now() < deadline, "no event {seq}");
        thread::sleep(LOOK_INTERVAL);
    }
}

fn resumed(binary: &Path, launch: &Launch, url: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (output, cursor) = (path("events.ndjson"), path("events.cursor"));
    let files = ["--output", &output, "--cursor-file", &cursor, "--quiet"];
    let first =
        Command::new(binary).args(["jetstream", "backfill", url, "--count", "33"]).args(files).status()?;
    ensure!(first.success(), "{first}");
    let reader =
        Reader::start(binary, &[&["backfill", url, "--follow"][..], &files[..4]].concat(), Stdio::null())?;
    let tip = next_seq(launch.listen)? - 1;
    await_cursor(Path::new(&cursor), tip)?;
    reader.interrupt()?;
    let seqs: Vec<u64> = read_lines(&fs::read_to_string(&output)?)?.iter().map(|event| event.seq).collect();
    ensure!(
        seqs.len() as u64 >= tip && seqs.iter().copied().eq(1..=seqs.len() as u64),
        "{seqs:?} up to {tip}"
    );
    Ok(())
}
