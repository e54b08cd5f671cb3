//! The recorded frames of the network through the whole path: read, verified against the DID documents of their
//! authors, turned into rows.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::atomic::AtomicUsize;

use alluvium_atproto::cbor::decode as decode_cbor;
use alluvium_atproto::json::to_json;
use alluvium_atproto::{Did, DidDocument, PublicKey};
use alluvium_jetstream_ingest::account::{Account, Context, Note, Stored};
use alluvium_jetstream_ingest::frame::{Event, Frame, decode};
use alluvium_jetstream_ingest::rules::{Keys, LookupError, Rules};
use alluvium_jss::{Event as Row, Kind};
use alluvium_vectors::{Files, Test};
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// Lines of the production service whose blobs have their keys in another order than everything else.
const OTHER_ORDER: usize = 6;
/// When the frames were recorded: 2026-07-04T14:39:14Z, in microseconds.
const RECORDED_US: u64 = 1_783_175_954_000_000;

const TESTS: [Test; 3] = [
    ("recorded_frames_become_the_expected_rows", recorded_frames_become_the_expected_rows),
    ("recorded_frames_become_the_lines_of_the_service", recorded_frames_become_the_lines_of_the_service),
    ("no_changed_byte_of_a_signed_block_passes", no_changed_byte_of_a_signed_block_passes),
];

fn main() -> ExitCode {
    alluvium_vectors::run(&TESTS)
}

struct Documents(BTreeMap<String, PublicKey>);

impl Documents {
    fn read(files: &Files) -> Self {
        let documents: serde_json::Value =
            serde_json::from_slice(&files.decompressed("corpus/did_docs.json.zst")).expect("JSON");
        let keys = documents.as_object().expect("an object").iter().map(|(did, document)| {
            let parsed: Did = did.parse().expect("a DID");
            let document = DidDocument::read(&parsed, document.to_string().as_bytes()).expect("a document");
            (did.clone(), document.signing_key.expect("a key"))
        });
        Self(keys.collect())
    }
}

impl Keys for Documents {
    fn key(&self, did: &Did, _again: bool) -> Result<PublicKey, LookupError> {
        self.0.get(did.as_str()).cloned().ok_or(LookupError::Gone)
    }
}

fn frames(files: &Files) -> Vec<Bytes> {
    let frames: Bytes = files.decompressed("corpus/frames.bin.zst").into();
    let (mut at, mut list) = (0, Vec::new());
    while let Some(len) = frames[at..].first_chunk::<4>() {
        let len = u32::from_le_bytes(*len) as usize;
        list.push(frames.slice(at + 4..at + 4 + len));
        at += 4 + len;
    }
    assert_eq!((list.len(), at), (150, frames.len()));
    list
}

/// All rows, each account known from its first event on.
fn rows(files: &Files) -> (Vec<Row>, Vec<Note>, Vec<Event>) {
    let (documents, rules, pending) = (Documents::read(files), Rules::default(), AtomicUsize::new(0));
    let context =
        Context { now_us: RECORDED_US, random: 0, rules: &rules, keys: &documents, pending_bytes: &pending };
    let mut accounts: BTreeMap<String, Account> = BTreeMap::new();
    let (mut rows, mut notes, mut events) = (Vec::new(), Vec::new(), Vec::new());
    for frame in frames(files) {
        let Ok(Frame::Event(event)) = decode(&frame, rules.limits.frame_bytes) else {
            panic!("every frame is an event");
        };
        events.push(event.clone());
        let did = event.did().to_owned();
        let account = accounts.entry(did.clone()).or_insert_with(|| Account::new(&did, Stored::default()));
        let step = account.event(event, &context);
        assert_eq!(step.schedule, None, "{did}");
        rows.extend(step.rows);
        notes.extend(step.notes);
    }
    (rows, notes, events)
}

