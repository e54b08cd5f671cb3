//! `alluvium stream …`: the client side of the protocol on standard input and output.
//!
//! Each command lives in a file of its own under `stream/`, with its arguments and its `run`. What they
//! share is beneath: `client` speaks HTTP and decides what to retry, `input` frames standard input,
//! `output` writes standard output, `failure` gives every ending its exit code.

mod append;
mod bootstrap;
pub(crate) mod bucket;
pub(crate) mod client;
mod close;
pub(crate) mod connection;
mod create;
pub(crate) mod failure;
mod follow;
mod fork;
mod head;
mod input;
pub(crate) mod interrupt;
mod json;
mod multipart;
pub(crate) mod notes;
mod output;
pub(crate) mod progress;
mod read;
mod remove;
mod report;
mod snapshot;
mod tail;
mod target;

use std::process::ExitCode;

use alluvium_server::config::exit_codes;
use clap::{Args, Subcommand};

use crate::exit_codes_help;
use connection::ConnectionArgs;
pub(crate) use connection::{
    TLS_CA_VARIABLE, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, URL_DEFAULT, URL_VARIABLE,
};
use failure::{EXIT_CODES, Failure};

/// What `alluvium stream --help` says after the options.
fn after_help() -> String {
    format!(
        "STREAM is a name (`chat`, `rooms/7`) on the server given by --url, a stream in a bucket there\n\
         (`/ds/bucket/stream`), or the full URL of a stream.\n\n{}",
        exit_codes_help(EXIT_CODES)
    )
}

/// The part of the page of options that is about `alluvium stream`.
pub(crate) fn docs_markdown() -> String {
    let mut page = format!(
        "\n## `alluvium stream` and `alluvium bucket`\n\n\
         | flag | variable | default | meaning |\n|---|---|---|---|\n\
         | `--url` | `{URL_VARIABLE}` | `{URL_DEFAULT}` | The server; streams are under its `/v1/stream/`, unless the URL has a path of its own. |\n\
         | `--token` | `{TOKEN_VARIABLE}` | (none) | Sent as `Authorization: Bearer`. The variable keeps it out of the process list. |\n\
         | `--token-file` | `{TOKEN_FILE_VARIABLE}` | (none) | A file with the token. |\n\
         | `--tls-ca` | `{TLS_CA_VARIABLE}` | (none) | Trust the certificates in this file (PEM) in place of the public ones. |\n\n\
         The other flags of each command are in its `--help`.\n\n\
         ## Exit codes of `alluvium stream` and `alluvium bucket`\n\n"
    );
    exit_codes(&mut page, EXIT_CODES);
    page
}

/// Arguments of `alluvium stream`.
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct StreamArgs {
    #[command(flatten)]
    connection: ConnectionArgs,

    #[command(subcommand)]
    command: StreamCommand,
}

#[derive(Debug, Subcommand)]
enum StreamCommand {
    /// Create a stream, or make sure that it exists as asked for.
    Create(create::CreateArgs),
    /// Append standard input, or messages given as arguments, to a stream.
    #[command(long_about = append::LONG_ABOUT)]
    Append(append::AppendArgs),
    /// Print what a stream holds, from an offset to its tail.
    #[command(long_about = read::LONG_ABOUT)]
    Read(read::ReadArgs),
    /// Follow a stream live until it is closed.
    #[command(long_about = tail::LONG_ABOUT)]
    Tail(tail::TailArgs),
    /// Show a stream's content type, tail, lifetime and whether it is closed.
    Head(head::HeadArgs),
    /// Close a stream: readers see its end, and nothing can be appended any more.
    Close(close::CloseArgs),
    /// Create a stream that shares another one's content up to an offset.
    Fork(fork::ForkArgs),
    /// Delete streams.
    #[command(name = "rm")]
    Remove(remove::RemoveArgs),
    /// Publish or fetch the snapshot of a stream in a bucket.
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotCommand),
    /// Fetch a stream's snapshot and every message after it, in one request.
    #[command(long_about = bootstrap::LONG_ABOUT)]
    Bootstrap(bootstrap::BootstrapArgs),
}

/// Runs one stream command against a server.
pub(crate) fn run(args: StreamArgs) -> ExitCode {
    let StreamArgs { connection, command } = args;
    let outcome = match command {
        StreamCommand::Create(args) => create::run(&connection, &args),
        StreamCommand::Append(args) => append::run(&connection, &args),
        StreamCommand::Read(args) => read::run(&connection, &args),
        StreamCommand::Tail(args) => tail::run(&connection, &args),
        StreamCommand::Head(args) => head::run(&connection, &args),
        StreamCommand::Close(args) => close::run(&connection, &args),
        StreamCommand::Fork(args) => fork::run(&connection, &args),
        StreamCommand::Remove(args) => remove::run(&connection, &args),
        StreamCommand::Snapshot(command) => snapshot::run(&connection, &command),
        StreamCommand::Bootstrap(args) => bootstrap::run(&connection, &args),
    };
    conclude(outcome)
}

/// Says why a command failed, and with which exit code it ends.
pub(crate) fn conclude(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) | Err(Failure::ReaderGone) => ExitCode::SUCCESS,
        Err(failure) => {
            notes::error(&failure);
            failure.exit_code()
        }
    }
}
