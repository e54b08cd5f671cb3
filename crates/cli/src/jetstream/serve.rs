//! `alluvium jetstream serve`: a relay's network archived, verified, and served.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use alluvium_access::{Access, AccessError, Doors, Guarded, Options as AccessOptions, Origins, Rates};
use alluvium_env::{Env, Room, RoomLimits};
use alluvium_http::{
    BindError, Drained, Front, HEADER_BYTES_MAX, IDLE_TIMEOUT_S, Networks, QUERIES_BYTES_MAX,
    RESPONSES_BYTES_MAX, RequestBody, ResponseBudget, Server, ServerOptions, Shutdown, bind,
    default_reactors, heavy_reactors,
};
use alluvium_jetstream::http::{OPERATIONS, operation};
use alluvium_jetstream::{Options, Surface};
use alluvium_jetstream_server::{Jetstream, JetstreamConfig, StartError};
use alluvium_server::config::{
    DISK_FREE_MIN, DISK_FREE_WARN, FreeSpace, LogFormat, MetricsPlace, check_free_space, closest,
};
use alluvium_server::metrics::plumbing;
use alluvium_server::sight::{Operated, Operations, OwnError, OwnServer, Sight, Visibility, Watched};
use alluvium_server::{
    EXIT_CONFIG, EXIT_DATA, EXIT_ENGINE_FAULT, EXIT_IO, EXIT_LOCKED, EXIT_PORT_IN_USE, log_to_stderr,
};
use alluvium_server::{RoomKeeper, keep_certificates, scheme};
use clap::builder::BoolishValueParser;
use clap::{Arg, ArgAction, Args, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::tls::TlsArgs;

/// What the variables of this command begin with. The rest is the name of a flag.
const VARIABLE_PREFIX: &str = "ALLUVIUM_JETSTREAM_";
/// Where the network's directory of accounts is, unless said otherwise.
const PLC: &str = "https://plc.directory";
/// Room for headers beside a path and query of 64 KiB, the longest that there can be over HTTP/2: filters are long.
const OTHER_HEADERS_BYTES: usize = 32 * 1024;
/// A query of ten thousand accounts is some 400 KiB, and as the reference implementation takes it.
const QUERY_BYTES_MAX: usize = 1024 * 1024;
/// How long connections have to end after a signal.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is looked whether the ingest has ended by itself.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Arguments of `alluvium jetstream serve`.
#[derive(Debug, Args)]
#[command(mut_args(with_variable))]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct ServeArgs {
    /// The relay to follow: `wss://…`, or `ws://…` with `--allow-private`.
    #[arg(long, value_name = "URL")]
    relay: String,
    /// The directory of `did:plc` accounts.
    #[arg(long, value_name = "URL", default_value = PLC)]
    plc: String,
    /// Where feeds and archive are served.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Where everything is kept.
    #[arg(long, value_name = "DIR", default_value = "alluvium-jetstream")]
    data_dir: PathBuf,
    /// With an empty archive: begin behind this number of the relay, 0 for all that it still has; else with what comes.
    #[arg(long, value_name = "NUMBER")]
    start_cursor: Option<u64>,
    /// Begin with an empty archive and gather nothing of the past; the only mode there is so far.
    #[arg(long)]
    no_backfill: bool,
    /// Slow the relay down when an account's queue is full, instead of dropping from it and repairing the account.
    #[arg(long)]
    lossless: bool,
    /// Connect to addresses that are not public, and without TLS: for a network on this machine.
    #[arg(long)]
    allow_private: bool,
    /// How many hours back a live feed may begin; 0 for feeds that always begin with what comes.
    #[arg(long, value_name = "HOURS", default_value_t = 36)]
    lookback_hours: u64,
    /// Subscribers of live feeds at once.
    #[arg(long, value_name = "NUMBER", default_value_t = Options::default().subscribers_max)]
    subscribers_max: usize,
    /// Of them, those of one address that is not of this machine; 0 for any number.
    #[arg(long, value_name = "NUMBER", default_value_t = Options::default().subscribers_per_address_max)]
    subscribers_per_address_max: usize,
    /// Of one address's, those that begin in the past and have not caught up yet; 0 for any number.
    #[arg(long, value_name = "NUMBER", default_value_t = Options::default().replays_per_address_max)]
    replays_per_address_max: usize,
    /// Bytes of events a second that are read of files for one address, and as many at once; 0 for any number.
    #[arg(long, value_name = "BYTES", default_value_t = Options::default().replay_bytes_per_address_per_s)]
    replay_bytes_per_address_per_s: u64,
    /// Accounts that the filters of all subscribers name together; 0 for any number.
    #[arg(long, value_name = "NUMBER", default_value_t = Options::default().filter_dids_max)]
    filter_dids_max: usize,
    /// Bytes of the query of a request over HTTP/1.1. Over HTTP/2 there are 64 KiB, the path included.
    #[arg(long, value_name = "BYTES", default_value_t = QUERY_BYTES_MAX, value_parser = parse_query_bytes)]
    query_bytes_max: usize,
    /// Proxies that are believed what they say of their clients (`Forwarded`, `X-Forwarded-For`, `X-Forwarded-Proto`):
    /// addresses and networks with commas between, as in `127.0.0.1,10.0.0.0/8`.
    #[arg(long, value_name = "ADDRESSES", default_value = "")]
    trusted_proxies: Networks,
    /// Seconds for which a long-poll of `/streams/events` waits for news before it is answered 204.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = Options::default().long_poll_timeout.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    long_poll_timeout: u64,
    /// Never compress a live feed's messages by the socket's own means: some browsers cannot read them.
    #[arg(long)]
    no_deflate: bool,
    /// Seconds for which others may keep a segment without asking; it may be replaced when accounts are deleted.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    segment_max_age: u64,
    /// Bytes of a segment's blocks at which it is finished. A smaller one can be downloaded sooner, and there are more.
    #[arg(long, value_name = "BYTES", default_value_t = JetstreamConfig::new("", "").segment_bytes)]
    segment_bytes: u64,
    /// Events of a block, the least that is downloaded of a segment. Fewer compress worse.
    #[arg(long, value_name = "NUMBER", default_value_t = JetstreamConfig::new("", "").block_rows)]
    block_rows: usize,
    /// Bytes of verified events that may wait for the disk. Beyond them nothing more is verified until it has caught up.
    #[arg(long, value_name = "BYTES", default_value_t = JetstreamConfig::new("", "").write_queue_bytes)]
    write_queue_bytes: usize,
    /// With less of its disk free, nothing is taken from the relay until there is a quarter more: bytes, a part of the disk
    /// as in `5%`, or `off`.
    #[arg(long, value_name = "BYTES|PERCENT%|off", default_value_t = DISK_FREE_MIN)]
    disk_free_min: FreeSpace,
    /// With less of its disk free, the log and the metrics say so.
    #[arg(long, value_name = "BYTES|PERCENT%|off", default_value_t = DISK_FREE_WARN)]
    disk_free_warn: FreeSpace,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    tls: TlsArgs,
    /// What is logged to standard error: levels, also by module.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,
    /// How log lines are written: `text` for people, or `json`, one object a line.
    #[arg(long, value_name = "text|json", default_value = "text")]
    log_format: LogFormat,
    /// Where `/metrics` is: `main` beside the feeds, if those are served on a loopback address; an address and port of its
    /// own, with `/healthz` and `/readyz`; or `off`.
    #[arg(long, value_name = "main|off|ADDRESS:PORT", default_value = "main")]
    metrics_listen: MetricsPlace,
    /// The OpenTelemetry collector that traces and metrics are exported to, by OTLP over HTTP.
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
}

