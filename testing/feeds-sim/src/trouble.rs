//! What happens to machines, disks and messages that wander for long.

use alluvium_feed_protocol::{Request, Response};
use alluvium_feeds::Listener;

use crate::draw::Action;
use crate::world::World;
use crate::{Checked, ensure};

/// Within what time those come back who come back at once, in milliseconds.
const FLAP_MS: u64 = 200;

impl World {
    /// What happens to machines and disks.
    pub(crate) fn trouble(&mut self, action: Action, client: usize) -> Checked {
        match action {
            Action::Flap => return self.flap(),
            Action::Relapse => return self.relapse(),
            Action::Deafen => {
                let (is_to_server, ms) = (self.rng.percent(50), self.rng.within(1000..20_000));
                self.network.shut(client, is_to_server, self.now_ms + ms);
            }
            Action::Expire => drop(self.expired.insert(client)),
            Action::RestartServer { is_clean } => {
                self.server.stop(is_clean);
                self.server.start();
                self.cut_all();
            }
            Action::Snapshot => {
                self.snapshots.push(self.server.snapshot());
            }
            Action::Wipe => {
                self.server.wipe();
                self.snapshots.clear();
                self.ledger.lose();
                self.cut_all();
            }
            Action::SetBack { with_guard } => {
                if let Some(snapshot) = self.snapshots.pop() {
                    self.server.set_back(&snapshot, with_guard);
                    self.ledger.lose();
                    self.cut_all();
                }
            }
            Action::Prune => self.prune(),
            Action::SnapshotClient => {
                let bytes = self.clients[client].snapshot();
                self.reconnect_later(client);
                let promises = self.ledger.promises.len();
                let actor = self.clients[client].actor.clone();
                self.client_snapshots.push((client, bytes, actor, promises));
            }
            Action::CopyClient => self.copy_client(client),
            Action::JumpServer => {
                let ms = self.rng.within(60_000..7_200_000);
                self.server.clock.advance_ms(ms);
                self.server.service().sweep();
            }
            _ => {
                let ms = self.rng.within(1000..600_000);
                self.clients[client].clock.advance_ms(ms);
            }
        }
        Ok(())
    }

    /// Some are cut off and come back at once, so that they subscribe while what others write comes in.
    fn flap(&mut self) -> Checked {
        for client in 0..self.clients.len() {
            if self.rng.percent(50) {
                self.cut(client);
                self.reconnect_within(client, FLAP_MS);
            } else {
                self.append(client)?;
            }
        }
        let ms = self.rng.within(50..600);
        self.pass(ms)
    }

    /// The authority loses the last few blocks, and nothing tells of it but the checks. All come back at once with something
    /// to push. One of them was away meanwhile, so it knows nothing of what was lost, and what it pushes at once takes the
    /// places of that while the others have only just subscribed, and mostly before they can have been told by an answer.
    fn relapse(&mut self) -> Checked {
        self.pass(2000)?;
        let (away, count) = (self.rng.index(self.clients.len()), self.clients.len());
        self.cut(away);
        self.reconnect_at(away, self.now_ms + 3_600_000);
        let snapshot = self.server.snapshot();
        self.append((away + 1) % count)?;
        let ms = self.rng.within(700..4000);
        self.pass(ms)?;
        let (feed, namespace) = self.rng.pick(&self.feeds).clone();
        for _ in 0..self.rng.within(2..5) {
            self.append_to(away, &feed, &namespace)?;
        }
        let is_one_way = self.rng.percent(70);
        let others = || (0..count).filter(|client| *client != away);
        for client in others().filter(|_| !is_one_way) {
            self.append(client)?;
        }
        self.server.set_back(&snapshot, true);
        self.ledger.lose();
        for client in 0..count {
            self.cut(client);
            let within_ms = if client == away { 3 * FLAP_MS } else { FLAP_MS / 4 };
            self.reconnect_within(client, within_ms);
        }
        if is_one_way {
            // They subscribe, and what they push then is lost, but what comes by itself is not.
            let ms = self.rng.within(FLAP_MS / 4..FLAP_MS);
            self.pass(ms)?;
            for client in others() {
                self.append(client)?;
                let ms = self.rng.within(1500..5000);
                self.network.shut(client, true, self.now_ms + ms);
            }
        }
        self.pass(1500)?;
        // Now and then what has come of it is looked at before anything else can mend it.
        if self.rng.percent(40) { self.settle() } else { Ok(()) }
    }

    /// A client goes on from an older file, its own or another's. What it alone had is gone, and nobody else's fault.
    fn copy_client(&mut self, client: usize) {
        let Some((_, bytes, actor, _)) = self.client_snapshots.pop() else { return };
        self.clients[client].become_copy(&bytes, &actor);
        self.ledger.promises.retain(|promise| promise.client != client);
        self.reconnect_later(client);
    }

    /// The oldest or the newest blocks of a feed go. The newest are what a counter that isn't stored would give again.
    fn prune(&mut self) {
        let (feed, _) = self.rng.pick(&self.feeds).clone();
        let (blocks, page) = self.server.blocks(&self.space);
        if page.max_position == 0 {
            // Nobody has written yet, so there may be no such space.
            return;
        }
        let below =
            if self.rng.percent(50) { page.max_position + 1 } else { self.rng.below(page.max_position + 2) };
        for block in blocks.iter().filter(|block| block.feed_id.as_ref() == Some(&feed)) {
            if block.position.is_some_and(|position| position < below) {
                self.ledger.pruned.insert(block.key(feed.clone()));
            }
        }
        self.server.service().prune(&self.space, &feed, below).expect("a space of the simulation");
    }

    /// I-8: a request that was answered is answered the same when it comes again.
    pub(crate) fn replay(&mut self) -> Checked {
        if self.ledger.recorded.is_empty() {
            return Ok(());
        }
        let at = self.rng.index(self.ledger.recorded.len());
        let (mut request, _) = self.ledger.recorded[at].clone();
        // A message that wandered for long; the history that it expects may be behind by now, but not wrong.
        request.expected_server_token = None;
        let before = self.server.blocks(&self.space).1.max_position;
        let is_any_pruned = request.blocks.iter().any(|block| {
            let feed = block.feed_id.clone().unwrap_or_else(|| block.actor_id.clone());
            self.ledger.pruned.contains(&block.key(feed))
        });
        let response = self.server.handle(&self.space, Request::Append(request.clone()), &Listener::new());
        let Response::Append(response) = response else {
            return ensure(false, "I-8", || format!("a repeated request is refused: {response:?}"));
        };
        self.ledger.hear(&request, &response)?;
        ensure(is_any_pruned || response.max_position == before, "I-8", || {
            format!("a repeated request moved the head from {before} to {}", response.max_position)
        })
    }
}
