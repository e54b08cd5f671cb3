//! Random rows in random blocks against a list of rows.

use std::collections::BTreeSet;

use alluvium_jss::{
    DidHash, Event, Kind, Opened, ReadLimits, Refused, Row, Sealed, WriteLimits, Writer, open,
};
use proptest::prelude::*;

use crate::world::{content, disk, path, row, rows};

fn event() -> impl Strategy<Value = Event> {
    let names = ("did:plc:[a-c]|", "[a-c]\\.d|", "\\PC{0,6}", "[a-z]{0,3}");
    (1..=7_u8, any::<i64>(), names, proptest::collection::vec(any::<u8>(), 0..50)).prop_map(
        |(kind, witnessed_at, (did, collection, rkey, rev), payload)| Event {
            witnessed_at,
            indexed_at: 0,
            kind: Kind::from_number(kind),
            did,
            collection,
            rkey,
            rev,
            payload: payload.into(),
        },
    )
}

/// What happens to a writer: a row after a gap, a flush, or a restart.
#[derive(Clone, Debug)]
enum Step {
    Append(u64, Event),
    Flush,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1..4_u64, event()).prop_map(|(gap, event)| Step::Append(gap, event)),
        2 => Just(Step::Flush),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_segment_holds_what_was_flushed(steps in steps(), block_rows in 1..7_usize) {
        let disk = disk(1);
        let limits = WriteLimits { block_rows, block_bytes: 300 };
        let mut writer = Writer::create(&disk, &path(), limits).unwrap();
        let (mut durable, mut pending): (Vec<Row>, Vec<Row>) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Append(gap, event) => {
                    let seq = writer.last_seq() + gap;
                    pending.push(Row { seq, event });
                    let full = writer.append(pending.last().unwrap().as_ref()).unwrap();
                    if full {
                        writer.flush().unwrap();
                        durable.append(&mut pending);
                    }
                }
                Step::Flush => {
                    prop_assert_eq!(writer.flush().unwrap().is_some(), !pending.is_empty());
                    durable.append(&mut pending);
                }
                Step::Restart => {
                    pending.clear();
                    let acknowledged = durable.last().map_or(0, |row| row.seq);
                    disk.restart();
                    let Opened::Active(opened, _) = open(&disk, &path(), limits, Some(acknowledged)).unwrap()
                    else { panic!("it is active") };
                    prop_assert_eq!(opened.last_seq(), acknowledged);
                    writer = *opened;
                }
            }
        }
        durable.append(&mut pending);
        let before = writer.blocks().to_vec();
        let returned = writer.seal().unwrap();
        let segment = Sealed::open(&disk, &path(), ReadLimits::default()).unwrap();
        prop_assert_eq!(&rows(&segment), &durable);
        prop_assert!(segment.metadata().blocks.starts_with(&before));
        prop_assert_eq!(&returned.header, &segment.metadata().header);
        check_metadata(&segment, &durable)?;
    }
}

/// Header, filters and index against the rows.
fn check_metadata(segment: &Sealed, all: &[Row]) -> Result<(), TestCaseError> {
    let (metadata, header) = (segment.metadata(), &segment.metadata().header);
    let dids: BTreeSet<&str> = all.iter().map(|row| &*row.event.did).filter(|did| !did.is_empty()).collect();
    prop_assert_eq!(header.event_count as usize, all.len());
    prop_assert_eq!(header.unique_did_count as usize, dids.len());
    prop_assert_eq!(metadata.filter().unwrap().added(), dids.len() as u64);
    prop_assert_eq!(header.min_seq, all.first().map_or(0, |row| row.seq));
    prop_assert_eq!(header.max_seq, all.last().map_or(0, |row| row.seq));
    let times = || all.iter().map(|row| row.event.witnessed_at);
    prop_assert_eq!(header.max_witnessed_at, times().max().unwrap_or(0));
    prop_assert_eq!(header.min_witnessed_at, times().min().unwrap_or(0));
    for entry in metadata.collections.entries().iter().filter(|entry| !entry.is_sentinel()) {
        let count = all.iter().filter(|row| row.event.collection == *entry.name).count();
        prop_assert_eq!(entry.events as usize, count);
    }
    for number in 0..metadata.blocks.len() {
        let block = segment.block(number).unwrap();
        let mut names: BTreeSet<&str> = block.rows().map(|row| row.collection).collect();
        names.extend(block.rows().filter_map(|row| row.kind.sentinel()));
        names.remove("");
        let entries = metadata.collections.entries();
        let found: BTreeSet<&str> =
            metadata.collections.of_block(number).map(|id| &*entries[id as usize].name).collect();
        prop_assert_eq!(found, names);
        for row in block.rows().filter(|row| !row.did.is_empty()) {
            prop_assert!(metadata.may_contain(DidHash::of(row.did)));
            prop_assert!(metadata.block_may_contain(number, DidHash::of(row.did)));
        }
    }
    Ok(())
}

#[test]
fn a_full_block_takes_no_row_and_numbers_must_ascend() {
    let disk = disk(1);
    let limits = WriteLimits { block_rows: 2, ..WriteLimits::default() };
    let mut writer = Writer::create(&disk, &path(), limits).unwrap();
    let refused = |error: Result<bool, alluvium_jss::Error>| match error {
        Err(alluvium_jss::Error::Refused(refused)) => refused,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(writer.append(row(0).as_ref())), Refused::Seq { seq: 0, last: 0 });
    assert!(!writer.append(row(5).as_ref()).unwrap());
    assert_eq!(refused(writer.append(row(5).as_ref())), Refused::Seq { seq: 5, last: 5 });
    assert!(writer.append(row(7).as_ref()).unwrap());
    assert_eq!(refused(writer.append(row(8).as_ref())), Refused::Full);
    writer.flush().unwrap();
    assert!(!writer.append(row(8).as_ref()).unwrap());
}

#[test]
fn a_segment_without_rows_can_be_sealed() {
    let disk = disk(1);
    Writer::create(&disk, &path(), WriteLimits::default()).unwrap().seal().unwrap();
    let segment = Sealed::open(&disk, &path(), ReadLimits::default()).unwrap();
    let header = &segment.metadata().header;
    assert_eq!((header.block_count, header.min_seq, header.max_seq), (0, 0, 0));
    assert_eq!(segment.metadata().filter().unwrap().bytes().len(), 89);
    let bytes = content(&disk, &path());
    // No blocks and no filters of blocks.
    let region = usize::try_from(header.block_did_bloom_offset).unwrap();
    assert_eq!(bytes[region..region + 8], [0; 8]);
    // A seal of it that was interrupted is recognised too.
    let mut unsealed = bytes;
    unsealed[4..256].fill(0);
    let disk = crate::world::disk_with(&unsealed);
    assert!(matches!(open(&disk, &path(), WriteLimits::default(), None), Ok(Opened::Active(..))));
}
