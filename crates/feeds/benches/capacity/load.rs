//! Filling a space, in the order in which many writers would: a block of each feed after the other.

use std::time::Instant;

use crate::{Scale, append, block, memory, open, rate};

/// Blocks of one append.
const BATCH: u64 = 500;
/// How many parts have their own rate.
const PARTS: u64 = 10;

pub(crate) fn run(scale: &Scale) {
    let service = open(&scale.folder);
    let part = (scale.total() / PARTS).max(1);
    let (mut batch, mut done) = (Vec::new(), 0);
    let (whole, mut began) = (Instant::now(), Instant::now());
    for sequence in 0..scale.blocks {
        for feed in 0..scale.feeds {
            batch.push(block(scale, feed, sequence));
            done += 1;
            if batch.len() as u64 == BATCH || done == scale.total() {
                append(&service, std::mem::take(&mut batch));
            }
            if done % part == 0 {
                println!("load: {done} blocks, the last part at {:.0} blocks/s", rate(part, began.elapsed()));
                began = Instant::now();
            }
        }
    }
    let took = whole.elapsed();
    let (now, most) = memory();
    println!(
        "load: {done} blocks in {took:.1?}, {:.0} blocks/s; {now} MiB, at most {most} MiB",
        rate(done, took)
    );
    service.close();
    let bytes = std::fs::metadata(crate::database(&scale.folder)).map_or(0, |file| file.len());
    println!("load: {} MiB on disk, {} bytes a block", bytes >> 20, bytes / done.max(1));
}
