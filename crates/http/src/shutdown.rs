//! One signal that tells connections and long-lived responses to come to an end.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;

/// A signal that is given once and stays given. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    triggered: AtomicBool,
    notify: Arc<Notify>,
}

impl Shutdown {
    /// A signal not yet given.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the signal. Everything that waits wakes up; giving it again does nothing.
    pub fn trigger(&self) {
        self.inner.triggered.store(true, Ordering::SeqCst);
        self.inner.notify.notify_waiters();
    }

    /// Whether the signal has been given.
    pub fn is_triggered(&self) -> bool {
        self.inner.triggered.load(Ordering::SeqCst)
    }

    /// Resolves once the signal has been given, at once if it was given before.
    pub fn wait(&self) -> impl Future<Output = ()> + Send + use<> {
        let inner = Arc::clone(&self.inner);
        async move {
            // The waiter counts as registered from the moment it is made, so a signal between the two lines is seen.
            let notified = Arc::clone(&inner.notify).notified_owned();
            if !inner.triggered.load(Ordering::SeqCst) {
                notified.await;
            }
        }
    }
}
