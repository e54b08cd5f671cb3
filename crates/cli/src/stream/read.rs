//! `alluvium stream read`: what a stream holds, from an offset to its tail.

use clap::Args;

use super::connection::ConnectionArgs;
use super::failure::Failure;
use super::follow::Follower;
use super::output::Shape;

/// What `--help` says first.
pub(super) const LONG_ABOUT: &str = "\
Print what a stream holds, from an offset to its tail.

The content goes to standard output as it is; a JSON stream becomes one JSON array, or with --json-lines \
one message a line. The next offset is printed on standard error at the end: give it to --offset to go on \
from there. A connection that breaks is made again and continues where it broke.";

/// Arguments of `alluvium stream read`.
#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    /// The stream's name or URL.
    stream: String,

    /// Start here: an offset the server gave, `-1` for the beginning, or `now` for the tail.
    #[arg(long, value_name = "OFFSET", default_value = "-1", allow_hyphen_values = true)]
    offset: String,

    /// Print the messages of a JSON stream one a line.
    #[arg(long)]
    json_lines: bool,
}

pub(crate) fn run(connection: &ConnectionArgs, args: &ReadArgs) -> Result<(), Failure> {
    let shape = if args.json_lines { Shape::JsonLines } else { Shape::JsonArray };
    let mut follower = Follower::new(connection, &args.stream, &args.offset, shape)?;
    let outcome = follower.catch_up().and_then(|()| follower.finish());
    follower.note_place(&outcome);
    outcome
}
