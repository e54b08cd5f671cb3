//! A Jetstream under a network that never rests, with graceful restarts and `kill -9` at seeded times, for as long as it is
//! told.
//!
//! The network writes, changes keys, moves, bursts, leaves commits out and cuts the relay's connection. Two subscribers, one
//! of the first feed and one of the second, go on from their last event after each restart. In the end everything that the
//! server has is what the model of the network says and lies in the files, and both subscribers were told all of it once and
//! in order. Memory, open files, disk, start and delivery times are sampled meanwhile.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use alluvium_env::OsRandom;
use alluvium_jetstream_simulator::{Act, Config, Fault, Operation};
use alluvium_jetstream_wire::Wire;
use alluvium_websocket::{ConnectOptions, Message, connect};
use anyhow::{Context, Result, anyhow, bail, ensure};
use hdrhistogram::Histogram;
use serde_json::Value;

use super::paths;
use super::told::{self, Told};
use super::world::{World, same, steady};
use crate::check::Report;
use crate::procfs;
use crate::random::Random;
use crate::soak::growth::{Series, float};

/// Accounts of the network.
const ACCOUNTS: u32 = 100;
/// Rows of a block and bytes of a segment: many of both in an hour.
const SIZES: (u32, u32) = (512, 2_000_000);
/// How often something happens.
const TICK: Duration = Duration::from_millis(100);
/// How often the server is looked at; every so many ticks.
const LOOK: u64 = 10;
/// Time between two rows, in ticks.
const ROW: u64 = 600;
/// One restart in so many is graceful; the others are `kill -9`. The first two are one of each.
const STOPS_ONCE_IN: u64 = 3;
/// A subscriber that is not told anything for so long looks whether the run is over.
const QUIET: Duration = Duration::from_secs(1);
/// The longest time in which a subscriber is told the rest, once it is known what that is.
const REST_MAX: Duration = Duration::from_mins(2);

/// How long, how rough.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long: a number with `s`, `m` or `h`. What is under way then is brought to its end.
    #[arg(long, default_value = "20s", value_parser = crate::soak::duration)]
    duration: Duration,
    /// Time between two restarts, on average.
    #[arg(long, default_value = "45s", value_parser = crate::soak::duration)]
    restart_every: Duration,
    /// Events of the network in a second.
    #[arg(long, default_value_t = 100)]
    rate: u32,
    /// Seed of what happens, and of when the server is struck and how.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(binary: &Path, options: &Options, report: &mut Report) {
    println!("soak of a Jetstream: {} s with --seed {}", options.duration.as_secs(), options.seed);
    let name =
        format!("{} s of a network over restarts, everything as it happened", options.duration.as_secs());
    let mut seen = None;
    report.check(&name, || {
        seen = Some(soak(binary, options)?);
        Ok(())
    });
    let Some(Seen { first, second }) = seen else { return };
    for (feed, told) in [("the first feed", first), ("the second feed", second)] {
        for lie in [Lie::Lost, Lie::Doubled, Lie::Altered, Lie::Swapped] {
            report.check(&format!("an event of {feed} that is {lie:?} is noticed"), || {
                let mut got = told.clone();
                lie.tell(&mut got);
                ensure!(same(&got, &told).is_err(), "nobody noticed");
                Ok(())
            });
        }
    }
}

/// What the two subscribers were told.
struct Seen {
    first: Vec<Told>,
    second: Vec<Told>,
}

/// What could be wrong with what a subscriber was told, and must not pass.
#[derive(Clone, Copy, Debug)]
enum Lie {
    Lost,
    Doubled,
    Altered,
    Swapped,
}

impl Lie {
    fn tell(self, told: &mut Vec<Told>) {
        let at = told.len() / 2;
        match self {
            Self::Lost => drop(told.remove(at)),
            Self::Doubled => told.insert(at, told[at].clone()),
            Self::Altered => told[at].time_us += 1,
            Self::Swapped => told.swap(at, at - 1),
        }
    }
}

