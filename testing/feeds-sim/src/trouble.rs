//! What happens to machines, disks and messages that wander for long.

use alluvium_feed_protocol::{Request, Response};
use alluvium_feeds::Listener;

use crate::draw::Action;
use crate::world::World;
use crate::{Checked, ensure};

impl World {
    /// What happens to machines and disks.
    pub(crate) fn trouble(&mut self, action: Action, client: usize) {
        match action {
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
