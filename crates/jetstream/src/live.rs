//! One subscriber: reads rows from its place in the archive, and queues what passes for its socket.
//!
//! Nothing is kept for a subscriber but its place. One that takes nothing reads nothing.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_access::Lease;
use alluvium_http::{Shutdown, Upgraded};
use alluvium_jetstream_archive::{ArchivedRow, CollectionPattern, Kinds, Selection};
use alluvium_jetstream_wire::filter::Topic;
use alluvium_jetstream_wire::{Filter, Update, UpdateError, Wire, render, update};
use alluvium_websocket::{CloseCode, EncodedFrame, Error, Message, Receiver, SendError, Sender, WebSocket};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::addresses::Place;
use crate::filters::Room;
use crate::forms::{self, Form, Shown};
use crate::http::State;
use crate::metrics::Counted;
use crate::pace::Pace;

/// What a subscriber asked for, and what became of it.
pub(crate) struct Subscriber {
    pub(crate) state: Arc<State>,
    pub(crate) wire: Wire,
    pub(crate) form: Form,
    pub(crate) wanted: Arc<Wanted>,
    /// Whom its replay counts for.
    pub(crate) client: Option<IpAddr>,
    /// Who it is, for the log.
    pub(crate) peer: Option<IpAddr>,
    /// Where it begins; none: at the end, once it may begin.
    pub(crate) start: Option<u64>,
    /// A notice that comes before everything else.
    pub(crate) notice: Option<String>,
    /// Whether it begins only with the client's first update.
    pub(crate) waits_for_hello: bool,
    /// What it rests on, if the server decided about it.
    pub(crate) lease: Option<Lease>,
    /// Held until it has caught up with what is in memory, if it begins in files.
    pub(crate) replay: Option<Place>,
}

/// A filter, and the room that it takes.
pub(crate) struct Wanted {
    pub(crate) filter: Filter,
    pub(crate) _room: Room,
}

/// What a client has said so far: the last filter, and how often it asked whether the server is there. Questions that
/// come faster than answers go out are answered once.
#[derive(Clone, Default)]
struct Heard {
    wanted: Option<Arc<Wanted>>,
    heartbeats: u64,
}

/// How a subscription ends, told by a close frame.
struct End {
    code: CloseCode,
    reason: String,
    /// What is said before on the wire that has room for it.
    error: Option<(&'static str, String)>,
    /// Why the connection is over already; then nothing more can be told.
    lost: Option<Error>,
}

impl End {
    fn new(code: CloseCode, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), error: None, lost: None }
    }

    fn lost(error: Error) -> Self {
        Self { lost: Some(error), ..Self::new(CloseCode::AWAY, "") }
    }

    fn internal() -> Self {
        let error = Some(("InternalError", "the server cannot go on".to_owned()));
        Self { error, ..Self::new(CloseCode::INTERNAL, "the server cannot go on") }
    }

    fn too_slow(next: u64) -> Self {
        let message = format!("too slow; reconnect with cursor={next}");
        let error = Some(("ConsumerTooSlow", message.clone()));
        Self { error, ..Self::new(CloseCode::POLICY, message) }
    }
}

/// The filter, as the archive knows it: to pass over what has nothing of it.
pub(crate) fn selection(filter: &Filter) -> Arc<Selection> {
    let names = filter.collections.names().map(|name| CollectionPattern::Exact(name.to_owned()));
    let prefixes = filter.collections.prefixes().map(|prefix| CollectionPattern::Prefix(prefix.to_owned()));
    let kinds = Kinds {
        commit: filter.kinds.has_topic(Topic::Commit),
        identity: filter.kinds.has_topic(Topic::Identity),
        account: filter.kinds.has_topic(Topic::Account),
        sync: filter.kinds.has_topic(Topic::Sync),
    };
    let dids = filter.dids.iter().map(ToString::to_string);
    Arc::new(Selection::new(dids, names.chain(prefixes).collect(), kinds))
}

