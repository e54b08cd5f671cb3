//! A mixed load on every door, with graceful restarts and `kill -9` at seeded times, for as long as it is told.
//!
//! Everybody in it is a client that goes on by itself: it asks again until it is answered, and knows to the byte what it
//! must be told. Streams are written by producers, followed by long-polls and server-sent events, read as a whole, forked,
//! closed and deleted; buckets have batches, snapshots and bootstraps; a feed has two writers and readers in files of their
//! own; subscriptions wake a worker by webhook and another that claims. Some streams stay all the time and are read again
//! and again. Since everything else is deleted, the server should stay as large as it is: memory, files, bytes on disk and
//! latencies are sampled, and a line through the second half of the run tells.

mod buckets;
mod checker;
mod client;
mod feeds;
pub(crate) mod growth;
mod lie;
mod samples;
mod stats;
mod streams;
mod tails;
mod workers;
mod world;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};

use self::checker::Format;
use self::client::Client;
use self::lie::{Door, Lie};
use self::samples::Samples;
use self::stats::Operation;
use self::streams::Plan;
use self::world::World;
use crate::check::Report;
use crate::random::Random;
use crate::server::{Launch, Server};

/// What the server is started with besides: small segments, so that folds never end; short waits.
const FLAGS: &[&str] = &[
    "--shards",
    "2",
    "--segment-bytes",
    "16MiB",
    "--append-bytes-max",
    "8MiB",
    "--long-poll-timeout",
    "5s",
    "--sse-cycle",
    "10s",
    "--webhook-loopback",
    "yes",
    "--webhook-timeout",
    "5s",
    "--log",
    "warn",
];
/// How often the server is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// The longest life of a stream in a long run; in a short one a third of it.
const LIFE_MAX: Duration = Duration::from_mins(10);
/// How long a run with a planted lie may go on without anyone noticing.
const LIE_MAX: Duration = Duration::from_secs(30);
/// Runs with lies at the same time, each with a server of its own.
const LIES_AT_ONCE: usize = 5;
/// One restart in so many is graceful; the others are `kill -9`. The first two are one of each.
const STOPS_ONCE_IN: u64 = 3;

/// How long, how rough, and where.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long: a number with `s`, `m` or `h`. What is under way then is brought to its end.
    #[arg(long, default_value = "20s", value_parser = duration)]
    duration: Duration,
    /// Time between two restarts, on average.
    #[arg(long, default_value = "3m", value_parser = duration)]
    restart_every: Duration,
    /// Seed of what is written, and of when the server is struck and how.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The server's data directory, which is kept. Without it one is made, and removed if nothing was wrong.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Writes every figure as JSON, again each minute.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A flag of `serve`, as in `--serve=--recent-bytes=16MiB`; may be given more than once.
    #[arg(long = "serve", value_name = "FLAG", allow_hyphen_values = true)]
    serve: Vec<String>,
    /// Also plants every lie there is, each in a short run of its own, and wants each to be noticed.
    #[arg(long)]
    lies: bool,
}

pub(crate) fn duration(text: &str) -> Result<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().with_context(|| format!("`{text}` is no number with s, m or h"))?;
    let seconds = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        unit => bail!("`{unit}` is not one of s, m and h"),
    };
    let seconds =
        number.checked_mul(seconds).filter(|seconds| *seconds > 0).context("too long, or nothing")?;
    Ok(Duration::from_secs(seconds))
}

/// Runs it, and the lies if they are wanted.
pub(crate) fn run(binary: &Path, options: &Options, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let folder = options.data_dir.clone().unwrap_or_else(|| scratch.path().join("data"));
    println!("soak: {} s with --seed {}", options.duration.as_secs(), options.seed);
    let name = format!("{} s of mixed load over restarts, every byte as written", options.duration.as_secs());
    let mut has_failed = false;
    report.check(&name, || {
        let outcome = soak(binary, options, &folder, &scratch.path().join("replicas"));
        has_failed = outcome.is_err();
        outcome
    });
    if has_failed {
        println!("        kept at `{}`; --seed {}", scratch.keep().display(), options.seed);
        return Ok(());
    }
    if options.lies {
        let lies = lie::all();
        for some in lies.chunks(LIES_AT_ONCE) {
            let outcomes: Vec<Result<()>> = thread::scope(|scope| {
                let runs: Vec<_> =
                    some.iter().map(|lie| scope.spawn(|| notices(binary, options.seed, lie))).collect();
                runs.into_iter()
                    .map(|run| run.join().unwrap_or_else(|_| Err(anyhow!("the run has panicked"))))
                    .collect()
            });
            for (lie, outcome) in some.iter().zip(outcomes) {
                report.check(&format!("the lie {lie} is noticed"), || outcome);
            }
        }
    }
    Ok(())
}