/// Who may use it. Anyone may read the feeds and the archive, as what is in them is public; what is for an operator needs
/// a token, but on an address of this machine without a file.
#[derive(Debug, Args)]
struct AccessArgs {
    /// File with tokens, read again when it changes: see docs/operating/access.md.
    #[arg(long, value_name = "PATH")]
    access_file: Option<PathBuf>,
    /// Whether a token may stand in the query of a URL, as `access_token`.
    #[arg(long)]
    token_in_query: bool,
    /// Origins of web pages that may use it, with commas between; * for all.
    #[arg(long, value_name = "ORIGINS", default_value = "*")]
    cors_origins: Origins,
    /// Requests in a second that one address may make; more are answered 429. Connections that are open are not counted
    /// again.
    #[arg(long, value_name = "NUMBER")]
    address_requests_per_s: Option<NonZeroU64>,
}

impl AccessArgs {
    fn options(&self, listen: SocketAddr) -> AccessOptions {
        AccessOptions {
            file: self.access_file.clone(),
            is_open: self.access_file.is_none() && listen.ip().to_canonical().is_loopback(),
            token_in_query: self.token_in_query,
            origins: self.cors_origins.clone(),
            address_rates: Rates {
                requests_per_s: self.address_requests_per_s.map(NonZeroU64::get),
                append_bytes_per_s: None,
            },
            ..AccessOptions::open(Doors::Jetstream)
        }
    }
}

