//! What the ingest hands over is there after a restart, whole.

use std::path::Path;
use std::sync::Arc;

use alluvium_env::{Env, RoomLimits, Share, Space};
use alluvium_jetstream_archive::{FjallStore, Options};
use alluvium_jetstream_ingest::state::{Change, encode_seq, prefix};
use alluvium_jss::{Event as Row, Kind};

use super::*;

fn open(dir: &Path) -> Archive {
    let store = Arc::new(FjallStore::open(&dir.join("meta")).expect("a store"));
    Archive::open(Env::real(), store, Options::new(dir.join("segments"))).expect("an archive").0
}

fn row(did: &str) -> Row {
    Row {
        witnessed_at: 1,
        indexed_at: 0,
        kind: Kind::Identity,
        did: did.to_owned(),
        collection: String::new(),
        rkey: String::new(),
        rev: String::new(),
        payload: Bytes::from_static(b"\xa0"),
    }
}

fn batch(number: u64) -> Batch {
    let did = format!("did:plc:{number:05}");
    Batch { rows: vec![row(&did)], changes: vec![Change::IdentitySeq(did, number)], cursor: Some(number) }
}

#[test]
fn batches_become_durable_in_order_and_outlive_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let archive = open(dir.path());
    let archived = Archived::new(archive.clone(), Room::default());
    for number in 1..=2500 {
        archived.submit(batch(number)).expect("it is taken");
        if number == 100 {
            // Somebody else's request has a number of its own.
            archive.request_flush().expect("it is taken");
        }
    }
    assert_eq!(archived.durable(), 0);
    assert_eq!(archived.get(CURSOR), Ok(None), "nothing shows that a crash could take back");
    while archived.durable() < 2500 {
        assert!(archive.commit_waiting().expect("it is committed"));
    }
    assert_eq!(archived.durable(), 2500);
    assert_eq!(archive.status().next_seq, 2501);
    drop((archived, archive));
    let archived = Archived::new(open(dir.path()), Room::default());
    assert_eq!(archived.get(CURSOR), Ok(Some(encode_cursor(2500))));
    let mut seen = Vec::new();
    let scanned = archived.scan(prefix::IDENTITY_SEQ, &mut |did, value| {
        seen.push((did.to_owned(), value.to_vec()));
        true
    });
    assert_eq!(scanned, Ok(()));
    let expected: Vec<_> =
        (1..=2500).map(|number| (format!("did:plc:{number:05}"), encode_seq(number))).collect();
    assert_eq!(seen, expected);
    let mut some = 0;
    let scanned = archived.scan(prefix::IDENTITY_SEQ, &mut |_, _| {
        some += 1;
        some < 1200
    });
    assert_eq!((scanned, some), (Ok(()), 1200));
}

#[test]
fn nothing_is_handed_over_while_the_disk_has_no_room() {
    let dir = tempfile::tempdir().expect("a folder");
    let room = Room::default();
    let limits = RoomLimits { warn: None, min: Some(Share::Bytes(10)) };
    let found = |free| Space { total: 100, free };
    room.observe(&limits, found(0));
    let archive = open(dir.path());
    let archived = Archived::new(archive.clone(), room.clone());
    std::thread::scope(|scope| {
        let submitting = scope.spawn(|| archived.submit(batch(1)));
        while room.standing().paused == 0 {
            std::thread::yield_now();
        }
        assert_eq!(archive.status().submitted, 0);
        room.observe(&limits, found(100));
        submitting.join().expect("no panic").expect("it is taken");
    });
    assert_eq!(archive.status().submitted, 1);
}
