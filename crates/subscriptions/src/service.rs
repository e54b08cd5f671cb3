//! The thread that subscriptions run on, and how others reach it.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use alluvium_engine::ChangeWatch;
use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::command::{Answer, Command, Refusal, Request};
use crate::core::Core;
use crate::counters::{Counters, CountersSnapshot};
use crate::delivery::{Delivered, Transport};
use crate::options::COMMANDS_MAX;

/// How long changes gather before they are looked at: under load, one look is for many appends.
const GATHER: Duration = Duration::from_millis(2);
/// The longest time between two looks at the clock, which may have been set meanwhile.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// Subscriptions that run.
#[derive(Debug)]
pub struct Service {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// How requests reach the subscriptions. Clones are handles to the same ones.
#[derive(Clone, Debug)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    counters: Arc<Counters>,
}

impl Handle {
    /// Asks, and waits for the answer. [`Refusal::Busy`] if too many wait already.
    pub async fn ask(&self, request: Request) -> Result<Answer, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.commands.try_send(Command { request, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Refusal::Busy,
            mpsc::error::TrySendError::Closed(_) => Refusal::Stopped,
        })?;
        answer.await.unwrap_or(Err(Refusal::Stopped))
    }

    /// What has happened, in numbers.
    pub fn counters(&self) -> CountersSnapshot {
        self.counters.snapshot()
    }
}

impl Service {
    /// Starts the thread.
    pub fn start(core: Core, transport: Arc<dyn Transport>) -> io::Result<Self> {
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        let (stop, stopped) = oneshot::channel();
        let handle = Handle { commands, counters: core.counters() };
        let runtime = runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(core.deliveries_max() + 1)
            .thread_name("webhook")
            .build()?;
        let body = move || {
            runtime.block_on(drive(core, transport, received, stopped));
            // Webhooks under way are sent again after the next start, if nobody has answered for them by then.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("subscriptions".to_owned()).spawn(body)?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// How requests reach it.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Ends it. What is durable is found again by the next.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of subscriptions panicked");
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end();
    }
}

async fn drive(
    mut core: Core,
    transport: Arc<dyn Transport>,
    mut commands: mpsc::Receiver<Command>,
    mut stopped: oneshot::Receiver<()>,
) {
    let watch: Arc<ChangeWatch> = core.watch();
    let (sender, mut returned) = mpsc::channel::<Delivered>(core.deliveries_max() + 1);
    loop {
        core.run();
        for delivery in core.take_deliveries() {
            let (transport, sender) = (transport.clone(), sender.clone());
            drop(tokio::task::spawn_blocking(move || {
                let outcome = transport.send(&delivery);
                // Nobody takes it once the service has ended.
                drop(sender.blocking_send(Delivered { delivery, outcome }));
            }));
        }
        let wait_ms = core.deadline_ms().saturating_sub(core.now_ms());
        let wait = Duration::from_millis(wait_ms).min(LOOK_MAX);
        let is_writing = core.is_writing();
        tokio::select! {
            biased;
            _ = &mut stopped => return,
            () = poll_fn(|cx| core.poll_writes(cx)), if is_writing => {}
            Some(delivered) = returned.recv() => core.delivered(delivered),
            command = commands.recv() => match command {
                Some(command) => core.command(command),
                None => return,
            },
            () = watch.changed() => sleep(GATHER).await,
            () = yield_now(), if core.is_looking() => {}
            () = sleep(wait) => {}
        }
    }
}