/// A run's own name, so that a data directory may be used again.
fn run_name() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}", since.as_secs())
}

fn launch(binary: &Path, data_dir: &Path, serve: &[String]) -> Launch {
    let flags: Vec<&str> = FLAGS.iter().copied().chain(serve.iter().map(String::as_str)).collect();
    Launch::new(binary, data_dir, &flags)
}

fn soak(binary: &Path, options: &Options, data_dir: &Path, replicas: &Path) -> Result<()> {
    let mut random = Random::new(options.seed);
    let server = launch(binary, data_dir, &options.serve).start()?;
    let world = Arc::new(World::new(server.address, run_name(), None));
    let mut samples = Samples::new(data_dir);
    let life = LIFE_MAX.min(options.duration / 3);
    let server = thread::scope(|scope| {
        for lane in lanes(&world, binary, replicas, life, &mut random) {
            let world = Arc::clone(&world);
            scope.spawn(move || world.watch(lane()));
        }
        let server = world.watch(supervise(&world, options, server, &mut samples, &mut random));
        world.end();
        server
    });
    samples.end_row(&world);
    let outcome = end(&world, server);
    samples.verdicts().iter().for_each(|line| println!("        {line}"));
    let faults = world.faults();
    save(options, &samples, &faults)?;
    ensure!(faults.is_empty(), "{} faults, the first: {}", faults.len(), faults[0]);
    outcome
}

type Lane<'a> = Box<dyn FnOnce() -> Result<()> + Send + 'a>;

/// Everybody who works on the server.
fn lanes<'a>(
    world: &'a Arc<World>,
    binary: &'a Path,
    replicas: &'a Path,
    life: Duration,
    random: &mut Random,
) -> Vec<Lane<'a>> {
    let mut lanes: Vec<Lane<'a>> = Vec::new();
    let plan = |name: &str, format, writers, appends, seconds| Plan {
        name: name.to_owned(),
        format,
        writers,
        appends,
        life: Duration::from_secs(seconds).min(life),
    };
    if world.is_open(&[Door::Read, Door::LongPoll, Door::Sse, Door::Fork, Door::Append, Door::Delete]) {
        for plan in [
            plan("brief", Format::Frames, 1, 100, 3),
            plan("brief-json", Format::Json, 1, 100, 3),
            plan("minute", Format::Frames, 1, 600, 60),
            plan("minute-json", Format::Json, 1, 600, 60),
            plan("shared", Format::Frames, 4, 300, 45),
            plan("long", Format::Frames, 2, 1000, 600),
            plan("long-json", Format::Json, 1, 1000, 600),
        ] {
            let random = Random::new(random.next());
            lanes.push(Box::new(move || streams::run(world, &plan, random)));
        }
    }
    if world.is_open(&[Door::Kept]) {
        lanes.push(Box::new(|| streams::keep(world)));
    }
    if world.is_open(&[Door::Snapshot, Door::Bootstrap]) {
        for (format, seconds) in [(Format::Frames, 30), (Format::Json, 60)] {
            let (random, life) = (Random::new(random.next()), Duration::from_secs(seconds).min(life));
            lanes.push(Box::new(move || buckets::run(world, format, life, random)));
        }
    }
    let minute = Duration::from_mins(1).min(life);
    if world.is_open(&[Door::Feed]) {
        let random = Random::new(random.next());
        lanes.push(Box::new(move || feeds::run(world, binary, replicas, minute, random)));
    }
    if world.is_open(&[Door::Webhook, Door::Claim]) {
        let random = Random::new(random.next());
        lanes.push(Box::new(move || workers::run(world, minute, random)));
    }
    lanes
}

