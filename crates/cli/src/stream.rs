//! `alluvium stream …`: the client side of the protocol on standard input and output.
//!
//! Each command lives in a file of its own under `stream/`, with its arguments and its `run`. What they
//! share is beneath: `client` speaks HTTP and decides what to retry, `input` frames standard input,
//! `output` writes standard output, `failure` gives every ending its exit code.

mod append;
mod bootstrap;
pub(crate) mod bucket;
mod client;
mod close;
mod connection;
mod create;
mod failure;
mod follow;
mod fork;
mod head;
mod input;
mod json;
mod multipart;
mod notes;
mod output;
mod progress;
mod read;
mod remove;
mod snapshot;
mod tail;
mod target;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use connection::ConnectionArgs;
use failure::Failure;

/// What `alluvium stream --help` says after the options; the exit codes are a contract with scripts.
const AFTER_HELP: &str = "\
STREAM is a name (`chat`, `rooms/7`) on the server given by --url, a stream in a bucket there
(`/ds/bucket/stream`), or the full URL of a stream.

Exit codes:
  0  done
  1  any other failure (bad data, refused as invalid or too large, local I/O)
  2  wrong usage
  3  the stream does not exist
  4  conflict: exists with another configuration, is closed, has another content type,
     or the producer's sequence does not fit
  5  gone: deleted but still forked from, or the offset is no longer kept
  6  fenced: a newer epoch of this producer has taken over
  7  unavailable: the server could not be reached, or kept failing, until --give-up-after
  8  denied: the server wants (other) credentials

A reader that goes away (`alluvium stream read chat | head -1`) is not a failure.";

/// Arguments of `alluvium stream`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
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
    Append(append::AppendArgs),
    /// Print what a stream holds, from an offset to its tail.
    Read(read::ReadArgs),
    /// Follow a stream live until it is closed.
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
fn conclude(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) | Err(Failure::ReaderGone) => ExitCode::SUCCESS,
        Err(failure) => {
            notes::error(&failure);
            failure.exit_code()
        }
    }
}
