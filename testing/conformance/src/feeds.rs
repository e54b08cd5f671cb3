//! Feeds as their users have them: real clients and a real server, killed in a loop, over connections that are cut, and
//! with a server that loses its data.
//!
//! In each round clients write offline and online while they, the server and their connections are struck. Then
//! everything is left alone until nothing is left to do. Whatever a command said is written must then be in every file
//! exactly once, what a killed command was writing at most once, and all files must show the same order.

pub(crate) mod client;
mod proxy;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

pub(crate) use self::client::Client;
use self::client::{Fate, Shown};
use self::proxy::Proxy;
use crate::check::Report;
use crate::random::Random;
use crate::server::{Launch, Server};

/// Clients, each with a file.
const CLIENTS: usize = 3;
/// Feeds that all write to.
const FEEDS: u32 = 3;
/// Things that happen in a round.
const EVENTS: u32 = 30;
/// A killed append lives no longer, in microseconds: about as long as it takes.
const APPEND_MICROS_MAX: u64 = 40_000;
/// How often everyone synchronises at the end of a round: pushes of one are pulls of another, and a history that was
/// lost takes one more.
const SETTLING_PASSES: usize = 3;

/// How many rounds, from which seed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Rounds of writing, killing and settling.
    #[arg(long, default_value_t = 4)]
    rounds: u32,
    /// Seed of everything drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What happens to the server's data between two rounds.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Loss {
    Nothing,
    Everything,
    /// It is set back to a copy that was made earlier.
    Rollback,
}

struct World {
    server: Option<Server>,
    launch: Launch,
    clients: Vec<Client>,
    proxy: Proxy,
    random: Random,
    /// Each text with the feed it went to and what became of it.
    written: HashMap<String, (String, Fate)>,
    kills: u32,
}

/// Runs all rounds.
pub(crate) fn run(binary: &Path, options: &Options, report: &mut Report) -> Result<()> {
    println!("feeds: {} rounds with --seed {}", options.rounds, options.seed);
    let scratch = tempfile::tempdir()?;
    let mut world = World::new(binary, scratch.path(), options.seed)?;
    for round in 0..options.rounds {
        let loss = match round % 4 {
            1 => Loss::Everything,
            3 => Loss::Rollback,
            _ => Loss::Nothing,
        };
        world.strike(scratch.path(), loss)?;
        let name = format!(
            "round {round}: {} texts, {} kills and {} cuts so far, lost by the server: {loss:?}; all as written",
            world.written.len(),
            world.kills,
            world.proxy.cut.load(Ordering::Relaxed)
        );
        let settled = world.settle(scratch.path(), binary, round);
        let has_failed = settled.is_err();
        report.check(&name, || settled);
        if has_failed {
            // What follows would only repeat it; the data is kept for a look.
            println!("        files kept at `{}`; --seed {}", scratch.keep().display(), options.seed);
            return Ok(());
        }
    }
    report.check("connections were cut, and processes killed", || {
        ensure!(world.proxy.cut.load(Ordering::Relaxed) > 0 && world.kills > 0);
        Ok(())
    });
    Ok(())
}

impl World {
    fn new(binary: &Path, folder: &Path, seed: u64) -> Result<Self> {
        let launch = Launch::new(binary, &folder.join("data"), &["--shards", "1"]);
        let server = launch.start()?;
        // Killed and started again it keeps its port.
        let launch = server.kill()?;
        let server = launch.start()?;
        let mut random = Random::new(seed);
        let proxy = Proxy::start(server.address, Random::new(random.next()))?;
        let url = format!("http://{}", proxy.address);
        let client = |number: usize| Client::new(binary, folder.join(format!("{number}.sqlite")), &url);
        let clients = (0..CLIENTS).map(client).collect::<Result<_>>()?;
        Ok(Self { server: Some(server), launch, clients, proxy, random, written: HashMap::new(), kills: 0 })
    }

    /// A round of writing and striking. The server loses data in the middle of it.
    fn strike(&mut self, folder: &Path, loss: Loss) -> Result<()> {
        self.clients.iter_mut().try_for_each(Client::follow)?;
        for event in 0..EVENTS {
            if event == EVENTS / 2 {
                self.lose(folder, loss)?;
            }
            let client = self.random.below(u32::try_from(CLIENTS)?) as usize;
            match self.random.below(10) {
                0 => {
                    self.clients[client].kill()?;
                    self.kills += 1;
                }
                1 => self.restart_server()?,
                2 | 3 => self.clients[client].follow()?,
                4 => {
                    let micros = self.random.between(0, APPEND_MICROS_MAX);
                    self.append(client, Some(Duration::from_micros(micros)))?;
                    self.kills += 1;
                }
                _ => self.append(client, None)?,
            }
        }
        Ok(())
    }

