//! Reads in pieces: however large a unit is, and wherever it lies, a reader holds a little of it at a time.

use alluvium_engine::{READ_BYTES_MAX, ReadPlan};
use alluvium_protocol::{Offset, OffsetQuery};

use crate::damage::damage;
use crate::support::{Fixture, small_options};

const TEXT: &str = "text/plain";
const LARGE_BYTES: usize = 3 * 1024 * 1024 + 17;

fn content(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|index| b"0123456789abcdefghijklmnopqrstuv"[(index / 7 + index + seed) % 32]).collect()
}

fn plan(fixture: &Fixture, from: Offset) -> ReadPlan {
    fixture.reader("s").read(from, u64::MAX).unwrap()
}

/// All bytes of a plan. The largest piece must not be much more than was asked for.
fn fetched(mut plan: ReadPlan, piece_bytes: usize) -> Vec<u8> {
    plan.set_piece_bytes(piece_bytes);
    let mut bytes = Vec::new();
    while let Some(pieces) = plan.fetch() {
        let pieces = pieces.unwrap();
        assert!(!pieces.is_empty(), "a fetch that may wait gives something");
        let total: usize = pieces.iter().map(bytes::Bytes::len).sum();
        assert!(total <= 2 * piece_bytes, "{total} bytes where {piece_bytes} were asked for");
        for piece in pieces {
            bytes.extend_from_slice(&piece);
        }
    }
    bytes
}

async fn fixture_with_large_and_small_units() -> (Fixture, Vec<u8>, Offset) {
    let mut options = small_options();
    options.segment_bytes = 16 * 1024 * 1024;
    options.recent_bytes = 32 * 1024 * 1024;
    options.limits.append_bytes_max = 4 * 1024 * 1024;
    let fixture = Fixture::with(options);
    fixture.create("s", TEXT).await;
    let mut expected = Vec::new();
    let mut after_first = Offset::ZERO;
    for (number, len) in [5, LARGE_BYTES, 1, 100_000, 200_000, LARGE_BYTES / 2, 7].into_iter().enumerate() {
        let bytes = content(number, len);
        let appended = fixture.append("s", TEXT, &bytes).await;
        if number == 0 {
            after_first = appended.tail;
        }
        expected.extend(bytes);
    }
    (fixture, expected, after_first)
}

#[tokio::test]
async fn a_read_gives_the_same_bytes_in_pieces_of_any_size_from_wherever_they_are() {
    let (mut fixture, expected, after_first) = fixture_with_large_and_small_units().await;
    for place in ["in memory", "in the journal", "in a table"] {
        match place {
            "in the journal" => fixture.restart(),
            "in a table" => fixture.fold(),
            _ => {}
        }
        for piece_bytes in [1000, 16 * 1024, READ_BYTES_MAX] {
            assert!(fetched(plan(&fixture, Offset::ZERO), piece_bytes) == expected, "{place}");
            let patient = plan(&fixture, after_first).patient();
            assert!(!patient.in_memory(), "{place}");
            assert!(fetched(patient, piece_bytes) == expected[5..], "{place}");
        }
    }
}

#[tokio::test]
async fn nothing_of_a_damaged_unit_is_given_out_however_small_the_pieces() {
    let (mut fixture, expected, _) = fixture_with_large_and_small_units().await;
    fixture.fold();
    fixture.restart();
    // Near the end of the large unit, far behind its first pieces.
    let needle = &expected[LARGE_BYTES - 100..LARGE_BYTES - 40];
    damage(fixture.dir(), "table-", needle);
    let mut plan = plan(&fixture, Offset::ZERO).patient();
    plan.set_piece_bytes(16 * 1024);
    let mut given = 0;
    let fault = loop {
        match plan.fetch() {
            Some(Ok(pieces)) => given += pieces.iter().map(bytes::Bytes::len).sum::<usize>(),
            Some(Err(fault)) => break fault.to_string(),
            None => panic!("the damage was not noticed"),
        }
    };
    assert!(fault.contains("checksum"), "{fault}");
    assert_eq!(given, 5, "only the unit in front");
    assert!(plan.fetch().is_none());
}

#[tokio::test]
async fn what_is_known_of_offsets_without_waiting_is_what_is_found_by_waiting() {
    let mut fixture = Fixture::new();
    fixture.create("s", "application/json").await;
    let mut offsets = vec![Offset::ZERO];
    for _ in 0..3 {
        offsets.push(fixture.append("s", "application/json", b"[1,22,333]").await.tail);
    }
    for place in ["in memory", "in a table"] {
        if place == "in a table" {
            fixture.fold();
            fixture.restart();
        }
        let reader = fixture.reader("s");
        for append_index in 0..=4 {
            for position in 0..=30 {
                let query = OffsetQuery::At(Offset::new(append_index, position));
                match (reader.resolve_cached(query), reader.resolve(query)) {
                    // The disk of these tests is a real one, but nothing says that it is in the page cache.
                    (Ok(None), _) => {}
                    (Ok(Some(found)), resolved) => assert_eq!(Ok(found), resolved, "{place}"),
                    (Err(error), resolved) => assert_eq!(Err(error), resolved, "{place}"),
                }
            }
        }
        for offset in &offsets {
            assert_eq!(reader.resolve(OffsetQuery::At(*offset)), Ok(*offset), "{place}");
        }
    }
}
