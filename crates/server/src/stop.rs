//! The signals that stop a server, and how it ends then.

use std::io;
use std::time::Duration;

use alluvium_http::{Drained, Handler, Server};
use tokio::signal::unix;

/// The signals that stop a server.
#[derive(Debug)]
pub struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
}

impl Signals {
    /// Receives them from now on, within a runtime of Tokio.
    pub fn receive() -> io::Result<Self> {
        Ok(Self {
            terminate: unix::signal(unix::SignalKind::terminate())?,
            interrupt: unix::signal(unix::SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one, and names it. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Says which signal came, if one did, and lets connections end: for at most `timeout`, and not behind another signal.
pub async fn drain<H: Handler>(
    server: Server<H>,
    timeout: Duration,
    signal: Option<&'static str>,
    signals: &mut Signals,
) {
    if let Some(signal) = signal {
        tracing::info!(signal, connections = server.connections(), "stopping");
    }
    tokio::select! {
        drained = server.drain(timeout) => match drained {
            Drained::Clean => {}
            Drained::Cut { connections } => tracing::warn!(connections, "the shutdown timeout passed; connections were cut"),
        },
        signal = signals.next() => tracing::warn!(signal, "signalled again; not waiting for connections"),
    }
}

/// Says that everything is synced, and this the end.
pub fn say_stopped() {
    tracing::info!("stopped");
}
