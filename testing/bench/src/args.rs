//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, Parser, Subcommand};

use crate::jetstream::{self, Jetstream};
use crate::server::{LaunchOptions, STREAM_PROBE, StopSignal};
use crate::target::{DEFAULT_MOUNT, Target, split_named};
use crate::workload::{Appends, CatchUp, FanOut, Spread, Streams, Uploads, Workload};

/// The longest measurement that can be asked for, in seconds.
const SECONDS_MAX: f64 = 600.0;

/// Benchmark of servers of the Durable Streams Protocol.
///
/// Measures one server, or two in alternation with the ratio of the first to the second.
#[derive(Debug, Parser)]
#[command(name = "alluvium-bench", version)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    command: Command,
}

/// Options of all workloads.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// What to measure, once or twice: `NAME=URL` of a running server, or `NAME=COMMAND` with `{port}` and
    /// `{dir}`, started afresh for every run.
    #[arg(long = "server", value_name = "NAME=URL|COMMAND", global = true)]
    servers: Vec<String>,
    /// The process of a running server; otherwise it is found by its port.
    #[arg(long = "pid", value_name = "NAME=PID", global = true)]
    pids: Vec<String>,
    /// The data directory of a running server, to report its size.
    #[arg(long = "data-dir", value_name = "NAME=DIR", global = true)]
    data_dirs: Vec<String>,
    /// How often each workload runs against each server [default: 3, 1 with --quick].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100), global = true)]
    runs: Option<u32>,
    /// Small and short: shows that everything works, its figures mean little.
    #[arg(long, global = true)]
    quick: bool,
    /// Also writes every figure of every run as JSON, to a file or `-` for standard output.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) json: Option<PathBuf>,
    /// Allows servers on other machines. Only for servers that are yours to load.
    #[arg(long, global = true)]
    allow_remote: bool,
    /// Waits before each run until other processes use less than this share of the CPUs, and repeats runs
    /// that were disturbed by more. Gives up after a while and keeps the least disturbed.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=100), global = true)]
    other_load_max: Option<u32>,
    /// The path that streams of started servers live under.
    #[arg(long, default_value = DEFAULT_MOUNT, global = true)]
    mount: String,
    /// Where data directories of started servers are made [default: the system's temporary directory].
    #[arg(long, value_name = "DIR", global = true)]
    data_root: Option<PathBuf>,
    /// Sends `Authorization: Bearer TOKEN` with every request to servers that are started.
    #[arg(long, value_name = "TOKEN", global = true)]
    token: Option<String>,
    /// Shows what started servers write to standard error.
    #[arg(long, global = true)]
    show_server_output: bool,
    /// The longest wait for a server to answer after its start, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds, global = true)]
    ready_within: Duration,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Small appends, every connection to a stream of its own.
    Appends(AppendArgs),
    /// Small appends, all connections to the same stream.
    Shared(AppendArgs),
    /// Builds one large stream, then reads it from its start.
    CatchUp(CatchUpArgs),
    /// One writer, many subscribers over server-sent events.
    FanOut(FanOutArgs),
    /// Creates many streams with one append each, then restarts the server with them.
    Streams(StreamArgs),
    /// Restarts the server with a moderate number of streams (`streams` with another default).
    Restart(StreamArgs),
    /// Appends at a steady rate, without and with snapshots being uploaded (this project's extensions).
    Uploads(UploadArgs),
    /// The first five of the above, with their defaults.
    All,
    /// A Jetstream catches up with a relay (of Jetstream servers, as the next five).
    JetstreamIngest(JetstreamArgs),
    /// A Jetstream's archive read from its start through its live feeds.
    JetstreamReplay(JetstreamReplayArgs),
    /// A Jetstream's live events to many subscribers.
    JetstreamFanOut(JetstreamFanOutArgs),
    /// A Jetstream's archive planned, downloaded and decoded by this project's client; of finished segments only.
    JetstreamDownload(JetstreamArgs),
    /// A Jetstream started with many finished segments (of this project's servers, whose files are made for it).
    JetstreamOpening(JetstreamOpeningArgs),
    /// Sealed segment files read by this process.
    JetstreamScan(JetstreamScanArgs),
    /// Serves, as a yardstick: answers every request at once and stores nothing.
    Ceiling(CeilingArgs),
}

#[derive(Debug, Args)]
struct CeilingArgs {
    /// The loopback port to serve on.
    #[arg(long)]
    port: u16,
}

