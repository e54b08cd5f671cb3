//! Reactors: threads with a single-threaded runtime each. The first accepts and deals connections out in turn.
//!
//! A connection stays on its reactor but for one move at most (see [`roaming`](crate::roaming)), so nothing on the
//! data path crosses threads except the hand-over to the store. Dealing in turn keeps reactors evenly loaded, which
//! kernel hashing (`SO_REUSEPORT`) does not do for few long-lived connections.

use std::{
    io::{self, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use http::StatusCode;
use tokio::{runtime, sync::mpsc::UnboundedReceiver};

use crate::{
    Handler,
    connection::{Shared, serve},
    error::{ErrorShape, raw_error_response},
    limits::{ACCEPT_RETRY_MS, BLOCKING_THREADS_MAX},
    mailbox::Mailbox,
    places::NoPlace,
    roaming::{Hand, Reactors},
};

/// Reactors to run when the operator names no number: half the cores, at least one. The other half is for the
/// committers; on two cores one of each measured best.
pub fn default_reactors() -> usize {
    (cores() / 2).max(1)
}

/// Reactors to run beside `reactors`, for connections with large answers: two for each core, less those.
///
/// A kernel is slow to move a thread that has just run, so with a thread for each core one core is often idle while
/// another has two of them. On two cores, eight readers get a fifth more from four threads than from two, and no
/// more from seven.
pub fn heavy_reactors(reactors: usize) -> usize {
    (2 * cores()).saturating_sub(reactors)
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Runs one reactor on the calling thread until shutdown and the end of all connections, or until `abandon`
/// resolves. The one that has the listener also accepts.
pub(crate) fn run<H: Handler>(
    listener: Option<TcpListener>,
    mut hands: UnboundedReceiver<Hand>,
    reactors: Arc<Reactors>,
    shared: &Arc<Shared<H>>,
    abandon: impl Future<Output = ()>,
) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()?;
    let outcome = runtime.block_on(async {
        let mailbox = Mailbox::of_this_thread();
        tokio::spawn(Arc::clone(&mailbox).deliver());
        let accepting = async {
            match listener {
                Some(listener) => accept(listener, &reactors, shared).await,
                None => Ok(()),
            }?;
            // Connections hold the ways to the reactors too: with the last of them, `serving` ends.
            drop(reactors);
            Ok(())
        };
        let serving = async {
            while let Some(hand) = hands.recv().await {
                tokio::spawn(mailbox.tend(hand));
            }
            Ok(())
        };
        tokio::select! {
            () = abandon => Ok(()),
            ended = async { tokio::try_join!(accepting, serving) } => ended.map(|_| ()),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// Accepts until shutdown.
async fn accept<H: Handler>(
    listener: TcpListener,
    reactors: &Arc<Reactors>,
    shared: &Arc<Shared<H>>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut shutdown = std::pin::pin!(shared.shutdown.wait());
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        let accepted = accepted.and_then(|(stream, address)| Ok((stream.into_std()?, address)));
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors or memory, most likely: the connection stays queued, so spinning gains nothing.
                tracing::warn!(%error, "cannot accept a connection");
                shared.front.counters.connections_failed.add();
                tokio::time::sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
                continue;
            }
        };
        match shared.places.take(address.ip()) {
            Ok(place) => {
                shared.front.counters.connections_accepted.add();
                reactors.deal(|heavy| serve(stream, address, Arc::clone(shared), place, heavy));
            }
            Err(no_place) => {
                let counters = &shared.front.counters;
                match no_place {
                    NoPlace::Full => counters.connections_refused.add(),
                    NoPlace::AddressFull => counters.connections_refused_by_address.add(),
                }
                // Under TLS an answer would take a handshake, which is what there is no room for.
                if shared.front.tls.is_none() {
                    refuse(stream, shared.front.error_shape, no_place);
                }
            }
        }
    }
}

/// Answers a connection over a limit in one write. The socket buffer of a fresh connection has room for it.
fn refuse(mut stream: TcpStream, shape: ErrorShape, no_place: NoPlace) {
    let (status, code) = match no_place {
        NoPlace::Full => (StatusCode::SERVICE_UNAVAILABLE, "too_many_connections"),
        NoPlace::AddressFull => (StatusCode::TOO_MANY_REQUESTS, "too_many_connections_of_address"),
    };
    let message = match no_place {
        NoPlace::Full => "the server holds its limit of connections",
        NoPlace::AddressFull => "the server holds its limit of connections from this address",
    };
    if let Err(error) = stream.write_all(&raw_error_response(shape, status, code, message)) {
        tracing::debug!(%error, "cannot refuse a connection politely");
    }
}
