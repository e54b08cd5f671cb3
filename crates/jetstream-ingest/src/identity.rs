//! Who signs for an account and where it lives: asked of the network, remembered for a day.

use std::sync::Arc;

use alluvium_atproto::{Did, DidDocument, PublicKey};
use alluvium_env::Clock;
use parking_lot::Mutex;

use crate::counters::{Counter, Counters};
use crate::generations::Generations;
use crate::network::Network;
use crate::rules::{Keys, LookupError};
use crate::sink::Store;
use crate::state::{Change, prefix};

/// How long an answer holds, in milliseconds.
const TTL_MS: u64 = 24 * 3_600_000;
/// How long it is remembered that there was no answer, in milliseconds.
const FAILED_MS: u64 = 5_000;
/// An answer younger than this is not asked for again, in milliseconds: whoever sends wrong signatures must not make us
/// ask a directory for each of them.
const FRESH_MS: u64 = 5_000;
/// Answers that wait to be stored; more are not stored, and are asked for again after a restart.
const CHANGES: usize = 100_000;

/// What is remembered of an account.
#[derive(Debug, Clone)]
struct Known {
    answer: Result<Identity, LookupError>,
    asked_ms: u64,
    expires_ms: u64,
}

/// Key and server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The signing key.
    pub(crate) key: PublicKey,
    /// Scheme, host and port of its server.
    pub(crate) server: Option<String>,
}

impl Identity {
    fn read(did: &Did, document: &[u8]) -> Result<Self, LookupError> {
        let document = DidDocument::read(did, document).map_err(|_| LookupError::Unusable)?;
        Ok(Self { key: document.signing_key.ok_or(LookupError::Unusable)?, server: document.pds })
    }

    /// The stored value: eight bytes of when it ends, the highest first, and JSON.
    fn encode(&self, expires_ms: u64) -> Vec<u8> {
        let json = serde_json::json!({"key": self.key.to_multibase(), "pds": self.server});
        [&expires_ms.to_be_bytes()[..], json.to_string().as_bytes()].concat()
    }

    fn decode(value: &[u8]) -> Option<(u64, Self)> {
        let (expires_ms, json) = value.split_first_chunk()?;
        let json: serde_json::Value = serde_json::from_slice(json).ok()?;
        let key = PublicKey::from_multibase(json.get("key")?.as_str()?).ok()?;
        let server = json.get("pds").and_then(serde_json::Value::as_str).map(str::to_owned);
        Some((u64::from_be_bytes(*expires_ms), Self { key, server }))
    }
}

/// All identities.
pub(crate) struct Identities {
    network: Arc<dyn Network>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
    known: Mutex<Generations<String, Known>>,
    changes: Mutex<Vec<Change>>,
}

impl std::fmt::Debug for Identities {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identities").finish_non_exhaustive()
    }
}

impl Identities {
    /// Remembers about `limit` of them in memory, and all in the store.
    pub(crate) fn new(
        network: Arc<dyn Network>,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        counters: Arc<Counters>,
        limit: usize,
    ) -> Self {
        let known = Mutex::new(Generations::new(limit));
        Self { network, store, clock, counters, known, changes: Mutex::default() }
    }

    /// Key and server; with `again` from the network, unless that was just asked.
    pub(crate) fn find(&self, did: &Did, again: bool) -> Result<Identity, LookupError> {
        let now_ms = self.clock.now_ms();
        if let Some(known) = self.known.lock().get(did.as_str()) {
            let fresh = now_ms < known.asked_ms.saturating_add(FRESH_MS);
            if now_ms < known.expires_ms && (!again || fresh) {
                return known.answer.clone();
            }
        } else if !again && let Some(known) = self.stored(did, now_ms) {
            let answer = known.answer.clone();
            self.known.lock().put(did.as_str().to_owned(), known, |_| false);
            return answer;
        }
        self.ask(did)
    }

    /// A value that cannot be read is asked for again.
    fn stored(&self, did: &Did, now_ms: u64) -> Option<Known> {
        let value = self.store.get(&format!("{}{did}", prefix::IDENTITY)).ok().flatten()?;
        let (expires_ms, identity) = Identity::decode(&value)?;
        let is_valid = now_ms < expires_ms && expires_ms <= now_ms.saturating_add(TTL_MS);
        is_valid.then_some(Known { answer: Ok(identity), asked_ms: 0, expires_ms })
    }

    fn ask(&self, did: &Did) -> Result<Identity, LookupError> {
        self.counters.count(Counter::Lookups);
        let answer = self.network.document(did).and_then(|document| Identity::read(did, &document));
        let now_ms = self.clock.now_ms();
        let expires_ms = now_ms.saturating_add(if answer.is_ok() { TTL_MS } else { FAILED_MS });
        match &answer {
            Ok(identity) => self.change(did.as_str(), Some(identity.encode(expires_ms))),
            Err(_) => self.counters.count(Counter::LookupFailures),
        }
        let known = Known { answer: answer.clone(), asked_ms: now_ms, expires_ms };
        self.known.lock().put(did.as_str().to_owned(), known, |_| false);
        answer
    }

    fn change(&self, did: &str, value: Option<Vec<u8>>) {
        let mut changes = self.changes.lock();
        if changes.len() < CHANGES {
            changes.push(Change::Identity(did.to_owned(), value));
        }
    }

    /// Something of it may be another now.
    pub(crate) fn forget(&self, did: &str) {
        // What is in memory must outlive what is in the store, which a change takes away only later.
        let ended = Known { answer: Err(LookupError::Failed), asked_ms: 0, expires_ms: 0 };
        self.known.lock().put(did.to_owned(), ended, |_| false);
        self.change(did, None);
    }

    /// What is to be stored since the last call.
    pub(crate) fn take_changes(&self) -> Vec<Change> {
        std::mem::take(&mut *self.changes.lock())
    }
}

impl Keys for Identities {
    fn key(&self, did: &Did, again: bool) -> Result<PublicKey, LookupError> {
        self.find(did, again).map(|identity| identity.key)
    }
}

#[cfg(test)]
mod tests;