fn soak(binary: &Path, options: &Options) -> Result<Seen> {
    let steady = steady(options.seed);
    let config = Config { accounts: ACCOUNTS, rate: options.rate.max(1), ..steady };
    let mut world = World::new(binary, config, SIZES)?;
    world.launch.flags.push("--lossless".to_owned());
    world.start()?;
    let readers = [Wire::V1, Wire::V2].map(|wire| Reader::new(world.address(), wire));
    let (driven, told) = thread::scope(|scope| {
        let threads = readers.each_ref().map(|reader| scope.spawn(|| reader.follow()));
        let driven = drive(&mut world, options, &readers);
        if driven.is_err() {
            for reader in &readers {
                reader.given_up.store(true, Ordering::Relaxed);
            }
        }
        let told = threads.map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a reader panicked"))));
        (driven, told)
    });
    let events = driven?;
    let [first, second] = told;
    let (first, second) = (first?, second?);
    same(&second, &events).context("the second feed")?;
    // The rest of the comparison is with the files, of a server that was stopped.
    world.stop()?;
    let (rows, replaced): (Vec<Told>, Vec<bool>) = world.stored()?.into_iter().unzip();
    same(&rows, &events).context("what lies in the files")?;
    let is_shown = |(event, replaced): &(&Told, &bool)| event.what.kind() != "sync" && !**replaced;
    let shown = events.iter().zip(&replaced).filter(is_shown).map(|(event, _)| event.clone());
    let through = first.last().context("the first feed told nothing")?.seq;
    let shown: Vec<Told> = shown.filter(|event| event.seq <= through).collect();
    same(&first, &shown).context("the first feed")?;
    println!("        {} events, {} of them on the first feed", events.len(), first.len());
    Ok(Seen { first, second })
}

/// Lets everything happen until the time is over, then has the accounts say what they have, and returns all events.
fn drive(world: &mut World, options: &Options, readers: &[Reader; 2]) -> Result<Vec<Told>> {
    let mut random = Random::new(options.seed);
    let mut figures = Figures::new();
    let began = Instant::now();
    let mut strike_at = began + interval(options, &mut random);
    let (mut kills, mut stops) = (0, 0);
    for tick in 1.. {
        thread::sleep((TICK * tick).saturating_sub(began.elapsed()));
        ensure!(!world.has_ended()?, "the server has ended by itself:\n{}", world.server()?.output());
        let tick = u64::from(tick);
        // As many in a second as wanted, also if that is no multiple of ten.
        let due = |ticks: u64| ticks * u64::from(options.rate) / 10;
        world.run(u32::try_from(due(tick) - due(tick - 1))?)?;
        trouble(world, tick, &mut random)?;
        if Instant::now() >= strike_at {
            let is_graceful = match kills + stops {
                0 => false,
                1 => true,
                _ => random.once_in(STOPS_ONCE_IN),
            };
            if is_graceful {
                stops += 1;
                world.stop()?;
            } else {
                kills += 1;
                world.kill()?;
            }
            // What happens while it is away.
            world.run(options.rate / 2)?;
            world.start()?;
            figures.starts.push(world.server()?.start_time);
            strike_at = Instant::now() + interval(options, &mut random);
        }
        if tick.is_multiple_of(LOOK) {
            figures.look(world.server()?.pid(), &world.data_dir)?;
        }
        let is_over = began.elapsed() >= options.duration;
        if tick.is_multiple_of(ROW) || is_over {
            figures.row(readers, (kills, stops));
        }
        if is_over {
            break;
        }
    }
    figures.verdicts();
    ensure!(kills > 0 || options.restart_every > options.duration, "it was never struck");
    world.conclude(0..ACCOUNTS)?;
    let events = world.caught_up()?;
    let last = |kind: Option<&str>| {
        let last = events.iter().rfind(|event| kind.is_none_or(|kind| event.what.kind() == kind));
        Ok::<u64, anyhow::Error>(last.context("no event")?.seq)
    };
    for (reader, last) in readers.iter().zip([last(Some("identity"))?, last(None)?]) {
        reader.through.store(last, Ordering::Relaxed);
    }
    Ok(events)
}

