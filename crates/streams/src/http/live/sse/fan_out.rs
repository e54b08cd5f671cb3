//! Subscribers at the tail of one stream, served together.
//!
//! Each subscriber is a future in its connection. By itself it would wake up for every append, with all layers of that
//! connection, to send what all the others send too. Where a few of a stream's subscribers share a thread, those at the
//! tail join a group instead of waiting by themselves. One task leads it: it waits for all of them, encodes the events
//! once and sends them down each [`Line`]. Whom it cannot serve like that (the socket is full, the stream has come to its
//! end, the bytes are not in memory) is left behind: woken, and on its own from there.
//!
//! A subscriber's standing is noted with each send, and taken along when it leaves, so nothing is sent twice or not at
//! all. Both happen under the group's lock.

use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    thread::{self, ThreadId},
};

use alluvium_engine::StreamReader;
use alluvium_http::{Framed, Line, Sent};
use alluvium_protocol::Incarnation;
use slab::Slab;
use tokio::sync::Notify;

use super::events::{self, Place};
use crate::{
    limits::{FAN_OUT_MIN, FAN_OUT_STEP},
    state::State,
};

/// Where a subscriber stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// The next event begins here.
    pub(super) next: Place,
    /// The cursor of the last control event. It never goes back.
    pub(super) cursor: u64,
}

/// The groups of all streams that have subscribers.
#[derive(Debug, Default)]
pub(crate) struct FanOuts(Mutex<HashMap<Key, Counted>>);

/// A thread, and a stream that it serves.
type Key = (ThreadId, Incarnation);

#[derive(Debug, Default)]
struct Counted {
    subscribers: usize,
    group: Arc<Group>,
}

/// A subscriber of a stream, counted as one of its thread until this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    streams: Arc<State>,
    key: Key,
    group: Arc<Group>,
}

impl Seat {
    pub(super) fn take(streams: &Arc<State>, stream: Incarnation) -> Self {
        let key = (thread::current().id(), stream);
        let mut groups = lock(&streams.fan_outs.0);
        let counted = groups.entry(key).or_default();
        counted.subscribers += 1;
        let group = Arc::clone(&counted.group);
        group.members().subscribers = counted.subscribers;
        Self { streams: Arc::clone(streams), key, group }
    }

    /// Lets the subscriber be served with others, if there are some where it stands. To be called when it is at the tail
    /// and its connection has nothing else to be given.
    pub(super) fn join(&self, reader: &StreamReader, line: &Line, at: Standing) -> Option<Membership> {
        let mut members = self.group.members();
        // A cursor from the future is the subscriber's own affair.
        if members.subscribers < FAN_OUT_MIN || at.cursor > self.streams.cursor_from(0) {
            return None;
        }
        if members.served == 0 {
            members.at = Some(at);
        } else if members.at.is_none_or(|of_all| of_all.next.offset != at.next.offset) {
            return None;
        }
        let member = Member { line: line.clone(), at, is_left_behind: false, waker: None };
        let key = members.of.insert(member);
        members.served += 1;
        if !std::mem::replace(&mut members.is_led, true) {
            tokio::spawn(lead(Arc::clone(&self.group), Arc::clone(&self.streams), reader.clone()));
        }
        Some(Membership { group: Arc::clone(&self.group), key })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut groups = lock(&self.streams.fan_outs.0);
        if let Some(counted) = groups.get_mut(&self.key) {
            counted.subscribers -= 1;
            self.group.members().subscribers = counted.subscribers;
            if counted.subscribers == 0 {
                groups.remove(&self.key);
            }
        }
    }
}

/// Subscribers that stand at the same place of a stream.
#[derive(Debug, Default)]
struct Group {
    members: Mutex<Members>,
    /// Rung when the last member that is served leaves.
    emptied: Notify,
}

#[derive(Debug, Default)]
struct Members {
    /// Subscribers of the stream on this thread, members or not.
    subscribers: usize,
    /// Where all members stand, but for those whose turn in the current round has yet to come and those left behind.
    at: Option<Standing>,
    is_led: bool,
    /// Members that are not left behind.
    served: usize,
    of: Slab<Member>,
}

#[derive(Debug)]
struct Member {
    line: Line,
    at: Standing,
    is_left_behind: bool,
    waker: Option<Waker>,
}

impl Member {
    /// Sends a piece, and tells whether the member can be served on.
    fn serve(&mut self, piece: &Framed, to: Standing) -> bool {
        let sent = self.line.send(piece);
        if sent != Sent::Not {
            self.at = to;
        }
        if sent != Sent::Whole {
            self.leave_behind();
        }
        sent == Sent::Whole
    }

    fn leave_behind(&mut self) {
        self.is_left_behind = true;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// A subscriber that is being served. It leaves when this is dropped.
#[derive(Debug)]
pub(super) struct Membership {
    group: Arc<Group>,
    key: usize,
}

impl Membership {
    /// Resolves when the subscriber is left behind.
    pub(super) async fn end(&self) {
        poll_fn(|cx| self.poll_end(cx)).await;
    }

    fn poll_end(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut members = self.group.members();
        let Some(member) = members.of.get_mut(self.key) else { return Poll::Ready(()) };
        if member.is_left_behind {
            return Poll::Ready(());
        }
        match &mut member.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Leaves, with the subscriber's standing.
    pub(super) fn leave(self) -> Option<Standing> {
        self.group.members().of.get(self.key).map(|member| member.at)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut members = self.group.members();
        let left = members.of.try_remove(self.key);
        if left.is_some_and(|member| !member.is_left_behind) {
            members.served -= 1;
            if members.served == 0 {
                self.group.emptied.notify_one();
            }
        }
    }
}

impl Group {
    fn members(&self) -> MutexGuard<'_, Members> {
        lock(&self.members)
    }

    /// Where the members stand. `None`, and no longer led, if there are none.
    fn standing(&self) -> Option<Standing> {
        let mut members = self.members();
        let at = members.at.filter(|_| members.served > 0);
        members.is_led = at.is_some();
        at
    }

    /// Sends a piece to all who stand at `from`, a few at a time: neither appends nor other streams wait for all of them.
    async fn serve(&self, from: Standing, piece: &Framed, to: Standing) {
        let end = {
            let mut members = self.members();
            members.at = Some(to);
            members.of.capacity()
        };
        for step in (0..end).step_by(FAN_OUT_STEP) {
            {
                let mut members = self.members();
                let members = &mut *members;
                for key in step..end.min(step + FAN_OUT_STEP) {
                    if let Some(member) = members.of.get_mut(key)
                        && !member.is_left_behind
                        && member.at.next.offset == from.next.offset
                        && !member.serve(piece, to)
                    {
                        members.served -= 1;
                    }
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Leaves all behind.
    fn disband(&self) {
        let mut members = self.members();
        members.is_led = false;
        members.served = 0;
        for (_, member) in &mut members.of {
            member.leave_behind();
        }
    }
}

/// Serves the members of a group for as long as there are some who can be served.
async fn lead(group: Arc<Group>, streams: Arc<State>, reader: StreamReader) {
    while let Some(from) = group.standing() {
        tokio::select! {
            biased;
            () = group.emptied.notified() => continue,
            _ = reader.wait(from.next.offset) => {}
        }
        let cursor = streams.cursor_from(from.cursor);
        let Some((piece, next)) = events::of_all(&streams, &reader, from.next, cursor) else { break };
        let Some(piece) = Framed::new(&piece) else { break };
        group.serve(from, &piece, Standing { next, cursor }).await;
    }
    group.disband();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
