//! Crashes at arbitrary places: the write-ahead log is cut anywhere, and what the store then holds must be what it held
//! after some whole number of writes, no fewer than were acknowledged. Then the producers go on as if nothing had been.

use std::collections::BTreeMap;

use alluvium_env::sim::Rng;
use alluvium_protocol::error::{Conflict, StreamError};
use alluvium_protocol::store::{AppendOptions, GetOptions, PutOptions, StoreError, StreamStore};
use alluvium_protocol::{Offset, OffsetQuery, ProducerId, ProducerStamp, StreamPath};
use alluvium_sqlstore::{SqliteOptions, SqliteStore};
use bytes::Bytes;

use crate::world::{World, options, runtime};

const SEEDS: u64 = 12;
const WRITES: usize = 60;
const CUTS: usize = 6;

/// A write of the script. A repetition of any of them changes nothing.
#[derive(Clone, Debug)]
enum Write {
    Create { stream: u64 },
    Append { stream: u64, producer: u64, seq: u64, data: Bytes, close: bool },
}

/// What a small mind knows of the streams: bytes, ends of appends, closed.
type Model = BTreeMap<u64, (Vec<u8>, Vec<u64>, bool)>;

fn path(stream: u64) -> StreamPath {
    StreamPath::parse_decoded(&format!("s{stream}")).expect("a path")
}

/// The writes of a seed, all of which succeed.
fn script(rng: &mut Rng) -> Vec<Write> {
    let mut next: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    let mut closed = [false; 4];
    let mut writes: Vec<Write> = (0..4).map(|stream| Write::Create { stream }).collect();
    while writes.len() < WRITES && closed.contains(&false) {
        let (stream, producer) = (rng.below(4), rng.below(3));
        if closed[usize::try_from(stream).expect("small")] {
            continue;
        }
        let seq = next.entry((stream, producer)).or_default();
        let length = *rng.pick(&[1_usize, 100, 1024, 3000]);
        let byte = u8::try_from(writes.len()).expect("few writes");
        let close = rng.percent(3);
        closed[usize::try_from(stream).expect("small")] = close;
        let data = Bytes::from(vec![byte; length]);
        writes.push(Write::Append { stream, producer, seq: *seq, data, close });
        *seq += 1;
    }
    writes
}

fn apply_to_model(model: &mut Model, write: &Write) {
    match write {
        Write::Create { stream } => drop(model.insert(*stream, (Vec::new(), Vec::new(), false))),
        Write::Append { stream, data, close, .. } => {
            let (bytes, ends, closed) = model.get_mut(stream).expect("created");
            bytes.extend_from_slice(data);
            ends.push(bytes.len() as u64);
            *closed = *close;
        }
    }
}

/// Does a write, and says whether it was new.
async fn apply(store: &SqliteStore, write: &Write) -> bool {
    match write {
        Write::Create { stream } => {
            match store.put(&path(*stream), PutOptions::default()).await {
                Ok(answer) => answer.created,
                // Closed by a later write of the script, which this is a repetition before.
                Err(StoreError::Refused(StreamError::Conflict(Conflict::Exists(_)))) => false,
                Err(error) => panic!("{error}"),
            }
        }
        Write::Append { stream, producer, seq, data, close } => {
            let id = ProducerId::parse(&format!("p{producer}")).expect("an id");
            let producer = Some(ProducerStamp { id, epoch: 0, seq: *seq });
            let options = AppendOptions { producer, close: *close, ..AppendOptions::default() };
            store.append(&path(*stream), data.clone(), options).await.expect("appends").appended
        }
    }
}

async fn observe(store: &SqliteStore) -> Model {
    let mut model = Model::new();
    for stream in 0..4 {
        let Some(head) = store.head(&path(stream), None).await.expect("reads") else { continue };
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        let mut offset = Offset::ZERO;
        while offset != head.next_offset {
            let options = GetOptions { offset: OffsetQuery::At(offset), ..GetOptions::default() };
            let got = store.get(&path(stream), options).await.expect("reads");
            bytes.extend(got.messages.iter().flat_map(|message| message.data.to_vec()));
            offset = got.next_offset;
        }
        for append in 1..=head.next_offset.append_index {
            let end = store.append_end_offset(&path(stream), append, None).await.expect("reads");
            ends.push(end.expect("is there").position);
        }
        model.insert(stream, (bytes, ends, head.closed));
    }
    model
}

/// A copy of a database, with the log cut and torn.
pub(crate) fn crash(world: &World, log: &[u8], torn: &[u8]) -> World {
    let copy = World::new(7);
    let main = std::fs::read(world.file()).expect("the database");
    write_file(&copy.file(), &main);
    write_file(&copy.dir.path().join("streams.sqlite-wal"), &[log, torn].concat());
    copy
}

