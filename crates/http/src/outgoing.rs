//! What the streams of an HTTP/2 connection have been given to send and its socket has not taken.
//!
//! The streams of a connection wait for their readers each by itself, so each counts its own bytes: a piece that has
//! been given counts in the [`ResponseBudget`] until it is written, be it that the socket or that the stream's own
//! window is full. A stream that holds enough is given nothing more. Once the budget is used up, a stream is given a
//! small piece only when it holds nothing, and a connection whose streams hold enough together nothing at all: so a
//! connection of many streams holds about as much as others do.
//!
//! A window that never opens again is not the socket's doing, so no timeout of the socket ends it. The connection looks
//! now and then whether a stream that holds something has got rid of any of it.

use std::{
    io::IoSlice,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::Waker,
};

use bytes::{Buf, Bytes};

use crate::{ResponseBudget, limits::QUEUED_BYTES_MAX};

/// What the streams of one connection hold together.
#[derive(Debug)]
pub(crate) struct Ledger {
    budget: Arc<ResponseBudget>,
    held: AtomicUsize,
    streams: Mutex<Vec<Weak<Outgoing>>>,
}

/// What one stream holds.
#[derive(Debug)]
pub(crate) struct Outgoing {
    ledger: Arc<Ledger>,
    held: AtomicUsize,
    /// Bytes written since the stream began.
    written: AtomicU64,
    /// The same when it was last looked at with something held, plus one; 0 when nothing was.
    written_then: AtomicU64,
    is_waiting: AtomicBool,
    is_cut: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// What a look at the streams of a connection came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Looked {
    /// Streams that were cut just now.
    pub(crate) cut: usize,
    /// Whether a stream that was cut before still holds something.
    pub(crate) is_stuck: bool,
}

impl Ledger {
    pub(crate) fn new(budget: Arc<ResponseBudget>) -> Arc<Self> {
        Arc::new(Self { budget, held: AtomicUsize::new(0), streams: Mutex::default() })
    }

    /// Begins to count for one more stream.
    pub(crate) fn begin(self: &Arc<Self>) -> Arc<Outgoing> {
        let outgoing = Arc::new(Outgoing {
            ledger: Arc::clone(self),
            held: AtomicUsize::new(0),
            written: AtomicU64::new(0),
            written_then: AtomicU64::new(0),
            is_waiting: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            waker: Mutex::new(None),
        });
        let mut streams = lock(&self.streams);
        // Amortised: the list is gone through once for each time that it doubles.
        if streams.len() == streams.capacity() {
            streams.retain(|stream| stream.strong_count() > 0);
        }
        streams.push(Arc::downgrade(&outgoing));
        outgoing
    }

    /// Cuts the streams that have written nothing since they were last looked at, of something that they hold.
    pub(crate) fn look(&self) -> Looked {
        let mut looked = Looked::default();
        let mut streams = lock(&self.streams);
        streams.retain(|stream| {
            let Some(stream) = stream.upgrade() else { return false };
            if stream.held.load(Ordering::Relaxed) == 0 {
                stream.written_then.store(0, Ordering::Relaxed);
            } else if stream.is_cut() {
                looked.is_stuck = true;
            } else {
                let mark = stream.written.load(Ordering::Relaxed) + 1;
                if stream.written_then.swap(mark, Ordering::Relaxed) == mark {
                    stream.is_cut.store(true, Ordering::Relaxed);
                    looked.cut += 1;
                }
            }
            // Room may have come that nobody told of: that of other connections.
            stream.wake();
            true
        });
        looked
    }

    /// Wakes the streams that hold nothing: they wait for room of the connection, and no piece of theirs will tell them.
    fn wake_waiting(&self) {
        for stream in lock(&self.streams).iter().filter_map(Weak::upgrade) {
            if stream.is_empty() && stream.is_waiting.load(Ordering::Relaxed) {
                stream.wake();
            }
        }
    }
}

impl Outgoing {
    /// Whether the stream is to wait before it is given more. Its task will be woken.
    pub(crate) fn holds_back(&self) -> bool {
        let held = self.held.load(Ordering::Relaxed);
        let holds_back = if self.ledger.budget.is_scarce() {
            held > 0 || self.ledger.held.load(Ordering::Relaxed) >= QUEUED_BYTES_MAX
        } else {
            held >= QUEUED_BYTES_MAX
        };
        self.is_waiting.store(holds_back, Ordering::Relaxed);
        holds_back
    }

    /// The stream waits until all that it was given is written. Its task will be woken.
    pub(crate) fn waits(&self) {
        self.is_waiting.store(true, Ordering::Relaxed);
    }

