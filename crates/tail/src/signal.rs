//! Waking the readers of one log.

use tokio::sync::Notify;

/// Wakes every reader that waits on a log.
///
/// A signal carries no value: the state that a reader waits for lives elsewhere, and is looked at
/// again after each wake-up. It costs a few words, so that every log can have one.
#[derive(Debug, Default)]
pub struct Signal {
    notify: Notify,
}

impl Signal {
    /// Makes a signal that nobody waits on.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes all current waiters. Call it after the new state can be seen.
    pub fn wake(&self) {
        self.notify.notify_waiters();
    }

    /// Waits until `ready` returns a value.
    ///
    /// `ready` is asked once at the start and again after each [`wake`](Self::wake). The waiter is
    /// registered before it asks, so a change between the question and the wait is never missed.
    /// Dropping the future gives up the place; there is nothing else to clean.
    pub async fn wait_for<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        loop {
            let mut notified = std::pin::pin!(self.notify.notified());
            notified.as_mut().enable();
            if let Some(value) = ready() {
                return value;
            }
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[tokio::test]
    async fn a_change_between_the_question_and_the_wait_is_seen() {
        let signal = Signal::new();
        let mut asked = 0;
        let value = signal
            .wait_for(|| {
                asked += 1;
                if asked == 1 {
                    signal.wake();
                    return None;
                }
                Some(asked)
            })
            .await;
        assert_eq!(value, 2);
    }

    #[tokio::test]
    async fn every_waiter_wakes() {
        let signal = Arc::new(Signal::new());
        let level = Arc::new(AtomicU64::new(0));
        let waiters: Vec<_> = (1..=50)
            .map(|wanted| {
                let (signal, level) = (signal.clone(), level.clone());
                tokio::spawn(async move {
                    signal.wait_for(|| (level.load(Ordering::SeqCst) >= wanted).then_some(wanted)).await
                })
            })
            .collect();
        for _ in 0..50 {
            tokio::task::yield_now().await;
            level.fetch_add(1, Ordering::SeqCst);
            signal.wake();
        }
        for (index, waiter) in waiters.into_iter().enumerate() {
            assert_eq!(waiter.await.unwrap(), index as u64 + 1);
        }
    }
}
