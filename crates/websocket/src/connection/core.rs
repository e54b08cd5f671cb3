//! The state of a connection, driven by polls.
//!
//! ```text
//! Open ── own close frame queued ──> Closing ── the peer's came ──┐
//!   └──── the peer's close frame, or an error of the peer ────────┴─> Ending ── all written ──> Draining ──> Ended
//! ```
//!
//! `Draining` has ended its own direction and reads until the peer ends the other one, or the time for it is up: closing
//! a socket with unread bytes would reset it, and the peer might never see why it was closed.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    time::{Instant, Sleep, sleep_until},
};

use super::{ConnectionOptions, Error, SendError, outgoing::Outgoing};
use crate::{
    close::{Close, CloseCode},
    decoder::{Decoder, Event},
    encoder::{Buffers, Encoder},
    error::ProtocolError,
    frame::Opcode,
    message::{EncodedFrame, Message},
};

/// Room for the next read, when little comes and when much does.
const READ_BYTES_MIN: usize = 4 * 1024;
const READ_BYTES_MAX: usize = 64 * 1024;

/// What a peer is told that took nothing for [`ConnectionOptions::write_timeout`].
const STALLED: &str = "nothing was taken of what was sent";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Open,
    Closing,
    Ending,
    Draining,
    Ended,
}

