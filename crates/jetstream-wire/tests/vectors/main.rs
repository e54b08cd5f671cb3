//! Events of the real network on the three wires, to the byte.

use std::process::ExitCode;

use alluvium_env::sim::SimDisk;
use alluvium_env::{Disk, OpenMode};
use alluvium_jetstream_wire::Wire;
use alluvium_jetstream_wire::dictionary::{self, Decoder, Encoder};
use alluvium_jss::{ReadLimits, Row, Sealed};
use alluvium_vectors::{Files, Test};

const TESTS: [Test; 4] = [
    ("lines_of_subscribe", lines_of_subscribe),
    ("lines_of_subscribe_v2", lines_of_subscribe_v2),
    ("frames_of_subscribe_events", frames_of_subscribe_events),
    ("existing_dictionaries_are_read", existing_dictionaries_are_read),
];

fn main() -> ExitCode {
    alluvium_vectors::run(&TESTS)
}

/// The archived rows of the recorded frames.
fn rows(files: &Files) -> Vec<Row> {
    let disk = SimDisk::new(1);
    let path = "/segment.jss".as_ref();
    let file = disk.open(path, OpenMode::CreateNew).expect("a file");
    file.write_all_at(&[&files.bytes("segments/derived_corpus_3blocks_libzstd.jss")], 0).expect("written");
    let segment = Sealed::open(&disk, path, ReadLimits::default()).expect("a segment");
    let mut rows = Vec::new();
    for block in 0..segment.metadata().blocks.len() {
        rows.extend(segment.block(block).expect("a block").rows().map(|row| row.to_row()));
    }
    rows
}

/// Renders each row at the time that its line says, and compares.
fn compare(files: &Files, wire: Wire, path: &str) {
    let lines = String::from_utf8(files.bytes(path)).expect("UTF-8");
    let times = String::from_utf8(files.bytes("wire/derived_v1_with_cursor.jsonl")).expect("UTF-8");
    let rows = rows(files);
    assert_eq!((lines.lines().count(), rows.len()), (152, 152));
    for ((mut row, line), time) in rows.into_iter().zip(lines.lines()).zip(times.lines()) {
        let (_, time) = time.split_once("\"time_us\":").expect("a time");
        row.event.witnessed_at = time.split_once(',').expect("more").0.parse().expect("a number");
        assert_eq!(wire.render(&row.as_ref()), Ok(Some(line.to_owned())), "row {}", row.seq);
    }
}

fn lines_of_subscribe(files: &Files) {
    compare(files, Wire::V1, "wire/derived_v1_with_cursor.jsonl");
    // But for the cursor, 146 of them are what the network's own server printed; it orders the keys of blobs otherwise.
    let printed = String::from_utf8(files.bytes("corpus/expected_v1.jsonl")).expect("UTF-8");
    let ours = String::from_utf8(files.bytes("wire/derived_v1_with_cursor.jsonl")).expect("UTF-8");
    let same = printed
        .lines()
        .zip(ours.lines())
        .zip(1..)
        .filter(|((printed, ours), seq)| *printed == ours.replacen(&format!(",\"cursor\":{seq}"), "", 1));
    assert_eq!(same.count(), 146);
}

fn lines_of_subscribe_v2(files: &Files) {
    compare(files, Wire::V2, "wire/derived_subscribe_v2_2026-08-05.jsonl");
}

fn frames_of_subscribe_events(files: &Files) {
    compare(files, Wire::Events, "wire/derived_subscribeEvents.jsonl");
}

fn existing_dictionaries_are_read(files: &Files) {
    let ours = dictionary::of(Wire::V1)[0];
    assert_eq!(files.bytes("dictionaries/legacy_subscribe.zdict"), ours.bytes);
    let message = files.bytes("wire/golden_v1.jsonl");
    let frame = Encoder::new(ours).expect("an encoder").encode(&message).expect("a frame");
    let mut decoder = Decoder::new(&files.bytes("dictionaries/legacy_subscribe.zdict")).expect("a decoder");
    assert_eq!(decoder.decode(&frame, message.len()).expect("a message"), message);
    for (name, id) in [("subscribe_v2_20260709", 20_260_709), ("subscribe_events_20260811", 20_260_811)] {
        assert_eq!(dictionary::id_of(&files.bytes(&format!("dictionaries/{name}.zdict"))), Some(id));
    }
}
