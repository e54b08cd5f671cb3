//! Makes the Zstandard dictionaries of the Jetstream feeds from simulated traffic.
//!
//! `cargo run --release -p alluvium-bench --example dictionaries -- FOLDER` writes one for each wire that has its own,
//! under the ids that are given here. A dictionary that was handed out once is never changed: a new one gets a new id.
#![expect(clippy::print_stdout, reason = "it tells what it made")]
#![expect(clippy::disallowed_methods, reason = "no server runs here that would need its files simulated")]

use std::path::Path;

use alluvium_atproto::cbor::{Map, Value, encode};
use alluvium_jetstream_simulator::{Action, Config, Emitted, Oracle, Outcome, Row, World};
use alluvium_jetstream_wire::Wire;
use alluvium_jss::{Event, Kind};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;

/// The size of a dictionary.
const DICTIONARY_BYTES: usize = 64 * 1024;
/// How many messages are looked at.
const SAMPLES: usize = 20_000;

fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1).context("usage: dictionaries FOLDER")?;
    for (wire, name, id) in
        [(Wire::V2, "subscribe-v2", 2_026_112_901_u32), (Wire::Events, "subscribe-events", 2_026_112_902)]
    {
        let samples = messages(wire, 1, SAMPLES)?;
        let mut dictionary = zstd::dict::from_samples(&samples, DICTIONARY_BYTES).context("train")?;
        ensure!(dictionary.len() > 8, "no dictionary came of it");
        // The id is a field of the head and stands for nothing else.
        dictionary[4..8].copy_from_slice(&id.to_le_bytes());
        let held_out = messages(wire, 2, SAMPLES / 10)?;
        let plain: usize = held_out.iter().map(Vec::len).sum();
        let mut compressor = zstd::bulk::Compressor::with_dictionary(1, &dictionary)?;
        let packed = held_out.iter().map(|message| compressor.compress(message).map(|frame| frame.len()));
        let packed = packed.sum::<std::io::Result<usize>>()?;
        let path = Path::new(&folder).join(format!("{name}-{id}.zdict"));
        std::fs::write(&path, &dictionary).with_context(|| path.display().to_string())?;
        println!("{}: {} bytes, {} to {}", path.display(), dictionary.len(), plain, packed);
    }
    Ok(())
}

/// The messages of a world's first events on a wire.
fn messages(wire: Wire, seed: u64, count: usize) -> Result<Vec<Vec<u8>>> {
    let mut world =
        World::new(Config { seed, accounts: 2_000, initial_records_max: 5, ..Config::default() })?;
    let mut oracle = Oracle::new();
    let mut messages = Vec::with_capacity(count);
    while messages.len() < count {
        for emitted in world.run(100) {
            let Outcome::Rows(rows) = oracle.observe(&emitted) else { continue };
            for row in rows {
                // Numbers as an archive has them after some time.
                let seq = 1_000_000_000 + messages.len() as u64;
                if let Some(text) = wire.render(&event(&emitted, row)?.at(seq))? {
                    messages.push(text.into_bytes());
                }
            }
        }
    }
    messages.truncate(count);
    Ok(messages)
}

/// The event that is archived for a row.
fn event(emitted: &Emitted, row: Row) -> Result<Event> {
    let empty = Event {
        witnessed_at: i64::try_from(emitted.micros)?,
        indexed_at: 0,
        kind: Kind::Create,
        did: emitted.did.clone(),
        collection: String::new(),
        rkey: String::new(),
        rev: String::new(),
        payload: Bytes::new(),
    };
    let body = |more: Vec<(String, Value)>| -> Result<Bytes> {
        let mut entries = vec![
            ("did".to_owned(), Value::Text(emitted.did.clone())),
            ("seq".to_owned(), Value::Integer(i64::try_from(emitted.seq)?)),
            ("time".to_owned(), Value::Text("2026-01-01T00:00:00.000Z".to_owned())),
        ];
        entries.extend(more);
        Ok(encode(&Value::Map(Map::from_entries(entries).context("a key twice")?)).into())
    };
    Ok(match row {
        Row::Record { action, collection, rkey, rev, block, .. } => {
            let kind = match action {
                Action::Create => Kind::Create,
                Action::Update => Kind::Update,
                Action::Delete => Kind::Delete,
            };
            Event { kind, collection, rkey, rev, payload: block.unwrap_or_default(), ..empty }
        }
        Row::Identity { handle } => {
            let handle = handle.map(|handle| ("handle".to_owned(), Value::Text(handle)));
            Event { kind: Kind::Identity, payload: body(handle.into_iter().collect())?, ..empty }
        }
        Row::Account { .. } => {
            let active = ("active".to_owned(), Value::Bool(true));
            Event { kind: Kind::Account, payload: body(vec![active])?, ..empty }
        }
    })
}
