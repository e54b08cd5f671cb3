//! `kill -9` under load, and what must hold afterwards.
//!
//! A round starts the server, lets many connections write, read and manage streams, kills the process when a
//! randomly drawn number of requests has been acknowledged, starts it again and compares what it holds with what
//! was acknowledged. Every client has at most one request unanswered, so that after a crash each stream may hold
//! exactly one of two contents: with that request's effect, whole, or without it.

mod lifecycle;
mod tail;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use crate::check::Report;
use crate::http::Connection;
use crate::random::Random;
use crate::server::{Launch, Server, Store};
use crate::writer::{Answer, Kind, Writer};

use lifecycle::Lifecycle;
use tail::Tail;

/// The longest wait for the next acknowledgement under load.
const ACKNOWLEDGEMENT_SECONDS_MAX: Duration = Duration::from_mins(1);
/// Shards of the server under test: more than one, so that crashes fall between their commits.
const SHARDS: &str = "3";
/// Small segments, so that rotation and background rewriting happen under load too.
const SEGMENT_BYTES: &str = "4MiB";
/// The largest body, which a segment has to hold with room to spare.
const APPEND_BYTES: &str = "1MiB";
/// The most acknowledged requests before a round's kill.
const ACKNOWLEDGED_MAX: u64 = 6_000;
/// In one round of this many the server is also killed while it starts.
const KILLED_STARTS_ONCE_IN: u64 = 2;

/// Writers per kind; each has a connection and a thread of its own.
const WRITERS: &[(Kind, u32)] =
    &[(Kind::Plain, 6), (Kind::StreamSeq, 4), (Kind::Producer, 8), (Kind::SharedStream, 8), (Kind::Json, 6)];
const LIFECYCLES: u32 = 4;
const TAILS: u32 = 4;

/// How many rounds, from which seed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Rounds of load, kill, restart and check.
    #[arg(long, default_value_t = 8)]
    rounds: u32,
    /// Seed of everything drawn: what is written, and after how many acknowledgements each kill comes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Everything that talks to the server and remembers what was acknowledged to it.
struct Crowd {
    writers: Vec<Writer>,
    lifecycles: Vec<Lifecycle>,
    tails: Vec<Tail>,
}

/// Runs all rounds, then a graceful restart.
pub(crate) fn run(binary: &Path, store: Store, options: &Options, report: &mut Report) -> Result<()> {
    let seed = options.seed;
    println!("crash rounds: {} with --seed {seed}", options.rounds);
    let scratch = tempfile::tempdir()?;
    let flags = [
        "--shards",
        SHARDS,
        "--segment-bytes",
        SEGMENT_BYTES,
        "--append-bytes-max",
        APPEND_BYTES,
        "--long-poll-timeout",
        "1s",
    ];
    let mut launch = Launch::new(binary, &scratch.path().join("data"), &flags).with_store(store);
    let mut random = Random::new(seed);
    let mut crowd = Crowd::new(&mut random);
    let mut server = launch.start()?;
    crowd.create(server.address)?;
    for round in 1..=options.rounds {
        let kill_after = random.between(50, ACKNOWLEDGED_MAX);
        launch = load_and_kill(server, &mut crowd, kill_after)?;
        report.check(&format!("round {round}: `alluvium check` finds nothing wrong in what is left"), || {
            launch.check_files()
        });
        if random.once_in(KILLED_STARTS_ONCE_IN) {
            kill_while_starting(&launch, &mut random)?;
        }
        server = launch.start()?;
        let name =
            format!("round {round}: killed after {kill_after} acknowledged requests, all as acknowledged");
        let verified = crowd.verify(server.address);
        let failed = verified.is_err();
        report.check(&name, || verified);
        if failed {
            // What follows would only repeat it; the data is kept for a look.
            println!("        data directory kept at `{}`; --seed {seed}", scratch.keep().display());
            return Ok(());
        }
    }
    server = server.stop()?.start()?;
    report.check("a graceful restart changes nothing", || crowd.verify(server.address));
    server.stop()?;
    Ok(())
}

