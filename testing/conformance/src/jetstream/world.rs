//! A network in this process, the server that follows it as another, and what must come of everything that happens.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{io, thread};

use alluvium_env::{OpenMode, RealDisk};
use alluvium_jetstream_simulator::serve::Options;
use alluvium_jetstream_simulator::{
    Account, Act, Config, Emitted, Fault, Mix, Oracle, Outcome, Row as Expected, Simulator,
};
use alluvium_jss::{Opened, ReadLimits, SegmentIndex, WriteLimits};
use anyhow::{Context, Result, bail, ensure};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::runtime::Runtime;

use super::paths;
use super::told::{self, Told, What};
use crate::server::{Launch, Server};

/// Far longer than a server takes to have everything, repairs of failed fetches included.
const CAUGHT_UP_SECONDS_MAX: Duration = Duration::from_secs(90);
/// How often it is looked.
const LOOK_INTERVAL: Duration = Duration::from_millis(40);

/// How accounts begin of which the model is not told.
pub(super) const SENTINEL: &str = "sentinel-";

/// A network, the server, and the model of both.
pub(crate) struct World {
    pub(super) network: Option<Simulator>,
    pub(super) oracle: Oracle,
    /// What was told of each frame, by account.
    told: BTreeMap<String, Vec<Outcome>>,
    pub(super) runtime: Runtime,
    pub(crate) launch: Launch,
    server: Option<Server>,
    pub(super) data_dir: PathBuf,
    _scratch: tempfile::TempDir,
}

/// Rows of a block and bytes of a segment that are small, so that there are many of both.
pub(crate) const SMALL: (u32, u32) = (16, 20_000);

/// A small network without what a consumer that is behind could not judge as it was meant: keys change only on request.
/// Accounts whose documents only the wide web could serve are left out: no name resolves to this process. The first ones
/// have a `did:web` of this machine.
pub(crate) fn steady(seed: u64) -> Config {
    let small = Config::small(seed);
    Config { web_percent: 0, mix: Mix { rotate: 0, ..small.mix }, ..small }
}

impl World {
    /// A network, and a server on an empty archive whose blocks have so many rows and whose segments so many bytes. It is
    /// not started yet.
    pub(crate) fn new(binary: &Path, config: Config, (rows, bytes): (u32, u32)) -> Result<Self> {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let options = Options { local_web: true, ..Options::new(listen) };
        let network = Simulator::start(config, &options)?;
        let address = network.address();
        let scratch = tempfile::tempdir()?;
        let data_dir = scratch.path().join("data");
        let (relay, plc) = (format!("ws://{address}"), format!("http://{address}"));
        let mut all = vec!["--relay", &relay, "--plc", &plc, "--start-cursor", "0", "--allow-private"];
        let (rows, bytes) = (rows.to_string(), bytes.to_string());
        all.extend(["--block-rows", &rows, "--segment-bytes", &bytes]);
        let mut launch = Launch::new(binary, &data_dir, &all);
        launch.program.push("jetstream".to_owned());
        Ok(Self {
            network: Some(network),
            oracle: Oracle::new(),
            told: BTreeMap::new(),
            runtime: tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?,
            launch,
            server: None,
            data_dir,
            _scratch: scratch,
        })
    }

    pub(crate) fn start(&mut self) -> Result<()> {
        let server = self.launch.start()?;
        // From now on it keeps its port.
        self.launch.listen = server.address;
        self.server = Some(server);
        Ok(())
    }

