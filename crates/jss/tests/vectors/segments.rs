//! Segments of the reference implementation, read and rebuilt.

use std::path::{Path, PathBuf};

use alluvium_env::sim::SimDisk;
use alluvium_env::{Disk, OpenMode};
use alluvium_jss::frame::Encoder;
use alluvium_jss::header::HEADER_BYTES;
use alluvium_jss::metadata::Summary;
use alluvium_jss::{
    Block, BlockBuilder, BlockInfo, DidHash, Metadata, Opened, ReadLimits, Row, Sealed, Tail, WriteLimits,
    Writer, open,
};
use sha2::{Digest, Sha256};

use alluvium_vectors::{Files, to_hex};

/// Every sealed file among the vectors, with its rows and blocks.
const SEALED: [(&str, u32, u32); 4] = [
    ("segments/golden_seal.bin", 2, 1),
    ("segments/legacy_fixed4096_blooms.jss", 0, 2),
    ("segments/golden_corpus_segment.jss", 23, 3),
    ("segments/derived_corpus_3blocks_libzstd.jss", 152, 3),
];

/// A disk with one file.
fn disk_with(bytes: &[u8]) -> (SimDisk, PathBuf) {
    let disk = SimDisk::new(1);
    let path = Path::new("/seg_0000000000.jss").to_owned();
    let file = disk.open(&path, OpenMode::CreateNew).unwrap();
    file.write_all_at(&[bytes], 0).unwrap();
    file.sync_all().unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    (disk, path)
}

fn sealed(bytes: &[u8]) -> Sealed {
    let (disk, path) = disk_with(bytes);
    Sealed::open(&disk, &path, ReadLimits::default()).unwrap()
}

fn blocks(segment: &Sealed) -> Vec<Block> {
    (0..segment.metadata().blocks.len()).map(|block| segment.block(block).unwrap()).collect()
}

