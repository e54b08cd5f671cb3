//! `alluvium jetstream simulate`: a network that is made up, on this machine.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use alluvium_http::Front;
use alluvium_jetstream_simulator::serve::{Options, SUBSCRIBERS_MAX, StartError};
use alluvium_jetstream_simulator::{ACCOUNTS_MAX, Act, Config, HOSTS_MAX, INITIAL_RECORDS_MAX, Simulator};
use alluvium_server::{EXIT_CONFIG, EXIT_IO, EXIT_PORT_IN_USE, keep_certificates, scheme};
use clap::{Args, CommandFactory as _};
use tokio::signal::unix::{SignalKind, signal};

use super::tls::TlsArgs;
use super::values::{self, number};

/// The most events that have happened before the start.
const PAST_MAX: u64 = 100_000;
/// A terabyte.
const HISTORY_BYTES_MAX: u64 = 1 << 40;

/// Arguments of `alluvium jetstream simulate`.
#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// Where relay and directory listen. The hosts take the ports behind it; with port 0, all take any.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7777")]
    listen: SocketAddr,
    /// What everything is drawn from.
    #[arg(long, value_name = "NUMBER", default_value_t = Config::default().seed)]
    seed: u64,
    /// Accounts, 1 to 10,000,000.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = Config::default().accounts,
        value_parser = number::<u32>(1..=ACCOUNTS_MAX.into())
    )]
    accounts: u32,
    /// Events in a second, up to 1,000,000 or what the machine can sign; 0 for a quiet network.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = Config::default().rate,
        value_parser = number::<u32>(0..=1_000_000)
    )]
    rate: u32,
    /// Hosts that the accounts live on, 1 to 64.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = Config::default().hosts,
        value_parser = number::<u32>(1..=HOSTS_MAX.into())
    )]
    hosts: u32,
    /// Records that an account has at most to begin with, up to 100,000.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = Config::default().initial_records_max,
        value_parser = number::<u32>(0..=INITIAL_RECORDS_MAX.into())
    )]
    initial_records_max: u32,
    /// Events that have happened before the start, up to 100,000: what a cursor of 0 gives.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        value_parser = number::<u32>(0..=PAST_MAX)
    )]
    past: u32,
    /// Frames that the relay can send again.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = Config::default().history_frames,
        value_parser = number::<usize>(1..=100_000_000)
    )]
    history_frames: usize,
    /// Bytes of frames that the relay keeps for that.
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = Config::default().history_bytes,
        value_parser = number::<usize>(1..=HISTORY_BYTES_MAX)
    )]
    history_bytes: usize,
    /// Accounts that sign with P-256 instead of K-256, of a hundred.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = Config::default().p256_percent,
        value_parser = number::<u32>(0..=100)
    )]
    p256_percent: u32,
    /// Accounts with a `did:web` instead of a `did:plc`, of a hundred. Their domains do not exist outside.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = Config::default().web_percent,
        value_parser = number::<u32>(0..=100)
    )]
    web_percent: u32,
    /// Give the first accounts, one for each port, a `did:web` of that port of `localhost`, where their documents are. A
    /// server with --allow-private finds them.
    #[arg(long)]
    local_web: bool,
    /// Subscribers of the relay at once.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = SUBSCRIBERS_MAX,
        value_parser = number::<usize>(1..=values::SUBSCRIBERS_MAX)
    )]
    subscribers_max: usize,
    #[command(flatten)]
    tls: TlsArgs,
}

/// Serves until a signal comes.
pub(crate) fn run(args: &SimulateArgs) -> ExitCode {
    match simulate(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            drop(writeln!(io::stderr(), "error: {}", failure.message));
            ExitCode::from(failure.code)
        }
    }
}

/// Why it ends before a signal.
struct Failure {
    message: String,
    code: u8,
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let code = match error {
            StartError::Config(_) | StartError::Ports => EXIT_CONFIG,
            StartError::Bind(_) => EXIT_PORT_IN_USE,
            StartError::Server(_) => EXIT_IO,
        };
        Self { message: error.to_string(), code }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self { message: error.to_string(), code: EXIT_IO }
    }
}

fn simulate(args: &SimulateArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let front = args
        .tls
        .front(Front::default())
        .map_err(|error| Failure { message: error.to_string(), code: EXIT_CONFIG })?;
    let options = Options {
        subscribers_max: args.subscribers_max,
        stop_timeout: Duration::from_secs(2),
        local_web: args.local_web,
        front: front.clone(),
        ..Options::new(args.listen)
    };
    let simulator = Simulator::start(config(args), &options)?;
    simulator.set_rate(args.rate);
    if args.past > 0 {
        let done = simulator.act(Act::Step { count: args.past });
        done.map_err(|error| Failure { message: error.to_string(), code: EXIT_CONFIG })?;
    }
    runtime.block_on(async {
        // Before it says that it is there: whoever waits for that may stop it at once.
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        announce(args, &front, &simulator);
        tokio::select! {
            () = simulator.run() => {}
            watched = keep_certificates(front.tls.clone()) => watched?,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        simulator.stop().await;
        Ok::<(), Failure>(())
    })
}

fn config(args: &SimulateArgs) -> Config {
    Config {
        seed: args.seed,
        accounts: args.accounts,
        hosts: args.hosts,
        // A quiet network can be woken up.
        rate: args.rate.max(1),
        initial_records_max: args.initial_records_max,
        p256_percent: args.p256_percent,
        web_percent: args.web_percent,
        history_frames: args.history_frames,
        history_bytes: args.history_bytes,
        ..Config::default()
    }
}

/// Tells where everything is and how to use it.
fn announce(args: &SimulateArgs, front: &Front, simulator: &Simulator) {
    let scheme = scheme(front);
    let relay = if front.tls.is_some() { "wss" } else { "ws" };
    let address = simulator.address();
    let hosts: Vec<String> = simulator.hosts().iter().map(|host| format!("{scheme}://{host}")).collect();
    let text = format!(
        "relay          {relay}://{address}\n\
         directory      {scheme}://{address}\n\
         hosts          {}\n\
         world          seed {}, {} accounts, {} events per second\n\
         faults         {scheme}://{address}/_oracle/faults\n\
         try            alluvium jetstream serve --allow-private --relay {relay}://{address} --plc {scheme}://{address} --start-cursor 0\n",
        hosts.join(" "),
        args.seed,
        args.accounts,
        args.rate,
    );
    // Whoever started it may not have stayed to read: no reason not to serve.
    drop(io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()));
}

/// The part of the page of options that is about this command.
pub(crate) fn docs_markdown() -> String {
    #[derive(clap::Parser)]
    struct Alone {
        #[command(flatten)]
        _args: SimulateArgs,
    }
    super::flags_markdown("alluvium jetstream simulate", &Alone::command())
}
