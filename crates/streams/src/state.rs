//! What all requests share.

use std::sync::Arc;

use alluvium_env::Env;
use alluvium_http::{BodyBudget, CollectLimits, Handler, Request, Response, Shutdown};
use alluvium_protocol::cursor::{self, InvalidCursor, JITTER_S_MAX};

use tokio::sync::Semaphore;

use ::http::{HeaderMap, header::EXPECT};

use crate::{
    backend::Backend,
    http,
    http::FanOuts,
    limits::{BOOTSTRAP_LOADS_MAX, BOOTSTRAPS_SCARCE_MAX, SSE_PIECE_BYTES},
    options::Options,
    waiters::{Kind, Waiters},
};

/// The surface: give it to [`alluvium_http::Server::start`].
#[derive(Clone, Debug)]
pub struct Streams(Arc<State>);

impl Streams {
    /// A surface over a store. `shutdown` ends the responses that wait.
    pub fn new(backend: Backend, env: Env, options: Options, shutdown: Shutdown) -> Self {
        let waiters = Waiters::new(options.waiters_max);
        let bodies = BodyBudget::new(options.bodies_bytes_max);
        let bootstrap_turns = BootstrapTurns {
            loads: Arc::new(Semaphore::new(BOOTSTRAP_LOADS_MAX)),
            scarce: Arc::new(Semaphore::new(BOOTSTRAPS_SCARCE_MAX)),
        };
        let fan_outs = FanOuts::default();
        Self(Arc::new(State { backend, options, waiters, shutdown, env, bodies, bootstrap_turns, fan_outs }))
    }
}

/// How things stand at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Standing {
    /// Long-polls that wait.
    pub long_polls: usize,
    /// Responses with events that go on.
    pub subscribers: usize,
    /// How often one of either was refused because too many waited.
    pub waiters_refused: usize,
    /// Bytes of request bodies that are being received.
    pub body_bytes: usize,
}

impl Streams {
    /// How things stand.
    pub fn standing(&self) -> Standing {
        let state = &self.0;
        Standing {
            long_polls: state.waiters.waiting(Kind::LongPoll),
            subscribers: state.waiters.waiting(Kind::Subscriber),
            waiters_refused: state.waiters.refused(),
            body_bytes: state.options.bodies_bytes_max.saturating_sub(state.bodies.left()),
        }
    }
}

impl Handler for Streams {
    async fn handle(&self, request: Request) -> Response {
        http::handle(&self.0, request).await
    }
}

/// What the operations work with.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) backend: Backend,
    pub(crate) options: Options,
    pub(crate) waiters: Waiters,
    /// Ends waiting responses when the server stops.
    pub(crate) shutdown: Shutdown,
    env: Env,
    bodies: BodyBudget,
    pub(crate) bootstrap_turns: BootstrapTurns,
    /// Subscribers that are served together.
    pub(crate) fan_outs: FanOuts,
}

/// Turns of bootstraps, over all connections.
#[derive(Clone, Debug)]
pub(crate) struct BootstrapTurns {
    /// To read a stored unit.
    pub(crate) loads: Arc<Semaphore>,
    /// To hold messages while responses hold as much as they should.
    pub(crate) scarce: Arc<Semaphore>,
}

impl State {
    pub(crate) fn now_ms(&self) -> u64 {
        self.env.clock.now_ms()
    }

    /// A number from 0 up to but not including `bound`.
    pub(crate) fn random_below(&self, bound: u64) -> u64 {
        self.env.random.next_u64() % bound.max(1)
    }

    /// 128 random bits.
    pub(crate) fn random_u128(&self) -> u128 {
        self.env.random.next_u128()
    }

    /// The cursor for a client that sent this one.
    pub(crate) fn cursor_after(&self, client: Option<&str>) -> Result<u64, InvalidCursor> {
        cursor::response_cursor(self.now_ms(), client, || 1 + self.random_below(JITTER_S_MAX))
    }

    /// The cursor some time after a client was promised `cursor`.
    pub(crate) fn cursor_from(&self, cursor: u64) -> u64 {
        cursor.max(cursor::current_cursor(self.now_ms()))
    }

    /// About how many bytes the next piece of server-sent events should have at most.
    pub(crate) fn sse_piece_bytes(&self) -> usize {
        self.options.responses.piece_bytes().min(SSE_PIECE_BYTES)
    }

    /// The limits of a request's body.
    pub(crate) fn body_limits(&self, headers: &HeaderMap) -> CollectLimits<'_> {
        CollectLimits {
            bytes_max: self.options.append_bytes_max,
            timeout: self.options.body_timeout,
            discard_refused: !headers.contains_key(EXPECT),
            budget: &self.bodies,
        }
    }
}