/// Strikes the server at its times and looks at it meanwhile, until the time is over or something is wrong.
fn supervise(
    world: &World,
    options: &Options,
    mut server: Server,
    samples: &mut Samples,
    random: &mut Random,
) -> Result<Server> {
    let ends = Instant::now() + options.duration;
    let mut strike_at = Instant::now() + interval(options, random);
    while Instant::now() < ends && !world.has_fault() {
        thread::sleep(LOOK.min(ends.saturating_duration_since(Instant::now())));
        ensure!(!server.has_ended()?, "the server has ended by itself; its output:\n{}", server.output());
        if Instant::now() >= strike_at {
            server = strike(world, server, samples, random)?;
            strike_at = Instant::now() + interval(options, random);
        }
        samples.look(server.pid());
        if samples.is_minute_over() {
            samples.end_row(world);
            save(options, samples, &world.faults())?;
        }
    }
    if world.has_fault() {
        println!("the server's last lines:\n{}", server.output());
    }
    Ok(server)
}

/// Between half of the average and one and a half.
fn interval(options: &Options, random: &mut Random) -> Duration {
    let percent = u32::try_from(random.between(50, 150)).unwrap_or(100);
    options.restart_every * percent / 100
}

fn strike(world: &World, server: Server, samples: &mut Samples, random: &mut Random) -> Result<Server> {
    world.strike();
    let is_graceful = match samples.kills + samples.stops {
        0 => false,
        1 => true,
        _ => random.once_in(STOPS_ONCE_IN),
    };
    let launch = if is_graceful {
        samples.stops += 1;
        server.stop()?
    } else {
        samples.kills += 1;
        server.kill()?
    };
    let server = launch.start()?;
    samples.starts_ms.push(u64::try_from(server.start_time.as_millis()).unwrap_or(u64::MAX));
    samples.process_began = Instant::now();
    world.strike();
    Ok(server)
}

/// Once everything is done: what was deleted is gone after one more restart, and the server stops as it should.
fn end(world: &Arc<World>, server: Result<Server>) -> Result<()> {
    // Faults have been told; there is nothing to add.
    let Ok(server) = server else { return Ok(()) };
    if world.has_fault() {
        return Ok(());
    }
    let server = server.stop()?.start()?;
    let mut client = Client::new(world);
    for path in world.deleted() {
        client
            .call(Operation::Other, ("HEAD", &path), &[], &[], &[404])
            .with_context(|| format!("`{path}` was deleted, before a restart"))?;
    }
    server.stop()?;
    Ok(())
}

fn save(options: &Options, samples: &Samples, faults: &[String]) -> Result<()> {
    let Some(file) = &options.json else { return Ok(()) };
    let text = serde_json::to_string_pretty(&samples.to_json(options.seed, faults))?;
    std::fs::write(file, text).with_context(|| format!("write `{}`", file.display()))
}

/// A run with a lie must end with a fault.
fn notices(binary: &Path, seed: u64, lie: &str) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let server = launch(binary, &scratch.path().join("data"), &[]).start()?;
    let planted: Lie = lie.parse()?;
    let world = Arc::new(World::new(server.address, run_name(), Some(planted)));
    let (mut random, replicas) = (Random::new(seed), scratch.path().join("replicas"));
    thread::scope(|scope| {
        for lane in lanes(&world, binary, &replicas, Duration::from_secs(1), &mut random) {
            let world = Arc::clone(&world);
            scope.spawn(move || world.watch(lane()));
        }
        let ends = Instant::now() + LIE_MAX;
        while Instant::now() < ends && !world.has_fault() {
            thread::sleep(Duration::from_millis(10));
        }
        world.end();
        // Whoever waits for it is released.
        server.kill().map(drop)
    })?;
    ensure!(world.has_fault(), "nobody noticed within {} s", LIE_MAX.as_secs());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("20s").unwrap(), Duration::from_secs(20));
        assert_eq!(duration("5m").unwrap(), Duration::from_mins(5));
        assert_eq!(duration("1h").unwrap(), Duration::from_hours(1));
        for wrong in ["", "1", "s", "1d", "0s", "-1s", "99999999999999999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
