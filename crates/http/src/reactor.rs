//! Reactors: threads with a single-threaded runtime each. The first accepts and deals connections out in turn.
//!
//! A connection stays on its reactor, so nothing on the data path crosses threads except the hand-over to the
//! store. Dealing in turn keeps reactors evenly loaded, which kernel hashing (`SO_REUSEPORT`) does not do for
//! few long-lived connections.

use std::{
    io::{self, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use tokio::{runtime, sync::mpsc};

use crate::{
    Handler,
    connection::{Place, Shared, serve},
    error_body,
    limits::{ACCEPT_RETRY_MS, BLOCKING_THREADS_MAX},
    mailbox::Mailbox,
};

/// Reactors to run when the operator names no number: half the cores, at least one. The other half is for the
/// committers; on two cores one of each measured best.
pub fn default_reactors() -> usize {
    thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
}

/// A connection on its way to a reactor.
pub(crate) type Hand<H> = (TcpStream, Place<H>);

/// Runs one reactor on the calling thread until shutdown and the end of its connections, or until `abandon`
/// resolves.
pub(crate) fn run<H: Handler>(
    role: Role<H>,
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
        match role {
            Role::Acceptor { listener, others } => accept(listener, &others, shared, &mailbox).await?,
            Role::Worker { mut hands } => {
                while let Some((stream, place)) = hands.recv().await {
                    tokio::spawn(mailbox.tend(serve(stream, place)));
                }
            }
        }
        let mut abandon = std::pin::pin!(abandon);
        let mut poll = tokio::time::interval(Duration::from_millis(5));
        while shared.connections.load(Ordering::Acquire) > 0 {
            tokio::select! {
                () = &mut abandon => break,
                _ = poll.tick() => {}
            }
        }
        Ok(())
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// What a reactor does besides serving connections.
pub(crate) enum Role<H> {
    Acceptor { listener: TcpListener, others: Vec<mpsc::UnboundedSender<Hand<H>>> },
    Worker { hands: mpsc::UnboundedReceiver<Hand<H>> },
}

/// Accepts until shutdown. Dropping `others` at the end tells the workers that no more will come.
async fn accept<H: Handler>(
    listener: TcpListener,
    others: &[mpsc::UnboundedSender<Hand<H>>],
    shared: &Arc<Shared<H>>,
    mailbox: &Arc<Mailbox>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut shutdown = std::pin::pin!(shared.shutdown.wait());
    let mut turn = 0;
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => stream,
            Err(error) => {
                // Out of descriptors or memory, most likely: the connection stays queued, so spinning gains nothing.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
                continue;
            }
        };
        let Some(place) = Place::take(shared) else {
            refuse(stream);
            continue;
        };
        turn = (turn + 1) % (others.len() + 1);
        match turn.checked_sub(1) {
            None => drop(tokio::spawn(mailbox.tend(serve(stream, place)))),
            // A worker only ends before the acceptor if its runtime failed; the connection is then dropped.
            Some(worker) => drop(others[worker].send((stream, place))),
        }
    }
}

/// Answers a connection over the limit in one write. The socket buffer of a fresh connection has room for it.
fn refuse(mut stream: TcpStream) {
    let body = error_body("too_many_connections", "the server holds its limit of connections");
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    if let Err(error) = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)) {
        tracing::debug!(%error, "cannot refuse a connection politely");
    }
}
