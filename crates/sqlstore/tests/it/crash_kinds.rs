//! Crashes under every kind of write, not only those that can be repeated: claims, takeovers, forks, deletions, fold
//! checkpoints, lifetimes. The log is cut anywhere; what the store then holds is what it held after some whole number of
//! writes, no fewer than were acknowledged, and the rest of the script leads from there to the same end.

use std::path::Path;

use alluvium_env::sim::Rng;
use alluvium_protocol::store::{
    AppendOptions, FoldCheckpoint, GetOptions, PutOptions, StoreError, StoreFault, StreamStore,
};
use alluvium_protocol::{
    ForkOrigin, Incarnation, Lifetime, Offset, OffsetQuery, ProducerId, ProducerStamp, StreamPath,
};
use alluvium_sqlstore::{SqliteOptions, SqliteStore};
use bytes::Bytes;

use crate::crash::{crash, log_len};
use crate::world::{World, options, runtime};

const SEEDS: u64 = 8;
const STEPS: u64 = 80;
const CUTS: usize = 5;
const PATHS: u64 = 5;

fn path(stream: u64) -> StreamPath {
    StreamPath::parse_decoded(&format!("s{stream}")).expect("a path")
}

fn id(producer: u64) -> ProducerId {
    ProducerId::parse(&format!("p{producer}")).expect("an id")
}

/// One write, told by numbers alone, so that it can be done again on another store: what it does there depends on what
/// that holds.
#[derive(Copy, Clone, Debug)]
struct Step {
    kind: u64,
    stream: u64,
    other: u64,
    number: u64,
}

fn script(seed: u64) -> Vec<Step> {
    let mut rng = Rng::new(seed);
    let step = |_| Step {
        kind: rng.below(16),
        stream: rng.below(PATHS),
        other: rng.below(PATHS),
        number: rng.below(1000),
    };
    (0..STEPS).map(step).collect()
}

/// Does a step. Refusals are answers like others; a fault is none.
async fn apply(store: &SqliteStore, step: Step) -> bool {
    let at = path(step.stream);
    let state = store.storage_state(&at).await;
    let state = state.unwrap_or(None);
    let number = usize::try_from(step.number).expect("small");
    let told = match step.kind {
        0..3 => {
            let lifetime = if step.number.is_multiple_of(3) {
                Lifetime::Ttl { seconds: 1000 }
            } else {
                Lifetime::Forever
            };
            store.put(&at, PutOptions { lifetime, ..PutOptions::default() }).await.map(drop)
        }
        3 => {
            let origin = ForkOrigin { source: path(step.other), offset: None, sub_offset: 0 };
            store.put(&at, PutOptions { fork: Some(origin), ..PutOptions::default() }).await.map(drop)
        }
        4 => store.delete(&at, None).await,
        5 | 6 => store.acquire_producer(&at, id(step.other), None).await.map(drop),
        7 => {
            let Some(state) = state else { return false };
            let checkpoint = FoldCheckpoint {
                offset: state.next_offset,
                incarnation: state.incarnation,
                format_version: 1,
                data: "état ".repeat(number),
            };
            store.put_fold_checkpoint(&at, checkpoint).await
        }
        _ => {
            // By whoever has the claim, if somebody has.
            let claim = state.and_then(|state| state.claim);
            let producer =
                claim.map(|claim| ProducerStamp { id: claim.id, epoch: claim.epoch, seq: claim.next_seq });
            let options = AppendOptions { producer, close: step.number > 980, ..AppendOptions::default() };
            let data = vec![b'a' + u8::try_from(step.number % 26).expect("small"); 3 * number + 1];
            store.append(&at, Bytes::from(data), options).await.map(drop)
        }
    };
    match told {
        Ok(()) => true,
        Err(StoreError::Refused(_)) => false,
        Err(StoreError::Fault(fault)) => panic!("{step:?}: {fault}"),
    }
}

