//! One subscription, as it is in memory: what is durable, and what is under way.

use std::collections::VecDeque;

use alluvium_protocol::subscription::{Kind, Pattern, State, parse_name};
use alluvium_protocol::{Incarnation, Offset, StreamPath};

use crate::book::Links;
use crate::command::{Command, What};
use crate::delivery::Delivered;
use crate::record::Created;

/// The beginning of the names of the streams that subscriptions have for themselves.
const FOLDER: &str = "subscriptions/";

/// A subscription. Everything but what is said to be under way is durable.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// Tells it from others that were or will be at its place.
    pub(crate) serial: u64,
    pub(crate) created: Created,
    pub(crate) config_hash: String,
    pub(crate) pattern: Option<Pattern>,
    wake_stream: Option<StreamPath>,
    pub(crate) state: State,
    pub(crate) links: Links,
    pub(crate) history: History,
    pub(crate) stage: Stage,
    /// A decision of it is being written. Others wait.
    pub(crate) is_busy: bool,
    pub(crate) waiting: VecDeque<Step>,
    /// A webhook or a wake event is under way, or waits for its turn.
    pub(crate) is_sending: bool,
    /// Until then time decides nothing: a write has failed.
    pub(crate) blocked_until_ms: u64,
    /// The deadline that the timer knows.
    pub(crate) timer_ms: Option<u64>,
}

/// How far its making has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has not looked at every stream that it may follow: its links go along with the ends of theirs.
    Looking,
    /// It is being written down. Nobody is told of it before that is durable.
    Made,
    /// It is there.
    Installed,
}

/// The stream with a subscription's decisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct History {
    pub(crate) incarnation: Incarnation,
    pub(crate) tail: Offset,
    /// Bytes since the last snapshot.
    pub(crate) bytes: u64,
    /// Bytes of that snapshot.
    pub(crate) snapshot_bytes: u64,
}

/// What waits for a subscription to be free.
#[derive(Debug)]
pub(crate) enum Step {
    /// A request.
    Request(What, Reply),
    /// A webhook came back.
    Delivered(Box<Delivered>),
    /// A wake event was written, or not.
    Announced(bool),
}

/// Where an answer goes.
pub(crate) type Reply = tokio::sync::oneshot::Sender<Result<crate::command::Answer, crate::command::Refusal>>;

impl Subscription {
    pub(crate) fn new(serial: u64, created: Created, history: History) -> Self {
        Self {
            serial,
            config_hash: created.config.hash(),
            // It was a pattern when it was written down.
            pattern: created.config.pattern.as_deref().and_then(|pattern| Pattern::parse(pattern).ok()),
            wake_stream: created.config.wake_stream.as_deref().and_then(|name| parse_name(name).ok()),
            created,
            state: State::default(),
            links: Links::default(),
            history,
            stage: Stage::Made,
            is_busy: false,
            waiting: VecDeque::new(),
            is_sending: false,
            blocked_until_ms: 0,
            timer_ms: None,
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.created.id
    }

    pub(crate) fn kind(&self) -> Kind {
        self.created.config.kind
    }

    /// The stream with its decisions.
    pub(crate) fn path(&self) -> StreamPath {
        history_path(self.id())
    }

    pub(crate) fn is_pending(&self) -> bool {
        !self.links.pending.is_empty()
    }

    /// Whether there is news of a wake to send, and nobody sends it.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.state.is_sending() && !self.is_sending
    }

    /// Whether its links are where their streams end.
    pub(crate) fn is_looking(&self) -> bool {
        self.stage == Stage::Looking
    }

    /// Whether its pattern means this stream. It does not follow its own wakes.
    pub(crate) fn is_meant(&self, path: &StreamPath) -> bool {
        self.wake_stream.as_ref() != Some(path)
            && self.pattern.as_ref().is_some_and(|pattern| pattern.matches_path(path))
    }
}

/// The stream with the decisions of the subscription with this id.
pub(crate) fn history_path(id: &str) -> StreamPath {
    StreamPath::internal(&format!("{FOLDER}{id}"))
}

/// The id of the subscription whose decisions are at this path.
pub(crate) fn id_of(path: &StreamPath) -> Option<&str> {
    path.internal_name()?.strip_prefix(FOLDER)
}

/// Taken apart, for whoever waits with a whole command.
impl From<(What, Reply, String)> for Command {
    fn from((what, reply, id): (What, Reply, String)) -> Self {
        Self { request: crate::command::Request::About { id, what }, reply }
    }
}