    fn append(&mut self, client: usize, kill_after: Option<Duration>) -> Result<()> {
        let feed = format!("feed-{}", self.random.below(FEEDS));
        let count = self.random.between(1, 4);
        let first = self.written.len();
        let texts: Vec<String> =
            (first..).take(usize::try_from(count)?).map(|text| format!("text {text}")).collect();
        let fate = self.clients[client].append(&feed, &texts, kill_after)?;
        self.written.extend(texts.into_iter().map(|text| (text, (feed.clone(), fate))));
        Ok(())
    }

    fn restart_server(&mut self) -> Result<()> {
        self.stop_server()?;
        self.server = Some(self.launch.start()?);
        Ok(())
    }

    fn stop_server(&mut self) -> Result<()> {
        if let Some(server) = self.server.take() {
            self.launch = server.kill()?;
            self.launch.check_files()?;
            self.kills += 1;
        }
        Ok(())
    }

    /// The server is killed, its feeds are as `loss` says, and it is started again.
    fn lose(&mut self, folder: &Path, loss: Loss) -> Result<()> {
        let (feeds, backup) = (folder.join("data").join("feeds"), folder.join("backup"));
        self.stop_server()?;
        match loss {
            Loss::Nothing => {
                // The copy that a later round falls back to.
                if backup.exists() {
                    fs::remove_dir_all(&backup)?;
                }
                copy(&feeds, &backup)?;
            }
            Loss::Everything => fs::remove_dir_all(&feeds).context("the folder of the feeds")?,
            Loss::Rollback => {
                fs::remove_dir_all(&feeds).context("the folder of the feeds")?;
                copy(&backup, &feeds)?;
            }
        }
        self.server = Some(self.launch.start()?);
        Ok(())
    }

    /// Leaves everything alone until nothing is left to do, and compares.
    fn settle(&mut self, folder: &Path, binary: &Path, round: u32) -> Result<()> {
        for client in &mut self.clients {
            client.kill()?;
        }
        self.proxy.stop_cutting();
        for _ in 0..SETTLING_PASSES {
            self.clients.iter().try_for_each(Client::sync)?;
        }
        let first = self.clients[0].feeds()?;
        self.all_there(&first)?;
        for (number, client) in self.clients.iter().enumerate() {
            let status = client.status()?;
            for left in ["blocksToPush", "blocksToPull", "blocksRefused", "conflicts"] {
                ensure!(status[left] == 0, "client {number} is not done: {status}");
            }
            let feeds = client.feeds()?;
            ensure!(feeds == first, "client {number} shows {feeds:#?}\nclient 0 shows {first:#?}");
        }
        // Whoever comes now gets the same.
        let url = format!("http://{}", self.proxy.address);
        let fresh = Client::new(binary, folder.join(format!("fresh-{round}.sqlite")), &url)?;
        fresh.sync()?;
        ensure!(fresh.feeds()? == first, "a fresh client gets something else");
        self.proxy.go_on_cutting();
        Ok(())
    }

    /// What was written is there once, in its feed, at a position; what may have been is there at most once.
    fn all_there(&self, feeds: &BTreeMap<String, Vec<Shown>>) -> Result<()> {
        let mut found: HashMap<&str, &str> = HashMap::new();
        for (feed, blocks) in feeds {
            let positions: Vec<Option<u64>> = blocks.iter().map(|block| block.0).collect();
            ensure!(positions.iter().all(Option::is_some), "{feed} has blocks without a place");
            ensure!(positions.is_sorted_by(|one, other| one < other), "{feed} is out of order");
            for (_, _, _, text) in blocks {
                if found.insert(text, feed).is_some() {
                    bail!("`{text}` is there twice");
                }
                ensure!(self.written.contains_key(text), "`{text}` was never written");
            }
        }
        for (text, (feed, fate)) in &self.written {
            match found.get(text.as_str()) {
                Some(place) => ensure!(place == feed, "`{text}` of {feed} is in {place}"),
                None => ensure!(*fate == Fate::Unknown, "`{text}` of {feed} is lost"),
            }
        }
        Ok(())
    }
}

/// Copies a folder with everything in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