impl Subscriber {
    /// Serves the subscriber until one of both ends it.
    pub(crate) async fn run(self, socket: WebSocket<Upgraded>) {
        let state = Arc::clone(&self.state);
        let _subscribed = Counted::one(&state.metrics.subscribers);
        let (shutdown, lease) = (self.state.shutdown.clone(), self.lease.clone());
        let (mut receiver, mut sender) = socket.split();
        let (wire, form, waits, peer) = (self.wire, self.form, self.waits_for_hello, self.peer);
        let (heard, news) =
            watch::channel(Heard { wanted: (!waits).then(|| Arc::clone(&self.wanted)), ..Heard::default() });
        let end = {
            let mut pump = Box::pin(self.pump(&mut sender, news));
            tokio::select! {
                end = listen(&mut receiver, &heard, wire, &state) => end,
                end = &mut pump => Some(end),
                end = closing(&shutdown) => Some(end),
                end = expiring(lease) => Some(end),
            }
        };
        let Some(end) = end else { return };
        if let (Wire::Events, Some((name, message))) = (wire, &end.error)
            && let Some(frame) = forms::notice(render::error(name, message), form)
        {
            // A socket that is full is told by the close frame alone.
            _ = sender.queue_encoded(&frame);
        }
        if end.lost.is_none() {
            sender.begin_close(end.code, &end.reason);
        }
        let ended = loop {
            match receiver.next().await {
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        if let Some(error) = end.lost.or(ended) {
            tell(&state, peer, wire, &error);
        }
    }

    /// Reads and queues until something ends it.
    async fn pump(self, sender: &mut Sender<Upgraded>, news: watch::Receiver<Heard>) -> End {
        match self.pump_until_end(sender, news).await {
            Err(end) => end,
            Ok(never) => match never {},
        }
    }

    async fn pump_until_end(
        mut self,
        sender: &mut Sender<Upgraded>,
        mut news: watch::Receiver<Heard>,
    ) -> Result<Infallible, End> {
        if let Some(notice) = self.notice.take().and_then(|text| forms::notice(text, self.form)) {
            queue(sender, &notice).await?;
            sender.write().await;
        }
        let (archive, state) = (self.state.archive.clone(), Arc::clone(&self.state));
        let mut replay = self.replay.take().map(|place| (place, Counted::one(&state.metrics.replaying)));
        let mut answered = 0;
        while !self.hear(&mut news, &mut answered, sender).await? {
            sender.write().await;
            news.changed().await.map_err(|_| End::internal())?;
        }
        let mut reader = archive.reader(self.start.unwrap_or_else(|| archive.next_seq()));
        reader.select(Some(selection(&self.wanted.filter)));
        // Only now: whoever has an answer gets everything that happens from then on.
        sender.write().await;
        let mut pace = Pace::new(&self.state.options);
        loop {
            let is_cold = reader.position() < archive.hot_floor();
            let rows = tokio::select! {
                biased;
                update = news.changed() => {
                    update.map_err(|_| End::internal())?;
                    self.hear(&mut news, &mut answered, sender).await?;
                    reader.select(Some(selection(&self.wanted.filter)));
                    sender.write().await;
                    continue;
                }
                rows = reader.next_rows(self.state.options.batch_rows) => rows.map_err(|error| {
                    tracing::error!(error = &error as &dyn std::error::Error, "a subscriber cannot be served");
                    End::internal()
                })?,
            };
            if is_cold && replayed(&state, self.client, &rows.rows).await {
                pace.forgive();
            }
            for row in &rows.rows {
                self.give(sender, row).await?;
                if news.has_changed().unwrap_or(true) {
                    // A new filter is for the rows behind this one.
                    reader.seek(row.seq() + 1);
                    break;
                }
            }
            // All of them in as few writes as can be, and by this task, which runs anyway.
            sender.write().await;
            if replay.is_some() && reader.position() >= archive.hot_floor() {
                replay = None;
            }
            let next = reader.position();
            if pace.is_too_slow(archive.next_seq(), next, Instant::now()) {
                self.state.metrics.dropped_slow.fetch_add(1, Ordering::Relaxed);
                let (peer, wire) = (self.peer.map(tracing::field::display), self.wire);
                tracing::info!(peer, ?wire, next, "a subscriber is too slow and is dropped");
                return Err(End::too_slow(next));
            }
        }
    }

    /// Takes over what the client has said, and queues the answer. False while it has not said what the subscriber waits for.
    async fn hear(
        &mut self,
        news: &mut watch::Receiver<Heard>,
        answered: &mut u64,
        sender: &mut Sender<Upgraded>,
    ) -> Result<bool, End> {
        let heard = news.borrow_and_update().clone();
        if heard.heartbeats > *answered {
            *answered = heard.heartbeats;
            if let Some(frame) = forms::notice(update::HEARTBEAT.to_owned(), self.form) {
                queue(sender, &frame).await?;
            }
        }
        let Some(wanted) = heard.wanted else { return Ok(false) };
        self.wanted = wanted;
        Ok(true)
    }

    /// Queues a row if it passes.
    async fn give(&self, sender: &mut Sender<Upgraded>, row: &ArchivedRow) -> Result<(), End> {
        if !self.wanted.filter.has(&row.row()) {
            return Ok(());
        }
        match forms::shown(row, self.wire, self.form) {
            Shown::Frame(frame, len) => {
                if !self.wanted.filter.has_length(len) {
                    return Ok(());
                }
                queue(sender, &frame).await?;
                self.state.metrics.sent.fetch_add(1, Ordering::Relaxed);
            }
            Shown::Broken => {
                self.state.metrics.unrenderable.fetch_add(1, Ordering::Relaxed);
            }
            Shown::Hidden => {}
        }
        Ok(())
    }
}

/// Queues a frame, waiting for room. [`Sender::write`] is to follow.
async fn queue(sender: &mut Sender<Upgraded>, frame: &EncodedFrame) -> Result<(), End> {
    match sender.put_encoded(frame) {
        Ok(()) => Ok(()),
        Err(SendError::Full) => match sender.send_encoded(frame).await {
            Ok(()) => Ok(()),
            Err(error) => Err(End::lost(error)),
        },
        Err(_) => Err(End::new(CloseCode::AWAY, "")),
    }
}

async fn closing(shutdown: &Shutdown) -> End {
    shutdown.wait().await;
    End::new(CloseCode::AWAY, "server shutting down")
}

async fn expiring(lease: Option<Lease>) -> End {
    let Some(lease) = lease else { return std::future::pending().await };
    lease.lost().await;
    let error = Some(("InvalidToken", "the token is no longer good for this".to_owned()));
    End { error, ..End::new(CloseCode::POLICY, "unauthorized") }
}

/// Hears the client, until it ends the connection or has to be told that it is ended.
async fn listen(
    receiver: &mut Receiver<Upgraded>,
    heard: &watch::Sender<Heard>,
    wire: Wire,
    state: &State,
) -> Option<End> {
    let metrics = &state.metrics;
    loop {
        let text = match receiver.next().await {
            Ok(Some(_)) if wire == Wire::Events => {
                return Some(End::new(CloseCode::POLICY, "this feed takes no messages"));
            }
            Ok(Some(Message::Text(text))) => text,
            Ok(Some(Message::Binary(_))) => continue,
            Ok(None) => return None,
            Err(error) => return Some(End::lost(error)),
        };
        match Update::parse(text.as_str()) {
            Ok(Update::Filter(filter)) => {
                let Some(room) = state.filters.room(&filter) else {
                    metrics.updates_refused.fetch_add(1, Ordering::Relaxed);
                    return Some(crowded());
                };
                metrics.updates.fetch_add(1, Ordering::Relaxed);
                let wanted = Arc::new(Wanted { filter: *filter, _room: room });
                heard.send_modify(|heard| heard.wanted = Some(wanted));
            }
            Ok(Update::Heartbeat) => heard.send_modify(|heard| heard.heartbeats += 1),
            Ok(Update::Unknown(_)) => {}
            Err(error) => {
                metrics.updates_refused.fetch_add(1, Ordering::Relaxed);
                return Some(refused(&error));
            }
        }
    }
}

fn refused(error: &UpdateError) -> End {
    End::new(CloseCode::new(error.close_code()).unwrap_or(CloseCode::POLICY), error.close_reason())
}

/// There is no room for one more filter of so many accounts.
fn crowded() -> End {
    End::new(CloseCode::AGAIN, "too many accounts are named in filters")
}

/// Counts rows that were read of files, and waits while their reader's address has read as much as it may. Says whether it
/// had to.
pub(crate) async fn replayed(state: &State, client: Option<IpAddr>, rows: &[ArchivedRow]) -> bool {
    let bytes: usize = rows.iter().map(|row| row.row().bytes()).sum();
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    state.metrics.replayed_bytes.fetch_add(bytes, Ordering::Relaxed);
    let has_waited = state.replayed.take(client, bytes).await;
    if has_waited {
        state.metrics.replay_waits.fetch_add(1, Ordering::Relaxed);
    }
    has_waited
}

/// Counts and logs how a connection broke off. Whoever goes without a word is nothing to look at.
fn tell(state: &State, peer: Option<IpAddr>, wire: Wire, error: &Error) {
    let peer = peer.map(tracing::field::display);
    match error {
        Error::Stalled => {
            state.metrics.dropped_stalled.fetch_add(1, Ordering::Relaxed);
            let seconds = state.options.write_timeout.as_secs();
            tracing::info!(
                peer,
                ?wire,
                seconds,
                "a subscriber took nothing of what was sent, and is dropped"
            );
        }
        Error::Silent => {
            state.metrics.dropped_silent.fetch_add(1, Ordering::Relaxed);
            tracing::info!(peer, ?wire, "a subscriber did not answer a ping, and is dropped");
        }
        error => tracing::debug!(peer, ?wire, %error, "a subscriber's connection ended"),
    }
}
