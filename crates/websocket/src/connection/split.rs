//! Two halves of a connection, for two tasks.
//!
//! Both drive the whole connection, under one lock that is never held while waiting: the receiver also writes pongs, and
//! what waits for the stream wakes both.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Error, SendError, core::Core};
use crate::{
    close::{Close, CloseCode},
    message::{EncodedFrame, Message},
};

pub(super) fn split<S>(core: Core<S>) -> (Receiver<S>, Sender<S>) {
    let shared = Arc::new(Shared { core: Mutex::new(core), tasks: Arc::default() });
    (Receiver { shared: Arc::clone(&shared) }, Sender { shared })
}

#[derive(Debug)]
struct Shared<S> {
    core: Mutex<Core<S>>,
    tasks: Arc<Tasks>,
}

/// The tasks to wake.
#[derive(Debug, Default)]
struct Tasks {
    receiver: Mutex<Option<Waker>>,
    sender: Mutex<Option<Waker>>,
}

impl Wake for Tasks {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        for task in [&self.receiver, &self.sender] {
            let waker = task.lock().take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl<S> Shared<S> {
    /// Polls the connection for one of the tasks, in the name of both.
    fn poll<T>(
        &self,
        task: impl Fn(&Tasks) -> &Mutex<Option<Waker>>,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Core<S>, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        *task(&self.tasks).lock() = Some(cx.waker().clone());
        let both = Waker::from(Arc::clone(&self.tasks));
        poll(&mut self.core.lock(), &mut Context::from_waker(&both))
    }
}

/// The half that reads.
#[derive(Debug)]
pub struct Receiver<S> {
    shared: Arc<Shared<S>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Receiver<S> {
    /// See [`WebSocket::next`](crate::WebSocket::next).
    pub async fn next(&mut self) -> Result<Option<Message>, Error> {
        poll_fn(|cx| self.shared.poll(|tasks| &tasks.receiver, cx, Core::poll_next)).await
    }

    /// See [`WebSocket::closed_by_peer`](crate::WebSocket::closed_by_peer).
    pub fn closed_by_peer(&self) -> Option<Close> {
        self.shared.core.lock().closed_by_peer().cloned()
    }
}

/// The half that writes.
#[derive(Debug)]
pub struct Sender<S> {
    shared: Arc<Shared<S>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Sender<S> {
    /// See [`WebSocket::queue`](crate::WebSocket::queue). The receiver's task writes it.
    pub fn queue(&mut self, message: &Message) -> Result<(), SendError> {
        self.shared.core.lock().queue(message)?;
        self.shared.tasks.wake_by_ref();
        Ok(())
    }

    /// See [`WebSocket::queue_encoded`](crate::WebSocket::queue_encoded). The receiver's task writes it.
    pub fn queue_encoded(&mut self, frame: &EncodedFrame) -> Result<(), SendError> {
        self.shared.core.lock().queue_encoded(frame)?;
        self.shared.tasks.wake_by_ref();
        Ok(())
    }

    /// Queues a frame like [`queue_encoded`](Self::queue_encoded), but wakes nobody to write it: for one of several, before
    /// [`write`](Self::write).
    pub fn put_encoded(&mut self, frame: &EncodedFrame) -> Result<(), SendError> {
        self.shared.core.lock().queue_encoded(frame)
    }

    /// Writes what is queued, as far as the stream takes it at once. The receiver's task writes the rest.
    pub async fn write(&mut self) {
        let write = |core: &mut Core<S>, cx: &mut Context<'_>| Poll::Ready(core.write_now(cx));
        let is_over = poll_fn(|cx| self.shared.poll(|tasks| &tasks.sender, cx, write)).await;
        if is_over {
            // The receiver has to tell.
            self.shared.tasks.wake_by_ref();
        }
    }

    /// See [`WebSocket::send`](crate::WebSocket::send).
    pub async fn send(&mut self, message: &Message) -> Result<(), Error> {
        self.send_with(|core| core.queue(message)).await
    }

    /// See [`WebSocket::send_encoded`](crate::WebSocket::send_encoded).
    pub async fn send_encoded(&mut self, frame: &EncodedFrame) -> Result<(), Error> {
        self.send_with(|core| core.queue_encoded(frame)).await
    }

    /// Bytes that wait to be written.
    pub fn queued_bytes(&self) -> usize {
        self.shared.core.lock().queued_bytes()
    }

    /// See [`WebSocket::begin_close`](crate::WebSocket::begin_close): the receiver's task sees it through.
    pub fn begin_close(&mut self, code: CloseCode, reason: &str) {
        self.shared.core.lock().begin_close(&Close::new(code, reason));
        self.shared.tasks.wake_by_ref();
    }

    async fn send_with(
        &mut self,
        mut queue: impl FnMut(&mut Core<S>) -> Result<(), SendError>,
    ) -> Result<(), Error> {
        poll_fn(|cx| self.shared.poll(|tasks| &tasks.sender, cx, |core, cx| core.poll_send(cx, &mut queue)))
            .await?;
        poll_fn(|cx| self.shared.poll(|tasks| &tasks.sender, cx, Core::poll_flushed)).await
    }
}
