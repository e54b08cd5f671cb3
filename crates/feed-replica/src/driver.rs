//! Runs the synchronisation of spaces over a transport.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use alluvium_feed_protocol::{Advanced, Id, Limits, Request, Response};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{CallError, Replica, ReplicaResult, SyncStatus};

/// Longest sleep, so that a clock that jumps is noticed.
const SLEEP_MS_MAX: u64 = 30_000;
/// Shortest sleep.
const SLEEP_MS_MIN: u64 = 5;

/// A way to the authority of a space.
pub trait Transport: Send + Sync {
    /// Called before a request is chosen, for a transport that has something to find out first, as what the authority
    /// accepts. What goes wrong, the request that follows tells.
    fn prepare(&self, _space: &Id) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Sends a request and waits for its answer. The error says why there is none.
    fn call(&self, space: &Id, request: Request) -> impl Future<Output = Result<Response, CallError>> + Send;

    /// What the authority next sends by itself. A transport without that never returns.
    fn hint(&self) -> impl Future<Output = Advanced> + Send {
        std::future::pending()
    }

    /// Until when nothing comes of hints, because those before led to nothing: of those about replicated feeds, and of those
    /// about others, milliseconds since the Unix epoch. A transport that asks for hints need not do so before.
    fn hold_hints(&self, _until_ms: [u64; 2]) {}

    /// What the authority accepts, if it has said so.
    fn limits(&self) -> Option<Limits> {
        None
    }

    /// Whether hints come at the moment. While they don't, the authority is asked more often.
    fn is_live(&self) -> bool {
        true
    }
}

/// Synchronises one space until the future is dropped: pushes what was appended, pulls what is replicated, follows
/// hints. Errors of the network are waited out; an error of the store ends it.
///
/// `wake` is to be notified after a local append or a change of what is replicated.
pub async fn run<T: Transport>(
    replica: &Arc<Mutex<Replica>>,
    space: &Id,
    transport: &T,
    wake: &Notify,
) -> ReplicaResult<()> {
    replica.lock().connected(space);
    loop {
        if !step(replica, space, transport).await? {
            rest(replica, space, transport, wake).await?;
        }
    }
}

/// Synchronises one space until nothing is left to do, and tells how it ended: as far as the authority has told, with
/// [`SyncStatus::stopped`] if it refuses this client for good. Errors of the network are waited out, so put a limit to
/// the time.
pub async fn catch_up<T: Transport>(
    replica: &Arc<Mutex<Replica>>,
    space: &Id,
    transport: &T,
    wake: &Notify,
) -> ReplicaResult<SyncStatus> {
    replica.lock().connected(space);
    loop {
        if step(replica, space, transport).await? {
            continue;
        }
        {
            let replica = replica.lock();
            let status = replica.status(space)?;
            if status.stopped.is_some() || (status.is_done() && replica.is_at_rest(space)) {
                return Ok(status);
            }
        }
        rest(replica, space, transport, wake).await?;
    }
}

/// One request and its answer; whether there was anything to ask.
async fn step<T: Transport>(replica: &Arc<Mutex<Replica>>, space: &Id, transport: &T) -> ReplicaResult<bool> {
    let is_due = {
        let replica = replica.lock();
        replica.wake_ms(space).is_some_and(|at_ms| at_ms <= replica.now_ms())
    };
    if is_due {
        transport.prepare(space).await;
    }
    let next = {
        let mut replica = replica.lock();
        replica.set_live(space, transport.is_live());
        if let Some(limits) = transport.limits() {
            replica.set_limits(space, limits);
        }
        replica.next_request(space)?
    };
    let Some(request) = next else { return Ok(false) };
    let request_id = request.request_id().clone();
    let answer = transport.call(space, request).await;
    let mut replica = replica.lock();
    match answer {
        Ok(response) => replica.answered(space, response)?,
        Err(error) => replica.failed(space, &request_id, &error)?,
    }
    transport.hold_hints(replica.hints_held_ms(space));
    Ok(true)
}

/// Waits for the next thing to do.
async fn rest<T: Transport>(
    replica: &Arc<Mutex<Replica>>,
    space: &Id,
    transport: &T,
    wake: &Notify,
) -> ReplicaResult<()> {
    let sleep_ms = {
        let replica = replica.lock();
        let wake_ms = replica.wake_ms(space).unwrap_or(u64::MAX);
        wake_ms.saturating_sub(replica.now_ms()).clamp(SLEEP_MS_MIN, SLEEP_MS_MAX)
    };
    tokio::select! {
        message = transport.hint() => match message {
            Advanced::FeedAdvanced(hint) => replica.lock().hint(&hint)?,
            Advanced::BlocksPushed(pushed) => replica.lock().pushed(pushed)?,
        },
        () = wake.notified() => {}
        () = tokio::time::sleep(Duration::from_millis(sleep_ms)) => {}
    }
    Ok(())
}
