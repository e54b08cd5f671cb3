//! Faults of the simulated disk: how they are planned, what they look like, and how often they fired.

use std::io;
use std::ops::AddAssign;
use std::path::Path;

/// The error of every operation after a crash.
#[derive(Copy, Clone, Debug, thiserror::Error)]
#[error("the simulated disk has crashed")]
pub struct Crashed;

/// Whether an error is the simulated crash and not one the program must handle.
pub fn is_crash(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Crashed>)
}

pub(super) fn crashed() -> io::Error {
    io::Error::other(Crashed)
}

/// The error of a planned fault: `EIO`, as a kernel says it.
pub(super) fn input_output() -> io::Error {
    const EIO: i32 = 5;
    io::Error::from_raw_os_error(EIO)
}

/// Kinds of operations.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
#[expect(missing_docs, reason = "each is the method of the seam with this name")]
pub enum Operation {
    CreateDir,
    Create,
    Open,
    Read,
    Write,
    Truncate,
    FillZero,
    SyncFile,
    SyncDir,
    Rename,
    Remove,
    List,
    Lock,
}

impl Operation {
    /// Whether it can change what a crash leaves behind. Only these are numbered as points to crash at.
    pub fn mutates(self) -> bool {
        !matches!(self, Self::Open | Self::Read | Self::List | Self::Lock)
    }
}

/// Lets one operation fail with an input/output error.
#[derive(Clone, Debug)]
pub struct FaultRule {
    /// Which operation.
    pub operation: Operation,
    /// Only on paths that contain this text.
    pub path_contains: String,
    /// How many matching operations pass unharmed first.
    pub skip: u64,
}

impl FaultRule {
    pub(super) fn matches(&self, operation: Operation, path: &Path) -> bool {
        self.operation == operation && path.to_string_lossy().contains(&self.path_contains)
    }
}

/// How often each kind of fault has fired.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub struct FaultCounts {
    /// Losses of power.
    pub crashes: u64,
    /// Unsynced sectors that a crash dropped.
    pub sectors_lost: u64,
    /// Sectors that a crash left half written.
    pub sectors_torn: u64,
    /// Steps on names that a crash undid.
    pub names_lost: u64,
    /// Syncs of files and directories that failed.
    pub syncs_failed: u64,
    /// Other mutating operations that failed.
    pub writes_failed: u64,
    /// Writes refused for want of space.
    pub full: u64,
    /// Reads that failed.
    pub reads_failed: u64,
    /// Bytes that rotted.
    pub bytes_rotten: u64,
}

impl AddAssign for FaultCounts {
    fn add_assign(&mut self, other: Self) {
        self.crashes += other.crashes;
        self.sectors_lost += other.sectors_lost;
        self.sectors_torn += other.sectors_torn;
        self.names_lost += other.names_lost;
        self.syncs_failed += other.syncs_failed;
        self.writes_failed += other.writes_failed;
        self.full += other.full;
        self.reads_failed += other.reads_failed;
        self.bytes_rotten += other.bytes_rotten;
    }
}
