//! How fast a journal is written and replayed on this machine, without syncs:
//! `cargo run --release -p alluvium-journal --example throughput -- <empty folder>`.

use std::convert::Infallible;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use alluvium_env::Env;
use alluvium_journal::{Append, JournalWriter, Mutation, Producer, Record, Segments, StreamId, replay};
use bytes::Bytes;

const SEGMENT_BYTES: u32 = 64 * 1024 * 1024;
const TOTAL_MIB: u32 = 256;
const TOTAL_BYTES: u64 = TOTAL_MIB as u64 * 1024 * 1024;
const BATCH_RECORDS: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = PathBuf::from(std::env::args().nth(1).ok_or("name an empty folder")?);
    let mut out = std::io::stdout().lock();
    for data_len in [100, 1_000, 10_000, 100_000] {
        let env = Env::real();
        let dir = dir.join(format!("throughput-{data_len}"));
        env.disk.create_dir_all(&dir)?;
        let segments = Segments::create(&env, &dir, SEGMENT_BYTES, 1)?;
        let replayed = replay(&segments, &mut |_, _| Ok::<(), Infallible>(()))?;
        let mut writer = JournalWriter::resume(Arc::clone(&segments), &replayed)?;
        let count = TOTAL_BYTES / data_len;

        let (write_s, rotate_s) = write(&mut writer, count, usize::try_from(data_len)?)?;
        let started = now();
        let mut found = 0;
        let segments = Segments::open(&env, &dir, SEGMENT_BYTES, 1)?;
        replay(&segments, &mut |_, _| -> Result<(), Infallible> {
            found += 1;
            Ok(())
        })?;
        let replay_s = started.elapsed().as_secs_f64();
        assert_eq!(found, count, "a replay lost records");
        let mib = f64::from(TOTAL_MIB);
        writeln!(
            out,
            "{data_len:>6} bytes a record: write {:>6.0} MiB/s, replay {:>6.0} MiB/s; new segments {rotate_s:.2} s",
            mib / write_s,
            mib / replay_s
        )?;
    }
    Ok(())
}

/// Writes `count` records; the seconds that took, and those for new segments.
fn write(writer: &mut JournalWriter, count: u64, data_len: usize) -> Result<(f64, f64), Box<dyn Error>> {
    let data = Bytes::from(vec![b'x'; data_len]);
    let started = now();
    let mut rotate_s = 0.0;
    let mut batch = writer.batch();
    for number in 0..count {
        let append = Append {
            start: (number, number * data_len as u64),
            lengths: vec![u32::try_from(data_len)?],
            data: data.clone(),
            producer: Some(Producer { id: "writer-1".to_owned(), epoch: 1, seq: number }),
            seq: None,
            close: false,
            renew_deadline_ms: None,
            receipt: None,
        };
        let stream = StreamId(number % 1_000);
        batch.push(&Record {
            stream,
            time_ms: 1_790_000_000_000 + number,
            mutation: Mutation::Append(append),
        });
        let full = (number + 1) % BATCH_RECORDS as u64 == 0 || number + 1 == count;
        if full {
            if batch.len() > writer.remaining() {
                let rotating = now();
                writer.rotate()?;
                rotate_s += rotating.elapsed().as_secs_f64();
            }
            writer.write(batch)?;
            batch = writer.batch();
        }
    }
    Ok((started.elapsed().as_secs_f64() - rotate_s, rotate_s))
}

#[expect(clippy::disallowed_methods, reason = "this program measures the machine")]
fn now() -> Instant {
    Instant::now()
}
