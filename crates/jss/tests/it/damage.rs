//! Every flipped byte of a small file is found or harmless, sealed and active; and what is cut without knowing what was
//! acknowledged is certainly no row.

use alluvium_env::Disk;
use alluvium_jss::{Damage, Error, Opened, ReadLimits, Row, Sealed, Tail, Writer, open, rewrite};

use crate::world::{LIMITS, append, content, disk, disk_with, path, row, rows, sealed};

fn active(rows: u64) -> Vec<u8> {
    let disk = disk(1);
    let mut writer = Writer::create(&disk, &path(), LIMITS).unwrap();
    append(&mut writer, 1..=rows).unwrap();
    writer.flush().unwrap();
    content(&disk, &path())
}

fn opened(bytes: &[u8], acknowledged: Option<u64>) -> Result<(Vec<Row>, Tail, u64), Error> {
    let disk = disk_with(bytes);
    match open(&disk, &path(), LIMITS, acknowledged)? {
        Opened::Active(writer, recovery) => {
            writer.seal()?;
            let segment = Sealed::open(&disk, &path(), ReadLimits::default())?;
            Ok((rows(&segment), recovery.tail, recovery.cut_bytes))
        }
        Opened::Sealed(_) => panic!("it is active"),
    }
}

/// As the reference implementation seals a segment in which nothing has happened. The frame of its collection index has
/// nothing in it, and no checksum.
#[test]
fn a_sealed_segment_without_rows_is_read_as_the_reference_implementation_writes_it() {
    let mut bytes = vec![0; 0x17a];
    let parts: [(usize, &[u8]); 9] = [
        (0, b"jss0\x6d\xd2\xd7\x0e\x85\xff\x18\x68\x01"),
        (58, &[0, 1]),
        (66, &[0, 1]),
        (74, &[0x59, 1]),
        (82, &[0x61, 1]),
        (90, &[0, 1]),
        (0x100, &[1, 0xf, 0, 0, 0, 1]),
        (0x155, &[0x42, 0x47, 0x13, 0x46]),
        (0x171, &[0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0]),
    ];
    for (at, part) in parts {
        bytes[at..at + part.len()].copy_from_slice(part);
    }
    let disk = disk_with(&bytes);
    let segment = Sealed::open(&disk, &path(), ReadLimits::default()).unwrap();
    assert_eq!((segment.metadata().blocks.len(), segment.metadata().header.event_count), (0, 0));
    assert!(rows(&segment).is_empty());
    // What is missing in the frame is in the checksum of the file.
    for at in 0x161..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 1;
        assert!(Sealed::open(&disk_with(&bad), &path(), ReadLimits::default()).is_err(), "byte {at}");
    }
}

#[test]
fn every_flipped_byte_of_a_sealed_file_is_found_or_harmless() {
    let good_disk = disk(1);
    let expected = rows(&sealed(&good_disk, 6));
    // One block is emptied, so that a file after compaction is covered too.
    rewrite(&good_disk, &path(), ReadLimits::default(), None, |row| row.seq <= 4).unwrap();
    let good = content(&good_disk, &path());
    for at in 0..good.len() {
        for mask in [0x01, 0x10, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[at] ^= mask;
            let disk = disk_with(&bad);
            let read = Sealed::open(&disk, &path(), ReadLimits::default()).and_then(|segment| {
                let blocks = 0..segment.metadata().blocks.len();
                blocks.map(|block| segment.block(block)).collect::<Result<Vec<_>, _>>()
            });
            if let Ok(blocks) = read {
                let found: Vec<Row> =
                    blocks.iter().flat_map(|block| block.rows().map(|row| row.to_row())).collect();
                assert_eq!(found, expected[4..], "byte {at} with {mask:02x}");
            }
            // Opened as the last of an archive it is never taken for an active one.
            assert!(!matches!(open(&disk, &path(), LIMITS, None), Ok(Opened::Active(..))), "byte {at}");
        }
    }
}

