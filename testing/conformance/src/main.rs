//! Black-box proof: everything here knows the server only as a binary, a port and a data directory.
//!
//! Each subcommand is one claim of the README and fails loudly when the claim does not hold. `cargo xtask test`
//! runs them all against the release binary; each also runs alone:
//!
//! * `suite` – the official conformance suite, every test of it.
//! * `clients` – the published npm and `PyPI` clients, over restarts.
//! * `buckets` – the extension: buckets, snapshots, retention, bootstrap, and what goes beyond it.
//! * `access` – who may do what at which door: every operation for every kind of token, and what stays open.
//! * `backup` – backups of a server under load, what comes back of them, and looking through what is there.
//! * `crash` – `kill -9` under load, again and again, and what must hold afterwards.
//! * `feeds` – clients and server of feeds killed in a loop, cut connections, a server that loses its data.
//! * `simulator` – the network that is made up, as a consumer sees it.
//! * `jetstream` – a server that follows that network, with published clients, killed again and again.
//! * `jetstream-model` – the same at several seeds, every path compared with the model of the network.
//! * `jetstream-faults` – everything that can be wrong with a network, and what must come of it.
//! * `jetstream-crashes` – that server killed and without power at every step to the disk, its readers killed and resumed.
//! * `jetstream-soak` – that server and a network that never rests, over restarts for as long as it is told.
//! * `many-streams` – 100,000 streams, a restart, and a bounded number of open files.
//! * `full-disk` – a disk without room, and a write the kernel refuses.
//! * `websockets` – this project's WebSockets against those of npm `ws` and `PyPI` `websockets`, both ways.
//! * `feed-sockets` – feeds over WebSocket: npm clients over restarts, and a thousand subscribers.
//! * `tls` – TLS and HTTP/2 with curl, Node and a page in Chromium; certificates that change.
//! * `abuse` – peers that send too slowly, too much or the wrong thing, and memory meanwhile.
//! * `subscriptions` – the workers of the documentation, webhooks over `kill -9`.
//! * `sight` – metrics that move as they should, health, and names of requests.
//! * `openapi` – the descriptions of both HTTP surfaces, tried status by status.
//! * `deploy` – units that allow what the servers do, and the proxies of `deploy/` in front of one.
//! * `failed-sync` – a sync that fails, injected from outside.
//! * `soak` – a mixed load over restarts for as long as it is told, every byte checked, and whether anything grows.

#![expect(
    clippy::disallowed_methods,
    reason = "a test harness talks to real processes, files and time; nothing here is simulated"
)]
#![expect(clippy::print_stdout, reason = "a command-line tool reports on standard output")]

mod abuse;
mod access;
mod admin;
mod backup;
mod buckets;
mod certificates;
mod check;
mod clients;
mod crash;
mod deleted_spaces;
mod deploy;
mod failed_sync;
mod feeds;
mod frames;
mod front;
mod full_disk;
mod http;
mod jetstream;
mod many_streams;
mod message;
mod openapi;
mod procfs;
mod prunes;
mod random;
mod server;
mod sight;
mod simulator;
mod soak;
mod sockets;
mod subscriptions;
mod suite;
mod tools;
mod trims;
mod writer;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};

use crate::check::Report;
use crate::server::Store;

/// Runs the black-box checks against an `alluvium` binary.
#[derive(Debug, Parser)]
struct Cli {
    /// The binary under test.
    #[arg(long, global = true, default_value = "target/release/alluvium")]
    binary: PathBuf,
    /// What keeps the streams, in the claims that are made of more than one store: `suite`, `clients`, `crash` and `failed-sync`.
    #[arg(long, global = true, default_value = "engine")]
    store: Store,
    #[command(subcommand)]
    claim: Claim,
}

