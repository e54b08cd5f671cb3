//! A server with its archive, and what of it a client must come to.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use alluvium_atproto::cbor::{Map, Value, encode};
use alluvium_env::sim::{ManualClock, SeededRandom, SimDisk};
use alluvium_env::{Disk, Env};
use alluvium_http::{ResponseBudget, Server, ServerOptions, Shutdown, bind};
use alluvium_jetstream::{Options, Surface};
use alluvium_jetstream_archive::{Archive, Batch, LogStore, Options as ArchiveOptions};
use alluvium_jetstream_client::{Client, Config, Cursor, Event, Events, Form, Item, Limits, Mode};
use alluvium_jetstream_wire::Wire;
use alluvium_jss::{Event as Archived, Kind, WriteLimits};

/// Far longer than anything takes here.
const LONG: Duration = Duration::from_secs(20);
/// When the first event was seen, in microseconds since the Unix epoch.
pub(crate) const BEGIN: i64 = 1_783_000_000_000_000;
const DIR: &str = "/archive";

pub(crate) struct World {
    pub(crate) archive: Archive,
    pub(crate) clock: Arc<ManualClock>,
    env: Env,
    options: Options,
    shutdown: Shutdown,
    server: Server<Surface>,
    next: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Self {
        let disk = SimDisk::new(1);
        let clock = Arc::new(ManualClock::new(u64::try_from(BEGIN).expect("after 1970") / 1000));
        let env = Env {
            clock: Arc::clone(&clock) as Arc<_>,
            random: Arc::new(SeededRandom::new(1)),
            disk: Arc::new(disk.clone()),
        };
        disk.create_dir_all(Path::new(DIR)).expect("a directory");
        let store = LogStore::open(&disk, Path::new("/archive/store")).expect("a store");
        let archive_options = ArchiveOptions {
            blocks: WriteLimits { block_rows: 8, ..WriteLimits::default() },
            ..ArchiveOptions::new(DIR)
        };
        let (archive, _) = Archive::open(env.clone(), Arc::new(store), archive_options).expect("an archive");
        let (server, shutdown) = serve(&archive, &options);
        Self { archive, clock, env, options, shutdown, server, next: 0 }
    }

    /// Three segments of 40 events and an active one of 20, of two accounts and all kinds.
    pub(crate) fn full() -> Self {
        Self::full_with(Options::default())
    }

    pub(crate) fn full_with(options: Options) -> Self {
        let mut world = Self::with(options);
        for _ in 0..3 {
            world.add(40);
            world.seal();
        }
        world.add(20);
        world
    }

