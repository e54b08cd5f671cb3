//! `alluvium jetstream serve`: a relay's network archived, verified, and served.

mod args;

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use alluvium_access::{Access, AccessError, Guarded};
use alluvium_env::{Env, Room, RoomLimits};
use alluvium_http::{
    BindError, ErrorShape, Front, HEADER_BYTES_MAX, IDLE_TIMEOUT_S, RESPONSES_BYTES_MAX, RequestBody,
    ResponseBudget, Server, ServerOptions, Shutdown, bind, default_reactors, heavy_reactors,
};
use alluvium_jetstream::http::{OPERATIONS, operation};
use alluvium_jetstream::{Options, Surface};
use alluvium_jetstream_server::{Jetstream, JetstreamConfig, StartError};
use alluvium_server::config::{MetricsPlace, check_free_space};
use alluvium_server::keep::{KeepFault, WithBackups, try_folder};
use alluvium_server::metrics::plumbing;
use alluvium_server::sight::{Operated, Operations, OwnError, OwnServer, Sight, Visibility, Watched};
use alluvium_server::{
    Causes, EXIT_CONFIG, EXIT_DATA, EXIT_ENGINE_FAULT, EXIT_IO, EXIT_LOCKED, EXIT_PORT_IN_USE, log_to_stderr,
};
use alluvium_server::{RoomKeeper, Signals, drain, keep_certificates, reached_at, say_stopped, scheme};

pub(crate) use self::args::{ServeArgs, variables};
use self::args::{command, unknown_variable};

/// Room for headers beside a path and query of 64 KiB, the longest that there can be over HTTP/2: filters are long.
const OTHER_HEADERS_BYTES: usize = 32 * 1024;
/// How long connections have to end after a signal.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is looked whether the ingest has ended by itself.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Why it did not start, or ended by itself.
struct Failure {
    message: String,
    code: u8,
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let code = match &error {
            StartError::InUse(_) => EXIT_LOCKED,
            StartError::Archive(error) if error.io_source().is_some() => EXIT_IO,
            StartError::Archive(_)
            | StartError::Foreign(_)
            | StartError::ForeignPart(_)
            | StartError::Version { .. } => EXIT_DATA,
            StartError::Directory { .. } | StartError::Store(_) | StartError::Thread => EXIT_IO,
            StartError::Ingest(_) => EXIT_CONFIG,
        };
        let hint = match &error {
            StartError::Foreign(_) | StartError::ForeignPart(_) => {
                "\nhint: nothing was changed there; choose an empty or new directory with `--data-dir`"
            }
            _ => "",
        };
        Self { message: format!("{error}{hint}"), code }
    }
}

impl From<AccessError> for Failure {
    fn from(error: AccessError) -> Self {
        Self { message: error.to_string(), code: EXIT_CONFIG }
    }
}

impl From<KeepFault> for Failure {
    fn from(error: KeepFault) -> Self {
        let code = if matches!(error, KeepFault::Inside { .. }) { EXIT_CONFIG } else { EXIT_IO };
        Self { message: format!("`--backup-dir` cannot be used: {}", Causes(&error)), code }
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
    log_to_stderr(&args.log.0, args.log_format);
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
    let options = server_options(args);
    let surface = Surface::with_ingest(
        jetstream.archive().clone(),
        jetstream.probe(),
        Options { responses: Arc::clone(&options.responses), ..surface_options(args) },
        shutdown.clone(),
    );
    plumbing(&sight, &options.responses, options.connections_max, &front.counters);
    sight.add(jetstream.shown(&surface));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Before anything says that it is there: whoever waits for that may stop it at once.
    let mut signals = runtime.block_on(async { Signals::receive() })?;
    sight.health().recovered();
    let shown = access.clone();
    sight.add(move |page| alluvium_server::metrics::access(page, &shown));
    let surface = WithBackups::of_archive(surface, args.backup_dir.clone(), jetstream.archive(), &sight);
    let surface = Operated::new(surface, Arc::clone(&sight), visibility(args));
    let surface = Guarded::new(surface, access);
    let watched = Watched::new(surface, Arc::clone(&sight));
    let server = Server::start_with(listener, watched, options, front.clone(), shutdown)
        .map_err(|error| Failure { message: error.to_string(), code: EXIT_IO })?;
    let failed = runtime.block_on(async {
        announce(args, &front, server.address(), jetstream.archive().next_seq());
        let (failed, signal) = tokio::select! {
            failure = failure(&jetstream) => (Some(failure), None),
            () = keeper.keep() => (None, None),
            watched = keep_certificates(front.tls.clone()) => return watched.map(|()| None),
            signal = signals.next() => (None, Some(signal)),
        };
        sight.health().stopping();
        drain(server, STOP_TIMEOUT, signal, &mut signals).await;
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
    if let Some(message) = failed {
        return Err(Failure { message, code: EXIT_ENGINE_FAULT });
    }
    stopped?;
    say_stopped();
    Ok(())
}

/// What looks at the disk of the archive, once backups are known to have a place if they are wanted. The first look is
/// before the relay is asked for anything.
fn room_keeper(args: &ServeArgs, env: &Env, room: &Room) -> Result<RoomKeeper, Failure> {
    check_free_space(args.disk_free_warn, args.disk_free_min)
        .map_err(|message| Failure { message, code: EXIT_CONFIG })?;
    let limits = RoomLimits { warn: args.disk_free_warn.0, min: args.disk_free_min.0 };
    env.disk.create_dir_all(&args.data_dir)?;
    if let Some(folder) = &args.backup_dir {
        try_folder(env.disk.as_ref(), folder, &args.data_dir)?;
    }
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
        subscribers_max: args.subscribers_max,
        subscribers_per_address_max: args.subscribers_per_address_max,
        replays_per_address_max: args.replays_per_address_max,
        replay_bytes_per_address_per_s: args.replay_bytes_per_address_per_s,
        filter_dids_max: args.filter_dids_max,
        deflate: !args.no_deflate,
        segment_max_age: Duration::from_secs(args.segment_max_age),
        long_poll_timeout: Duration::from_secs(args.long_poll_timeout),
        write_timeout: Duration::from_secs(args.write_timeout),
        ..Options::default()
    }
}

fn front(args: &ServeArgs) -> Front {
    Front {
        trusted_proxies: args.trusted_proxies.clone(),
        query_bytes_max: args.query_bytes_max,
        error_shape: ErrorShape::Xrpc,
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
         try            curl -N '{scheme}://{}/streams/events?live=sse&offset=now'\n",
        args.relay,
        args.data_dir.display(),
        reached_at(address),
    );
    // Whoever started it may not have stayed to read: no reason not to serve.
    drop(io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()));
}

/// The part of the page of options that is about this command.
pub(crate) fn docs_markdown() -> String {
    super::flags_markdown("alluvium jetstream serve", &command())
}