fn recorded_frames_become_the_expected_rows(files: &Files) {
    let (rows, notes, events) = rows(files);
    assert!(notes.iter().all(|note| *note == Note::Verified), "{notes:?}");
    assert_eq!((notes.len(), events.len()), (148, 150));
    let numbers: Vec<u64> = events.iter().map(Event::seq).collect();
    assert_eq!(numbers, (31_527_015_322..=31_527_015_471).collect::<Vec<u64>>());
    let table = files.text("segments/derived_corpus_rows.tsv");
    let expected: Vec<&str> = table.lines().skip(1).collect();
    assert_eq!((rows.len(), expected.len()), (152, 152));
    for (row, line) in rows.iter().zip(expected) {
        let mut digest = String::new();
        for byte in Sha256::digest(&row.payload) {
            write!(digest, "{byte:02x}").expect("a string takes everything");
        }
        let fields: Vec<&str> = line.split('\t').collect();
        let (kind, len) = (row.kind.number().to_string(), row.payload.len().to_string());
        let of_row = [&kind, &row.did, &row.collection, &row.rkey, &row.rev, &len, &digest];
        assert_eq!(of_row.map(String::as_str), fields[3..], "{line}");
    }
}

/// What the production service printed for the same frames, but for the time at which it saw them.
fn recorded_frames_become_the_lines_of_the_service(files: &Files) {
    let (rows, _, _) = rows(files);
    let lines = files.lines("corpus/expected_v1.jsonl");
    let mut expected: BTreeMap<String, usize> = BTreeMap::new();
    for line in &lines {
        let (before, behind) = line.split_once(",\"time_us\":").expect("a time");
        let (_, behind) = behind.split_once(',').expect("more fields");
        *expected.entry(format!("{before},{behind}")).or_default() += 1;
    }
    let mut other_order = 0;
    for row in &rows {
        match expected.get_mut(&line(row)) {
            Some(count) if *count > 0 => *count -= 1,
            _ => other_order += 1,
        }
    }
    assert_eq!((rows.len(), lines.len(), other_order), (152, 152, OTHER_ORDER));
}

/// The line of a row, without its time.
fn line(row: &Row) -> String {
    let json = || to_json(&decode_cbor(&row.payload).expect("a payload"));
    let did = &row.did;
    let commit = |operation: &str| {
        let (rev, collection, rkey) = (&row.rev, &row.collection, &row.rkey);
        let record =
            row.cid().map(|cid| format!(",\"record\":{},\"cid\":\"{cid}\"", json())).unwrap_or_default();
        format!(
            "{{\"did\":\"{did}\",\"kind\":\"commit\",\"commit\":{{\"rev\":\"{rev}\",\"operation\":\"{operation}\",\
             \"collection\":\"{collection}\",\"rkey\":\"{rkey}\"{record}}}}}"
        )
    };
    match row.kind {
        Kind::Create => commit("create"),
        Kind::Update => commit("update"),
        Kind::Delete => commit("delete"),
        Kind::Identity => format!("{{\"did\":\"{did}\",\"kind\":\"identity\",\"identity\":{}}}", json()),
        Kind::Account => format!("{{\"did\":\"{did}\",\"kind\":\"account\",\"account\":{}}}", json()),
        other => panic!("no {other} was recorded"),
    }
}

/// One byte in each block of each commit is changed, with the name of the block put right: no row comes of it.
fn no_changed_byte_of_a_signed_block_passes(files: &Files) {
    use alluvium_atproto::car::{Limits, write};
    use alluvium_atproto::{Blocks as _, Car, Cid, Codec};

    let (documents, rules, pending) = (Documents::read(files), Rules::default(), AtomicUsize::new(0));
    let context =
        Context { now_us: RECORDED_US, random: 0, rules: &rules, keys: &documents, pending_bytes: &pending };
    let mut tried = 0;
    for frame in frames(files).into_iter().take(40) {
        let Ok(Frame::Event(Event::Commit(commit))) = decode(&frame, rules.limits.frame_bytes) else {
            continue;
        };
        let car = Car::read(commit.blocks.clone(), &Limits::COMMIT).expect("a file");
        let mut block = car.block(&commit.commit).expect("the commit").to_vec();
        let at = block.len() / 2;
        block[at] ^= 1;
        let cid = Cid::of(Codec::DagCbor, &block);
        let others = car.iter().filter(|(other, _)| **other != commit.commit);
        let blocks = write(&[cid], std::iter::once((&cid, block.as_slice())).chain(others));
        let changed =
            alluvium_jetstream_ingest::frame::Commit { commit: cid, blocks: blocks.into(), ..commit };
        let mut account = Account::new(&changed.repo.clone(), Stored::default());
        let step = account.event(Event::Commit(changed), &context);
        assert!(step.rows.is_empty() && account.chain().is_none());
        tried += 1;
    }
    assert!(tried > 30);
}
