//! The order of runs: for each workload the targets take turns, so that whatever else the machine does in
//! these minutes falls on both.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context;

use crate::report::{Cell, Report, summarise};
use crate::server::{LaunchOptions, Session};
use crate::target::Target;
use crate::usage::OTHER_LOAD;
use crate::workload::Workload;
use crate::{clock, procfs, stats};

/// The longest time for one run of one workload, its server's start and restart included.
const RUN_TIME_MAX: Duration = Duration::from_mins(20);

/// How often a disturbed run is made again, the first time included.
const ATTEMPTS_MAX: u32 = 5;
/// How long the machine is watched to tell whether it is quiet.
const QUIET_SAMPLE: Duration = Duration::from_millis(500);
/// The longest wait for the machine to become quiet before one attempt.
const QUIET_WAIT_MAX: Duration = Duration::from_mins(2);

/// Everything to do.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub(crate) targets: Vec<Target>,
    pub(crate) workloads: Vec<Workload>,
    pub(crate) runs: u32,
    /// The share of the CPUs that others may use during a run, in percent; `None` for any.
    pub(crate) other_load_max: Option<f64>,
    pub(crate) launch: LaunchOptions,
}

impl Schedule {
    /// Runs all of it. A run that fails is told of on standard error and leaves a gap in the report; also
    /// says how many failed.
    pub(crate) async fn execute(&self) -> (Report, u32) {
        let mut report = Report {
            targets: self.targets.iter().map(|target| target.name.clone()).collect(),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            load_average: procfs::load_average(),
            cells: Vec::new(),
        };
        let mut failed = 0;
        for workload in &self.workloads {
            let mut cells: Vec<(usize, Cell)> = Vec::new();
            for run in 1..=self.runs {
                for (index, target) in self.targets.iter().enumerate() {
                    note(&format!("{}: {} (run {run} of {})", target.name, workload.name(), self.runs));
                    match self.run_undisturbed(workload, target).await {
                        Ok(measured) => cells.extend(measured.into_iter().map(|cell| (index, cell))),
                        Err(error) => {
                            note(&format!("{}: failed: {error:#}", target.name));
                            failed += 1;
                        }
                    }
                }
            }
            report.cells.extend(summarise(self.targets.len(), cells));
        }
        (report, failed)
    }

    /// Repeats a run while others disturb it; with the cells of the least disturbed attempt.
    async fn run_undisturbed(&self, workload: &Workload, target: &Target) -> anyhow::Result<Vec<Cell>> {
        let Some(limit) = self.other_load_max else { return self.run_once(workload, target).await };
        let mut best: Option<Vec<Cell>> = None;
        for _ in 0..ATTEMPTS_MAX {
            wait_for_quiet(limit).await;
            let cells = self.run_once(workload, target).await?;
            let disturbance = disturbance(&cells);
            if best.as_deref().is_none_or(|best| disturbance < self::disturbance(best)) {
                best = Some(cells);
            }
            if disturbance <= limit {
                break;
            }
            note(&format!("{}: others used {disturbance:.0} % of the CPUs", target.name));
        }
        best.context("no attempt was made")
    }

    async fn run_once(&self, workload: &Workload, target: &Target) -> anyhow::Result<Vec<Cell>> {
        let run = async {
            if let Workload::Jetstream(load) = workload {
                return load.run(target, &self.launch).await;
            }
            let mut session = Session::start(target, &self.launch).await?;
            let cells = workload.run(&mut session).await?;
            session.stop().await?;
            Ok(cells)
        };
        tokio::time::timeout(RUN_TIME_MAX, run).await.context("the run took too long")?
    }
}

/// The most that others used during any of the cells, in percent of the CPUs.
fn disturbance(cells: &[Cell]) -> f64 {
    let metrics = cells.iter().flat_map(|cell| &cell.metrics);
    metrics.filter(|metric| metric.name == OTHER_LOAD).map(|metric| metric.value).fold(0.0, f64::max)
}

/// Waits until the machine is busy with less than `limit` percent of its CPUs, or for the longest wait.
async fn wait_for_quiet(limit: f64) {
    let give_up = clock::now() + QUIET_WAIT_MAX;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    while clock::now() < give_up {
        let (start, before) = (clock::now(), procfs::machine_cpu_time());
        tokio::time::sleep(QUIET_SAMPLE).await;
        let (Some(before), Some(after)) = (before, procfs::machine_cpu_time()) else { return };
        let all = start.elapsed().as_secs_f64() * stats::float(cores as u64);
        if after.saturating_sub(before).as_secs_f64() / all * 100.0 < limit {
            return;
        }
    }
}

/// Tells the person at the terminal what goes on; lost if nobody listens.
fn note(text: &str) {
    drop(writeln!(std::io::stderr(), "{text}"));
}
