//! A fuzz body for the pending log of a Jetstream's archive.
//!
//! Random bytes never have the right checksum and would test nothing but that. So the input is edits to a log that is valid,
//! three bytes each: a position, and a mask to flip bits with. Where a checksum covers what was edited, it is set right again.

use std::path::Path;
use std::sync::Arc;

use alluvium_env::sim::{ManualClock, SeededRandom, SimDisk};
use alluvium_env::{Disk as _, Env, OpenMode};
use alluvium_jetstream_archive::{Archive, Batch, LogStore, Options, PENDING_LOG, Store as _, check};
use alluvium_jss::{Event, Kind};

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 1] = [("archive_pending", pending)];

const DIR: &str = "/archive";
const STORE: &str = "/meta";
/// Magic, the number drawn for the file, checksum; and of a record magic, checksum, length, place, life.
const FILE_HEAD_BYTES: usize = 16;
const HEAD_BYTES: usize = 24;
/// Batches of the archive, a record each.
const BATCHES: u64 = 5;

/// What a check finds nothing wrong with opens; what opens has whole events, no more than were written, and opens again as
/// the same.
pub fn pending(input: &[u8]) {
    let disk = SimDisk::new(1);
    let env = Env {
        clock: Arc::new(ManualClock::new(0)),
        random: Arc::new(SeededRandom::new(1)),
        disk: Arc::new(disk.clone()),
    };
    disk.create_dir_all(Path::new(DIR)).expect("a folder of a disk in memory");
    let archive = open(&env).expect("a new archive");
    for batch in 0..BATCHES {
        let event = |row: u64| Event {
            witnessed_at: 1_783_000_000_000_000,
            indexed_at: 0,
            kind: Kind::Create,
            did: format!("did:plc:{batch}"),
            collection: "app.bsky.feed.post".into(),
            rkey: format!("r{row}"),
            rev: "v".into(),
            payload: vec![0xa0; 9].into(),
        };
        let changes = [(format!("account/{batch}").into(), Some("a state".into()))];
        let batch = Batch { events: (0..2).map(event).collect(), changes: changes.into() };
        archive.submit(batch).expect("room for a batch");
        archive.commit_waiting().expect("a disk in memory has room");
    }
    drop(archive);
    edit(&disk, input);
    let mut faults = 0;
    let store = LogStore::open(&disk, Path::new(STORE)).expect("metadata that nobody has touched");
    let looked = check(&env, Path::new(DIR), Path::new(STORE), Ok(&store), &mut |found| {
        faults += u64::from(found.is_fault());
    });
    drop(store);
    let is_whole = looked.is_ok() && faults == 0;
    let next = match open(&env) {
        Ok(archive) => archive.next_seq(),
        Err(error) => return assert!(!is_whole, "a check finds nothing wrong, and a start does: {error}"),
    };
    assert!(next <= 1 + 2 * BATCHES, "{next}");
    assert_eq!(open(&env).expect("what has opened").next_seq(), next);
}

fn open(env: &Env) -> Result<Archive, String> {
    let store = LogStore::open(env.disk.as_ref(), Path::new(STORE)).map_err(|error| error.to_string())?;
    assert!(store.page(b"", None, 1).is_ok());
    let opened = Archive::open(env.clone(), Arc::new(store), Options::new(Path::new(DIR)));
    opened.map(|(archive, _)| archive).map_err(|error| error.to_string())
}

fn edit(disk: &SimDisk, input: &[u8]) {
    let path = Path::new(DIR).join(PENDING_LOG);
    let file = disk.open(&path, OpenMode::ReadWrite).expect("the log");
    let mut bytes = vec![0; usize::try_from(file.len().expect("its length")).expect("a small file")];
    file.read_exact_at(&mut bytes, 0).expect("a disk in memory is read");
    let (edits, _) = input.as_chunks::<3>();
    for [low, high, mask] in edits {
        let at = usize::from(u16::from_le_bytes([*low, *high])) % bytes.len();
        bytes[at] ^= mask;
    }
    // A mask of all ones in front leaves the checksums as they are then.
    if edits.first().is_none_or(|[.., mask]| *mask != 0xff) {
        set_right(&mut bytes);
    }
    file.write_all_at(&[&bytes], 0).expect("a disk in memory has room");
}

/// Gives every record the checksum of what it says now.
fn set_right(bytes: &mut [u8]) {
    let (head, mut rest) = bytes.split_at_mut(FILE_HEAD_BYTES);
    let of_head = crc32c::crc32c(&head[..FILE_HEAD_BYTES - 4]);
    head[FILE_HEAD_BYTES - 4..].copy_from_slice(&of_head.to_le_bytes());
    let secret = crc32c::crc32c(&head[4..12]);
    while rest.len() >= HEAD_BYTES {
        let length = u32::from_le_bytes([rest[8], rest[9], rest[10], rest[11]]) as usize;
        let end = HEAD_BYTES.saturating_add(length);
        let Some((record, behind)) = rest.split_at_mut_checked(end) else { return };
        let crc = crc32c::crc32c_append(secret, &record[8..]);
        record[4..8].copy_from_slice(&crc.to_le_bytes());
        rest = behind;
    }
}