#[test]
fn every_flipped_byte_of_an_active_file_is_found_or_harmless() {
    let good = active(8);
    let expected: Vec<Row> = (1..=8).map(row).collect();
    for at in 0..good.len() {
        for mask in [0x01, 0x10, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[at] ^= mask;
            // With and without knowing that all eight rows were acknowledged.
            for acknowledged in [Some(8), None] {
                if let Ok((found, ..)) = opened(&bad, acknowledged) {
                    assert_eq!(found, expected, "byte {at} with {mask:02x}, {acknowledged:?}");
                }
            }
        }
    }
}

/// An active file is cut at every length: exactly the whole blocks before the cut remain.
#[test]
fn every_cut_of_an_active_file_leaves_its_whole_blocks() {
    let good = active(8);
    let block = good.len() - 256 - (active(4).len() - 256);
    let first = good.len() - block;
    for len in 0..=good.len() {
        let found = opened(&good[..len], None);
        let expected = if len >= good.len() {
            8
        } else if len >= first {
            4
        } else {
            0
        };
        let (found, ..) = found.unwrap_or_else(|error| panic!("{len} bytes: {error}"));
        assert_eq!(found, (1..=expected).map(row).collect::<Vec<_>>(), "{len} bytes");
        // Of rows that were acknowledged the loss is said.
        let lost = opened(&good[..len], Some(8));
        assert_eq!(lost.is_ok(), expected == 8, "{len} bytes");
    }
}

#[test]
fn zeros_behind_the_last_block_are_cut() {
    for zeros in [1, 8, 12, 500, 5000] {
        let bytes = [active(8), vec![0; zeros]].concat();
        let (found, tail, cut) = opened(&bytes, None).unwrap();
        assert_eq!((found.len(), tail, cut), (8, Tail::Zeros, zeros as u64));
    }
}

#[test]
fn what_is_no_trace_of_an_interruption_is_refused_unless_it_was_never_acknowledged() {
    let junk: Vec<u8> = (0..200u8).collect();
    let bytes = [active(8), junk].concat();
    let error = opened(&bytes, None).unwrap_err();
    assert_eq!(error.damage(), Some(&Damage::Tail));
    assert!(matches!(opened(&bytes, Some(8)), Ok((found, Tail::Unacknowledged, 200)) if found.len() == 8));
    assert!(opened(&bytes, Some(9)).is_err());
}

#[test]
fn a_block_whose_length_is_damaged_is_not_cut_as_torn() {
    let good = active(8);
    let mut bad = good.clone();
    // The length in front of the first block leads beyond the end; the whole frame is there all the same.
    bad[256 + 5] = 1;
    assert_eq!(opened(&bad, None).unwrap_err().damage(), Some(&Damage::Tail));
}

#[test]
fn a_header_written_in_part_is_an_interrupted_seal_and_another_one_is_damage() {
    let disk = disk(1);
    drop(sealed(&disk, 6));
    let whole = content(&disk, &path());
    for cut in 5..98 {
        let mut torn = whole.clone();
        torn[cut..256].fill(0);
        match open(&disk_with(&torn), &path(), LIMITS, Some(6)).unwrap() {
            Opened::Active(writer, recovery) => {
                assert_eq!((writer.last_seq(), recovery.tail), (6, Tail::Seal), "{cut}");
            }
            // Only zeros were missing.
            Opened::Sealed(metadata) => assert_eq!(metadata.header.max_seq, 6, "{cut}"),
        }
        torn[99] = 1;
        assert!(open(&disk_with(&torn), &path(), LIMITS, Some(6)).is_err(), "{cut}");
    }
}

#[test]
fn a_file_that_is_none_is_refused() {
    for bytes in [b"jss1".repeat(100), vec![0; 300], b"jss".to_vec().repeat(50)] {
        let disk = disk_with(&bytes);
        assert!(open(&disk, &path(), LIMITS, None).is_err());
        assert!(Sealed::open(&disk, &path(), ReadLimits::default()).is_err());
        assert_eq!(content(&disk, &path()), bytes, "it is left as it is");
    }
    assert!(!disk(1).exists(&path()).unwrap());
}
