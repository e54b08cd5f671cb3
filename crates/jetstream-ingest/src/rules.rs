//! What verification goes by, and what it is told from outside.

use alluvium_atproto::{Did, PublicKey};
use thiserror::Error;

use crate::limits::Limits;

/// Choices and bounds of verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Bounds.
    pub limits: Limits,
    /// Refuses commits of accounts that are not active. Off by default: a relay has judged that already, and its word
    /// may arrive late.
    pub gate_hosting: bool,
    /// Takes commits of servers that do not tell the tree before (no `prevData`, no `prev`). Their chain is not checked,
    /// their signature is.
    pub accept_legacy: bool,
    /// When repositories are fetched again.
    pub retry: Retry,
}

impl Default for Rules {
    fn default() -> Self {
        Self { limits: Limits::default(), gate_hosting: false, accept_legacy: true, retry: Retry::default() }
    }
}

/// When a repair is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// The wait after the first failure, in milliseconds; it doubles with each further one.
    pub first_ms: u64,
    /// The longest wait, in milliseconds.
    pub longest_ms: u64,
    /// The wait for an account that is not to be had now, in milliseconds. It ends when the account comes back.
    pub unavailable_ms: u64,
    /// After so many failures a repair of an account that nobody knows is given up.
    pub gone_attempts: u32,
    /// After so many fetched repositories that were older than what is missing the repair is taken for done.
    pub stale_attempts: u32,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            first_ms: 5_000,
            longest_ms: 4 * 3_600_000,
            unavailable_ms: 24 * 3_600_000,
            gone_attempts: 6,
            stale_attempts: 8,
        }
    }
}

impl Retry {
    /// The wait after the failure number `failures`, at least half and at most the whole of what it doubles to;
    /// `random` decides.
    pub fn wait_ms(&self, failures: u32, random: u64) -> u64 {
        let doubled =
            self.first_ms.saturating_mul(1_u64.checked_shl(failures.saturating_sub(1)).unwrap_or(u64::MAX));
        let wait = doubled.min(self.longest_ms);
        wait - random % (wait / 2 + 1)
    }
}

/// Why nothing is known of a DID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LookupError {
    /// Nobody knows it, or no longer.
    #[error("the DID is not known")]
    Gone,
    /// Its document names no key or server that can be used.
    #[error("the DID document lacks a usable key or server")]
    Unusable,
    /// It could not be found out now.
    #[error("the DID could not be looked up")]
    Failed,
}

/// Who signs for an account.
pub trait Keys {
    /// The key of `did`; with `again`, not from memory but asked for anew.
    fn key(&self, did: &Did, again: bool) -> Result<PublicKey, LookupError>;
}

/// The outcome of checking a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signature {
    Good,
    Bad,
    Unresolved(LookupError),
}

/// Checks with the key that is known, and if that fails once more with the one that holds now.
pub(crate) fn check_signature(commit: &alluvium_atproto::Commit, did: &Did, keys: &dyn Keys) -> Signature {
    for again in [false, true] {
        match keys.key(did, again) {
            Ok(key) if commit.verify(&key).is_ok() => return Signature::Good,
            Ok(_) | Err(LookupError::Unusable) => {}
            Err(error) => return Signature::Unresolved(error),
        }
    }
    Signature::Bad
}
