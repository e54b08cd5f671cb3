//! Blocks that are compressed elsewhere, and come back in their order.

use std::path::Path;
use std::thread;

use alluvium_env::sim::{FaultRule, Operation};
use alluvium_jss::frame::Encoder;
use alluvium_jss::{CompressedBlock, Error, Opened, PreparedBlock, Refused, Writer, open};

use crate::world::{DIR, LIMITS, content, disk, path, reopened, row, rows, sealed};

/// A writer with the rows 1 to 12, and its three blocks.
fn prepared(disk: &alluvium_env::sim::SimDisk) -> (Writer, Vec<PreparedBlock>) {
    let mut writer = Writer::create(disk, &path(), LIMITS).unwrap();
    let mut blocks = Vec::new();
    for seq in 1..=12 {
        if writer.append(row(seq).as_ref()).unwrap() {
            blocks.push(writer.prepare().unwrap().expect("rows are pending"));
        }
    }
    assert!(writer.prepare().unwrap().is_none());
    assert!(writer.blocks().is_empty(), "nothing is durable yet");
    (writer, blocks)
}

/// On a thread each, the last one first.
fn compress(blocks: Vec<PreparedBlock>) -> Vec<CompressedBlock> {
    let threads: Vec<_> = blocks
        .into_iter()
        .map(|block| thread::spawn(move || block.compress(&mut Encoder::new().unwrap())))
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
}

fn is_refused<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Refused(Refused::Prepared)))
}

#[test]
fn the_file_is_the_one_that_flushes_would_have_made() {
    let (one, other) = (disk(1), disk(2));
    let (mut writer, blocks) = prepared(&one);
    for block in compress(blocks) {
        writer.commit(block).unwrap();
    }
    writer.seal().unwrap();
    let flushed = sealed(&other, 12);
    assert_eq!(content(&one, &path()), content(&other, &path()));
    assert!(rows(&reopened(&one)) == rows(&flushed));
}

#[test]
fn blocks_out_of_order_or_of_another_writer_are_refused_and_change_nothing() {
    let disk = disk(3);
    let (mut writer, blocks) = prepared(&disk);
    let mut compressed = compress(blocks).into_iter();
    let (first, second, third) =
        (compressed.next().unwrap(), compressed.next().unwrap(), compressed.next().unwrap());
    assert!(is_refused(writer.flush()) && is_refused(writer.discard_after(0)));
    assert!(is_refused(writer.commit(second)), "the first is missing");
    let path = Path::new(DIR).join("seg_0000000001.jss");
    let mut other = Writer::create(&disk, &path, LIMITS).unwrap();
    other.append(row(1).as_ref()).unwrap();
    let foreign = other.prepare().unwrap().unwrap().compress(&mut Encoder::new().unwrap()).unwrap();
    assert!(is_refused(writer.commit(foreign)));
    writer.commit(first).unwrap();
    assert_eq!(writer.blocks().len(), 1);
    assert!(is_refused(writer.commit(third)), "the second is lost, and so is all behind it");
    assert!(is_refused(writer.seal()));
}

#[test]
fn a_commit_that_failed_is_the_last_and_what_was_committed_is_there() {
    for operation in [Operation::Write, Operation::SyncFile] {
        let disk = disk(4);
        let (mut writer, blocks) = prepared(&disk);
        let mut compressed = compress(blocks).into_iter();
        writer.commit(compressed.next().unwrap()).unwrap();
        disk.plan(FaultRule { operation, path_contains: "seg_".into(), skip: 0 });
        assert!(matches!(writer.commit(compressed.next().unwrap()), Err(Error::Io { .. })));
        assert!(matches!(writer.commit(compressed.next().unwrap()), Err(Error::Poisoned)));
        assert_eq!(writer.blocks().len(), 1);
        disk.restart();
        let Opened::Active(writer, _) = open(&disk, &path(), LIMITS, Some(4)).unwrap() else {
            panic!("active")
        };
        assert_eq!(writer.last_seq() % 4, 0);
    }
}