#[derive(Debug, Subcommand)]
enum Claim {
    /// The official suite: 338 tests passed, none failed, none skipped; with another store than the engine, 332 without
    /// the reserved subscription APIs.
    Suite(suite::Options),
    /// The published clients: each message seen once, over graceful and forced restarts.
    Clients,
    /// Buckets, snapshots and bootstrap: every requirement of the extension, in every state of the store.
    Buckets,
    /// Access: every operation of every door for every kind of caller, open streams, limits, and a log without a token.
    Access,
    /// Backups under load, brought back: nothing acknowledged lost, nothing torn, clients of feeds heal.
    Backup,
    /// What an operator does: rules of retention, lists by size and idleness, totals, deletions by prefix, of old blocks and
    /// of spaces.
    Admin,
    /// `kill -9` under load: nothing acknowledged lost, nothing doubled, nothing torn.
    Crash(crash::Options),
    /// Feeds under `kill -9` of clients and server, over cut connections: nothing lost or doubled, one order everywhere.
    Feeds(feeds::Options),
    /// `alluvium jetstream simulate`: the same network from the same seed, and faults that come once.
    Simulator,
    /// `alluvium jetstream serve`: published clients over restarts, and `kill -9` in a loop.
    Jetstream,
    /// `alluvium jetstream serve` at several seeds: every public path tells what the model of the network knows.
    JetstreamModel,
    /// `alluvium jetstream serve` and everything that can be wrong with a network: each fault fires, and does what it must.
    JetstreamFaults,
    /// `alluvium jetstream serve` killed and without power at every step to the disk, and `tail` and `backfill` killed and
    /// resumed.
    JetstreamCrashes,
    /// `alluvium jetstream serve` over restarts for as long as it is told: two subscribers and the files have everything as it
    /// happened, and nothing grows.
    JetstreamSoak(jetstream::SoakOptions),
    /// Replaces a segment: the process that `jetstream-crashes` kills meanwhile.
    #[command(hide = true)]
    ReplaceSegment(jetstream::ReplaceOptions),
    /// 100,000 streams: made, restarted, read, with a bounded number of open files.
    ManyStreams(many_streams::Options),
    /// A full disk is a clear error and everything acknowledged stays readable.
    FullDisk(full_disk::Options),
    /// WebSockets against the implementations of others, as client and as server, with all kinds of compression.
    Websockets,
    /// Feeds over WebSocket: npm clients over restarts, and a thousand subscribers with slow ones among them.
    FeedSockets(sockets::crowd::Options),
    /// TLS and HTTP/2: curl, Node, a page in Chromium that tails twenty streams, certificates that change.
    Tls,
    /// Peers that send too slowly, too much or the wrong thing: each is bounded, and others are served meanwhile.
    Abuse,
    /// Subscriptions: the workers of the documentation word for word, and webhooks over `kill -9`.
    Subscriptions,
    /// Metrics, `/healthz`, `/readyz`, request ids, `alluvium top`.
    Sight,
    /// `docs/openapi.json` and `docs/openapi-jetstream.json`: every path, method and status in them is tried, and every operation is there.
    Openapi,
    /// The files of `deploy/`: system calls that the units allow; nginx, `HAProxy` and Caddy in front of a server.
    Deploy,
    /// A failed sync or write stops the process and loses nothing acknowledged.
    FailedSync,
    /// A mixed load on all doors with restarts: every byte is as written, and memory, files, disk and latencies do not grow.
    Soak(soak::Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Claim::ReplaceSegment(options) = &cli.claim {
        return match jetstream::replace(options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                println!("{error:#}");
                ExitCode::FAILURE
            }
        };
    }
    match run(cli) {
        Ok(report) => report.finish(),
        Err(error) => {
            println!("FAILED  {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<Report> {
    ensure!(
        cli.binary.is_file(),
        "no binary at `{}`; build it with `cargo build --release`",
        cli.binary.display()
    );
    let binary = cli.binary.canonicalize()?;
    let mut report = Report::new();
    match cli.claim {
        Claim::Suite(options) => suite::run(&binary, cli.store, &options, &mut report)?,
        Claim::Clients => clients::run(&binary, cli.store, &mut report)?,
        Claim::Buckets => buckets::run(&binary, &mut report)?,
        Claim::Access => access::run(&binary, &mut report)?,
        Claim::Backup => backup::run(&binary, cli.store, &mut report)?,
        Claim::Admin => {
            admin::run(&binary, &mut report)?;
            trims::run(&binary, &mut report)?;
            prunes::run(&binary, &mut report)?;
            deleted_spaces::run(&binary, &mut report)?;
        }
        Claim::Crash(options) => crash::run(&binary, cli.store, &options, &mut report)?,
        Claim::Feeds(options) => feeds::run(&binary, &options, &mut report)?,
        Claim::Simulator => simulator::run(&binary, &mut report)?,
        Claim::Tls => front::run(&binary, &mut report)?,
        Claim::Abuse => abuse::run(&binary, &mut report)?,
        Claim::Jetstream => jetstream::run(&binary, &mut report)?,
        Claim::JetstreamModel => jetstream::against_model(&binary, &mut report),
        Claim::JetstreamFaults => jetstream::with_faults(&binary, &mut report)?,
        Claim::JetstreamCrashes => jetstream::with_crashes(&binary, &mut report)?,
        Claim::JetstreamSoak(options) => jetstream::soak(&binary, &options, &mut report),
        // It was done before: it needs no server.
        Claim::ReplaceSegment(_) => {}
        Claim::ManyStreams(options) => many_streams::run(&binary, &options, &mut report)?,
        Claim::FullDisk(options) => full_disk::run(&binary, &options, &mut report)?,
        Claim::Websockets => sockets::peers::run(&mut report)?,
        Claim::FeedSockets(options) => sockets::feeds(&binary, &options, &mut report)?,
        Claim::Subscriptions => subscriptions::run(&binary, &mut report)?,
        Claim::Sight => sight::run(&binary, &mut report)?,
        Claim::Openapi => openapi::run(&binary, &mut report)?,
        Claim::Deploy => deploy::run(&binary, &mut report)?,
        Claim::FailedSync => failed_sync::run(&binary, cli.store, &mut report)?,
        Claim::Soak(options) => soak::run(&binary, &options, &mut report)?,
    }
    Ok(report)
}