/// Gives a flag a variable of its name, as flags of `alluvium serve` have one.
fn with_variable(arg: Arg) -> Arg {
    let Some(name) = arg.get_long().filter(|name| *name != "help") else { return arg };
    // Made once for the life of the process, a few dozen of them.
    let variable: &'static str = variable(name).leak();
    let arg = arg.env(variable);
    match arg.get_action() {
        ArgAction::SetTrue => arg.value_parser(BoolishValueParser::new()),
        _ => arg,
    }
}

fn variable(flag: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", flag.to_uppercase().replace('-', "_"))
}

/// The variables of this command, which `alluvium serve` passes over.
pub(crate) fn variables() -> Vec<String> {
    command().get_arguments().filter_map(Arg::get_long).map(variable).collect()
}

/// What is wrong with the environment: a variable of this command that it does not know.
fn unknown_variable() -> Option<String> {
    let known = variables();
    let mut ours = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let unknown = ours.find(|name| name.starts_with(VARIABLE_PREFIX) && !known.contains(name))?;
    let names: Vec<&str> = known.iter().filter_map(|name| name.strip_prefix(VARIABLE_PREFIX)).collect();
    let meant = unknown.strip_prefix(VARIABLE_PREFIX).and_then(|name| closest(name, &names));
    let hint = meant.map(|name| format!("; did you mean `{VARIABLE_PREFIX}{name}`?")).unwrap_or_default();
    Some(format!("unknown environment variable `{unknown}`{hint}"))
}

/// The flags alone.
fn command() -> Command {
    ServeArgs::augment_args(Command::new("alone"))
}

fn parse_query_bytes(text: &str) -> Result<usize, String> {
    let bytes = text.parse::<usize>().map_err(|error| error.to_string())?;
    if (1..=QUERIES_BYTES_MAX).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("a query has between 1 and {QUERIES_BYTES_MAX} bytes"))
    }
}

/// Why it did not start, or ended by itself.
struct Failure {
    message: String,
    code: u8,
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        use alluvium_jetstream_archive::Error as ArchiveError;
        let code = match &error {
            StartError::Archive(ArchiveError::Locked) => EXIT_LOCKED,
            StartError::Archive(error) if error.io_source().is_some() => EXIT_IO,
            StartError::Archive(_) => EXIT_DATA,
            StartError::Directory(_) | StartError::Store(_) | StartError::Thread => EXIT_IO,
            StartError::Ingest(_) => EXIT_CONFIG,
        };
        Self { message: error.to_string(), code }
    }
}

impl From<AccessError> for Failure {
    fn from(error: AccessError) -> Self {
        Self { message: error.to_string(), code: EXIT_CONFIG }
    }
}