    pub(super) fn server(&self) -> Result<&Server> {
        self.server.as_ref().context("the server runs")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.launch.listen
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.launch.listen)
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        self.server.take().context("the server runs")?.kill().map(drop)
    }

    pub(crate) fn stop(&mut self) -> Result<()> {
        self.server.take().context("the server runs")?.stop().map(drop)
    }

    /// Whether the server has ended by itself.
    pub(super) fn has_ended(&mut self) -> Result<bool> {
        self.server.as_mut().context("the server runs")?.has_ended()
    }

    pub(super) fn network(&self) -> &Simulator {
        self.network.as_ref().expect("it is there until the end")
    }

    /// Lets something happen, and has the model judge what was emitted.
    pub(super) fn act(&mut self, act: Act) -> Result<Vec<Outcome>> {
        let emitted = self.network().act(act)?;
        Ok(self.observe(&emitted))
    }

    /// Has the model judge frames.
    pub(super) fn observe(&mut self, emitted: &[Arc<Emitted>]) -> Vec<Outcome> {
        let outcomes = self.oracle.observe_all(emitted);
        for (emitted, outcome) in emitted.iter().zip(&outcomes) {
            self.told.entry(emitted.did.clone()).or_default().push(outcome.clone());
        }
        outcomes
    }

    /// Lets something happen of which the server hears nothing.
    pub(super) fn act_unheard(&self, act: Act) -> Result<Vec<Arc<Emitted>>> {
        Ok(self.network().act(act)?)
    }

    pub(crate) fn run(&mut self, count: u32) -> Result<()> {
        self.act(Act::Step { count }).map(drop)
    }

    pub(super) fn did(&self, account: u32) -> Result<String> {
        self.network().world(|world| Ok(world.account(account)?.did().to_string()))
    }

    pub(super) fn arm(&self, fault: Fault, count: u32) -> Result<u64> {
        Ok(self.network().arm(fault, count)?)
    }

    /// Has each of these accounts say what it has, if it can, and then that it is there: whoever has heard that has heard
    /// all that it said before.
    pub(crate) fn conclude(&mut self, accounts: Range<u32>) -> Result<()> {
        for account in accounts {
            let status = self.network().world(|world| world.account(account).map(Account::status))?;
            // Of an account whose records nobody has told of a `#sync` would have the repository fetched.
            if status.is_active() && self.is_known(&self.did(account)?) {
                self.act(Act::Sync { account })?;
            }
            self.act(Act::Identity { account, rename: false, says_handle: false })?;
        }
        Ok(())
    }

    /// Whether a commit of the account was told.
    fn is_known(&self, did: &str) -> bool {
        let outcomes = self.told.get(did).map_or(&[][..], Vec::as_slice);
        outcomes.iter().any(|outcome| match outcome {
            Outcome::Rows(rows) => rows.iter().any(|row| matches!(row, Expected::Record { .. })),
            Outcome::Resync | Outcome::Repairing => true,
            _ => false,
        })
    }

    /// Waits until everything that must come of what has happened is there, and returns all events.
    pub(crate) fn caught_up(&mut self) -> Result<Vec<Told>> {
        let deadline = Instant::now() + CAUGHT_UP_SECONDS_MAX;
        loop {
            let events = paths::stream(self.address())?;
            match self.check(&events) {
                Ok(()) => return Ok(events),
                Err(error) if Instant::now() > deadline => {
                    let output = self.server()?.output();
                    return Err(error.context(format!("not caught up; the server said:\n{output}")));
                }
                Err(_) => thread::sleep(LOOK_INTERVAL),
            }
        }
    }

    /// Compares events with the model: order and numbers, the sequence of each account whose repository was not fetched,
    /// and what everything folds to.
    pub(super) fn check(&self, events: &[Told]) -> Result<()> {
        told::check_order(events)?;
        let mut by_did: BTreeMap<&str, Vec<&Told>> = BTreeMap::new();
        for event in events {
            by_did.entry(&event.did).or_default().push(event);
        }
        // What was repaired for reasons that the model cannot know shows by its marker.
        let mut repaired: BTreeSet<&str> = self.oracle.repairs();
        repaired.extend(events.iter().filter(|event| event.what.kind() == "sync").map(|e| e.did.as_str()));
        for (did, outcomes) in &self.told {
            let mut expected: Vec<&Expected> = outcomes
                .iter()
                .flat_map(|outcome| if let Outcome::Rows(rows) = outcome { rows.as_slice() } else { &[] })
                .collect();
            let mut got = by_did.remove(did.as_str()).unwrap_or_default();
            if repaired.contains(did.as_str()) {
                // Which changes of records come depends on when it was fetched; what no fetch brings comes as ever.
                expected.retain(|row| !matches!(row, Expected::Record { .. }));
                got.retain(|event| matches!(event.what, What::Identity { .. } | What::Account { .. }));
            }
            for (at, (got, expected)) in got.iter().zip(&expected).enumerate() {
                ensure!(got.what.is(expected), "{did}, event {at}: {got:?} instead of {expected:?}");
            }
            ensure!(got.len() == expected.len(), "{did}: {} events of {}", got.len(), expected.len());
        }
        let strangers = by_did.keys().find(|did| !did.starts_with(SENTINEL));
        ensure!(strangers.is_none(), "{strangers:?} did nothing, and is there");
        self.check_fold(events, &repaired)
    }

    fn check_fold(&self, events: &[Told], repaired: &BTreeSet<&str>) -> Result<()> {
        let folded = told::fold(events);
        let mut oracle = self.oracle.clone();
        for did in repaired {
            oracle.repaired(did);
        }
        let none = BTreeMap::new();
        for (did, expected) in self.network().world(|world| oracle.fold(world)) {
            let got = folded.get(&did).unwrap_or(&none);
            let missing: Vec<_> = expected.iter().filter(|(path, cid)| got.get(*path) != Some(cid)).collect();
            let extra: Vec<_> = got.keys().filter(|path| !expected.contains_key(*path)).collect();
            ensure!(missing.is_empty() && extra.is_empty(), "{did} lacks {missing:?} and has {extra:?}");
        }
        Ok(())
    }

    /// How many events of an account there must be that no fetch brought.
    pub(super) fn expected_rows(&self, did: &str) -> usize {
        let outcomes = self.told.get(did).map_or(&[][..], Vec::as_slice);
        outcomes.iter().map(|outcome| if let Outcome::Rows(rows) = outcome { rows.len() } else { 0 }).sum()
    }

    /// All rows as they lie in the files of a server that was stopped, and whether each is of a replaced repository.
    pub(super) fn stored(&self) -> Result<Vec<(Told, bool)>> {
        stored(&self.data_dir.join("segments"))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(network) = self.network.take() {
            self.runtime.block_on(network.stop());
        }
    }
}

