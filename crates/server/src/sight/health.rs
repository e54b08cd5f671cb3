//! Whether a server can do its work.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::RwLock;

/// Why a server is not ready.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unready {
    /// What it has is still being recovered.
    Recovering,
    /// It has been told to stop.
    Stopping,
    /// What keeps its data has failed.
    StoreFailed,
    /// Its disk has no room, so that writes are refused.
    DiskFull,
    /// Its disk has less room than is to be left free, so that writes are refused.
    DiskShort,
}

impl fmt::Display for Unready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Recovering => "it recovers what it has",
            Self::Stopping => "it stops",
            Self::StoreFailed => "what keeps its data has failed",
            Self::DiskFull => "its disk has no room for writes",
            Self::DiskShort => "its disk has less room than `disk-free-min`, so that writes are refused",
        })
    }
}

const RECOVERING: u8 = 0;
const SERVING: u8 = 1;
const STOPPING: u8 = 2;

/// A reason that may come and go.
type Check = Box<dyn Fn() -> Option<Unready> + Send + Sync>;

/// Whether a server is ready: it is once it has recovered, until it is told to stop, unless something keeps it from its
/// work meanwhile.
#[derive(Default)]
pub struct Health {
    phase: AtomicU8,
    checks: RwLock<Vec<Check>>,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").field("unready", &self.unready()).finish()
    }
}

impl Health {
    /// Has something asked each time whether it keeps the server from its work.
    pub fn watch(&self, check: impl Fn() -> Option<Unready> + Send + Sync + 'static) {
        self.checks.write().push(Box::new(check));
    }

    /// Recovery is done.
    pub fn recovered(&self) {
        self.phase.store(SERVING, Ordering::Release);
    }

    /// The server has been told to stop.
    pub fn stopping(&self) {
        self.phase.store(STOPPING, Ordering::Release);
    }

    /// Why the server is not ready; `None` when it is.
    pub fn unready(&self) -> Option<Unready> {
        match self.phase.load(Ordering::Acquire) {
            RECOVERING => Some(Unready::Recovering),
            SERVING => self.checks.read().iter().find_map(|check| check()),
            _ => Some(Unready::Stopping),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_server_is_ready_from_its_recovery_to_its_end_unless_something_is_wrong() {
        let health = Health::default();
        let is_full = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&is_full);
        health.watch(move || asked.load(Ordering::Relaxed).then_some(Unready::DiskFull));
        assert_eq!(health.unready(), Some(Unready::Recovering));
        health.recovered();
        assert_eq!(health.unready(), None);
        is_full.store(true, Ordering::Relaxed);
        assert_eq!(health.unready(), Some(Unready::DiskFull));
        is_full.store(false, Ordering::Relaxed);
        assert_eq!(health.unready(), None);
        health.stopping();
        assert_eq!(health.unready(), Some(Unready::Stopping));
    }
}
