//! Counts what goes on behind a request that was admitted: bodies of unknown length, messages on a socket.

use std::time::Duration;

use crate::rate::AddressKey;
use crate::refusal::Refusal;
use crate::{Access, Caller, Rates};

/// The buckets of one request's address and caller. Found among the extensions of a request where there are limits.
#[derive(Clone, Debug)]
pub struct Meter {
    access: Access,
    keys: (AddressKey, Option<u64>),
    rates: Rates,
    /// Whether bytes of the body are still to be counted.
    is_body_uncounted: bool,
}

impl Meter {
    pub(crate) fn new(access: Access, address: AddressKey, caller: &Caller) -> Self {
        let usual = access.inner().options.caller_rates;
        let rates = caller.rates.map_or(usual, |own| own.or(usual));
        let key = access.inner().key_of(caller);
        Self { access, keys: (address, key), rates, is_body_uncounted: false }
    }

    /// What counts for whoever goes on in the caller's place, on the same connection.
    #[must_use]
    pub fn of_caller(self, caller: &Caller) -> Self {
        let (address, _) = self.keys;
        Self::new(self.access, address, caller)
    }

    pub(crate) fn for_body(self, is_body_uncounted: bool) -> Self {
        Self { is_body_uncounted, ..self }
    }

    pub(crate) fn is_unbounded(&self) -> bool {
        let is_caller_unbounded = self.rates.is_unbounded() || self.keys.1.is_none();
        is_caller_unbounded && self.access.inner().options.address_rates.is_unbounded()
    }

    pub(crate) fn take_of_caller(&self, requests: u64, bytes: u64) -> Result<(), Refusal> {
        self.access.inner().take_of_caller(self.keys.1, self.rates, requests, bytes)
    }

    pub(crate) fn take_bytes(&self, bytes: u64) -> Result<(), Refusal> {
        if bytes == 0 {
            return Ok(());
        }
        self.access.inner().take(self.keys, self.rates, 0, bytes)
    }

    /// Counts one more request with so many bytes, such as a message on a socket. If there are too many, says how long to
    /// wait.
    pub fn take(&self, bytes: u64) -> Result<(), Duration> {
        match self.access.inner().take(self.keys, self.rates, 1, bytes) {
            Ok(()) => Ok(()),
            Err(Refusal::Limited(wait)) => Err(wait),
            Err(_) => Err(Duration::from_secs(1)),
        }
    }

    /// Counts the bytes of a body whose length was not told before. They are in already: what is too much is paid off by
    /// the requests that follow.
    pub fn received(&self, bytes: u64) {
        if self.is_body_uncounted {
            self.access.inner().owe(self.keys, self.rates, bytes);
        }
    }
}