/// All rows in the files of a directory.
pub(super) fn stored(dir: &Path) -> Result<Vec<(Told, bool)>> {
    let names =
        std::fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    let mut indexes: Vec<SegmentIndex> =
        names.iter().filter_map(|name| SegmentIndex::from_file_name(name.to_str()?)).collect();
    indexes.sort_unstable();
    let mut rows = Vec::new();
    for index in indexes {
        let path = dir.join(index.file_name());
        let opened = alluvium_jss::open(&RealDisk, &path, WriteLimits::default(), None)?;
        let (file, blocks) = match &opened {
            Opened::Active(writer, _) => (Arc::clone(writer.file()), writer.blocks().to_vec()),
            Opened::Sealed(metadata) => {
                use alluvium_env::Disk as _;
                (RealDisk.open(&path, OpenMode::Read)?, metadata.blocks.to_vec())
            }
        };
        for info in &blocks {
            let block = alluvium_jss::read::block_at(&*file, info, ReadLimits::default())?;
            for row in block.rows() {
                rows.push((told::of_row(&row)?, row.kind == alluvium_jss::Kind::CreateResync));
            }
        }
    }
    Ok(rows)
}

/// The first difference of two sequences of events.
pub(super) fn same(got: &[Told], expected: &[Told]) -> Result<()> {
    for (got, expected) in got.iter().zip(expected) {
        ensure!(got == expected, "{got:?}\n        instead of {expected:?}");
    }
    if got.len() != expected.len() {
        bail!("{} events instead of {}", got.len(), expected.len());
    }
    Ok(())
}

/// Whether an event passes what feeds and plans can be asked for.
pub(super) fn passes(event: &Told, kinds: &[&str], dids: &[String], collections: &[&str]) -> bool {
    let has = |name: &str| {
        collections.iter().any(|wanted| match wanted.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == *wanted,
        })
    };
    let is_wanted = |what: &What| match what.collection() {
        Some(name) if !collections.is_empty() => has(name),
        _ => true,
    };
    (kinds.is_empty() || kinds.contains(&event.what.kind()))
        && (dids.is_empty() || dids.contains(&event.did))
        && is_wanted(&event.what)
}
