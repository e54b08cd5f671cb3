//! The simulated network, and what a server must make of it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use alluvium_jetstream_simulator::serve::Options;
use alluvium_jetstream_simulator::{Act, Config, Emitted, Event, Mix, Simulator};
use anyhow::{Context, bail};

use super::{WAIT_MAX, World};
use crate::clock;

/// How often it is looked whether a server has come.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Events that happen before others have a turn.
const PART: u32 = 500;

/// A network, and everything that its relay has sent.
pub(super) struct Network {
    simulator: Arc<Simulator>,
    emitted: Vec<Arc<Emitted>>,
    accounts: u32,
}

/// What identifies a row on every wire: the account, and what it did.
pub(super) type Key = String;

impl Network {
    /// A network in which nothing has happened yet. Its accounts and servers stay as they are: changes of those lead to
    /// fetches whose number differs from server to server.
    pub(super) fn start(world: &World) -> anyhow::Result<Self> {
        let config = Config {
            seed: world.seed,
            accounts: world.accounts,
            hosts: 1,
            initial_records_max: 200,
            history_frames: 10_000_000,
            history_bytes: 4 << 30,
            mix: Mix { account: 0, sync: 0, rotate: 0, migrate: 0, ..Mix::default() },
            ..Config::default()
        };
        let options = Options::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        let simulator = Simulator::start(config, &options).context("starting the simulated network")?;
        simulator.set_rate(0);
        Ok(Self { simulator: Arc::new(simulator), emitted: Vec::new(), accounts: world.accounts })
    }

    /// Host and port of the relay and the directory.
    pub(super) fn address(&self) -> String {
        self.simulator.address().to_string()
    }

    /// Waits until that many read the relay.
    pub(super) async fn await_followers(&self, count: usize) -> anyhow::Result<()> {
        let start = clock::now();
        while self.simulator.followers() != count {
            if start.elapsed() > WAIT_MAX {
                bail!("the server does not read the relay");
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Lets each account write once.
    pub(super) fn greet(&mut self) -> anyhow::Result<()> {
        for account in 0..self.accounts {
            self.emitted.extend(self.simulator.act(Act::Burst { account, commits: 1 })?);
        }
        Ok(())
    }

    /// Lets events happen.
    pub(super) async fn happen(&mut self, mut count: u32) -> anyhow::Result<()> {
        while count > 0 {
            let part = count.min(PART);
            self.emitted.extend(self.simulator.act(Act::Step { count: part })?);
            count -= part;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Lets the last account write once more; returns it and the revision.
    pub(super) fn say_goodbye(&mut self) -> anyhow::Result<(String, String)> {
        let emitted = self.simulator.act(Act::Burst { account: self.accounts - 1, commits: 1 })?;
        let last = emitted.last().context("nothing happened")?;
        let Event::Commit { rev, .. } = &last.event else { bail!("a commit is something else") };
        let said = (last.did.clone(), rev.clone());
        self.emitted.extend(emitted);
        Ok(said)
    }

    /// What lets events happen from another thread.
    pub(super) fn simulator(&self) -> Arc<Simulator> {
        Arc::clone(&self.simulator)
    }

    /// Adds what was made to happen elsewhere.
    pub(super) fn add(&mut self, emitted: impl IntoIterator<Item = Arc<Emitted>>) {
        self.emitted.extend(emitted);
    }

    /// How many rows everything so far comes to.
    pub(super) fn rows(&self) -> usize {
        self.emitted.iter().map(|emitted| keys(emitted).count()).sum()
    }

    /// All rows so far that `wanted` takes, by account and collection (none for rows of accounts as such), with the number of
    /// the event that each came with.
    pub(super) fn expected(&self, wanted: impl Fn(&str, Option<&str>) -> bool) -> HashMap<Key, usize> {
        let mut expected = HashMap::new();
        for (number, emitted) in self.emitted.iter().enumerate() {
            for (key, collection) in keys(emitted) {
                if wanted(&emitted.did, collection) {
                    expected.insert(key, number);
                }
            }
        }
        expected
    }

    /// The collection with the fewest rows.
    pub(super) fn rarest_collection(&self) -> Option<String> {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for emitted in &self.emitted {
            for (_, collection) in keys(emitted) {
                if let Some(collection) = collection {
                    *counts.entry(collection).or_default() += 1;
                }
            }
        }
        counts.into_iter().min_by_key(|(name, count)| (*count, *name)).map(|(name, _)| name.to_owned())
    }

    /// How many events there were so far.
    pub(super) fn events(&self) -> usize {
        self.emitted.len()
    }
}

/// The rows of an event, with their collections.
fn keys(emitted: &Emitted) -> Box<dyn Iterator<Item = (Key, Option<&str>)> + '_> {
    let did = &emitted.did;
    match &emitted.event {
        Event::Commit { rev, ops, .. } => Box::new(ops.iter().map(move |op| {
            let (collection, rkey) = op.path.split_once('/').unwrap_or((&op.path, ""));
            (commit_key(did, rev, collection, rkey, op.action().as_str()), Some(collection))
        })),
        Event::Identity { .. } => Box::new(std::iter::once((marker_key(did, "identity", emitted.seq), None))),
        Event::Account { .. } => Box::new(std::iter::once((marker_key(did, "account", emitted.seq), None))),
        _ => Box::new(std::iter::empty()),
    }
}

/// What identifies a change of a record.
pub(super) fn commit_key(did: &str, rev: &str, collection: &str, rkey: &str, operation: &str) -> Key {
    format!("{did} {rev} {collection}/{rkey} {operation}")
}

/// What identifies any other event.
pub(super) fn marker_key(did: &str, kind: &str, relay_seq: u64) -> Key {
    format!("{did} {kind} {relay_seq}")
}
