//! Every rule of verification, by table; then accounts over several events.

mod commits;
mod deleted;
mod dropped;
mod markers;
mod refused;
mod repairs;
mod told;
mod unverified;

use std::sync::atomic::AtomicUsize;

use alluvium_atproto::{Cid, Codec};

use super::*;
use crate::fetched::Fetched;
use crate::fixtures::{Author, Directory, NOW_US};

/// An account as it is known here, with its directory.
struct Known {
    account: Account,
    directory: Directory,
    rules: Rules,
    now_us: u64,
    pending: AtomicUsize,
}

impl Known {
    fn new(author: &Author) -> Self {
        Self {
            account: Account::new(author.did.as_str(), Stored::default()),
            directory: Directory::of(author),
            rules: Rules::default(),
            now_us: NOW_US,
            pending: AtomicUsize::new(0),
        }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Account, &Context<'_>) -> T) -> T {
        let context = Context {
            now_us: self.now_us,
            random: 0,
            rules: &self.rules,
            keys: &self.directory,
            pending_bytes: &self.pending,
        };
        act(&mut self.account, &context)
    }

    fn take(&mut self, event: Event) -> Step {
        self.with(|account, context| account.event(event, context))
    }

    fn commit(&mut self, event: &Commit) -> Step {
        self.take(Event::Commit(event.clone()))
    }

    /// What the account's server gives out, as it is read here.
    fn fetch(&mut self, author: &Author) -> Step {
        let fetched = Fetched::read(author.repo(), &author.did, self.now_us, &self.rules, &self.directory)
            .expect("a repository");
        self.with(|account, context| account.fetched(fetched, context))
    }
}

/// Kind, record key or collection, and revision of each row.
fn rows(step: &Step) -> Vec<(Kind, &str, &str)> {
    step.rows.iter().map(|row| (row.kind, row.rkey.as_str(), row.rev.as_str())).collect()
}

fn chain(author: &Author) -> Chain {
    Chain { rev: author.rev.clone(), data: author.data }
}

fn other() -> Cid {
    Cid::of(Codec::DagCbor, b"another")
}