    /// Ends the server, and starts another on the same archive.
    pub(crate) fn restart(&mut self) {
        self.shutdown.trigger();
        (self.server, self.shutdown) = serve(&self.archive, &self.options);
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Archives events, one second apart.
    pub(crate) fn add(&mut self, count: usize) {
        let events = (0..count).map(|_| {
            let number = self.next;
            self.next += 1;
            let seen = BEGIN + i64::try_from(number).expect("few") * 1_000_000;
            Archived { witnessed_at: seen, ..event(number) }
        });
        let batch = Batch { events: events.collect(), ..Batch::default() };
        self.archive.submit(batch).expect("submitted");
        self.archive.commit_waiting().expect("durable");
    }

    pub(crate) fn seal(&self) {
        self.archive.request_rotation().expect("asked");
        self.archive.commit_waiting().expect("sealed");
    }

    pub(crate) fn config(&self) -> Config {
        config(&format!("http://{}", self.address()))
    }

    pub(crate) fn events(&self, config: Config, from: Cursor, mode: Mode) -> Events {
        Client::new(config, self.env.clone())
            .expect("a good configuration")
            .events(from, mode)
            .expect("a reader")
    }

    /// The lines of all events that `has` picks, in order: by number, account, collection and kind.
    pub(crate) fn model(&self, form: Form, has: impl Fn(&Archived) -> bool) -> Vec<(u64, String)> {
        let wire = match form {
            Form::V2 => Wire::V2,
            Form::Events => Wire::Events,
        };
        let mut lines = Vec::new();
        let mut reader = self.archive.reader(1);
        while let Some(rows) = reader.read(1000).expect("read") {
            for row in &rows.rows {
                if has(&row.row().to_row().event) {
                    let line = wire.render(&row.row()).expect("it can be shown").expect("it is shown");
                    lines.push((row.seq(), line));
                }
            }
        }
        lines
    }
}

fn serve(archive: &Archive, options: &Options) -> (Server<Surface>, Shutdown) {
    let shutdown = Shutdown::new();
    let surface = Surface::new(archive.clone(), options.clone(), shutdown.clone());
    let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
    let options = ServerOptions {
        reactors: 1,
        heavy_reactors: 0,
        connections_max: 100,
        header_bytes_max: 64 * 1024,
        idle_timeout: LONG,
        responses: Arc::new(ResponseBudget::new(64 << 20)),
    };
    (Server::start(listener, surface, options, shutdown.clone()).expect("threads"), shutdown)
}

/// Small parts and batches, and no long pauses.
pub(crate) fn config(url: &str) -> Config {
    let limits = Limits {
        part_bytes: 2048,
        batch_events: 3,
        pause_min: Duration::from_millis(1),
        pause_max: Duration::from_millis(20),
        ..Limits::default()
    };
    Config { limits, ..Config::new(url) }
}

/// Seven events of eight are changes of records.
fn event(number: u64) -> Archived {
    let did = ["did:web:a.example", "did:web:b.example"][usize::from(number.is_multiple_of(3))];
    let kind = match number % 8 {
        1 => [Kind::Identity, Kind::Account, Kind::Sync][(number / 8 % 3) as usize],
        2 => Kind::Update,
        3 => Kind::Delete,
        4 => Kind::CreateResync,
        _ => Kind::Create,
    };
    let entries = [("did", did.to_owned()), ("text", number.to_string())];
    let entries = entries.map(|(key, value)| (key.to_owned(), Value::Text(value)));
    let payload = encode(&Value::Map(Map::from_entries(entries.into()).expect("two keys")));
    let of_record = |text: String| if kind.is_commit() { text } else { String::new() };
    let collection = ["app.example.note", "app.example.like", "app.other.note"][(number / 2 % 3) as usize];
    Archived {
        witnessed_at: 0,
        indexed_at: 0,
        kind,
        did: did.to_owned(),
        collection: of_record(collection.to_owned()),
        rkey: of_record(format!("k{number}")),
        rev: "3mptbypluud2a".to_owned(),
        payload: if kind == Kind::Delete { bytes::Bytes::new() } else { payload.into() },
    }
}

/// The next events of a reader.
pub(crate) async fn take(events: &mut Events, count: usize) -> Vec<(u64, String)> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let next = tokio::time::timeout(LONG, events.next()).await.expect("in time").expect("no fault");
        let Event { seq, line, .. } = next.expect("an event");
        taken.push((seq, line));
    }
    taken
}

/// All events until the end, and how it ended.
pub(crate) async fn drain(
    events: &mut Events,
) -> (Vec<(u64, String)>, Result<(), alluvium_jetstream_client::Error>) {
    let mut taken = Vec::new();
    loop {
        match tokio::time::timeout(LONG, events.next()).await.expect("in time") {
            Ok(Some(event)) => taken.push((event.seq, event.line)),
            Ok(None) => return (taken, Ok(())),
            Err(error) => return (taken, Err(error)),
        }
    }
}

/// Passes over events until the reader tells something that `is` knows.
pub(crate) async fn until(
    events: &mut Events,
    is: impl Fn(&alluvium_jetstream_client::Notice) -> bool,
) -> Vec<(u64, String)> {
    let mut taken = Vec::new();
    loop {
        let item = tokio::time::timeout(LONG, events.next_item()).await.expect("in time").expect("no fault");
        match item.expect("no end") {
            Item::Event(event) => taken.push((event.seq, event.line)),
            Item::Notice(notice) if is(&notice) => return taken,
            Item::Notice(_) | Item::Passed(_) => {}
        }
    }
}