impl From<OwnError> for Failure {
    fn from(error: OwnError) -> Self {
        let code = match &error {
            OwnError::Bind(BindError::InUse { .. }) => EXIT_PORT_IN_USE,
            OwnError::Bind(_) | OwnError::Start(_) => EXIT_IO,
        };
        Self { message: error.to_string(), code }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self { message: error.to_string(), code: EXIT_IO }
    }
}

/// Serves until a signal comes, or something fails.
pub(crate) fn run(args: &ServeArgs) -> ExitCode {
    let served = match unknown_variable() {
        Some(message) => Err(Failure { message, code: EXIT_CONFIG }),
        None => serve(args),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            drop(writeln!(io::stderr(), "error: {}", failure.message));
            ExitCode::from(failure.code)
        }
    }
}

fn serve(args: &ServeArgs) -> Result<(), Failure> {
    log_to_stderr(&args.log, args.log_format);
    let access = Access::start(args.access.options(args.listen), Env::real())?;
    let front = args
        .tls
        .front(front(args))
        .map_err(|error| Failure { message: error.to_string(), code: EXIT_CONFIG })?;
    let listener =
        bind(args.listen).map_err(|error| Failure { message: error.to_string(), code: EXIT_PORT_IN_USE })?;
    let env = Env::real();
    let sight = Sight::new(&env, Operations { names: OPERATIONS, of: operation::<RequestBody> });
    #[cfg(feature = "otlp")]
    let exporter = match &args.otlp_endpoint {
        Some(endpoint) => Some(alluvium_server::otlp::Exporter::start(endpoint, &env, &sight)?),
        None => None,
    };
    let own = OwnServer::start(args.metrics_listen, &sight)?;
    let room = Room::default();
    let keeper = room_keeper(args, &env, &room)?;
    let jetstream = Jetstream::start(&config(args, room), &env)?;
    keeper.show(&sight);
    let shutdown = Shutdown::new();
    let surface = Surface::with_ingest(
        jetstream.archive().clone(),
        jetstream.probe(),
        surface_options(args),
        shutdown.clone(),
    );
    let options = server_options(args);
    plumbing(&sight, &options.responses, options.connections_max, &front.counters);
    sight.add(jetstream.shown(&surface));
    sight.health().recovered();
    let shown = access.clone();
    sight.add(move |page| alluvium_server::metrics::access(page, &shown));
    let surface = Operated::new(surface, Arc::clone(&sight), visibility(args));
    let surface = Guarded::new(surface, access);
    let watched = Watched::new(surface, Arc::clone(&sight));
    let server = Server::start_with(listener, watched, options, front.clone(), shutdown)
        .map_err(|error| Failure { message: error.to_string(), code: EXIT_IO })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let failed = runtime.block_on(async {
        // Before it says that it is there: whoever waits for that may stop it at once.
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        announce(args, &front, server.address(), jetstream.archive().next_seq());
        let failed = tokio::select! {
            failure = failure(&jetstream) => Some(failure),
            () = keeper.keep() => None,
            watched = keep_certificates(front.tls.clone()) => return watched.map(|()| None),
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
        };
        sight.health().stopping();
        if let Drained::Cut { connections } = server.drain(STOP_TIMEOUT).await {
            drop(writeln!(io::stderr(), "{connections} connections did not end in time"));
        }
        Ok::<_, io::Error>(failed)
    })?;
    let stopped = jetstream.stop();
    #[cfg(feature = "otlp")]
    if let Some(exporter) = exporter {
        exporter.stop();
    }
    if let Some(own) = own {
        runtime.block_on(own.stop());
    }
    match failed {
        Some(message) => Err(Failure { message, code: EXIT_ENGINE_FAULT }),
        None => Ok(stopped?),
    }
}

/// What looks at the disk of the archive. The first look is before the relay is asked for anything.
fn room_keeper(args: &ServeArgs, env: &Env, room: &Room) -> Result<RoomKeeper, Failure> {
    check_free_space(args.disk_free_warn, args.disk_free_min)
        .map_err(|message| Failure { message, code: EXIT_CONFIG })?;
    let limits = RoomLimits { warn: args.disk_free_warn.0, min: args.disk_free_min.0 };
    env.disk.create_dir_all(&args.data_dir)?;
    let keeper = RoomKeeper::new(env, limits).and("data", args.data_dir.clone(), room.clone());
    keeper.look();
    Ok(keeper)
}

