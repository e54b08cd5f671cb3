//! The world: its nodes, its time, and what happens in it.

use std::collections::{HashMap, HashSet};

use alluvium_env::sim::Rng;
use alluvium_feed_protocol::{
    Advanced, BlockKey, ErrorCode, ErrorResponse, From, Id, Message, Namespace, Push, Request, Response,
    Selector,
};
use alluvium_feed_replica::{Keep, ReplicaError};
use alluvium_feeds::Listener;
use tempfile::TempDir;

use crate::client::Client;
use crate::draw::{Action, Profile};
use crate::ledger::{Ledger, Promise};
use crate::network::{Network, Packet};
use crate::server::{Server, Snapshot};
use crate::{Checked, Outcome, Violation, check, ensure};

/// When a run begins: some day in 2025, in milliseconds.
const BEGINNING_MS: u64 = 1_750_000_000_000;
/// How long a client waits before it connects again, in milliseconds.
const RECONNECT_MS_MAX: u64 = 3000;
/// How long healing may take, in milliseconds.
const HEALING_MS: u64 = 30 * 60_000;
/// How long quiet is watched, in milliseconds.
const QUIET_MS: u64 = 10 * 60_000;

/// One run.
pub struct World {
    pub(crate) rng: Rng,
    pub(crate) profile: Profile,
    pub(crate) now_ms: u64,
    pub(crate) space: Id,
    pub(crate) feeds: Vec<(Id, Namespace)>,
    pub(crate) server: Server,
    pub(crate) clients: Vec<Client>,
    reconnect_ms: Vec<u64>,
    pub(crate) network: Network,
    connections: u64,
    /// Clients whose token is not good any more.
    pub(crate) expired: HashSet<usize>,
    /// Up to where each subscription of a connection was sent blocks.
    pushed: HashMap<(u64, Id), u64>,
    pub(crate) ledger: Ledger,
    pub(crate) snapshots: Vec<Snapshot>,
    pub(crate) client_snapshots: Vec<(usize, Vec<u8>, Id, usize)>,
    contents: u64,
    trace: Option<Vec<String>>,
    _folder: TempDir,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("profile", &self.profile).finish_non_exhaustive()
    }
}

impl World {
    /// The beginning of a run.
    pub fn new(seed: u64, is_traced: bool) -> Self {
        let mut rng = Rng::new(seed);
        let profile = Profile::draw(&mut rng);
        let in_memory = std::path::Path::new("/dev/shm");
        let folder = if in_memory.is_dir() { tempfile::tempdir_in(in_memory) } else { tempfile::tempdir() };
        let folder = folder.expect("a folder for a run");
        let server = Server::new(folder.path().join("server"), seed, BEGINNING_MS);
        let client =
            |number| Client::new(folder.path().join(format!("{number}.sqlite")), number, seed, BEGINNING_MS);
        let clients: Vec<Client> = (0..profile.clients).map(client).collect();
        let feeds = (0..profile.feeds).map(|number| {
            let namespace = if number % 2 == 0 { "even" } else { "odd" };
            (id(&format!("feed-{number}")), Namespace::parse(namespace).expect("a namespace"))
        });
        let network = Network::new(profile.lost_percent, profile.doubled_percent);
        let mut world = Self {
            feeds: feeds.collect(),
            reconnect_ms: vec![BEGINNING_MS; clients.len()],
            rng,
            profile,
            now_ms: BEGINNING_MS,
            space: id("space"),
            server,
            clients,
            network,
            connections: 0,
            expired: HashSet::new(),
            pushed: HashMap::new(),
            ledger: Ledger::default(),
            snapshots: Vec::new(),
            client_snapshots: Vec::new(),
            contents: 0,
            trace: is_traced.then(Vec::new),
            _folder: folder,
        };
        // Most clients begin with an interest in something.
        for client in 0..world.clients.len() {
            if world.rng.percent(80) {
                world.choose(client, Action::Replicate);
            }
        }
        world
    }

    /// Runs, heals, and checks.
    pub fn run(&mut self, steps: u64) -> Checked {
        let profile = format!("{:?}", self.profile);
        self.note(|| profile);
        for step in 0..steps {
            let action = Action::draw(&mut self.rng, &self.profile);
            self.act(action)?;
            self.pump()?;
            if step % 16 == 0 {
                check::during(self)?;
            }
        }
        self.heal()
    }

    pub(crate) fn into_outcome(self, violation: Option<Violation>) -> Outcome {
        Outcome {
            violation,
            trace: self.trace.unwrap_or_default(),
            requests: self.server.answered,
            appended: self.ledger.promises.len() as u64,
        }
    }

