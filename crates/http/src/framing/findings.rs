//! What is found while the requests of a connection are followed, for those who answer them.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crate::query::Cut;

/// What is wrong with a request before it can be looked at as one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// Its head has more bytes than are allowed.
    HeadTooLarge,
    /// It has more than [`HEADERS_MAX`](crate::HEADERS_MAX) headers.
    TooManyHeaders,
    /// A line ends without a carriage return. RFC 9112 §2.2 lets a recipient take it; one that does, behind one that
    /// does not, sees other requests.
    BareLineFeed,
    /// Its query has more bytes than are allowed.
    QueryTooLong,
    /// There is no room for its query beside those of others.
    TooManyQueries,
    /// Its long query has something in it that no query has.
    MalformedQuery,
}

/// What was found while following a connection.
#[derive(Debug)]
pub(crate) struct Findings {
    /// The number of the first request whose length is stated twice.
    pub(super) ambiguous: AtomicU64,
    /// What ends the connection, and the number of the request.
    pub(super) fault: OnceLock<(Fault, u64)>,
    /// Whether all that was read belongs to requests that have been read whole.
    pub(super) is_between: AtomicBool,
    /// Whether there are some in `cuts`, as far as is known without looking.
    has_cuts: AtomicBool,
    /// What was taken out of requests that the parser has not handed on yet, with their numbers.
    cuts: Mutex<VecDeque<(u64, Cut)>>,
}

impl Default for Findings {
    fn default() -> Self {
        Self {
            ambiguous: AtomicU64::new(u64::MAX),
            fault: OnceLock::new(),
            is_between: AtomicBool::new(true),
            has_cuts: AtomicBool::new(false),
            cuts: Mutex::default(),
        }
    }
}

impl Findings {
    /// Whether the length of request `number`, counted from 0, is stated twice.
    pub(crate) fn is_ambiguous(&self, number: u64) -> bool {
        self.ambiguous.load(Ordering::Relaxed) == number
    }

    /// The fault, if there is one, and the number of the request that has it.
    pub(crate) fn fault(&self) -> Option<(Fault, u64)> {
        self.fault.get().copied()
    }

    /// Whether nothing has been read of the next request.
    pub(crate) fn is_between(&self) -> bool {
        self.is_between.load(Ordering::Relaxed)
    }

    /// What was taken out of the query of request `number`. Requests are to be asked for in their order.
    pub(crate) fn take_cut(&self, number: u64) -> Option<Cut> {
        if !self.has_cuts.load(Ordering::Relaxed) {
            return None;
        }
        let mut cuts = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        let cut = cuts.pop_front_if(|(of, _)| *of == number)?.1;
        self.has_cuts.store(!cuts.is_empty(), Ordering::Relaxed);
        Some(cut)
    }

    pub(super) fn add_cut(&self, number: u64, cut: Cut) {
        self.cuts.lock().unwrap_or_else(PoisonError::into_inner).push_back((number, cut));
        self.has_cuts.store(true, Ordering::Relaxed);
    }
}