/// What does not happen by itself: bursts, commits that nobody is told of, other keys, connections that end.
fn trouble(world: &mut World, tick: u64, random: &mut Random) -> Result<()> {
    let account = random.below(ACCOUNTS);
    let put = |silent| Act::Write {
        account,
        operations: vec![Operation::Put {
            path: format!("app.bsky.feed.like/soak{tick}-{silent}"),
            record: None,
        }],
        silent,
        missing_block: None,
    };
    let acts = match tick % 200 {
        40 => vec![Act::Burst { account, commits: 150 }],
        80 => vec![put(true), put(false)],
        120 => vec![Act::Rotate { account, announce: random.once_in(2) }],
        160 => {
            world.arm(Fault::Close { after: random.between(1, 50) }, 1)?;
            Vec::new()
        }
        _ => Vec::new(),
    };
    for act in acts {
        // An account that is away does nothing.
        if world.act(act).is_err() {
            break;
        }
    }
    Ok(())
}

/// Between half of the average and one and a half.
fn interval(options: &Options, random: &mut Random) -> Duration {
    options.restart_every * u32::try_from(random.between(50, 150)).unwrap_or(100) / 100
}

/// A subscriber that goes on from its last event.
struct Reader {
    address: SocketAddr,
    wire: Wire,
    /// The number of the last event that there is to be told; the highest number until that is known.
    through: AtomicU64,
    given_up: AtomicBool,
    /// From when an event was seen by the server to when it was here, in microseconds, of those that happened while this
    /// was connected.
    times: Mutex<Histogram<u64>>,
}

impl Reader {
    fn new(address: SocketAddr, wire: Wire) -> Self {
        let times = Histogram::new_with_bounds(1, 300_000_000, 2).expect("the bounds are constants");
        Self {
            address,
            wire,
            through: AtomicU64::new(u64::MAX),
            given_up: AtomicBool::new(false),
            times: Mutex::new(times),
        }
    }

    fn follow(&self) -> Result<Vec<Told>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut told, mut deadline) = (Vec::<Told>::new(), None);
        loop {
            let last = told.last().map_or(0, |last| last.seq);
            if last >= self.through.load(Ordering::Relaxed) {
                return Ok(told);
            }
            ensure!(!self.given_up.load(Ordering::Relaxed), "given up behind event {last}");
            if self.through.load(Ordering::Relaxed) != u64::MAX {
                let deadline = deadline.get_or_insert_with(|| Instant::now() + REST_MAX);
                ensure!(Instant::now() < *deadline, "{:?} ends with event {last}", self.wire);
            }
            if runtime.block_on(self.connected(last + 1, &mut told)).is_err() {
                // It is being restarted.
                thread::sleep(TICK);
            }
            // What was told is checked at the end; what cannot be right is said at once.
            let out_of_order = told.is_sorted_by(|one, other| one.seq < other.seq);
            ensure!(out_of_order, "{:?}: numbers do not ascend", self.wire);
        }
    }

    /// One connection, until it ends or everything was told.
    async fn connected(&self, from: u64, told: &mut Vec<Told>) -> Result<()> {
        let url = format!("ws://{}{}?cursor={from}", self.address, paths::path(self.wire));
        let options = ConnectOptions { deflate: None, ..ConnectOptions::default() };
        let mut connected = connect(&url, options, Arc::new(OsRandom)).await?;
        let since_us = now_us();
        loop {
            let through = self.through.load(Ordering::Relaxed);
            if told.last().is_some_and(|last| last.seq >= through) || self.given_up.load(Ordering::Relaxed) {
                return Ok(());
            }
            let Ok(next) = tokio::time::timeout(QUIET, connected.socket.next()).await else { continue };
            let Message::Text(text) = next?.context("the feed has ended")? else { bail!("bytes") };
            let line: Value = serde_json::from_str(text.as_str())?;
            let event = told::of_line(&line)?;
            if event.time_us > since_us {
                let time = u64::try_from(now_us() - event.time_us).unwrap_or_default();
                self.times.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(time.max(1));
            }
            told.push(event);
        }
    }

    /// The median and the 99th percentile of the times since the last call, in milliseconds.
    fn take_times(&self) -> (f64, f64) {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let at = |quantile| ms(times.value_at_quantile(quantile));
        let taken = (at(0.5), at(0.99));
        times.reset();
        taken
    }
}