    /// Whether all that the stream was given is written.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.load(Ordering::Relaxed) == 0
    }

    /// Whether its reader has stopped reading, so that it is to end.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Gives the stream bytes that count until they are written.
    pub(crate) fn give(self: &Arc<Self>, bytes: Bytes) -> Given {
        self.held.fetch_add(bytes.len(), Ordering::Relaxed);
        self.ledger.held.fetch_add(bytes.len(), Ordering::Relaxed);
        self.ledger.budget.count(bytes.len());
        Given { bytes, outgoing: Arc::clone(self) }
    }

    /// Who is to be woken when the stream may be given more.
    pub(crate) fn wakes(&self, waker: &Waker) {
        let mut own = lock(&self.waker);
        if !own.as_ref().is_some_and(|own| own.will_wake(waker)) {
            *own = Some(waker.clone());
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*lock(&self.waker) {
            waker.wake_by_ref();
        }
    }

    fn take(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
        let held = self.held.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        let of_all = self.ledger.held.fetch_sub(bytes, Ordering::Relaxed);
        self.ledger.budget.uncount(bytes);
        // With half of it gone, so that it is not woken for each frame.
        let has_room = held == 0 || (held < QUEUED_BYTES_MAX / 2 && !self.ledger.budget.is_scarce());
        if has_room && self.is_waiting.load(Ordering::Relaxed) {
            self.wake();
        }
        if of_all >= QUEUED_BYTES_MAX && of_all - bytes < QUEUED_BYTES_MAX {
            self.ledger.wake_waiting();
        }
    }
}

/// Bytes on their way through a connection of HTTP/2, counted until they are written or dropped.
#[derive(Debug)]
pub(crate) struct Given {
    bytes: Bytes,
    outgoing: Arc<Outgoing>,
}

impl Buf for Given {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.outgoing.take(count);
    }

    fn chunks_vectored<'a>(&'a self, dst: &mut [IoSlice<'a>]) -> usize {
        self.bytes.chunks_vectored(dst)
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.outgoing.take(self.bytes.len());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicUsize as Count;
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(Count);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn ledger(bytes_max: usize) -> (Arc<ResponseBudget>, Arc<Ledger>) {
        let budget = Arc::new(ResponseBudget::new(bytes_max));
        (Arc::clone(&budget), Ledger::new(budget))
    }

    proptest! {
        /// However pieces are written and dropped, the budget is the sum of what is left of them.
        #[test]
        fn the_budget_counts_what_streams_hold(
            steps in prop::collection::vec((0..3_usize, 0..4_u8, 0..100_usize), 0..200),
        ) {
            let (budget, ledger) = ledger(150);
            let mut streams: Vec<_> = (0..3).map(|_| (ledger.begin(), Vec::<Given>::new())).collect();
            for (index, step, bytes) in steps {
                let (stream, given) = &mut streams[index];
                match step {
                    0 => given.push(stream.give(vec![0; bytes].into())),
                    1 => drop(given.pop()),
                    2 => if let Some(first) = given.first_mut() {
                        first.advance(bytes.min(first.remaining()));
                    },
                    _ => streams[index] = (ledger.begin(), Vec::new()),
                }
                let held: usize = streams.iter().flat_map(|(_, given)| given).map(Buf::remaining).sum();
                prop_assert_eq!(budget.held(), held);
                prop_assert_eq!(ledger.held.load(Ordering::Relaxed), held);
                for (stream, given) in &streams {
                    let own: usize = given.iter().map(Buf::remaining).sum();
                    prop_assert_eq!(stream.is_empty(), own == 0);
                    prop_assert_eq!(stream.holds_back(), held >= 150 && own > 0);
                }
            }
            drop(streams);
            prop_assert_eq!(budget.held(), 0);
        }
    }

    #[test]
    fn a_stream_waits_with_its_share_and_is_woken_once_half_of_it_is_written() {
        let (_, ledger) = ledger(usize::MAX);
        let (stream, woken) = (ledger.begin(), Arc::new(Woken::default()));
        stream.wakes(&Arc::clone(&woken).into());
        let mut given = stream.give(vec![0; QUEUED_BYTES_MAX].into());
        assert!(stream.holds_back());
        given.advance(QUEUED_BYTES_MAX / 2);
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        given.advance(1);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(!stream.holds_back());
    }

    #[test]
    fn with_the_budget_used_up_a_connection_has_one_share_for_all_its_streams() {
        let (_, ledger) = ledger(1);
        let held: Vec<_> = (0..2)
            .map(|_| {
                let stream = ledger.begin();
                assert!(!stream.holds_back());
                let given = stream.give(vec![0; QUEUED_BYTES_MAX / 2].into());
                assert!(stream.holds_back());
                given
            })
            .collect();
        let (third, woken) = (ledger.begin(), Arc::new(Woken::default()));
        third.wakes(&Arc::clone(&woken).into());
        assert!(third.holds_back());
        drop(held);
        assert!(woken.0.load(Ordering::Relaxed) > 0);
        assert!(!third.holds_back());
    }

    #[test]
    fn a_stream_is_cut_when_nothing_of_what_it_holds_was_written_between_two_looks() {
        let (_, ledger) = ledger(usize::MAX);
        let (stalled, slow, idle) = (ledger.begin(), ledger.begin(), ledger.begin());
        let (held, mut written) = (stalled.give(vec![0; 9].into()), slow.give(vec![0; 9].into()));
        assert_eq!(ledger.look(), Looked::default());
        written.advance(1);
        assert_eq!(ledger.look(), Looked { cut: 1, is_stuck: false });
        assert!(stalled.is_cut() && !slow.is_cut() && !idle.is_cut());
        written.advance(1);
        assert_eq!(ledger.look(), Looked { cut: 0, is_stuck: true });
        drop((held, stalled));
        written.advance(1);
        assert_eq!(ledger.look(), Looked::default());
        // What was written before it held anything does not count as having stalled.
        let _later = idle.give(vec![0; 9].into());
        written.advance(1);
        assert_eq!(ledger.look(), Looked::default());
    }
}