#[derive(Debug)]
pub(super) struct Core<S> {
    stream: S,
    options: ConnectionOptions,
    input: BytesMut,
    read_bytes: usize,
    decoder: Decoder,
    encoder: Encoder,
    outgoing: Outgoing,
    phase: Phase,
    /// The answer to the last ping, until there is room for it. Earlier ones need none (§5.5.3).
    pong: Option<Bytes>,
    closed_by_peer: Option<Close>,
    /// What [`Core::poll_next`] is still to tell once the connection has ended.
    failure: Option<Error>,
    heard_at: Instant,
    /// Since when a ping is unanswered.
    asked_at: Option<Instant>,
    /// Since when the stream takes nothing.
    stalled_at: Option<Instant>,
    /// When the end of the connection must be over.
    close_by: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Core<S> {
    pub(super) fn new(
        stream: S,
        input: BytesMut,
        decoder: Decoder,
        encoder: Encoder,
        options: ConnectionOptions,
    ) -> Self {
        let now = Instant::now();
        Self {
            stream,
            options,
            input,
            read_bytes: READ_BYTES_MIN,
            decoder,
            encoder,
            outgoing: Outgoing::default(),
            phase: Phase::Open,
            pong: None,
            closed_by_peer: None,
            failure: None,
            heard_at: now,
            asked_at: None,
            stalled_at: None,
            close_by: now,
            timer: None,
        }
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Message>, Error>> {
        loop {
            let written = self.poll_write(cx);
            match self.phase {
                Phase::Ended => return Poll::Ready(self.failure.take().map_or(Ok(None), Err)),
                Phase::Ending => {
                    if written.is_ready() {
                        let ended = Pin::new(&mut self.stream).poll_shutdown(cx);
                        if ended.is_pending() && self.poll_deadlines(cx).is_pending() {
                            return Poll::Pending;
                        }
                        self.enter(match ended {
                            Poll::Ready(Ok(())) => Phase::Draining,
                            _ => Phase::Ended,
                        });
                    } else if self.poll_deadlines(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
                Phase::Draining => {
                    self.input.clear();
                    match self.poll_read(cx) {
                        Poll::Ready(Ok(1..)) => {}
                        Poll::Ready(_) => self.enter(Phase::Ended),
                        Poll::Pending => ready!(self.poll_deadlines(cx)),
                    }
                }
                Phase::Open | Phase::Closing => match self.decoder.decode(&mut self.input) {
                    Ok(Some(Event::Message(message))) => return Poll::Ready(Ok(Some(message))),
                    Ok(Some(event)) => self.control(event),
                    Ok(None) => match self.poll_read(cx) {
                        Poll::Ready(Ok(1..)) => {}
                        Poll::Ready(Ok(0)) => self.break_off(Error::Broken),
                        Poll::Ready(Err(error)) => self.break_off(error.into()),
                        Poll::Pending => ready!(self.poll_deadlines(cx)),
                    },
                    Err(error) => self.fail(error),
                },
            }
        }
    }

    /// Queues something once there is room for it.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        mut queue: impl FnMut(&mut Self) -> Result<(), SendError>,
    ) -> Poll<Result<(), Error>> {
        loop {
            match queue(self) {
                Ok(()) => return Poll::Ready(Ok(())),
                Err(SendError::Full) => {
                    if self.poll_write(cx).is_pending() {
                        ready!(self.poll_deadlines(cx));
                    }
                }
                Err(SendError::Closed) => return Poll::Ready(Err(self.closed_error())),
                Err(error) => return Poll::Ready(Err(Error::Unsendable(error))),
            }
        }
    }

    /// Writes what the stream takes; whether the connection has ended by that.
    pub(super) fn write_now(&mut self, cx: &mut Context<'_>) -> bool {
        let is_written = self.poll_write(cx).is_ready();
        // What is left has a deadline, which the receiver's task keeps.
        self.phase == Phase::Ended || !is_written
    }

    /// Ready once everything is written.
    pub(super) fn poll_flushed(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            // What waited was dropped; the rest is the receiver's.
            if let Some(error) = self.failure.take_if(|error| matches!(error, Error::Stalled)) {
                return Poll::Ready(Err(error));
            }
            if self.poll_write(cx).is_ready() {
                let is_written = self.phase != Phase::Ended || self.failure.is_none();
                return Poll::Ready(if is_written { Ok(()) } else { Err(self.closed_error()) });
            }
            ready!(self.poll_deadlines(cx));
        }
    }

    pub(super) fn queue(&mut self, message: &Message) -> Result<(), SendError> {
        self.admit(message.payload().len())?;
        let buffers = self.encoder.message(message)?;
        self.push(buffers);
        Ok(())
    }

    pub(super) fn queue_encoded(&mut self, frame: &EncodedFrame) -> Result<(), SendError> {
        self.admit(frame.bytes().len())?;
        let bytes = self.encoder.encoded(frame).ok_or(SendError::Unfit)?;
        self.outgoing.push(bytes, Bytes::new());
        Ok(())
    }

    pub(super) const fn queued_bytes(&self) -> usize {
        self.outgoing.bytes()
    }

    pub(super) const fn closed_by_peer(&self) -> Option<&Close> {
        self.closed_by_peer.as_ref()
    }

    pub(super) fn ping(&mut self) {
        if self.phase == Phase::Open && self.asked_at.is_none() {
            let ping = self.encoder.control(Opcode::Ping, Bytes::new());
            self.push(ping);
            self.asked_at = Some(Instant::now());
        }
    }

    pub(super) fn begin_close(&mut self, close: &Close) {
        if self.phase == Phase::Open {
            self.push_close(close.payload());
            self.enter(Phase::Closing);
        }
    }

    pub(super) fn into_parts(self) -> (S, Bytes) {
        (self.stream, self.input.freeze())
    }

    /// The first of several callers to ask gets the reason.
    fn closed_error(&mut self) -> Error {
        self.failure.take().unwrap_or(Error::Broken)
    }

    fn admit(&self, len: usize) -> Result<(), SendError> {
        let queued = self.outgoing.bytes();
        if self.phase != Phase::Open {
            Err(SendError::Closed)
        } else if queued > 0 && queued.saturating_add(len) > self.options.outgoing_bytes_max {
            Err(SendError::Full)
        } else {
            Ok(())
        }
    }

    fn push(&mut self, (head, payload): Buffers) {
        self.outgoing.push(head, payload);
    }

    fn push_close(&mut self, payload: Bytes) {
        let frame = self.encoder.control(Opcode::Close, payload);
        self.push(frame);
    }

    /// Goes on to a phase. The time for the end counts from its first one.
    fn enter(&mut self, phase: Phase) {
        if self.phase == Phase::Open {
            self.close_by = Instant::now() + self.options.close_timeout;
        }
        self.phase = phase;
    }

    fn control(&mut self, event: Event) {
        match event {
            Event::Message(_) | Event::Pong(_) => {}
            Event::Ping(payload) => self.pong = Some(payload),
            Event::Close(close) => {
                if self.phase == Phase::Open {
                    // The same code goes back (§5.5.1).
                    let echo = close.as_ref().map(|close| Close::new(close.code, ""));
                    self.push_close(echo.map_or_else(Bytes::new, |echo| echo.payload()));
                }
                self.closed_by_peer = close;
                self.enter(Phase::Ending);
            }
        }
    }

    /// Tells the peer what it did wrong and ends the connection (§7.1.7).
    fn fail(&mut self, error: ProtocolError) {
        if self.phase == Phase::Open {
            self.push_close(Close::new(error.close_code(), &error.to_string()).payload());
        }
        self.failure = Some(error.into());
        self.enter(Phase::Ending);
    }

    /// Gives up a peer that takes nothing. Should it take something again before the time for the end is up, what it gets is
    /// the rest of the frame that it has begun, and why it gets no more.
    fn stall(&mut self) {
        self.outgoing.keep_begun();
        self.push_close(Close::new(CloseCode::POLICY, STALLED).payload());
        self.failure = Some(Error::Stalled);
        self.enter(Phase::Ending);
    }

    /// Ends the connection at once.
    fn break_off(&mut self, error: Error) {
        self.failure.get_or_insert(error);
        self.enter(Phase::Ended);
    }

    /// Writes what waits. Ready once nothing does, or the connection has ended.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.phase == Phase::Ended {
            return Poll::Ready(());
        }
        let has_room = self.outgoing.bytes() <= self.options.outgoing_bytes_max;
        if let Some(payload) = self.pong.take_if(|_| has_room && self.phase == Phase::Open) {
            let pong = self.encoder.control(Opcode::Pong, payload);
            self.push(pong);
        }
        let mut has_progress = false;
        let written = self.outgoing.poll_write(&mut self.stream, cx, || has_progress = true);
        if has_progress {
            self.stalled_at = None;
        }
        match written {
            Poll::Ready(Ok(())) => {
                self.stalled_at = None;
                Poll::Ready(())
            }
            Poll::Ready(Err(error)) => {
                self.break_off(error.into());
                Poll::Ready(())
            }
            Poll::Pending => {
                self.stalled_at.get_or_insert_with(Instant::now);
                Poll::Pending
            }
        }
    }