#[expect(clippy::disallowed_methods, reason = "the test makes the files that a crash would leave")]
fn write_file(file: &std::path::Path, bytes: &[u8]) {
    std::fs::write(file, bytes).expect("writes");
}

#[test]
fn whatever_a_crash_leaves_is_a_whole_number_of_writes_and_producers_go_on() {
    let runtime = runtime();
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let writes = script(&mut rng);
        let world = World::new(seed);
        // The log is never folded into the database, so that cutting it can undo any write.
        let options = SqliteOptions { checkpoint_pages: 0, ..options() };
        let store = world.try_open(options).expect("opens");
        let log = world.dir.path().join("streams.sqlite-wal");
        // After each write: how long the log is, and what the streams are.
        let mut states = vec![(log_len(&log), Model::new())];
        let mut model = Model::new();
        runtime.block_on(async {
            for write in &writes {
                assert!(apply(&store, write).await);
                apply_to_model(&mut model, write);
                states.push((log_len(&log), model.clone()));
            }
            assert_eq!(observe(&store).await, model);
        });
        let whole = std::fs::read(&log).expect("the log");
        let first = usize::try_from(states[0].0).expect("small");
        for _ in 0..CUTS {
            let cut = first + rng.index(whole.len() - first + 1);
            let mut torn = whole[cut..whole.len().min(cut + rng.index(9000))].to_vec();
            for byte in &mut torn {
                *byte ^= u8::try_from(1 + rng.below(255)).expect("a byte");
            }
            let crashed = crash(&world, &whole[..cut], &torn);
            let reopened = crashed.open();
            runtime.block_on(async {
                let found = observe(&reopened).await;
                let acknowledged =
                    states.iter().rposition(|(length, _)| *length <= cut as u64).expect("the first");
                let at = states.iter().skip(acknowledged).position(|(_, state)| *state == found);
                let at = acknowledged + at.unwrap_or_else(|| panic!("seed {seed}, cut {cut}: {found:?}"));
                lost += writes.len() - at;
                kept += at;
                // Everybody repeats from some write that was still acknowledged, and goes on.
                let from = at.saturating_sub(rng.index(5));
                for (number, write) in writes.iter().enumerate().skip(from) {
                    assert_eq!(apply(&reopened, write).await, number >= at, "seed {seed}, write {number}");
                }
                assert_eq!(observe(&reopened).await, model);
            });
        }
    }
    assert!(lost > 300 && kept > 300, "cuts fall early and late: {lost} lost, {kept} kept");
}

/// Bytes of a page.
const PAGE: usize = 4096;

#[test]
fn a_crash_while_the_log_is_copied_into_the_database_loses_nothing() {
    let runtime = runtime();
    for seed in 0..SEEDS {
        let mut rng = Rng::new(100 + seed);
        let writes = script(&mut rng);
        let world = World::new(seed);
        let options = SqliteOptions { checkpoint_pages: 0, ..options() };
        let store = world.try_open(options).expect("opens");
        let mut model = Model::new();
        runtime.block_on(async {
            for write in &writes {
                assert!(apply(&store, write).await);
                apply_to_model(&mut model, write);
            }
        });
        let log = std::fs::read(world.dir.path().join("streams.sqlite-wal")).expect("the log");
        let before = std::fs::read(world.file()).expect("the database");
        // Closing copies all of it.
        store.close();
        let after = std::fs::read(world.file()).expect("the database");
        assert!(after.len() > before.len() && after.len().is_multiple_of(PAGE));
        for _ in 0..CUTS {
            // Each page is the old one, the new one, or torn; the file is as long as the last that was written.
            let mut mixed = after[..PAGE * (1 + rng.index(after.len() / PAGE))].to_vec();
            for (page, bytes) in mixed.chunks_mut(PAGE).enumerate() {
                let old = before.get(page * PAGE..(page + 1) * PAGE).map_or(vec![0; PAGE], <[u8]>::to_vec);
                let torn = *rng.pick(&[0, 0, 0, 512, PAGE]);
                bytes[torn..].copy_from_slice(&old[torn..]);
            }
            let crashed = World::new(7);
            write_file(&crashed.file(), &mixed);
            write_file(&crashed.dir.path().join("streams.sqlite-wal"), &log);
            let reopened = crashed.open();
            assert_eq!(runtime.block_on(observe(&reopened)), model, "seed {seed}");
            reopened.close();
            // And once it was copied to the end, the log is not needed.
            let sound = crashed.open();
            assert_eq!(runtime.block_on(observe(&sound)), model, "seed {seed}");
        }
    }
}

pub(crate) fn log_len(log: &std::path::Path) -> u64 {
    std::fs::metadata(log).map_or(0, |metadata| metadata.len())
}
