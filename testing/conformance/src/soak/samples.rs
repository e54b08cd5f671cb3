//! What the kernel says about the server, once a second, and a row for each minute.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::growth::{Series, float};
use super::stats::{Minute, Operation};
use super::world::World;
use crate::procfs;

/// Time between two rows.
const ROW: Duration = Duration::from_mins(1);
const MEBIBYTE: f64 = 1024.0 * 1024.0;
/// A process that was just started is not looked at: it would show how it fills, restart by restart.
const SETTLING: Duration = Duration::from_secs(20);

/// One figure: its name, its unit, and the rise that is never called growth.
struct Figure {
    name: &'static str,
    unit: &'static str,
    tolerance: f64,
    series: Series,
}

/// Everything measured so far.
pub(super) struct Samples {
    data_dir: PathBuf,
    began: Instant,
    /// When the present process was started.
    pub(super) process_began: Instant,
    row_began: Instant,
    figures: [Figure; 7],
    rows: Vec<Value>,
    row: Row,
    pub(super) kills: u32,
    pub(super) stops: u32,
    /// Of all starts, in milliseconds.
    pub(super) starts_ms: Vec<u64>,
}

/// The largest values of a minute.
#[derive(Default)]
struct Row {
    resident: f64,
    anonymous: f64,
    open_files: f64,
    files: f64,
    disk: f64,
}

impl Row {
    fn is_empty(&self) -> bool {
        self.resident == 0.0
    }
}

fn mebibytes(bytes: u64) -> f64 {
    float(usize::try_from(bytes).unwrap_or(usize::MAX)) / MEBIBYTE
}

impl Samples {
    pub(super) fn new(data_dir: &Path) -> Self {
        let now = Instant::now();
        let figure = |name, unit, tolerance| Figure { name, unit, tolerance, series: Series::default() };
        Self {
            data_dir: data_dir.to_owned(),
            began: now,
            process_began: now,
            row_began: now,
            figures: [
                figure("memory", "MiB", 8.0),
                figure("memory without mapped files", "MiB", 8.0),
                figure("open files", "", 4.0),
                figure("files on disk", "", 4.0),
                figure("bytes on disk", "MiB", 64.0),
                figure("append p50", "ms", 1.0),
                figure("append p99", "ms", 5.0),
            ],
            rows: Vec::new(),
            row: Row::default(),
            kills: 0,
            stops: 0,
            starts_ms: Vec::new(),
        }
    }

    /// Looks at the process and its directory. What is read while a process settles after its start is left out, and so
    /// is a look at a file that has just been removed, or a process that has just ended.
    pub(super) fn look(&mut self, pid: u32) {
        if self.process_began.elapsed() >= SETTLING.min(self.began.elapsed() / 4) {
            drop(self.try_look(pid));
        }
    }

    fn try_look(&mut self, pid: u32) -> Result<()> {
        let (disk, files) = procfs::disk_use(&self.data_dir)?;
        let row = Row {
            resident: mebibytes(procfs::resident_bytes(pid)?),
            anonymous: mebibytes(procfs::anonymous_bytes(pid)?),
            open_files: float(procfs::open_files(pid)?),
            files: float(files),
            disk: mebibytes(disk),
        };
        let hours = self.began.elapsed().as_secs_f64() / 3600.0;
        let values = [row.resident, row.anonymous, row.open_files, row.files, row.disk];
        for (figure, value) in self.figures.iter_mut().zip(values) {
            figure.series.push(hours, value);
        }
        let all = &mut self.row;
        for (most, value) in
            [&mut all.resident, &mut all.anonymous, &mut all.open_files, &mut all.files, &mut all.disk]
                .into_iter()
                .zip(values)
        {
            *most = most.max(value);
        }
        Ok(())
    }

    /// Whether it is time for a row.
    pub(super) fn is_minute_over(&self) -> bool {
        self.row_began.elapsed() >= ROW
    }

    /// Ends the present row: prints it, and keeps it for the report.
    pub(super) fn end_row(&mut self, world: &World) {
        let minute = world.stats().take();
        let seconds = self.row_began.elapsed().as_secs_f64();
        let hours = self.began.elapsed().as_secs_f64() / 3600.0;
        self.row_began = Instant::now();
        if let Some(append) = minute.of(Operation::Append) {
            for (figure, us) in self.figures[5..].iter_mut().zip([append.p50_us, append.p99_us]) {
                figure.series.push(hours, float(usize::try_from(us).unwrap_or(usize::MAX)) / 1000.0);
            }
        }
        let row = std::mem::take(&mut self.row);
        println!("{}", self.line(&minute, &row, seconds));
        self.rows.push(json!({
            "at_s": (hours * 3600.0).round(), "seconds": seconds,
            "memory_mib": row.resident, "memory_anonymous_mib": row.anonymous, "open_files": row.open_files,
            "files": row.files, "disk_mib": row.disk, "operations": minute.to_json(),
            "kills": self.kills, "stops": self.stops,
        }));
    }

    fn line(&self, minute: &Minute, row: &Row, seconds: f64) -> String {
        let at = self.began.elapsed().as_secs();
        let per_second = float(usize::try_from(minute.operations()).unwrap_or(usize::MAX)) / seconds;
        let (p50, p99) = minute.of(Operation::Append).map_or((0, 0), |append| (append.p50_us, append.p99_us));
        let memory = if row.is_empty() { "-".to_owned() } else { format!("{:.0}", row.resident) };
        format!(
            "{at:>6} s  {per_second:>6.0} op/s  {:>7.2} MiB/s  append p50 {:>6.2} p99 {:>7.2} ms  memory {memory:>4} MiB  \
             open {:>3.0}  disk {:>5.0} MiB in {:>3.0} files  kills {}  stops {}",
            mebibytes(minute.bytes()) / seconds,
            ms(p50),
            ms(p99),
            row.open_files,
            row.disk,
            row.files,
            self.kills,
            self.stops,
        )
    }

    /// What grew, a line for each figure.
    pub(super) fn verdicts(&self) -> Vec<String> {
        let lines = self.figures.iter().map(|figure| match figure.series.second_half() {
            Some(fit) => fit.describe(figure.name, figure.unit, figure.tolerance),
            None => format!("{:<28} too few samples", figure.name),
        });
        lines.collect()
    }

    /// Everything, for other tools.
    pub(super) fn to_json(&self, seed: u64, faults: &[String]) -> Value {
        let growth = self.figures.iter().map(|figure| {
            let fit = figure.series.second_half().map(|fit| fit.to_json(figure.tolerance));
            let mut value = fit.unwrap_or_else(|| json!({}));
            value["unit"] = figure.unit.into();
            (figure.name.to_owned(), value)
        });
        json!({
            "seed": seed, "seconds": self.began.elapsed().as_secs(), "kills": self.kills, "stops": self.stops,
            "start_ms": {"max": self.starts_ms.iter().max(), "all": self.starts_ms},
            "growth": Value::Object(growth.collect()), "faults": faults, "minutes": self.rows,
        })
    }
}

fn ms(us: u64) -> f64 {
    float(usize::try_from(us).unwrap_or(usize::MAX)) / 1000.0
}
