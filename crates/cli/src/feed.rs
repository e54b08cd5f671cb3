//! `alluvium feed …`: a replica in a file, on standard input and output.
//!
//! Each command lives in a file of its own under `feed/`, with its arguments and its `run`. What they share is beneath:
//! `place` says which file, space and server, `print` writes blocks, `failure` gives every ending its exit code. All
//! that is more than arguments and printing is in `alluvium_feed_client`.

mod append;
mod conflicts;
mod failure;
mod follow;
mod ls;
mod place;
mod print;
mod read;
mod replicate;
mod status;
mod sync;
mod tail;

use std::process::ExitCode;

use alluvium_server::config::exit_codes;
use clap::{Args, Subcommand};

use self::failure::EXIT_CODES;
use self::place::{DB_DEFAULT, PlaceArgs, SPACE_DEFAULT};
pub(crate) use self::place::{DB_VARIABLE, SPACE_VARIABLE};
use crate::exit_codes_help;
use crate::stream::conclude;
use crate::stream::connection::ConnectionArgs;

/// What `alluvium feed --help` says after the options.
fn after_help() -> String {
    format!(
        "Everything but `sync` works without a server: `append` is done once the blocks are in the file, `read` reads\n\
         there, `tail` shows what comes in and synchronises meanwhile.\n\n\
         FEED is a name (`groceries`). Where it is left out, it is the file's own feed in the space: its name is drawn\n\
         on first use and remembered in the file, as is who writes here.\n\n{}",
        exit_codes_help(EXIT_CODES)
    )
}

/// The part of the page of options that is about `alluvium feed`.
pub(crate) fn docs_markdown() -> String {
    let mut page = format!(
        "\n## `alluvium feed`\n\n\
         `--url` and `--token` as above, and:\n\n\
         | flag | variable | default | meaning |\n|---|---|---|---|\n\
         | `--db`, `--file` | `{DB_VARIABLE}` | `{DB_DEFAULT}` | The file with the replica. |\n\
         | `--space` | `{SPACE_VARIABLE}` | the file's first one, else `{SPACE_DEFAULT}` | The space. |\n\n\
         The other flags of each command are in its `--help`.\n\n\
         ## Exit codes of `alluvium feed`\n\n"
    );
    exit_codes(&mut page, EXIT_CODES);
    page
}

/// Arguments of `alluvium feed`.
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct FeedArgs {
    #[command(flatten)]
    connection: ConnectionArgs,

    #[command(flatten)]
    place: PlaceArgs,

    #[command(subcommand)]
    command: FeedCommand,
}

#[derive(Debug, Subcommand)]
enum FeedCommand {
    /// Append standard input, or texts given as arguments, to a feed in the file.
    #[command(long_about = append::LONG_ABOUT)]
    Append(append::AppendArgs),
    /// Print what the file has of a feed, in the feed's order.
    #[command(long_about = read::LONG_ABOUT)]
    Read(read::ReadArgs),
    /// Show what comes in, and synchronise meanwhile.
    #[command(long_about = tail::LONG_ABOUT)]
    Tail(tail::TailArgs),
    /// Push what waits in the file, and pull what it replicates.
    #[command(long_about = sync::LONG_ABOUT)]
    Sync(sync::SyncArgs),
    /// Choose what to pull: nothing is, unless it is asked for here.
    #[command(long_about = replicate::LONG_ABOUT)]
    Replicate(replicate::ReplicateArgs),
    /// List feeds: those in the file, or with --remote those at the server.
    Ls(ls::LsArgs),
    /// Say who writes here, and what is left to push and to pull. Asks nobody.
    Status(status::StatusArgs),
    /// Show blocks that lost their place to other bytes, as when two copies of a file write as one actor.
    Conflicts(conflicts::ConflictsArgs),
}

/// Runs one feed command.
pub(crate) fn run(args: FeedArgs) -> ExitCode {
    let FeedArgs { connection, place, command } = args;
    let place = place::Place::new(connection, place);
    conclude(match command {
        FeedCommand::Append(args) => append::run(&place, &args),
        FeedCommand::Read(args) => read::run(&place, &args),
        FeedCommand::Tail(args) => tail::run(&place, &args),
        FeedCommand::Sync(args) => sync::run(&place, &args),
        FeedCommand::Replicate(args) => replicate::run(&place, &args),
        FeedCommand::Ls(args) => ls::run(&place, &args),
        FeedCommand::Status(args) => status::run(&place, &args),
        FeedCommand::Conflicts(args) => conflicts::run(&place, &args),
    })
}