fn ms(us: u64) -> f64 {
    float(usize::try_from(us).unwrap_or(usize::MAX)) / 1000.0
}

fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// What was measured.
struct Figures {
    began: Instant,
    memory: Series,
    anonymous: Series,
    open_files: Series,
    p99: Series,
    disk: (u64, usize),
    starts: Vec<Duration>,
    last: (f64, f64, f64),
}

const MEBIBYTE: f64 = 1024.0 * 1024.0;

fn mebibytes(bytes: u64) -> f64 {
    float(usize::try_from(bytes).unwrap_or(usize::MAX)) / MEBIBYTE
}

impl Figures {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            memory: Series::default(),
            anonymous: Series::default(),
            open_files: Series::default(),
            p99: Series::default(),
            disk: (0, 0),
            starts: Vec::new(),
            last: (0.0, 0.0, 0.0),
        }
    }

    fn hours(&self) -> f64 {
        self.began.elapsed().as_secs_f64() / 3600.0
    }

    fn look(&mut self, pid: u32, data_dir: &Path) -> Result<()> {
        let hours = self.hours();
        let memory = mebibytes(procfs::resident_bytes(pid)?);
        let (anonymous, open) = (mebibytes(procfs::anonymous_bytes(pid)?), float(procfs::open_files(pid)?));
        self.last = (memory, anonymous, open);
        for (series, value) in [&mut self.memory, &mut self.anonymous, &mut self.open_files]
            .into_iter()
            .zip([memory, anonymous, open])
        {
            series.push(hours, value);
        }
        // A file may be gone between its name and its size.
        self.disk = procfs::disk_use(data_dir).unwrap_or(self.disk);
        Ok(())
    }

    fn row(&mut self, readers: &[Reader; 2], (kills, stops): (u32, u32)) {
        let [(first_p50, first_p99), (p50, p99)] = readers.each_ref().map(Reader::take_times);
        let hours = self.hours();
        self.p99.push(hours, first_p99.max(p99));
        let (memory, anonymous, open) = self.last;
        println!(
            "{:>6} s  v1 p50 {first_p50:>6.1} p99 {first_p99:>7.1} ms  v2 p50 {p50:>6.1} p99 {p99:>7.1} ms  memory {memory:>4.0} MiB \
             (own {anonymous:.0})  open {open:.0}  disk {:.1} MiB in {} files  kills {kills}  stops {stops}",
            self.began.elapsed().as_secs(),
            mebibytes(self.disk.0),
            self.disk.1,
        );
    }

    fn verdicts(&self) {
        for (name, unit, tolerance, series) in [
            ("memory", "MiB", 8.0, &self.memory),
            ("memory without mapped files", "MiB", 8.0, &self.anonymous),
            ("open files", "", 4.0, &self.open_files),
            ("delivery p99", "ms", 20.0, &self.p99),
        ] {
            match series.second_half() {
                Some(fit) => println!("        {}", fit.describe(name, unit, tolerance)),
                None => println!("        {name:<28} too few samples"),
            }
        }
        let starts: Vec<String> = self.starts.iter().map(|start| start.as_millis().to_string()).collect();
        println!("        starts, ms: {}", starts.join(" "));
    }
}