fn config(args: &ServeArgs, room: Room) -> JetstreamConfig {
    JetstreamConfig {
        room,
        plc: args.plc.clone(),
        start_cursor: args.start_cursor,
        lossless: args.lossless,
        allow_private: args.allow_private,
        segment_bytes: args.segment_bytes,
        block_rows: args.block_rows,
        write_queue_bytes: args.write_queue_bytes,
        ..JetstreamConfig::new(&args.relay, &args.data_dir)
    }
}

/// Where it is beside the feeds, `/metrics` is for this machine only.
const fn visibility(args: &ServeArgs) -> Visibility {
    match args.metrics_listen {
        // Where others may ask, they need a token for it.
        MetricsPlace::Main if args.listen.ip().is_loopback() || args.access.access_file.is_some() => {
            Visibility::Metrics
        }
        MetricsPlace::Main | MetricsPlace::Own(_) | MetricsPlace::Off => Visibility::HealthOnly,
    }
}

/// Why the archive or the ingest has ended by itself.
async fn failure(jetstream: &Jetstream) -> String {
    let ingest = async {
        loop {
            if let Some(error) = jetstream.failure() {
                return error.to_string();
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    };
    tokio::select! {
        error = jetstream.archive().ended() => error.to_string(),
        error = ingest => error,
    }
}

fn surface_options(args: &ServeArgs) -> Options {
    Options {
        lookback: Duration::from_secs(args.lookback_hours.saturating_mul(3600)),
        subscribers_max: args.subscribers_max.min(tokio::sync::Semaphore::MAX_PERMITS),
        subscribers_per_address_max: args.subscribers_per_address_max,
        replays_per_address_max: args.replays_per_address_max,
        replay_bytes_per_address_per_s: args.replay_bytes_per_address_per_s,
        filter_dids_max: args.filter_dids_max,
        deflate: !args.no_deflate,
        segment_max_age: Duration::from_secs(args.segment_max_age),
        long_poll_timeout: Duration::from_secs(args.long_poll_timeout),
        ..Options::default()
    }
}

fn front(args: &ServeArgs) -> Front {
    Front {
        trusted_proxies: args.trusted_proxies.clone(),
        query_bytes_max: args.query_bytes_max,
        ..Front::default()
    }
}

fn server_options(args: &ServeArgs) -> ServerOptions {
    let reactors = default_reactors();
    ServerOptions {
        reactors,
        heavy_reactors: heavy_reactors(reactors),
        connections_max: args.subscribers_max.saturating_add(1000),
        header_bytes_max: HEADER_BYTES_MAX + OTHER_HEADERS_BYTES,
        idle_timeout: Duration::from_secs(IDLE_TIMEOUT_S),
        responses: Arc::new(ResponseBudget::new(RESPONSES_BYTES_MAX)),
    }
}

/// Tells where everything is and how to use it.
fn announce(args: &ServeArgs, front: &Front, address: SocketAddr, next_seq: u64) {
    let scheme = scheme(front);
    let socket_scheme = if front.tls.is_some() { "wss" } else { "ws" };
    let text = format!(
        "listening      {scheme}://{address}\n\
         relay          {}\n\
         data           {}, next event {next_seq}\n\
         live           {socket_scheme}://{address}/subscribe\n\
         try            curl -N '{scheme}://{address}/streams/events?live=sse&offset=now'\n",
        args.relay,
        args.data_dir.display(),
    );
    // Whoever started it may not have stayed to read: no reason not to serve.
    drop(io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()));
}

/// The part of the page of options that is about this command.
pub(crate) fn docs_markdown() -> String {
    super::flags_markdown("alluvium jetstream serve", &command())
}
