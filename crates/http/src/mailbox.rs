//! Wake-ups from other threads, delivered together.
//!
//! A runtime that sleeps is woken by a system call, and a single-threaded runtime makes that call for every wake-up
//! that comes from another thread, asleep or not. A committer that answers sixty appends, or a publication that
//! wakes a thousand subscribers, would pay it each time. So connections are polled with a waker of our own: on the
//! reactor's thread it wakes the task as usual; on any other it puts the task into the reactor's mailbox, and only
//! the first of a batch rings.

use std::{
    cell::Cell,
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use pin_project_lite::pin_project;
use tokio::sync::Notify;

/// Tasks woken before the runtime gets to look at its sockets again. A publication to a thousand subscribers must
/// not keep the next append waiting; and a subscriber that is still in the mailbox when that append is published
/// gets both in one go.
const WOKEN_AT_ONCE_MAX: usize = 32;

thread_local! {
    /// The address of the mailbox that this thread empties; 0 on threads without one.
    static OWN_MAILBOX: Cell<usize> = const { Cell::new(0) };
}

/// The tasks of one reactor that other threads have woken.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    woken: Mutex<Vec<Arc<TaskWaker>>>,
    bell: Notify,
}

impl Mailbox {
    /// A mailbox that belongs to the calling thread.
    pub(crate) fn of_this_thread() -> Arc<Self> {
        let mailbox = Arc::new(Self::default());
        OWN_MAILBOX.set(mailbox.address());
        mailbox
    }

    /// Wakes the tasks in the mailbox whenever it rings. To be spawned on the owning thread.
    pub(crate) async fn deliver(self: Arc<Self>) {
        let mut fresh = Vec::new();
        let mut backlog: VecDeque<Arc<TaskWaker>> = VecDeque::new();
        loop {
            if backlog.is_empty() {
                self.bell.notified().await;
            } else {
                tokio::task::yield_now().await;
            }
            std::mem::swap(&mut fresh, &mut *self.woken());
            // Some of what has just come, and some of what has waited: neither holds the other up.
            let waited = backlog.len().min(WOKEN_AT_ONCE_MAX);
            let at_once = fresh.len().min(WOKEN_AT_ONCE_MAX);
            fresh.drain(..at_once).chain(backlog.drain(..waited)).for_each(|task| task.deliver());
            backlog.extend(fresh.drain(..));
        }
    }

    /// The future with its wake-ups from other threads going through this mailbox.
    pub(crate) fn tend<F: Future>(self: &Arc<Self>, future: F) -> Tended<F> {
        Tended { future, mailbox: Arc::clone(self), waker: None }
    }

    fn put(&self, task: Arc<TaskWaker>) {
        let mut woken = self.woken();
        woken.push(task);
        let is_first = woken.len() == 1;
        drop(woken);
        if is_first {
            self.bell.notify_one();
        }
    }

    fn woken(&self) -> std::sync::MutexGuard<'_, Vec<Arc<TaskWaker>>> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// Wakes one task, by way of the mailbox if need be.
#[derive(Debug)]
struct TaskWaker {
    waker: Waker,
    mailbox: Arc<Mailbox>,
    is_in_mailbox: AtomicBool,
}

impl TaskWaker {
    fn deliver(&self) {
        // Before the wake-up, so that one that comes meanwhile is not lost.
        self.is_in_mailbox.store(false, Ordering::SeqCst);
        self.waker.wake_by_ref();
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if OWN_MAILBOX.get() == self.mailbox.address() {
            self.waker.wake_by_ref();
        } else if !self.is_in_mailbox.swap(true, Ordering::SeqCst) {
            self.mailbox.put(Arc::clone(self));
        }
    }
}

pin_project! {
    /// See [`Mailbox::tend`].
    pub(crate) struct Tended<F> {
        #[pin]
        future: F,
        mailbox: Arc<Mailbox>,
        // What the future is polled with, and what that stands for.
        waker: Option<(Waker, Waker)>,
    }
}

impl<F: Future> Future for Tended<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let is_current = this.waker.as_ref().is_some_and(|(_, task)| task.will_wake(cx.waker()));
        if !is_current {
            let task = TaskWaker {
                waker: cx.waker().clone(),
                mailbox: Arc::clone(this.mailbox),
                is_in_mailbox: AtomicBool::new(false),
            };
            *this.waker = Some((Waker::from(Arc::new(task)), cx.waker().clone()));
        }
        match this.waker {
            Some((waker, _)) => this.future.poll(&mut Context::from_waker(waker)),
            None => this.future.poll(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn every_wake_up_from_another_thread_arrives() {
        let mailbox = Mailbox::of_this_thread();
        tokio::spawn(Arc::clone(&mailbox).deliver());
        for _ in 0..50 {
            let (senders, tasks): (Vec<_>, Vec<_>) = (0..100)
                .map(|number| {
                    let (sender, receiver) = oneshot::channel();
                    ((sender, number), tokio::spawn(mailbox.tend(receiver)))
                })
                .unzip();
            tokio::task::yield_now().await;
            let sending = std::thread::spawn(|| {
                for (sender, number) in senders {
                    sender.send(number).expect("the task waits");
                }
            });
            for (number, task) in tasks.into_iter().enumerate() {
                assert_eq!(task.await.expect("no panic"), Ok(number));
            }
            sending.join().expect("no panic");
        }
    }

    #[tokio::test]
    async fn a_task_woken_many_times_is_in_the_mailbox_once() {
        let mailbox = Mailbox::of_this_thread();
        let polls = Arc::new(AtomicUsize::new(0));
        let (waker_out, waker_in) = oneshot::channel();
        let mut waker_out = Some(waker_out);
        let counted = Arc::clone(&polls);
        let task = mailbox.tend(std::future::poll_fn(move |cx| {
            if let Some(out) = waker_out.take() {
                drop(out.send(cx.waker().clone()));
            }
            if counted.fetch_add(1, Ordering::SeqCst) == 1 { Poll::Ready(()) } else { Poll::Pending }
        }));
        let task = tokio::spawn(task);
        let waker = waker_in.await.expect("sent by the first poll");
        let waking = std::thread::spawn(move || (0..10).for_each(|_| waker.wake_by_ref()));
        waking.join().expect("no panic");
        assert_eq!(mailbox.woken().len(), 1);
        tokio::spawn(Arc::clone(&mailbox).deliver());
        task.await.expect("no panic");
        assert_eq!(polls.load(Ordering::SeqCst), 2);
    }
}
