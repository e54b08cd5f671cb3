//! `alluvium stream tail`: follows a stream live.

use clap::Args;

use super::connection::ConnectionArgs;
use super::failure::Failure;
use super::follow::Follower;
use super::output::Shape;

/// What `--help` says first.
pub(super) const LONG_ABOUT: &str = "\
Follow a stream live until it is closed.

Prints what is appended from now on, or with --offset what is there from an offset first. The messages of \
a JSON stream are printed one a line, other content as it is. A connection that breaks, or a server that \
restarts, is waited for; following continues from the last offset, and nothing is printed twice.

Server-sent events carry text: what is not UTF-8 comes out as replacement characters, a carriage return as a \
line feed. --long-poll delivers every byte as it was appended.";

/// Arguments of `alluvium stream tail`.
#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    /// The stream's name or URL.
    stream: String,

    /// Start here: an offset the server gave, `-1` for the beginning, or `now` for the tail.
    #[arg(long, value_name = "OFFSET", default_value = "now", allow_hyphen_values = true)]
    offset: String,

    /// Wait with long-polls in place of server-sent events.
    #[arg(long)]
    long_poll: bool,
}

pub(crate) fn run(connection: &ConnectionArgs, args: &TailArgs) -> Result<(), Failure> {
    let mut follower = Follower::new(connection, &args.stream, &args.offset, Shape::JsonLines)?;
    let outcome = follow(&mut follower, args.long_poll);
    follower.note_place(&outcome);
    outcome
}

fn follow(follower: &mut Follower, long_poll: bool) -> Result<(), Failure> {
    // History comes in pages, which are cheaper than events, and the first page tells the content type,
    // which an event stream does not.
    follower.catch_up()?;
    if long_poll {
        follower.long_poll()?;
    } else {
        follower.server_sent_events()?;
    }
    follower.finish()
}
