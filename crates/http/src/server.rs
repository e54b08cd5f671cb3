//! Starts the reactors of a server and brings them to an end.

use std::{
    future::Future,
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
    time::Duration,
};

use crate::{
    CounterSnapshot, Counters, ErrorShape, Networks, Request, Response, ResponseBudget, Shutdown, Tls,
    connection::Shared,
    limits::{CONNECTIONS_PER_ADDRESS_MAX, QUERIES_BYTES_MAX, STREAMS_PER_CONNECTION_MAX},
    places::{PlaceLimits, Places},
    query::Queries,
    reactor,
    roaming::Reactors,
};

/// Answers requests. One value serves all connections of all reactors.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request.
    fn handle(&self, request: Request) -> impl Future<Output = Response> + Send;
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

/// How a server meets the network.
#[derive(Clone, Debug)]
pub struct Front {
    /// Certificates to speak TLS with; `None` for plain text.
    pub tls: Option<Arc<Tls>>,
    /// Most connections of one address. `None` is [`CONNECTIONS_PER_ADDRESS_MAX`], with this machine's own addresses
    /// exempt.
    pub connections_per_address_max: Option<usize>,
    /// Proxies that are believed what they say of their clients ([`Peer::client`](crate::Peer::client)).
    pub trusted_proxies: Networks,
    /// Requests under way at once on one connection of HTTP/2.
    pub streams_max: u32,
    /// Most bytes of a query over HTTP/1.1, where its handlers ask [`query`](crate::query()) for it. It does not count
    /// as part of the head then. 0 for what a `Uri` holds within the head, which is 64 KiB with the path.
    pub query_bytes_max: usize,
    /// How errors look that come before any handler.
    pub error_shape: ErrorShape,
    /// Where it is counted what happens.
    pub counters: Arc<Counters>,
}

impl Default for Front {
    fn default() -> Self {
        Self {
            tls: None,
            connections_per_address_max: None,
            trusted_proxies: Networks::default(),
            streams_max: u32::try_from(STREAMS_PER_CONNECTION_MAX).unwrap_or(u32::MAX),
            query_bytes_max: 0,
            error_shape: ErrorShape::default(),
            counters: Arc::default(),
        }
    }
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
    /// Serves `handler` on `listener` (from [`bind`](crate::bind)) until `shutdown` is given, in plain text.
    pub fn start(
        listener: TcpListener,
        handler: H,
        options: ServerOptions,
        shutdown: Shutdown,
    ) -> Result<Self, StartError> {
        Self::start_with(listener, handler, options, Front::default(), shutdown)
    }

    /// As [`start`](Self::start), with all that there is to say about the network.
    pub fn start_with(
        listener: TcpListener,
        handler: H,
        options: ServerOptions,
        front: Front,
        shutdown: Shutdown,
    ) -> Result<Self, StartError> {
        let address = listener.local_addr()?;
        let proxies = Arc::new(front.trusted_proxies.clone());
        let limits = PlaceLimits {
            all: options.connections_max,
            one: front.connections_per_address_max.unwrap_or(CONNECTIONS_PER_ADDRESS_MAX),
            counts_loopback: front.connections_per_address_max.is_some(),
            exempt: front.trusted_proxies.clone(),
        };
        let places = Places::new(limits, Arc::clone(&front.counters));
        let shared = Arc::new(Shared {
            handler,
            shutdown,
            places,
            header_bytes_max: options.header_bytes_max,
            idle_timeout: options.idle_timeout,
            responses: options.responses,
            queries: Queries::new(front.query_bytes_max, QUERIES_BYTES_MAX),
            front,
            proxies,
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

    /// What has been counted so far, with whatever else counts in the same place.
    pub fn counters(&self) -> CounterSnapshot {
        self.shared.front.counters.snapshot()
    }

    /// Connections held now.
    pub fn connections(&self) -> usize {
        self.shared.places.taken()
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