/// All that can be seen of the store, but for the identities, which are random.
async fn observe(store: &SqliteStore) -> Vec<String> {
    let mut seen = Vec::new();
    for stream in 0..PATHS {
        let at = path(stream);
        let Ok(Some(mut state)) = store.storage_state(&at).await else {
            seen.push(format!("{:?}", store.has(&at).await));
            continue;
        };
        state.incarnation = Incarnation(0);
        let (mut bytes, mut ends, mut offset) = (Vec::new(), Vec::new(), Offset::ZERO);
        while offset != state.next_offset {
            let options = GetOptions { offset: OffsetQuery::At(offset), ..GetOptions::default() };
            let got = store.get(&at, options).await.expect("reads");
            bytes.extend(got.messages.iter().flat_map(|message| message.data.to_vec()));
            offset = got.next_offset;
        }
        for append in 1..=state.next_offset.append_index {
            ends.push(store.append_end_offset(&at, append, None).await.expect("reads"));
        }
        let checkpoint = store.fold_checkpoint(&at, None).await.expect("reads");
        let checkpoint = checkpoint.map(|kept| (kept.offset, kept.data));
        seen.push(format!("{state:?} {:?} {ends:?} {checkpoint:?}", String::from_utf8_lossy(&bytes)));
    }
    seen
}

#[test]
fn every_kind_of_write_is_whole_or_not_there_after_a_crash() {
    let runtime = runtime();
    let (mut done, mut refused, mut lost) = (0, 0, 0);
    for seed in 0..SEEDS {
        let steps = script(seed);
        let world = World::new(seed);
        // The log is never folded into the database, so that cutting it can undo any write.
        let unfolded = SqliteOptions { checkpoint_pages: 0, ..options() };
        let store = world.try_open(unfolded).expect("opens");
        let log = world.dir.path().join("streams.sqlite-wal");
        let states = runtime.block_on(async {
            let mut states = vec![(log_len(&log), observe(&store).await)];
            for step in &steps {
                let applied = apply(&store, *step).await;
                *(if applied { &mut done } else { &mut refused }) += 1;
                states.push((log_len(&log), observe(&store).await));
            }
            states
        });
        let whole = std::fs::read(&log).expect("the log");
        let mut rng = Rng::new(seed);
        let first = usize::try_from(states[0].0).expect("small");
        for _ in 0..CUTS {
            let cut = first + rng.index(whole.len() - first + 1);
            let crashed = crash(&world, &whole[..cut], &vec![0xa5; rng.index(5000)]);
            lost += runtime.block_on(check(&crashed, &steps, &states, cut as u64));
        }
    }
    assert!(done > 200 && refused > 50 && lost > 500, "{done} done, {refused} refused, {lost} lost");
}

/// Finds out how many steps survived, and does the others. Returns how many those are.
async fn check(crashed: &World, steps: &[Step], states: &[(u64, Vec<String>)], cut: u64) -> usize {
    let store = crashed.open();
    let found = observe(&store).await;
    let acknowledged = states.iter().rposition(|(length, _)| *length <= cut).expect("the first");
    let later = states.iter().skip(acknowledged).position(|(_, state)| *state == found);
    let at = acknowledged + later.unwrap_or_else(|| panic!("cut {cut}: {found:#?}"));
    for (number, step) in steps.iter().enumerate().skip(at) {
        apply(&store, *step).await;
        assert_eq!(observe(&store).await, states[number + 1].1, "cut {cut}, step {number}: {step:?}");
    }
    // Nothing of what was discarded is left to trip over.
    assert!(!matches!(store.has(&path(0)).await, Err(StoreError::Fault(StoreFault::Corrupt(_)))));
    assert_sweepable(&crashed.file());
    steps.len() - at
}

fn assert_sweepable(file: &Path) {
    let sql = rusqlite::Connection::open(file).expect("opens");
    let sound: String = sql.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("checks");
    assert_eq!(sound, "ok");
}