fn content(disk: &SimDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

pub(crate) fn a_bare_block(files: &Files) {
    let frame = files.bytes("segments/golden_block.bin");
    let block = alluvium_jss::read::decode_frame(&frame, ReadLimits::default()).unwrap();
    assert_eq!(block.body_bytes(), 285);
    // What was read is written back: the same body, and from it a frame that reads the same.
    let mut builder = BlockBuilder::new();
    block.rows().for_each(|row| builder.push(row).unwrap());
    let again = Encoder::new().unwrap().encode(&builder.body()).unwrap();
    let again = alluvium_jss::read::decode_frame(&again, ReadLimits::default()).unwrap();
    assert!(again.rows().eq(block.rows()) && !block.is_empty());
}

pub(crate) fn golden_files_are_read(files: &Files) {
    for (path, rows, block_count) in SEALED {
        let segment = sealed(&files.bytes(path));
        let header = &segment.metadata().header;
        let found: u32 = blocks(&segment).iter().map(|block| u32::try_from(block.len()).unwrap()).sum();
        assert_eq!(found, header.event_count, "{path}");
        if rows > 0 {
            assert_eq!((header.event_count, header.block_count), (rows, block_count), "{path}");
        }
        for (number, block) in blocks(&segment).iter().enumerate() {
            for did in block.rows().map(|row| row.did).filter(|did| !did.is_empty()) {
                let hash = DidHash::of(did);
                assert!(segment.metadata().may_contain(hash), "{path}: {did}");
                assert!(segment.metadata().block_may_contain(number, hash), "{path}: {did}");
            }
        }
    }
    let legacy = sealed(&files.bytes("segments/legacy_fixed4096_blooms.jss"));
    assert!(legacy.metadata().block_filters().iter().all(|filter| filter.bytes().len() == 8409));
}

/// From the decoded rows follows what the file says of itself, but for what compression decides.
pub(crate) fn golden_files_are_rebuilt(files: &Files) {
    for (path, ..) in SEALED {
        let segment = sealed(&files.bytes(path));
        let mut summary = Summary::new();
        for (info, block) in segment.metadata().blocks.iter().zip(blocks(&segment)) {
            let seqs = (block.seq(0), block.seq(block.len() - 1));
            assert_eq!((info.min_seq, info.max_seq), seqs, "{path}");
            summary.add(*info, &block);
        }
        let header = &segment.metadata().header;
        let rebuilt = summary.finish(header.footer_offset, &mut Encoder::new().unwrap()).unwrap().metadata;
        assert_eq!(rebuilt.blocks, segment.metadata().blocks, "{path}");
        assert_eq!(rebuilt.collections, segment.metadata().collections, "{path}");
        let bytes = |metadata: &Metadata| {
            let filters = metadata.filter().into_iter().chain(metadata.block_filters());
            filters.map(|filter| filter.bytes().clone()).collect::<Vec<_>>()
        };
        if path.contains("legacy") {
            // Its filters of blocks have another capacity; that of the segment is as today.
            assert_eq!(bytes(&rebuilt)[0], bytes(segment.metadata())[0], "{path}");
        } else {
            assert_eq!(bytes(&rebuilt), bytes(segment.metadata()), "{path}");
            let mut expected = header.clone();
            expected.checksum = rebuilt.header.checksum;
            assert_eq!(rebuilt.header, expected, "{path}");
        }
    }
}

/// The expected rows against a file's.
fn compare(expected: &[Vec<String>], rows: &[Row]) {
    assert_eq!(expected.len(), rows.len());
    for (cells, row) in expected.iter().zip(rows) {
        let event = &row.event;
        let digest = to_hex(&Sha256::digest(&event.payload));
        let found = [
            row.seq.to_string(),
            event.witnessed_at.to_string(),
            event.indexed_at.to_string(),
            event.kind.number().to_string(),
            event.did.clone(),
            event.collection.clone(),
            event.rkey.clone(),
            event.rev.clone(),
            event.payload.len().to_string(),
            digest,
        ];
        assert_eq!(*cells, found);
    }
}

fn rows_of(segment: &Sealed) -> Vec<Row> {
    blocks(segment).iter().flat_map(|block| (0..block.len()).map(|row| block.shared_row(row))).collect()
}

pub(crate) fn rows_of_the_corpus(files: &Files) {
    let expected = files.table("segments/derived_corpus_rows.tsv");
    let segment = sealed(&files.bytes("segments/derived_corpus_3blocks_libzstd.jss"));
    compare(&expected, &rows_of(&segment));
    let names: Vec<&str> =
        segment.metadata().collections.entries().iter().map(|entry| &*entry.name).collect();
    assert!(names.contains(&"$identity") && names.contains(&"$account"), "{names:?}");
}

/// The writer's target: everything but the frames, and what follows from their lengths, is as in the file.
pub(crate) fn a_file_is_written_to_the_byte(files: &Files) {
    let target = sealed(&files.bytes("segments/derived_corpus_3blocks_libzstd.jss"));
    let write = || {
        let disk = SimDisk::new(1);
        let path = Path::new("/seg_0000000000.jss");
        let limits = WriteLimits { block_rows: 64, ..WriteLimits::default() };
        let mut writer = Writer::create(&disk, path, limits).unwrap();
        for row in rows_of(&target) {
            if writer.append(row.as_ref()).unwrap() {
                writer.flush().unwrap();
            }
        }
        writer.seal().unwrap();
        content(&disk, path)
    };
    let bytes = write();
    assert_eq!(bytes, write(), "the same rows give the same file");
    let written = sealed(&bytes);
    assert_eq!(rows_of(&written), rows_of(&target));
    let geometry = |info: &BlockInfo| BlockInfo { offset: 0, compressed_size: 0, ..*info };
    let geometries = |segment: &Sealed| segment.metadata().blocks.iter().map(geometry).collect::<Vec<_>>();
    assert_eq!(geometries(&written), geometries(&target));
    assert_eq!(written.metadata().collections, target.metadata().collections);
    let filters = |segment: &Sealed| {
        let filters = segment.metadata().filter().into_iter().chain(segment.metadata().block_filters());
        filters.map(|filter| filter.bytes().clone()).collect::<Vec<_>>()
    };
    assert_eq!(filters(&written), filters(&target));
    // Both were compressed by libzstd: then even the frames are the same.
    let frames = |segment: &Sealed| (0..3).map(|block| segment.frame(block).unwrap()).collect::<Vec<_>>();
    if frames(&written) == frames(&target) {
        assert_eq!(written.metadata().header, target.metadata().header);
    }
}

pub(crate) fn a_torn_file_is_recovered(files: &Files) {
    let expected = files.table("segments/derived_corpus_rows.tsv");
    let bytes = files.bytes("segments/derived_corpus_active_torn.jss");
    for acknowledged in [None, Some(0), Some(128)] {
        let (disk, path) = disk_with(&bytes);
        let opened = open(&disk, &path, WriteLimits::default(), acknowledged).unwrap();
        let Opened::Active(writer, recovery) = opened else { panic!("it is active") };
        assert_eq!((recovery.rows, recovery.tail, writer.last_seq()), (128, Tail::Torn, 128));
        writer.seal().unwrap();
        let segment = Sealed::open(&disk, &path, ReadLimits::default()).unwrap();
        compare(&expected[..128], &rows_of(&segment));
    }
    let (disk, path) = disk_with(&bytes);
    assert!(open(&disk, &path, WriteLimits::default(), Some(129)).is_err(), "row 129 was acknowledged");
}

/// Power lost between the footer and the header, or within the header: the case that wedges the reference.
pub(crate) fn interrupted_seals_are_recovered(files: &Files) {
    for (path, ..) in SEALED {
        let whole = files.bytes(path);
        let segment = sealed(&whole);
        let (footer, rows) = (segment.metadata().header.footer_offset, rows_of(&segment));
        let mut unsealed = whole.clone();
        unsealed[4..HEADER_BYTES].fill(0);
        for acknowledged in [None, Some(rows.last().unwrap().seq)] {
            let (disk, at) = disk_with(&unsealed);
            let opened = open(&disk, &at, WriteLimits::default(), acknowledged).unwrap();
            let Opened::Active(writer, recovery) = opened else { panic!("{path} is active") };
            assert_eq!(
                (recovery.tail, recovery.cut_bytes),
                (Tail::Seal, whole.len() as u64 - footer),
                "{path}"
            );
            writer.seal().unwrap();
            assert_eq!(rows_of(&Sealed::open(&disk, &at, ReadLimits::default()).unwrap()), rows, "{path}");
        }
    }
}

pub(crate) fn every_flipped_byte_is_found_or_harmless(files: &Files) {
    for path in ["segments/golden_seal.bin", "segments/golden_corpus_segment.jss"] {
        let good = files.bytes(path);
        let rows = rows_of(&sealed(&good));
        for at in 0..good.len() {
            for mask in [0x01, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= mask;
                let (disk, name) = disk_with(&bad);
                let read = Sealed::open(&disk, &name, ReadLimits::default()).and_then(|segment| {
                    (0..segment.metadata().blocks.len())
                        .map(|block| segment.block(block))
                        .collect::<Result<Vec<_>, _>>()
                });
                if let Ok(blocks) = read {
                    let found: Vec<Row> =
                        blocks.iter().flat_map(|block| block.rows().map(|row| row.to_row())).collect();
                    assert_eq!(found, rows, "{path}: byte {at} with {mask:02x}");
                }
            }
        }
    }
}