    /// Whether positions that a client was shown must stay: nothing was lost, nothing copied, nothing pruned.
    pub(crate) fn is_calm(&self) -> bool {
        !self.ledger.has_lost && !self.profile.copies && !self.profile.prunes
    }

    pub(crate) fn prunes(&self) -> bool {
        self.profile.prunes
    }

    pub(crate) fn copies(&self) -> bool {
        self.profile.copies
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        let at_ms = self.now_ms - BEGINNING_MS;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{at_ms:>8} {}", what()));
        }
    }

    fn act(&mut self, action: Action) -> Checked {
        let client = self.rng.index(self.clients.len());
        self.note(|| format!("{action:?} (client {client})"));
        match action {
            Action::Append => self.append(client),
            Action::Replicate | Action::Stop | Action::Select => {
                self.choose(client, action);
                Ok(())
            }
            Action::Pass => {
                let ms = self.rng.within(1..1500);
                self.pass(ms)
            }
            Action::PassLong => {
                let ms = self.rng.within(30_000..200_000);
                self.pass(ms)
            }
            Action::Cut => {
                self.cut(client);
                Ok(())
            }
            Action::RestartClient => {
                self.clients[client].restart();
                self.reconnect_later(client);
                Ok(())
            }
            Action::Replay => self.replay(),
            action => self.trouble(action, client),
        }
    }

    pub(crate) fn append(&mut self, client: usize) -> Checked {
        let (feed, namespace) = self.rng.pick(&self.feeds).clone();
        self.append_to(client, &feed, &namespace)
    }

    pub(crate) fn append_to(&mut self, client: usize, feed: &Id, namespace: &Namespace) -> Checked {
        self.contents += 1;
        let data = format!("{client}/{}", self.contents).into_bytes();
        let space = self.space.clone();
        let replica = self.clients[client].replica();
        let appended = replica.append(&space, feed, Some(namespace), data);
        let appended = appended.map_err(|error| broken("append", &error))?;
        let actor_id = self.clients[client].actor.clone();
        let key = BlockKey { feed_id: feed.clone(), sequence: appended.sequence, actor_id };
        self.note(|| format!("  {key:?}"));
        self.ledger.promises.push(Promise { key, content: appended.content, client, is_released: false });
        Ok(())
    }

    /// A client changes what it replicates.
    fn choose(&mut self, client: usize, action: Action) {
        let (feed, namespace) = self.rng.pick(&self.feeds).clone();
        let highest = self.contents + 1;
        let from = match self.rng.below(5) {
            0 | 1 => From::Beginning,
            2 => From::Position(self.rng.within(1..highest + 2)),
            3 => From::Since(self.rng.within(BEGINNING_MS..self.now_ms + 1000)),
            _ => From::Current,
        };
        let selector = match self.rng.below(4) {
            0 => Selector::All,
            1 => Selector::Namespace(namespace),
            2 => Selector::Prefix("feed-1".to_owned()),
            _ => Selector::Written,
        };
        let keep = if self.rng.percent(50) { Keep::All } else { Keep::Unpushed };
        let is_rule = action == Action::Select || (action == Action::Replicate && self.rng.percent(25));
        self.note(|| format!("  client {client}: {feed} {from:?} {selector:?} rule: {is_rule}"));
        let space = self.space.clone();
        let unselects = self.rng.percent(30);
        let replica = self.clients[client].replica();
        let done = match action {
            Action::Stop => replica.stop_replicating(&space, &feed, keep),
            _ if is_rule && unselects => replica.unselect(&space, &selector),
            _ if is_rule => replica.select(&space, &selector, from),
            _ => replica.replicate(&space, &feed, from),
        };
        done.expect("a file of the simulation");
        if action == Action::Stop && keep == Keep::Unpushed {
            let own = self.ledger.promises.iter_mut().filter(|promise| promise.client == client);
            own.filter(|promise| promise.key.feed_id == feed).for_each(|promise| promise.is_released = true);
        }
        check::note_starts(self, client);
    }

    /// Time goes by, event after event.
    pub(crate) fn pass(&mut self, ms: u64) -> Checked {
        let end_ms = self.now_ms + ms;
        loop {
            self.pump()?;
            let next_ms = self.next_event_ms().filter(|at_ms| *at_ms <= end_ms);
            let Some(at_ms) = next_ms else { break };
            self.set_time(at_ms.max(self.now_ms + 1));
        }
        self.set_time(end_ms);
        self.pump()
    }

    fn set_time(&mut self, now_ms: u64) {
        let by_ms = now_ms.saturating_sub(self.now_ms);
        self.now_ms = now_ms.max(self.now_ms);
        self.server.clock.advance_ms(by_ms);
        for client in &self.clients {
            client.clock.advance_ms(by_ms);
        }
    }

    fn next_event_ms(&self) -> Option<u64> {
        let wake = self.clients.iter().filter_map(|client| {
            let replica = client.replica.as_ref()?;
            let own_ms = replica.wake_ms(&self.space)?;
            Some(self.now_ms + own_ms.saturating_sub(replica.now_ms()).max(1))
        });
        let reconnect = self
            .clients
            .iter()
            .zip(&self.reconnect_ms)
            .filter(|(client, _)| client.connection.is_none())
            .map(|(_, at_ms)| *at_ms);
        wake.chain(reconnect).chain(self.network.next_ms()).min()
    }

    /// Everything that is due now.
    fn pump(&mut self) -> Checked {
        loop {
            let mut is_busy = false;
            while let Some(packet) = self.network.arrived(self.now_ms) {
                self.deliver(&packet)?;
                is_busy = true;
            }
            for client in 0..self.clients.len() {
                is_busy |= self.drive(client)?;
            }
            if !is_busy {
                return Ok(());
            }
        }
    }

    /// Lets a client connect and ask.
    fn drive(&mut self, client: usize) -> Result<bool, Violation> {
        let space = self.space.clone();
        if self.clients[client].connection.is_none() {
            if self.reconnect_ms[client] > self.now_ms {
                return Ok(false);
            }
            self.connections += 1;
            self.clients[client].connection = Some((self.connections, Listener::new()));
            self.clients[client].replica().connected(&space);
        }
        let Some((connection, _)) = self.clients[client].connection else { return Ok(false) };
        if !self.clients[client].is_up(&space) {
            return Ok(false);
        }
        let request = self.clients[client].replica().next_request(&space);
        let request = match request {
            Ok(request) => request,
            Err(error) => return Err(broken("the next request", &error)),
        };
        let Some(request) = request else {
            self.clients[client].is_stirred = false;
            return Ok(false);
        };
        let is_json = self.rng.percent(50);
        self.note(|| format!("  client {client} asks {request:?}"));
        let mut packet = Packet { client, connection, is_to_server: true, is_json, bytes: Vec::new() };
        packet.bytes = packet.encoding().encode(&request).expect("a request can be written");
        self.network.send(&packet, self.now_ms, &mut self.rng);
        Ok(true)
    }

    fn deliver(&mut self, packet: &Packet) -> Checked {
        if packet.is_to_server { self.serve(packet) } else { self.answer(packet) }
    }

    /// The authority gets a request, even over a connection that is gone by now.
    fn serve(&mut self, packet: &Packet) -> Checked {
        let request = packet.encoding().decode_request(&packet.bytes, None).expect("a request can be read");
        let present = self.clients[packet.client].connection.clone();
        let present = present.filter(|(connection, _)| *connection == packet.connection);
        let listener = present.map_or_else(Listener::new, |(_, listener)| listener);
        let response = if self.expired.remove(&packet.client) {
            let request_id = request.request_id().clone();
            Response::Error(ErrorResponse::new(request_id, ErrorCode::Unauthorized, "the token has expired"))
        } else {
            self.server.handle(&self.space, request.clone(), &listener)
        };
        self.note(|| format!("  answer to client {}: {response:?}", packet.client));
        match (request, &response) {
            (Request::Append(request), Response::Append(response)) => {
                self.ledger.hear(&request, response)?;
                let server_ms = alluvium_env::Clock::now_ms(&*self.server.clock);
                self.ledger.arrive(&response.positions, server_ms);
                self.ledger.recorded.push((request, response.clone()));
            }
            (Request::Query(query), Response::Query(page)) if !self.profile.prunes => {
                self.ledger.since(query.since, page.since_position)?;
            }
            (Request::Subscribe(request), Response::Subscribe(answer))
                if request.push == Some(Push::Blocks) =>
            {
                let subscription = answer.subscription_id.clone();
                self.pushed.insert((packet.connection, subscription), answer.max_position);
            }
            _ => {}
        }
        let mut back = Packet { is_to_server: false, bytes: Vec::new(), ..packet.clone() };
        back.bytes = back.encoding().encode(&response).expect("an answer can be written");
        self.network.send(&back, self.now_ms, &mut self.rng);
        self.send_hints();
        Ok(())
    }

    /// What the authority sends by itself: hints, and often blocks to who asked for them.
    fn send_hints(&mut self) {
        for client in 0..self.clients.len() {
            let Some((connection, listener)) = self.clients[client].connection.clone() else { continue };
            // A slow reader's hints are merged meanwhile.
            if self.rng.percent(10) {
                continue;
            }
            for hint in listener.take() {
                let key = (connection, hint.subscription_id.clone());
                let after = self.pushed.get(&key).copied().filter(|_| self.rng.percent(70));
                let pushed =
                    after.and_then(|after| self.server.push(&hint.space_id, &hint.subscription_id, after));
                let message = pushed.map_or(Advanced::FeedAdvanced(hint), Advanced::BlocksPushed);
                let position = match &message {
                    Advanced::FeedAdvanced(hint) => hint.position,
                    Advanced::BlocksPushed(pushed) => pushed.position,
                };
                if let Some(after) = self.pushed.get_mut(&key) {
                    *after = position;
                }
                self.note(|| format!("  to client {client}: {message:?}"));
                let bytes = alluvium_feed_protocol::Encoding::Json.encode(&message);
                let bytes = bytes.expect("a message can be written");
                let packet = Packet { client, connection, is_to_server: false, is_json: true, bytes };
                self.network.send(&packet, self.now_ms, &mut self.rng);
            }
        }
    }

    /// A client gets a message, if its connection still stands.
    fn answer(&mut self, packet: &Packet) -> Checked {
        let client = &mut self.clients[packet.client];
        if client.connection.as_ref().is_none_or(|(connection, _)| *connection != packet.connection) {
            return Ok(());
        }
        let message = packet.encoding().decode_message(&packet.bytes, None).expect("an answer can be read");
        let space = self.space.clone();
        #[cfg(feature = "planted-bugs")]
        // Drawn apart, so that a run with this feature is the very run without it until a bug shows.
        alluvium_feed_store::planted::die_between(self.rng.clone().percent(10));
        let is_expired = matches!(&message, Message::Response(Response::Error(error))
            if error.code == ErrorCode::Unauthorized.as_str());
        let taken = match message {
            Message::Response(response) => client.replica().answered(&space, response),
            Message::Advanced(Advanced::FeedAdvanced(hint)) => client.replica().hint(&hint),
            Message::Advanced(Advanced::BlocksPushed(pushed)) => client.replica().pushed(pushed),
        };
        #[cfg(feature = "planted-bugs")]
        if matches!(taken, Err(ReplicaError::Store(alluvium_feed_store::StoreError::Poisoned))) {
            self.clients[packet.client].restart();
            self.reconnect_later(packet.client);
            return Ok(());
        }
        check::note_starts(self, packet.client);
        if is_expired {
            // Whoever runs it gets another token, and connects again.
            self.cut(packet.client);
        }
        taken.map_err(|error| broken("an answer", &error))
    }

    pub(crate) fn cut(&mut self, client: usize) {
        let space = self.space.clone();
        self.clients[client].connection = None;
        self.clients[client].replica().disconnected(&space);
        self.reconnect_later(client);
    }

    pub(crate) fn cut_all(&mut self) {
        (0..self.clients.len()).for_each(|client| self.cut(client));
    }

    pub(crate) fn reconnect_later(&mut self, client: usize) {
        self.reconnect_within(client, RECONNECT_MS_MAX);
    }

    pub(crate) fn reconnect_within(&mut self, client: usize, ms: u64) {
        let at_ms = self.now_ms + self.rng.below(ms);
        self.reconnect_at(client, at_ms);
    }

    pub(crate) fn reconnect_at(&mut self, client: usize, at_ms: u64) {
        self.clients[client].connection = None;
        self.reconnect_ms[client] = at_ms;
    }

    /// No trouble for a while: everything must come to agree.
    pub(crate) fn settle(&mut self) -> Checked {
        self.note(|| "settling".to_owned());
        let network = &mut self.network;
        let before = (network.lost_percent, network.doubled_percent);
        network.mend();
        self.expired.clear();
        let end_ms = self.now_ms + HEALING_MS;
        let mut last = check::at_rest(self);
        while last.is_err() && self.now_ms < end_ms {
            self.pass(20_000)?;
            last = check::at_rest(self);
        }
        (self.network.lost_percent, self.network.doubled_percent) = before;
        last?;
        check::during(self)
    }

    /// No more trouble: everything must come to agree, and then to rest.
    fn heal(&mut self) -> Checked {
        self.settle()?;
        self.network.mend();
        let before = self.server.answered;
        self.pass(QUIET_MS)?;
        let asked = self.server.answered - before;
        // A poll each half minute, a listing too, and subscriptions that are renewed.
        let expected = self.clients.len() as u64 * (4 * QUIET_MS / 30_000 + 40);
        ensure(asked <= expected, "I-9", || {
            format!("{asked} requests at rest, at most {expected} expected")
        })?;
        check::at_rest(self)
    }
}

fn id(text: &str) -> Id {
    Id::parse(text).expect("an identifier")
}

fn broken(what: &str, error: &ReplicaError) -> Violation {
    Violation { rule: "faultless", what: format!("{what}: {error}") }
}
