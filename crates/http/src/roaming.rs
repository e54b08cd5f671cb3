//! Which reactor serves which connection.
//!
//! A new connection is dealt to one of the *first* reactors, in turn: these are fewer than there are cores, because
//! the committers need some, and small answers are given fastest by few threads. A connection that is given its first
//! large answer is dealt anew, to any reactor: sending megabytes is plain work for a core, gains from every one of
//! them, and would keep the small answers of a first reactor waiting. It is moved as a whole, between two polls.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A connection, to be polled by the reactor that gets it.
pub(crate) type Hand = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The ways to all reactors.
#[derive(Debug)]
pub(crate) struct Reactors {
    ways: Vec<UnboundedSender<Hand>>,
    first: usize,
    new_turn: AtomicUsize,
    heavy_turn: AtomicUsize,
}

impl Reactors {
    /// The ways to `first` reactors for new connections and `more` for heavy ones only, and their other ends.
    pub(crate) fn new(first: usize, more: usize) -> (Self, Vec<UnboundedReceiver<Hand>>) {
        let first = first.max(1);
        let (ways, ends) = (0..first + more).map(|_| unbounded_channel()).unzip();
        // Heavy connections begin with the reactors that are there for them.
        let heavy_turn = if more == 0 { 0 } else { first };
        (Self { ways, first, new_turn: 0.into(), heavy_turn: heavy_turn.into() }, ends)
    }

    /// Deals out a new connection, made by `connect` for the mark that says when it becomes heavy.
    pub(crate) fn deal<F>(self: &Arc<Self>, connect: impl FnOnce(Arc<Heavy>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let here = self.new_turn.fetch_add(1, Ordering::Relaxed) % self.first;
        let heavy = Arc::new(Heavy::default());
        let connection = Box::pin(connect(Arc::clone(&heavy)));
        let roaming = Roaming { connection: Some(connection), heavy, reactors: Arc::clone(self), here };
        // A reactor ends before the acceptor only if its runtime failed; the connection is then dropped.
        drop(self.ways[here].send(Box::pin(roaming)));
    }

    fn next_for_heavy(&self) -> usize {
        self.heavy_turn.fetch_add(1, Ordering::Relaxed) % self.ways.len()
    }
}

/// Whether a connection has turned out to be heavy.
#[derive(Debug, Default)]
pub(crate) struct Heavy {
    is: AtomicBool,
    is_dealt_with: AtomicBool,
}

impl Heavy {
    /// The connection is about to send a large answer.
    pub(crate) fn mark(&self) {
        self.is.store(true, Ordering::Relaxed);
    }

    /// `true` once, after the connection has become heavy.
    fn is_news(&self) -> bool {
        self.is.load(Ordering::Relaxed) && !self.is_dealt_with.swap(true, Ordering::Relaxed)
    }
}

/// A connection that moves at most once.
struct Roaming {
    connection: Option<Hand>,
    heavy: Arc<Heavy>,
    /// Also keeps the ways open: a reactor ends when nobody is left who could give it something.
    reactors: Arc<Reactors>,
    here: usize,
}

impl Future for Roaming {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(connection) = &mut this.connection else { return Poll::Ready(()) };
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if !this.heavy.is_news() {
            return Poll::Pending;
        }
        let there = this.reactors.next_for_heavy();
        if there == this.here {
            return Poll::Pending;
        }
        // What wakes this task from now on is not heard, but the next poll, over there, looks at everything anew.
        let Some(connection) = this.connection.take() else { return Poll::Ready(()) };
        let roaming = Self {
            connection: Some(connection),
            heavy: this.heavy.clone(),
            reactors: this.reactors.clone(),
            here: there,
        };
        drop(this.reactors.ways[there].send(Box::pin(roaming)));
        Poll::Ready(())
    }
}
