//! What a run has to say: what it did, and what was wrong.

use std::ops::AddAssign;

use alluvium_env::sim::FaultCounts;

use crate::model::Answer;

/// The engine did what must not be.
#[derive(Clone, Debug)]
pub struct Violation(String);

impl Violation {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What happened in a run; a simulation in which nothing went wrong must show that something could have.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
#[expect(missing_docs, reason = "each is what its name says, counted")]
pub struct Counts {
    pub operations: u64,
    pub created: u64,
    pub appended: u64,
    pub duplicates: u64,
    pub deleted: u64,
    /// Of these, those that a rule of retention said were to go.
    pub retired: u64,
    /// How often the beginning of a stream was given up.
    pub trimmed: u64,
    pub published: u64,
    pub buckets: u64,
    pub snapshots: u64,
    pub cuts: u64,
    /// Reads that came to a floor.
    pub retained: u64,
    pub refused: u64,
    pub reads: u64,
    pub comparisons: u64,
    pub probes: u64,
    pub retries: u64,
    pub folds: u64,
    pub failed_folds: u64,
    pub restarts: u64,
    pub kills: u64,
    pub interrupted_commits: u64,
    pub interrupted_folds: u64,
    pub interrupted_starts: u64,
    /// Data directories in which nothing was wrong, as a crash had left them.
    pub checks: u64,
    /// Recoveries that had more than one state to be in.
    pub uncertain_recoveries: u64,
    /// Those in which something was lost that nobody had been told of.
    pub partial_recoveries: u64,
    pub faults: FaultCounts,
}

impl Counts {
    pub(crate) fn answer(&mut self, answer: &Answer) {
        match answer {
            Answer::Created { fresh, .. } => self.created += u64::from(*fresh),
            Answer::Appended { duplicate: true, .. } => self.duplicates += 1,
            Answer::Appended { .. } => self.appended += 1,
            Answer::Deleted => self.deleted += 1,
            Answer::Published { .. } => self.published += 1,
            Answer::Trimmed { .. } => self.trimmed += 1,
            Answer::Done => self.buckets += 1,
            Answer::Refused(_) => self.refused += 1,
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.created += other.created;
        self.appended += other.appended;
        self.duplicates += other.duplicates;
        self.deleted += other.deleted;
        self.retired += other.retired;
        self.trimmed += other.trimmed;
        self.published += other.published;
        self.buckets += other.buckets;
        self.snapshots += other.snapshots;
        self.cuts += other.cuts;
        self.retained += other.retained;
        self.refused += other.refused;
        self.reads += other.reads;
        self.comparisons += other.comparisons;
        self.probes += other.probes;
        self.retries += other.retries;
        self.folds += other.folds;
        self.failed_folds += other.failed_folds;
        self.restarts += other.restarts;
        self.kills += other.kills;
        self.interrupted_commits += other.interrupted_commits;
        self.checks += other.checks;
        self.interrupted_folds += other.interrupted_folds;
        self.interrupted_starts += other.interrupted_starts;
        self.uncertain_recoveries += other.uncertain_recoveries;
        self.partial_recoveries += other.partial_recoveries;
        self.faults += other.faults;
    }
}

/// The operations of a run as lines, if someone wants to read them.
#[derive(Debug)]
pub(crate) struct Log(Option<Vec<String>>);

impl Log {
    pub(crate) fn new(keep: bool) -> Self {
        Self(keep.then(Vec::new))
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.0 {
            lines.push(line());
        }
    }

    pub(crate) fn extend(&mut self, more: Vec<String>) {
        if let Some(lines) = &mut self.0 {
            lines.extend(more.into_iter().map(|line| format!("    {line}")));
        }
    }

    pub(crate) fn take(&mut self) -> Vec<String> {
        self.0.take().unwrap_or_default()
    }
}
