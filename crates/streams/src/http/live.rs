//! Reads that stay: waiting at the tail for more.

pub(super) mod long_poll;
pub(super) mod sse;

use std::time::Duration;

use alluvium_protocol::{Lifetime, Offset};
use tokio::time::{Instant, sleep_until};

use crate::backend::Source;

/// What ended a wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Waited {
    /// There is something to read: data, or news of the stream's end.
    News,
    /// The time given is up.
    TimeUp,
    /// The server is stopping.
    Stopping,
}

/// Waits for the stream to grow past `past`, to close or to go, no longer than until `until`.
async fn wait(
    source: &mut Source,
    past: Offset,
    until: Instant,
    stopping: impl Future<Output = ()>,
) -> Waited {
    tokio::select! {
        () = source.wait(past) => Waited::News,
        () = sleep_until(until) => Waited::TimeUp,
        () = stopping => Waited::Stopping,
    }
}

/// How often a live read renews its stream's TTL, so that a stream with readers does not expire under them
/// (PROTOCOL §5.1).
fn renewal_period(lifetime: Lifetime) -> Option<Duration> {
    match lifetime {
        Lifetime::Ttl { seconds } => Some(Duration::from_millis((seconds.saturating_mul(1000) / 2).max(250))),
        Lifetime::Forever | Lifetime::Until { .. } => None,
    }
}