impl Crowd {
    fn new(random: &mut Random) -> Self {
        let kinds = WRITERS.iter().flat_map(|&(kind, count)| (0..count).map(move |_| kind));
        Self {
            writers: kinds
                .zip(0..)
                .map(|(kind, id)| Writer::new(id, kind, Random::new(random.next())))
                .collect(),
            lifecycles: (0..LIFECYCLES).map(|id| Lifecycle::new(id, Random::new(random.next()))).collect(),
            tails: (0..TAILS).map(Tail::new).collect(),
        }
    }

    fn create(&self, address: SocketAddr) -> Result<()> {
        let mut connection = Connection::open(address)?;
        self.writers.iter().try_for_each(|writer| writer.create(&mut connection))
    }

    fn verify(&mut self, address: SocketAddr) -> Result<()> {
        let mut connection = Connection::open(address)?;
        for writer in &mut self.writers {
            writer.verify(&mut connection).with_context(|| writer.to_string())?;
        }
        for lifecycle in &mut self.lifecycles {
            lifecycle.verify(&mut connection).with_context(|| lifecycle.to_string())?;
        }
        self.tails.iter().try_for_each(|tail| tail.verify(&mut connection).with_context(|| tail.to_string()))
    }
}

/// Lets everybody work until enough is acknowledged, kills the server, and waits until everybody has noticed.
fn load_and_kill(server: Server, crowd: &mut Crowd, kill_after: u64) -> Result<Launch> {
    let address = server.address;
    let (acknowledged, counter) = mpsc::channel();
    thread::scope(|scope| {
        let mut clients = Vec::new();
        for writer in &mut crowd.writers {
            let acknowledged = acknowledged.clone();
            clients
                .push(scope.spawn(move || {
                    write(writer, address, &acknowledged).with_context(|| writer.to_string())
                }));
        }
        for lifecycle in &mut crowd.lifecycles {
            let acknowledged = acknowledged.clone();
            clients.push(scope.spawn(move || {
                lifecycle.work(address, &acknowledged).with_context(|| lifecycle.to_string())
            }));
        }
        for tail in &mut crowd.tails {
            clients.push(scope.spawn(move || tail.follow(address).with_context(|| tail.to_string())));
        }
        drop(acknowledged);
        let outcome =
            count(&counter, kill_after).map_err(|error| anyhow!("{error}; output:\n{}", server.output()));
        let launch = server.kill()?;
        // Clients end by themselves: the connection of each is gone. What they report explains a failed outcome.
        for client in clients {
            client.join().map_err(|_| anyhow!("a client panicked"))??;
        }
        outcome.map(|()| launch)
    })
}

/// Appends until the connection breaks.
fn write(writer: &mut Writer, address: SocketAddr, acknowledged: &Sender<()>) -> Result<()> {
    let Ok(mut connection) = Connection::open(address) else { return Ok(()) };
    loop {
        match writer.append_next(&mut connection) {
            Ok(Answer::Acknowledged) => acknowledge(acknowledged),
            Ok(Answer::Refused(response)) => bail!("an append got status {}", response.status),
            Err(_) => return Ok(()),
        }
    }
}

fn count(counter: &Receiver<()>, wanted: u64) -> Result<()> {
    for counted in 0..wanted {
        if counter.recv_timeout(ACKNOWLEDGEMENT_SECONDS_MAX).is_err() {
            bail!("no acknowledgement after {counted} of {wanted}");
        }
    }
    Ok(())
}

/// Starts the server and kills it within milliseconds, once or more, so that a crash falls into recovery too.
fn kill_while_starting(launch: &Launch, random: &mut Random) -> Result<()> {
    for _ in 0..random.between(1, 3) {
        let mut child = launch.spawn()?;
        thread::sleep(Duration::from_micros(random.between(0, 30_000)));
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}

/// Tells the round that one more request was acknowledged.
fn acknowledge(acknowledged: &Sender<()>) {
    // The round has counted enough and is about to kill the server.
    let _ = acknowledged.send(());
}
