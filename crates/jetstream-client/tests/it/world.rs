//! A server with its archive, and what of it a client must come to.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use alluvium_atproto::cbor::{Map, Value, encode};
use alluvium_jetstream::Options;
use alluvium_jetstream_client::{Client, Config, Cursor, Event, Events, Form, Item, Limits, Mode};
use alluvium_jetstream_wire::Wire;
pub(crate) use alluvium_jetstream_world::BEGIN;
use alluvium_jetstream_world::LONG;
use alluvium_jss::{Event as Archived, Kind};

/// The shared world, with events and readers.
pub(crate) struct World(alluvium_jetstream_world::World);

impl Deref for World {
    type Target = alluvium_jetstream_world::World;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Self {
        Self(alluvium_jetstream_world::World::new(options))
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

    /// Archives events, one second apart.
    pub(crate) fn add(&mut self, count: usize) {
        let first = self.archive.next_seq() - 1;
        self.0.add((first..).take(count).map(event));
    }

    pub(crate) fn config(&self) -> Config {
        config(&self.url())
    }

    pub(crate) fn events(&self, config: Config, from: Cursor, mode: Mode) -> Events {
        Client::new(config, self.env().clone())
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
