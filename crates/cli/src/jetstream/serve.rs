//! `alluvium jetstream serve`: a relay archived and served.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use alluvium_env::Env;
use alluvium_jetstream_server::{Jetstream, JetstreamConfig, StartError};
use alluvium_server::{EXIT_CONFIG, EXIT_ENGINE_FAULT, EXIT_IO, EXIT_PORT_IN_USE};
use clap::{Args, CommandFactory as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::interval;

/// How often it is looked whether the ingest has failed.
const LOOK: Duration = Duration::from_millis(200);

/// Arguments of `alluvium jetstream serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The relay: `wss://…`, or `ws://…` for one on this machine.
    #[arg(long, value_name = "URL", default_value = "wss://bsky.network")]
    relay: String,
    /// The directory of `did:plc`.
    #[arg(long, value_name = "URL", default_value = "https://plc.directory")]
    plc: String,
    /// Where feeds and files are served.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Where everything is kept.
    #[arg(long, value_name = "DIRECTORY", default_value = "./alluvium-jetstream")]
    data_dir: PathBuf,
    /// The number of the relay behind which to begin if nothing is stored; without it, with what happens next.
    #[arg(long, value_name = "NUMBER")]
    start_cursor: Option<u64>,
    /// Begin with an empty archive and gather nothing of the past. There is no other mode yet.
    #[arg(long)]
    no_backfill: bool,
    /// Wait when one account says more than can be verified, instead of dropping from it and fetching its repository.
    #[arg(long)]
    lossless: bool,
    /// Connect to addresses that are not public, and without TLS: for a simulated network on this machine.
    #[arg(long)]
    allow_private_addresses: bool,
    /// Threads that verify, up to 1,024.
    #[arg(long, value_name = "NUMBER", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// Threads that fetch repositories, up to 1,024.
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    fetchers: u16,
}

/// Serves until a signal comes.
pub(crate) fn run(args: &ServeArgs) -> ExitCode {
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(io::stderr(), "error: {error}"));
            ExitCode::from(code(&error))
        }
    }
}

const fn code(error: &StartError) -> u8 {
    match error {
        StartError::Bind(_) => EXIT_PORT_IN_USE,
        StartError::Directory(_) | StartError::Server(_) => EXIT_IO,
        StartError::Store(_) => EXIT_CONFIG,
        StartError::Archive(_) | StartError::Ingest(_) | StartError::Thread => EXIT_ENGINE_FAULT,
    }
}

fn serve(args: &ServeArgs) -> Result<(), StartError> {
    let config = JetstreamConfig {
        plc: args.plc.clone(),
        listen: args.listen,
        start_cursor: args.start_cursor,
        lossless: args.lossless,
        allow_private: args.allow_private_addresses,
        workers: args.workers.into(),
        fetchers: args.fetchers.into(),
        ..JetstreamConfig::new(&args.relay, &args.data_dir)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(StartError::Directory)?;
    runtime.block_on(async {
        // Before it says that it is there: whoever waits for that may stop it at once.
        let signals = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
        let [Ok(mut terminate), Ok(mut interrupt)] = signals else {
            return Err(StartError::Thread);
        };
        let jetstream = Jetstream::start(&config, &Env::real())?;
        announce(args, &jetstream);
        let mut look = interval(LOOK);
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = look.tick() => {
                    if let Some(failure) = jetstream.failure() {
                        return Err(failure.into());
                    }
                }
            }
        }
        jetstream.stop().await
    })
}

fn announce(args: &ServeArgs, jetstream: &Jetstream) {
    let address = jetstream.address().unwrap_or(args.listen);
    let text = format!(
        "listening      http://{address}\nrelay          {}\ndirectory      {}\ndata           {}\n",
        args.relay,
        args.plc,
        args.data_dir.display(),
    );
    // Whoever started it may not have stayed to read: no reason not to serve.
    drop(io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()));
}

/// The part of the page of options that is about this command.
pub(crate) fn docs_markdown() -> String {
    #[derive(clap::Parser)]
    struct Alone {
        #[command(flatten)]
        _args: ServeArgs,
    }
    super::flags_markdown("serve", &Alone::command())
}
