//! Starts the reactors of a server and brings them to an end.

use std::{
    future::Future,
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    Peer, Request, Response, ResponseBudget, Shutdown, connection::Shared, reactor, roaming::Reactors,
};

/// Answers requests. One value serves all connections of all reactors.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request.
    fn handle(&self, request: Request) -> impl Future<Output = Response> + Send;

    /// As [`handle`](Self::handle), for a request that came from `peer`: the other end of the connection, which may be a
    /// proxy. What connections call. Left as it is, the request has it among its extensions; whoever wraps another handler
    /// passes it on, and one that has no use for it saves its requests the extension.
    fn handle_from(&self, peer: SocketAddr, mut request: Request) -> impl Future<Output = Response> + Send {
        request.extensions_mut().insert(Peer(peer));
        self.handle(request)
    }
}

/// How a server is run.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Reactor threads for new connections, at least one.
    pub reactors: usize,
    /// Further reactor threads, for connections with large answers only.
    pub heavy_reactors: usize,
    /// Most connections held at once.
    pub connections_max: usize,
    /// Most bytes of a request head.
    pub header_bytes_max: usize,
    /// Time after which a connection without a request is closed, give or take as much again.
    pub idle_timeout: Duration,
    /// What responses may hold in memory while their readers do not take it.
    pub responses: Arc<ResponseBudget>,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot start a reactor thread: {0}")]
pub struct StartError(#[from] io::Error);

/// How a server ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Drained {
    /// Every connection finished by itself.
    Clean,
    /// The deadline passed; this many connections were cut.
    Cut {
        /// Connections cut.
        connections: usize,
    },
}

/// A running server.
#[derive(Debug)]
pub struct Server<H> {
    shared: Arc<Shared<H>>,
    address: SocketAddr,
    abandon: Shutdown,
    threads: Vec<thread::JoinHandle<io::Result<()>>>,
}

impl<H: Handler> Server<H> {
    /// Serves `handler` on `listener` (from [`bind`](crate::bind)) until `shutdown` is given.
    pub fn start(
        listener: TcpListener,
        handler: H,
        options: ServerOptions,
        shutdown: Shutdown,
    ) -> Result<Self, StartError> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            handler,
            shutdown,
            connections: AtomicUsize::new(0),
            connections_max: options.connections_max,
            header_bytes_max: options.header_bytes_max,
            idle_timeout: options.idle_timeout,
            responses: options.responses,
        });
        let abandon = Shutdown::new();
        let (reactors, ends) = Reactors::new(options.reactors, options.heavy_reactors);
        let reactors = Arc::new(reactors);
        let mut listener = Some(listener);
        let threads = ends
            .into_iter()
            .enumerate()
            .map(|(number, hands)| {
                let (shared, abandon) = (Arc::clone(&shared), abandon.wait());
                let (listener, reactors) = (listener.take(), Arc::clone(&reactors));
                thread::Builder::new()
                    .name(format!("reactor-{number}"))
                    .spawn(move || reactor::run(listener, hands, reactors, &shared, abandon))
            })
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Self { shared, address, abandon, threads })
    }

    /// The address listened on, with the port the system picked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections held now.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Acquire)
    }

    /// Gives the shutdown signal, waits for connections to finish, and cuts those that have not by `deadline`.
    pub async fn drain(self, deadline: Duration) -> Drained {
        self.shared.shutdown.trigger();
        let wait_empty = async {
            let mut poll = tokio::time::interval(Duration::from_millis(5));
            while self.connections() > 0 {
                poll.tick().await;
            }
        };
        let drained = match tokio::time::timeout(deadline, wait_empty).await {
            Ok(()) => Drained::Clean,
            Err(_elapsed) => Drained::Cut { connections: self.connections() },
        };
        self.abandon.trigger();
        for thread in self.threads {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "a reactor ended with an error"),
                Err(_panic) => tracing::error!("a reactor panicked"),
            }
        }
        drained
    }
}
