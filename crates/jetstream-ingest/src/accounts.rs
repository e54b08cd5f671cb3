//! The accounts that are known, in memory as far as they are used or not durable yet, else in the store.

use std::sync::Arc;

use parking_lot::Mutex;
use thiserror::Error;

use crate::account::{Account, Stored};
use crate::generations::Generations;
use crate::sink::{SinkError, Store};
use crate::state::{Chain, Hosting, InvalidState, Repair, ToldSync, decode_seq, prefix};

/// Why an account cannot be read. That is damage of our own store, and nothing to go on with.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LoadError {
    /// The store failed.
    #[error("{0}")]
    Store(#[from] SinkError),
    /// A value is damaged.
    #[error("{did}: {error}")]
    Damage {
        /// The account.
        did: String,
        /// What is damaged.
        error: InvalidState,
    },
}

/// An account that one thread works on.
#[derive(Debug)]
pub(crate) struct Held {
    /// What is known of it.
    pub(crate) account: Account,
    /// As long as there is a copy of this, something of it is not durable.
    pub(crate) pin: Arc<()>,
}

/// All accounts.
pub(crate) struct Accounts {
    store: Arc<dyn Store>,
    kept: Mutex<Generations<String, Held>>,
}

impl std::fmt::Debug for Accounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accounts").finish_non_exhaustive()
    }
}

impl Accounts {
    /// Keeps about `limit` accounts in memory, and beyond it those that are not durable or hold waiting commits.
    pub(crate) fn new(store: Arc<dyn Store>, limit: usize) -> Self {
        Self { store, kept: Mutex::new(Generations::new(limit)) }
    }

    /// Takes an account to work on. Nobody else may until it is put back.
    pub(crate) fn take(&self, did: &str) -> Result<Held, LoadError> {
        if let Some(held) = self.kept.lock().take(did) {
            return Ok(held);
        }
        Ok(Held { account: Account::new(did, self.load(did)?), pin: Arc::default() })
    }

    /// Puts an account back.
    pub(crate) fn put(&self, did: &str, held: Held) {
        let must_stay = |held: &Held| Arc::strong_count(&held.pin) > 1 || held.account.holds_commits();
        self.kept.lock().put(did.to_owned(), held, must_stay);
    }

    fn load(&self, did: &str) -> Result<Stored, LoadError> {
        let repair = self.value(prefix::REPAIR, did, Repair::decode)?;
        let told = match repair {
            Some(_) => self.value(prefix::TOLD, did, ToldSync::decode)?,
            None => None,
        };
        Ok(Stored {
            chain: self.value(prefix::CHAIN, did, Chain::decode)?,
            hosting: self.value(prefix::HOSTING, did, Hosting::decode)?,
            account_seq: self.value(prefix::ACCOUNT, did, decode_seq)?,
            identity_seq: self.value(prefix::IDENTITY_SEQ, did, decode_seq)?,
            repair,
            told,
        })
    }

    fn value<T>(
        &self,
        prefix: &str,
        did: &str,
        decode: impl Fn(&[u8]) -> Result<T, InvalidState>,
    ) -> Result<Option<T>, LoadError> {
        let value = self.store.get(&format!("{prefix}{did}"))?;
        value
            .map(|value| decode(&value))
            .transpose()
            .map_err(|error| LoadError::Damage { did: did.to_owned(), error })
    }
}
