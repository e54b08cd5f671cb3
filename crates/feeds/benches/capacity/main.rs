//! The capacity goal of feeds: a space of 1,000 feeds of 10,000 blocks of 200 bytes, and what everything costs there.
//!
//! `cargo bench -p alluvium-feeds --bench capacity -- load FOLDER` fills a folder; `measure FOLDER` measures on it, `pull
//! FOLDER` has a replica pull everything. `--feeds`, `--blocks` and `--bytes` scale it (the default of `cargo bench` is
//! small: 20 feeds of 500 blocks, in a temporary folder). Beside each figure stands the same as plain SQLite statements on
//! the same rows, which is what it can't get below. The figures of a run are in `docs/feeds.md`.

#![expect(clippy::disallowed_methods, reason = "a benchmark looks at the real clock and at files")]
#![expect(clippy::print_stdout, reason = "this is the program's output")]

mod load;
mod measure;
mod pages;
mod pull;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use alluvium_env::Env;
use alluvium_feed_protocol::{AppendRequest, Block, Data, Id, Namespace, QueryRequest, QueryResponse};
use alluvium_feed_protocol::{Request, Response};
use alluvium_feeds::{Options, Principal, Service};

/// What is loaded.
#[derive(Clone, Debug)]
struct Scale {
    feeds: u64,
    blocks: u64,
    bytes: usize,
    folder: PathBuf,
}

impl Scale {
    fn total(&self) -> u64 {
        self.feeds * self.blocks
    }
}

fn main() {
    let mut scale = Scale { feeds: 1000, blocks: 10_000, bytes: 200, folder: PathBuf::new() };
    let (mut command, mut is_scaled) = (String::new(), false);
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok()).expect("a number follows");
        match argument.as_str() {
            "--feeds" => (scale.feeds, is_scaled) = (number(), true),
            "--blocks" => (scale.blocks, is_scaled) = (number(), true),
            "--bytes" => scale.bytes = usize::try_from(number()).expect("a size"),
            text if command.is_empty() => text.clone_into(&mut command),
            text => scale.folder = PathBuf::from(text),
        }
    }
    let temporary = tempfile::tempdir().expect("a temporary folder");
    if scale.folder.as_os_str().is_empty() {
        temporary.path().clone_into(&mut scale.folder);
        if !is_scaled {
            (scale.feeds, scale.blocks) = (20, 500);
        }
    }
    match command.as_str() {
        "load" => load::run(&scale),
        "measure" => measure::run(&scale),
        "pull" => pull::run(&scale),
        "" => {
            load::run(&scale);
            measure::run(&scale);
            pull::run(&scale);
        }
        other => println!("`{other}` is none of `load`, `measure`, `pull`"),
    }
}

fn id(text: &str) -> Id {
    Id::parse(text).expect("an identifier")
}

fn space() -> Id {
    id("capacity")
}

fn feed(number: u64) -> Id {
    id(&format!("feed-{number:05}"))
}

/// A block whose bytes differ from all others and don't compress.
fn block(scale: &Scale, feed_number: u64, sequence: u64) -> Block {
    let mut bits = feed_number << 32 | sequence;
    let mut data = Vec::with_capacity(scale.bytes + 8);
    while data.len() < scale.bytes {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        data.extend_from_slice(&bits.to_le_bytes());
    }
    data.truncate(scale.bytes);
    Block {
        feed_id: Some(feed(feed_number)),
        namespace: None,
        position: None,
        sequence,
        actor_id: id("01HF7YAT00ACTOR"),
        prev_sequence: sequence.checked_sub(1),
        prev_actor_id: (sequence > 0).then(|| id("01HF7YAT00ACTOR")),
        timestamp: Some(1_750_000_000_000 + sequence),
        data: Data::from(data),
        encryption_key_id: None,
        iv: None,
        signature: None,
    }
}

fn open(folder: &Path) -> Arc<Service> {
    let service = Service::open(&folder.join("feeds"), Env::real(), Options::default());
    Arc::new(service.expect("a folder of feeds"))
}

fn append(service: &Service, blocks: Vec<Block>) {
    let namespace = Namespace::parse("bench").ok();
    let request = Request::Append(AppendRequest { blocks, namespace, ..AppendRequest::default() });
    let answer = service.handle_blocking(&Principal::anyone(), &space(), request, None);
    assert!(matches!(answer, Response::Append(_)), "{answer:?}");
}

fn query(service: &Service, request: QueryRequest) -> QueryResponse {
    match service.handle_blocking(&Principal::anyone(), &space(), Request::Query(request), None) {
        Response::Query(page) => page,
        other => panic!("{other:?}"),
    }
}

/// The database of the space, for the plain statements beside.
fn database(folder: &Path) -> PathBuf {
    let inside = std::fs::read_dir(folder.join("feeds")).expect("a folder");
    let folders = inside.filter_map(Result::ok).map(|entry| entry.path());
    folders.map(|path| path.join("space.sqlite")).find(|path| path.exists()).expect("a space")
}

/// Median and 99th percentile of how long something takes.
fn timed(times: u64, mut what: impl FnMut(u64)) -> (Duration, Duration) {
    let mut all: Vec<Duration> = (0..times)
        .map(|number| {
            let began = Instant::now();
            what(number);
            began.elapsed()
        })
        .collect();
    all.sort_unstable();
    (all[all.len() / 2], all[all.len() * 99 / 100])
}

/// How much memory the process has, and had at most, in MiB.
fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib =
            line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<u64>().ok());
        kib.unwrap_or(0) / 1024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

#[expect(clippy::cast_precision_loss, reason = "rates are for people")]
fn rate(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}
