//! Fetching repositories: which is due, from where, and whether there is room for it.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use alluvium_atproto::Did;
use parking_lot::Mutex;

use super::{Pipeline, Task};
use crate::account::{FetchFailure, HostingStatus, Schedule, Told};
use crate::budget::Permit;
use crate::counters::Counter;
use crate::fetched::{Fetched, RepoRefused};
use crate::identity::Identity;
use crate::network::FetchError;
use crate::queues::Offer;
use crate::state::{Asks, Change};

/// The room that a repository of unknown size is given at first, in bytes.
const FIRST_ROOM: usize = 4 << 20;
/// The pause after which a repository that found no room is fetched again, in milliseconds.
const NO_ROOM_MS: u64 = 1_000;
/// Accounts of which it is remembered how large their repository was; beyond it all are forgotten.
const WANTED: usize = 10_000;

/// What is remembered of repairs for the fetch: how much room a repository needs that found too little, and what else
/// is to be asked of an account.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    room: Mutex<HashMap<String, usize>>,
    asks: Mutex<HashMap<String, Asks>>,
}

impl Wanted {
    fn of(&self, did: &str) -> usize {
        self.room.lock().get(did).copied().unwrap_or(FIRST_ROOM)
    }

    fn more(&self, did: &str, bytes: usize) {
        let mut wanted = self.room.lock();
        if wanted.len() >= WANTED {
            wanted.clear();
        }
        wanted.insert(did.to_owned(), bytes.saturating_mul(2));
    }

    /// Notes what changes of an account's repair.
    pub(super) fn note_asks(&self, did: &str, changes: &[Change]) {
        for change in changes {
            if let Change::Repair(_, repair) = change {
                self.set_asks(did, repair.as_ref().map_or(Asks::default(), |repair| repair.asks));
            }
        }
    }

    /// Only accounts of which something is to be asked take room here: as few as have lost such an event.
    pub(super) fn set_asks(&self, did: &str, asks: Asks) {
        let mut all = self.asks.lock();
        if asks.any() {
            all.insert(did.to_owned(), asks);
        } else {
            all.remove(did);
        }
    }

    fn asks(&self, did: &str) -> Asks {
        self.asks.lock().get(did).copied().unwrap_or_default()
    }
}

impl Pipeline {
    /// What a fetcher does until the pipeline is stopped.
    pub(crate) fn fetch(&self) {
        while let Some(did) = self.next_due() {
            let fetched = match did.parse::<Did>() {
                Ok(did) => self.ask(&did).and_then(|()| self.fetch_one(&did)),
                Err(_) => Err(FetchError::Failure(FetchFailure::Gone)),
            };
            if self.is_stopped() {
                return;
            }
            let result = match fetched {
                Ok(fetched) => {
                    self.counters.count(Counter::Fetches);
                    Ok(fetched)
                }
                Err(FetchError::Failure(failure)) => {
                    self.counters.count(Counter::FetchFailures(failure));
                    Err(failure)
                }
                Err(FetchError::Busy { wait_ms }) => {
                    self.postpone(&did, wait_ms);
                    continue;
                }
                Err(FetchError::NoRoom) => {
                    self.postpone(&did, NO_ROOM_MS);
                    continue;
                }
            };
            // One more item of the account: what it brings is archived before any later event.
            let offered = self.queues.lock().offer(&did, Task::Fetched(result));
            debug_assert!(matches!(offered, Offer::Queued), "what was made here is not refused");
            self.work.notify_one();
        }
    }

    fn postpone(&self, did: &str, wait_ms: u64) {
        let at = self.clock.now_ms().saturating_add(wait_ms);
        self.repairs.lock().finish(did, Some(Schedule::At(at)));
    }

    fn next_due(&self) -> Option<std::sync::Arc<str>> {
        let mut repairs = self.repairs.lock();
        loop {
            if self.is_stopped() {
                return None;
            }
            let now_ms = self.clock.now_ms();
            if let Some(did) = repairs.take(now_ms) {
                return Some(did);
            }
            if self.unscheduled.load(Ordering::Relaxed)
                && repairs.len() <= self.config.rules.limits.repairs / 2
            {
                drop(repairs);
                if let Err(error) = self.schedule_stored() {
                    self.fail(error);
                }
                repairs = self.repairs.lock();
                continue;
            }
            let wait_ms = repairs.next_ms().map_or(1000, |next_ms| next_ms.saturating_sub(now_ms));
            self.due.wait_for(&mut repairs, Duration::from_millis(wait_ms.clamp(1, 1000)));
        }
    }

    /// Finds out what no repository tells, and hands it on before the repository. What fails is asked for again with the
    /// next attempt of the repair.
    fn ask(&self, did: &Did) -> Result<(), FetchError> {
        let asks = self.fetches.asks(did.as_str());
        if !asks.any() {
            return Ok(());
        }
        let known = self.identities.find(did, true);
        let hosting = if asks.account { self.hosting(known.as_ref().ok(), did)? } else { None };
        let told = Told { hosting, identity: asks.identity && known.is_ok() };
        let offered = self.queues.lock().offer(did.as_str(), Task::Told(told));
        debug_assert!(matches!(offered, Offer::Queued), "what was made here is not refused");
        self.work.notify_one();
        Ok(())
    }

    /// How an account is hosted: its server's word, and if it has none the relay's, whose event was dropped.
    fn hosting(&self, known: Option<&Identity>, did: &Did) -> Result<Option<HostingStatus>, FetchError> {
        let server = known.and_then(|known| known.server.as_deref());
        for asked in server.map(Some).into_iter().chain([None]) {
            self.counters.count(Counter::StatusLookups);
            match self.network.status(asked, did) {
                Ok(status) => return Ok(Some(status)),
                Err(FetchError::Failure(_)) => {}
                Err(later) => return Err(later),
            }
        }
        Ok(None)
    }

    /// From the server that is remembered; if that fails, from the one that holds now, if it is another one.
    fn fetch_one(&self, did: &Did) -> Result<(Fetched, Permit), FetchError> {
        let failed = |error| FetchError::Failure(FetchFailure::from(error));
        let gone = FetchError::Failure(FetchFailure::Gone);
        let known = self.identities.find(did, false).map_err(failed)?;
        let first = known.server.as_deref().map_or(Err(gone), |server| self.fetch_from(server, did));
        match first {
            Err(FetchError::Failure(FetchFailure::Gone | FetchFailure::Transient)) => {}
            result => return result,
        }
        let now = self.identities.find(did, true).map_err(failed)?;
        match now.server {
            Some(server) if known.server.as_ref() != Some(&server) => self.fetch_from(&server, did),
            _ => first,
        }
    }

    fn fetch_from(&self, server: &str, did: &Did) -> Result<(Fetched, Permit), FetchError> {
        let transient = FetchError::Failure(FetchFailure::Transient);
        let mut permit = self.budget.reserve(self.fetches.of(did.as_str())).ok_or(transient)?;
        let file = match self.network.repo(server, did, &mut permit) {
            Ok(file) => file,
            Err(error) => {
                if error == FetchError::NoRoom {
                    self.fetches.more(did.as_str(), permit.bytes());
                }
                return Err(error);
            }
        };
        let now_us = self.clock.now_us();
        match Fetched::read(file, did, now_us, &self.config.rules, &self.identities) {
            Ok(fetched) => Ok((fetched, permit)),
            Err(RepoRefused::Lookup(error)) => Err(FetchError::Failure(error.into())),
            Err(refused) => {
                tracing::debug!(%did, server, %refused, "a fetched repository was refused");
                Err(FetchError::Failure(FetchFailure::Refused))
            }
        }
    }
}