    /// Reads what there is. An idle connection keeps no more than a small buffer for it.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<usize>> {
        self.input.reserve(self.read_bytes);
        let read = ready!(pin!(self.stream.read_buf(&mut self.input)).poll(cx))?;
        let had_room = read < self.read_bytes;
        self.read_bytes = if had_room { READ_BYTES_MIN } else { READ_BYTES_MAX };
        self.heard_at = Instant::now();
        self.asked_at = None;
        Poll::Ready(Ok(read))
    }

    /// Ready if something has changed because of the time: look at everything again.
    fn poll_deadlines(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = Instant::now();
        let mut next: Option<(Instant, fn() -> Error)> = None;
        let mut consider = |at: Instant, error: fn() -> Error| {
            if next.is_none_or(|(earliest, _)| at < earliest) {
                next = Some((at, error));
            }
        };
        if let Some(since) = self.stalled_at.filter(|_| self.phase != Phase::Ending) {
            consider(since + self.options.write_timeout, || Error::Stalled);
        }
        let mut asks = false;
        match self.phase {
            Phase::Open => match (self.asked_at, self.options.ping_interval) {
                (Some(since), _) => consider(since + self.options.pong_timeout, || Error::Silent),
                (None, Some(interval)) => {
                    let at = self.heard_at + interval;
                    asks = at <= now;
                    consider(at, || Error::Silent);
                }
                (None, None) => {}
            },
            Phase::Closing | Phase::Ending | Phase::Draining => {
                consider(self.close_by, || Error::CloseTimeout);
            }
            Phase::Ended => return Poll::Ready(()),
        }
        let Some((at, error)) = next else { return Poll::Pending };
        if asks {
            self.ping();
            return Poll::Ready(());
        }
        if at <= now {
            match self.phase {
                // The closing handshake itself is over; only the peer's end of the stream is missing.
                Phase::Draining => self.enter(Phase::Ended),
                _ => match error() {
                    Error::Stalled if self.phase == Phase::Open => self.stall(),
                    error => self.break_off(error),
                },
            }
            return Poll::Ready(());
        }
        // A deadline mostly moves on before it is reached, so the timer is left where it is if that is early enough.
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() > at || timer.is_elapsed() {
            timer.as_mut().reset(at);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= at {
                return Poll::Ready(());
            }
            timer.as_mut().reset(at);
        }
        Poll::Pending
    }
}
