//! How fast segments are read: every block decompressed, decoded and checked, and every row looked at.

use std::path::PathBuf;

use alluvium_env::RealDisk;
use alluvium_jss::ReadLimits;
use alluvium_jss::read::Sealed;
use anyhow::Context;

use crate::clock;
use crate::report::{Cell, CellSummary, Metric, Report, summarise};
use crate::stats;
use crate::usage::MEBIBYTE;

/// Reads sealed segments several times, with one thread.
pub(crate) fn run(files: &[PathBuf], runs: u32) -> anyhow::Result<Report> {
    let mut cells = Vec::new();
    for _ in 0..runs {
        cells.push((0, pass(files)?));
    }
    let cells: Vec<CellSummary> = summarise(1, cells);
    Ok(Report { targets: vec!["segments".to_owned()], cores: 1, load_average: None, cells })
}

fn pass(files: &[PathBuf]) -> anyhow::Result<Cell> {
    let (mut rows, mut stored, mut content, mut looked_at) = (0_u64, 0_u64, 0_u64, 0_usize);
    let start = clock::now();
    for file in files {
        let named = || format!("reading {}", file.display());
        let segment = Sealed::open(&RealDisk, file, ReadLimits::default()).with_context(named)?;
        for (number, info) in segment.metadata().blocks.iter().enumerate() {
            let block = segment.block(number).with_context(named)?;
            rows += block.len() as u64;
            stored += u64::from(info.compressed_size);
            content += u64::from(info.uncompressed_size);
            looked_at += block.rows().map(|row| row.did.len() + row.payload.len()).sum::<usize>();
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let metrics = vec![
        Metric::new("throughput", "rows/s", stats::float(rows) / seconds),
        Metric::new("throughput", "MiB/s stored", stats::float(stored) / MEBIBYTE / seconds),
        Metric::new("throughput", "MiB/s decoded", stats::float(content) / MEBIBYTE / seconds),
        Metric::new("rows", "count", stats::float(rows)),
        Metric::new("stored", "bytes/row", stats::float(stored) / stats::float(rows.max(1))),
        Metric::new("looked at", "bytes", stats::float(looked_at as u64)),
    ];
    Ok(Cell { name: format!("scan of {} segments", files.len()), metrics })
}