#[derive(Debug, Default, Args)]
struct AppendArgs {
    /// Numbers of connections, each measured on its own [default: 1,16,64,256; 64 for one stream].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: Vec<u32>,
    /// The length of one append.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    bytes: u32,
    /// Load before anything is counted, in seconds [default: 1].
    #[arg(long, value_parser = seconds)]
    warm_up: Option<Duration>,
    /// Load that is counted, in seconds [default: 4].
    #[arg(long, value_parser = seconds)]
    duration: Option<Duration>,
}

#[derive(Debug, Default, Args)]
struct CatchUpArgs {
    /// The length of the stream in MiB [default: 256].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    mebibytes: Option<u32>,
    /// The length of one append in KiB [default: 64].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=8192))]
    append_kibibytes: Option<u32>,
    /// Numbers of readers, each measured on its own [default: 1,8].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=256))]
    readers: Vec<u32>,
    /// How often each reader reads the whole stream [default: 4].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    passes: Option<u32>,
}

#[derive(Debug, Default, Args)]
struct FanOutArgs {
    /// How many subscribers [default: 1000].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    subscribers: Option<u32>,
    /// Appends a second [default: 100].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: Option<u32>,
    /// The length of one append [default: 256].
    #[arg(long, value_parser = clap::value_parser!(u32).range(16..=65_536))]
    bytes: Option<u32>,
    /// How long to append, in seconds [default: 10].
    #[arg(long, value_parser = seconds)]
    duration: Option<Duration>,
}

#[derive(Debug, Default, Args)]
struct StreamArgs {
    /// How many streams [default: 100000; 10000 for `restart`].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    count: Option<u32>,
    /// How many connections make them [default: 64].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: Option<u32>,
    /// The length of the append to each [default: 256].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    bytes: Option<u32>,
    /// The longest time to make streams for, in seconds [default: 120].
    #[arg(long, value_parser = seconds)]
    within: Option<Duration>,
    /// How the server is stopped before its restart [default: term].
    #[arg(long, value_enum)]
    signal: Option<StopSignal>,
}

#[derive(Debug, Default, Args)]
struct UploadArgs {
    /// The length of one snapshot in MiB [default: 128; 8 with --quick].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    mebibytes: Option<u32>,
    /// Appends a second [default: 200].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: Option<u32>,
    /// The length of one append [default: 256].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    bytes: Option<u32>,
    /// How long each setting is measured, in seconds [default: 10].
    #[arg(long, value_parser = seconds)]
    duration: Option<Duration>,
    /// How fast to upload in MiB a second, 0 for as fast as it goes; each is measured on its own [default: 32,0].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=100_000))]
    paces: Vec<u32>,
}

