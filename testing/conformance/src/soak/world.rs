//! What everybody in a soak shares: where the server is, what was wrong, how long things took.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, bail};

use super::lie::{Door, Lie};
use super::stats::{Operation, Stats};

/// Faults that are kept and told.
const FAULTS_MAX: usize = 20;

/// Work was given up because something else was wrong.
#[derive(Debug)]
struct GivenUp;

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("given up because of an earlier fault")
    }
}

impl std::error::Error for GivenUp {}

/// Shared by all threads of a soak.
#[derive(Debug)]
pub(super) struct World {
    pub(super) address: SocketAddr,
    /// Distinguishes what this run makes from what earlier ones left in the data directory.
    pub(super) run: String,
    /// Even while the server is up, odd while it is struck and started again.
    strikes: AtomicU64,
    is_over: AtomicBool,
    has_fault: AtomicBool,
    faults: Mutex<Vec<String>>,
    writers: AtomicU32,
    lie: Option<Lie>,
    stats: Mutex<Stats>,
    /// Paths deleted lately, to look for again after the end.
    deleted: Mutex<Vec<String>>,
}

impl World {
    pub(super) fn new(address: SocketAddr, run: String, lie: Option<Lie>) -> Self {
        Self {
            address,
            run,
            strikes: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            has_fault: AtomicBool::new(false),
            faults: Mutex::default(),
            writers: AtomicU32::new(0),
            lie,
            stats: Mutex::default(),
            deleted: Mutex::default(),
        }
    }

    /// No new work is to begin, and what is under way should come to its end.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Something was wrong: nothing more is to be found out.
    pub(super) fn has_fault(&self) -> bool {
        self.has_fault.load(Ordering::SeqCst)
    }

    /// An error if something was wrong elsewhere, to end a wait by.
    pub(super) fn go_on(&self) -> Result<()> {
        if self.has_fault() {
            bail!(GivenUp);
        }
        Ok(())
    }

    /// Keeps what was wrong.
    pub(super) fn fault(&self, error: &Error) {
        if error.is::<GivenUp>() {
            return;
        }
        let mut faults = lock(&self.faults);
        if faults.len() < FAULTS_MAX && !self.is_lying() {
            println!("FAULT   {error:#}");
        }
        if faults.len() < FAULTS_MAX {
            faults.push(format!("{error:#}"));
        }
        self.has_fault.store(true, Ordering::SeqCst);
    }

    /// The outcome of some work, which is told to everybody if it is a fault.
    pub(super) fn watch<T>(&self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome {
            self.fault(error);
        }
        outcome
    }

    pub(super) fn faults(&self) -> Vec<String> {
        lock(&self.faults).clone()
    }

    /// A number that no writer has had.
    pub(super) fn writer(&self) -> u32 {
        self.writers.fetch_add(1, Ordering::SeqCst)
    }

    /// The server goes down, or is back.
    pub(super) fn strike(&self) {
        self.strikes.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn strikes(&self) -> u64 {
        self.strikes.load(Ordering::SeqCst)
    }

    /// Counts one operation. Its time counts only if the server was up all the while.
    pub(super) fn record(&self, operation: Operation, began: Instant, strikes: u64, bytes: usize) {
        let was_up = strikes.is_multiple_of(2) && strikes == self.strikes();
        lock(&self.stats).record(operation, was_up.then(|| began.elapsed()), bytes);
    }

    pub(super) fn stats(&self) -> MutexGuard<'_, Stats> {
        lock(&self.stats)
    }

    /// Whether this run is to find a planted lie, and nothing else goes wrong in it on purpose.
    pub(super) fn is_lying(&self) -> bool {
        self.lie.is_some()
    }

    /// What comes in at a door, as it is told: the truth, unless this run has a lie planted.
    pub(super) fn hear(&self, door: Door, body: &mut Vec<u8>) {
        if let Some(lie) = &self.lie {
            lie.tell(door, body);
        }
    }

    /// Whether this one message to the server is to be lost, as a planted lie.
    pub(super) fn swallows(&self, door: Door) -> bool {
        self.lie.as_ref().is_some_and(|lie| lie.swallows(door))
    }

    /// Whether a door is open in this run: all are, but for a run with a lie.
    pub(super) fn is_open(&self, doors: &[Door]) -> bool {
        self.lie.as_ref().is_none_or(|lie| doors.contains(&lie.door))
    }

    /// Remembers that a stream is gone.
    pub(super) fn note_deleted(&self, path: &str) {
        let mut deleted = lock(&self.deleted);
        if deleted.len() == 1_000 {
            deleted.remove(0);
        }
        deleted.push(path.to_owned());
    }

    pub(super) fn deleted(&self) -> Vec<String> {
        lock(&self.deleted).clone()
    }

    /// Paces load: sleeps, but not beyond the end of the run.
    pub(super) fn pause(&self, time: Duration) {
        const LOOK: Duration = Duration::from_millis(100);
        let until = Instant::now() + time;
        while !self.is_over() && !self.has_fault() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(LOOK));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
