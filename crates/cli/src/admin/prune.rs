//! `alluvium admin prune-feed`: the old blocks of a feed.

use alluvium_server::config::parse_time_ms;
use alluvium_server::words::counted;
use clap::Args;
use serde_json::{Value, json};

use super::table::bytes;
use super::{ActArgs, number, post, url};
use crate::stream::connection::ConnectionArgs;
use crate::stream::failure::Failure;

pub(super) const LONG_ABOUT: &str = "\
Remove the old blocks of a feed. Without `--yes` it only says what that would come to.\n\n\
They go for good, and only at the server: whoever reads the feed from before is told where it begins now, replicas keep what \
they have, and a replica that comes later gets what is left. Positions and sequences are never given again. The file of the \
space does not get smaller; what is appended next takes the room.";

/// Arguments of `alluvium admin prune-feed`.
#[derive(Debug, Args)]
pub(super) struct PruneArgs {
    /// The space.
    space: String,

    /// The feed.
    feed: String,

    #[command(flatten)]
    keep: Kept,

    #[command(flatten)]
    act: ActArgs,
}

/// What is to stay.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Kept {
    /// Keep its last blocks, so many; `0` keeps none.
    #[arg(long, value_name = "NUMBER")]
    keep_blocks: Option<u64>,

    /// Keep what came in this time, by the server's clock.
    #[arg(long, value_name = "TIME", value_parser = parse_time_ms)]
    keep_time: Option<u64>,

    /// Keep what is from this position on.
    #[arg(long, value_name = "POSITION")]
    from: Option<u64>,
}

pub(super) fn run(connection: &ConnectionArgs, args: &PruneArgs) -> Result<(), Failure> {
    let client = connection.client()?;
    let url = url(connection, "prune-feed");
    let mut body = json!({ "space_id": args.space, "feed_id": args.feed, "dry_run": !args.act.yes });
    let Kept { keep_blocks, keep_time, from } = &args.keep;
    for (name, value) in [("keep_blocks", keep_blocks), ("keep_ms", keep_time), ("from_position", from)] {
        if let Some(value) = value {
            body[name] = json!(value);
        }
    }
    let (mut blocks, mut size) = (0, 0);
    loop {
        let answer = post(&client, &url, &body)?;
        let from = number(&answer, "from_position")?;
        blocks += number(&answer, "pruned_blocks")?;
        size += number(&answer, "pruned_bytes")?;
        let amount = format!("{} ({})", counted(blocks, "blocks"), bytes(&Value::from(size)));
        let line = if args.act.yes {
            format!("{amount} removed: those below position {from}")
        } else {
            format!("{amount} would be removed: those below position {from}; `--yes` does it")
        };
        if args.act.tell(connection, &answer, &line)? {
            return Ok(());
        }
        // What has come meanwhile changes nothing of what was meant.
        body = json!({
            "space_id": args.space, "feed_id": args.feed, "dry_run": false, "from_position": from,
        });
    }
}