/// The network that is simulated.
#[derive(Debug, Default, Args)]
struct JetstreamArgs {
    /// Events that happen while the server is away [default: 50000; 2000 with --quick].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=5_000_000))]
    events: Option<u32>,
    /// Accounts [default: 2000; 100 with --quick].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    accounts: Option<u32>,
    /// What the network is drawn from.
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

#[derive(Debug, Default, Args)]
struct JetstreamReplayArgs {
    #[command(flatten)]
    network: JetstreamArgs,
    /// The feeds, each measured on its own [default: all].
    #[arg(long, value_delimiter = ',', value_enum)]
    forms: Vec<jetstream::Form>,
    /// Numbers of subscribers, each measured on its own [default: 1].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1000))]
    subscribers: Vec<u32>,
}

#[derive(Debug, Default, Args)]
struct JetstreamFanOutArgs {
    #[command(flatten)]
    network: JetstreamArgs,
    /// The feeds, each measured on its own [default: all].
    #[arg(long, value_delimiter = ',', value_enum)]
    forms: Vec<jetstream::Form>,
    /// How many subscribers [default: 1000; 100 with --quick].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    subscribers: Option<u32>,
    /// Events a second [default: 20].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: Option<u32>,
    /// How long events happen, in seconds [default: 10; 2 with --quick].
    #[arg(long, value_parser = seconds)]
    duration: Option<Duration>,
}

#[derive(Debug, Default, Args)]
struct JetstreamOpeningArgs {
    /// Finished segments [default: 2000; 20 with --quick].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    segments: Option<u32>,
    /// Blocks of a segment.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    blocks: u32,
    /// Rows of a block.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rows: u32,
}

#[derive(Debug, Args)]
struct JetstreamScanArgs {
    /// Sealed segments.
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    if !(0.0..=SECONDS_MAX).contains(&seconds) {
        return Err(format!("at most {SECONDS_MAX} seconds"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

impl Common {
    /// The servers to measure.
    pub(crate) fn targets(&self) -> anyhow::Result<Vec<Target>> {
        ensure!(matches!(self.servers.len(), 1 | 2), "give one or two servers with `--server`");
        let mut targets = Vec::new();
        for text in &self.servers {
            targets.push(Target::parse(text, self.allow_remote)?);
        }
        if let [a, b] = targets.as_slice() {
            ensure!(a.name != b.name, "the two servers need different names");
        }
        for text in &self.pids {
            let (target, pid) = find(&mut targets, text)?;
            target.pid = Some(pid.parse().with_context(|| format!("`{pid}` is not a process id"))?);
        }
        for text in &self.data_dirs {
            let (target, dir) = find(&mut targets, text)?;
            target.data_dir = Some(dir.into());
        }
        Ok(targets)
    }

    /// How often each workload runs.
    pub(crate) fn runs(&self) -> u32 {
        self.runs.unwrap_or(if self.quick { 1 } else { 3 })
    }

    /// The share of the CPUs that others may use during a run, in percent.
    pub(crate) fn other_load_max(&self) -> Option<f64> {
        self.other_load_max.map(f64::from)
    }

    /// How servers are started.
    pub(crate) fn launch_options(&self) -> LaunchOptions {
        LaunchOptions {
            data_root: self.data_root.clone(),
            mount: self.mount.clone(),
            show_output: self.show_server_output,
            ready_within: self.ready_within,
            token: self.token.clone(),
            probe: STREAM_PROBE,
            relay: None,
        }
    }
}

fn find<'a, 'b>(targets: &'a mut [Target], text: &'b str) -> anyhow::Result<(&'a mut Target, &'b str)> {
    let (name, value) = split_named(text).with_context(|| format!("`{text}` is not NAME=VALUE"))?;
    let target = targets.iter_mut().find(|target| target.name == name);
    Ok((target.with_context(|| format!("no server is called `{name}`"))?, value))
}

impl Cli {
    /// The port to serve on, if this process is to be the yardstick rather than the client.
    pub(crate) fn ceiling_port(&self) -> Option<u16> {
        match &self.command {
            Command::Ceiling(args) => Some(args.port),
            _ => None,
        }
    }

    /// The segments to read, if this process is to do the work itself.
    pub(crate) fn scanned(&self) -> Option<&[PathBuf]> {
        match &self.command {
            Command::JetstreamScan(args) => Some(&args.files),
            _ => None,
        }
    }

    /// What to run, in order.
    pub(crate) fn workloads(&self) -> Vec<Workload> {
        let quick = self.common.quick;
        match &self.command {
            Command::Appends(args) => args.workloads(Spread::StreamEach, quick),
            Command::Shared(args) => args.workloads(Spread::OneStream, quick),
            Command::CatchUp(args) => vec![args.workload(quick)],
            Command::FanOut(args) => vec![args.workload(quick)],
            Command::Streams(args) => vec![args.workload(if quick { 2000 } else { 100_000 })],
            Command::Restart(args) => vec![args.workload(if quick { 2000 } else { 10_000 })],
            Command::Uploads(args) => vec![args.workload(quick)],
            Command::Ceiling(_) | Command::JetstreamScan(_) => Vec::new(),
            Command::JetstreamIngest(args) => vec![args.workload(quick)],
            Command::JetstreamReplay(args) => vec![args.workload(quick)],
            Command::JetstreamFanOut(args) => vec![args.workload(quick)],
            Command::JetstreamDownload(args) => vec![args.download(quick)],
            Command::JetstreamOpening(args) => vec![args.workload(quick)],
            Command::All => {
                let appends = AppendArgs { bytes: 256, ..AppendArgs::default() };
                let mut all = appends.workloads(Spread::StreamEach, quick);
                all.extend(appends.workloads(Spread::OneStream, quick));
                all.push(CatchUpArgs::default().workload(quick));
                all.push(FanOutArgs::default().workload(quick));
                all.push(StreamArgs::default().workload(if quick { 2000 } else { 100_000 }));
                all
            }
        }
    }
}

impl AppendArgs {
    fn workloads(&self, spread: Spread, quick: bool) -> Vec<Workload> {
        let connections = match (self.connections.as_slice(), spread) {
            ([], Spread::StreamEach) => &[1, 16, 64, 256],
            ([], Spread::OneStream) => [64].as_slice(),
            (given, _) => given,
        };
        let millis = |quick_ms, full_ms| Duration::from_millis(if quick { quick_ms } else { full_ms });
        let appends = |connections| Appends {
            connections,
            bytes: self.bytes as usize,
            spread,
            warm_up: self.warm_up.unwrap_or(millis(200, 1000)),
            duration: self.duration.unwrap_or(millis(1000, 4000)).max(Duration::from_millis(1)),
        };
        connections.iter().map(|&connections| Workload::Appends(appends(connections))).collect()
    }
}

impl CatchUpArgs {
    fn workload(&self, quick: bool) -> Workload {
        let readers = if self.readers.is_empty() { vec![1, 8] } else { self.readers.clone() };
        Workload::CatchUp(CatchUp {
            mebibytes: self.mebibytes.unwrap_or(if quick { 32 } else { 256 }),
            append_kibibytes: self.append_kibibytes.unwrap_or(64),
            readers,
            passes: self.passes.unwrap_or(4),
        })
    }
}

impl FanOutArgs {
    fn workload(&self, quick: bool) -> Workload {
        Workload::FanOut(FanOut {
            subscribers: self.subscribers.unwrap_or(if quick { 100 } else { 1000 }),
            rate: self.rate.unwrap_or(100),
            bytes: self.bytes.unwrap_or(256) as usize,
            duration: self.duration.unwrap_or(Duration::from_secs(if quick { 2 } else { 10 })),
        })
    }
}

impl StreamArgs {
    fn workload(&self, count: u32) -> Workload {
        Workload::Streams(Streams {
            count: self.count.unwrap_or(count),
            connections: self.connections.unwrap_or(64),
            bytes: self.bytes.unwrap_or(256) as usize,
            within: self.within.unwrap_or(Duration::from_mins(2)),
            restart: Some(self.signal.unwrap_or(StopSignal::Term)),
        })
    }
}

impl UploadArgs {
    fn workload(&self, quick: bool) -> Workload {
        let paces = if self.paces.is_empty() { vec![32, 0] } else { self.paces.clone() };
        Workload::Uploads(Uploads {
            mebibytes: self.mebibytes.unwrap_or(if quick { 8 } else { 128 }),
            rate: self.rate.unwrap_or(200),
            bytes: self.bytes.unwrap_or(256) as usize,
            duration: self.duration.unwrap_or(Duration::from_secs(if quick { 1 } else { 10 })),
            paces,
        })
    }
}

impl JetstreamArgs {
    fn world(&self, quick: bool) -> jetstream::World {
        jetstream::World {
            seed: self.seed,
            accounts: self.accounts.unwrap_or(if quick { 100 } else { 2000 }),
            events: self.events.unwrap_or(if quick { 2000 } else { 50_000 }),
        }
    }

    fn workload(&self, quick: bool) -> Workload {
        Workload::Jetstream(Jetstream::Ingest(jetstream::Ingest { world: self.world(quick) }))
    }

    fn download(&self, quick: bool) -> Workload {
        Workload::Jetstream(Jetstream::Download(jetstream::Download { world: self.world(quick) }))
    }
}

fn forms(given: &[jetstream::Form]) -> Vec<jetstream::Form> {
    if given.is_empty() { jetstream::Form::ALL.to_vec() } else { given.to_vec() }
}

impl JetstreamReplayArgs {
    fn workload(&self, quick: bool) -> Workload {
        Workload::Jetstream(Jetstream::Replay(jetstream::Replay {
            world: self.network.world(quick),
            forms: forms(&self.forms),
            subscribers: if self.subscribers.is_empty() { vec![1] } else { self.subscribers.clone() },
        }))
    }
}

impl JetstreamOpeningArgs {
    fn workload(&self, quick: bool) -> Workload {
        Workload::Jetstream(Jetstream::Opening(jetstream::Opening {
            segments: self.segments.unwrap_or(if quick { 20 } else { 2000 }),
            blocks: self.blocks,
            rows: self.rows,
        }))
    }
}

impl JetstreamFanOutArgs {
    fn workload(&self, quick: bool) -> Workload {
        Workload::Jetstream(Jetstream::FanOut(jetstream::FanOut {
            world: self.network.world(quick),
            forms: forms(&self.forms),
            subscribers: self.subscribers.unwrap_or(if quick { 100 } else { 1000 }),
            rate: self.rate.unwrap_or(20),
            duration: self.duration.unwrap_or(Duration::from_secs(if quick { 2 } else { 10 })),
        }))
    }
}

#[cfg(test)]
mod tests;
