//! `alluvium admin trim`: the beginning of one stream.

use alluvium_server::config::{parse_size, parse_time_ms};
use clap::Args;
use serde_json::json;

use super::table::{bytes, text};
use super::{ActArgs, number, post, url};
use crate::stream::connection::ConnectionArgs;
use crate::stream::failure::Failure;

pub(super) const LONG_ABOUT: &str = "\
Give up the beginning of one stream. Without `--yes` it only says what that would come to.\n\n\
Whole messages go, and for good: whoever reads from before the new beginning is refused and told where it is now. What \
follows the latest snapshot stays, and so does what follows a fold checkpoint. What forks have of it stays theirs. The space \
comes back on the disk with later folds.";

/// Arguments of `alluvium admin trim`.
#[derive(Debug, Args)]
pub(super) struct TrimArgs {
    /// The URL path of the stream: `/v1/stream/logs/web`, `/ds/bucket/stream`.
    path: String,

    #[command(flatten)]
    keep: Kept,

    #[command(flatten)]
    act: ActArgs,
}

/// What is to stay.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Kept {
    /// Keep its last messages, no more than so many bytes of them, but the last whatever its size; `0` keeps nothing.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    keep_bytes: Option<u64>,

    /// Keep what was appended in this time, as far as the server knows how old it is.
    #[arg(long, value_name = "TIME", value_parser = parse_time_ms)]
    keep_time: Option<u64>,

    /// Keep what is from this offset on.
    #[arg(long, value_name = "OFFSET")]
    from: Option<String>,
}

pub(super) fn run(connection: &ConnectionArgs, args: &TrimArgs) -> Result<(), Failure> {
    let client = connection.client()?;
    let mut body = json!({ "path": args.path, "dry_run": !args.act.yes });
    let Kept { keep_bytes, keep_time, from } = &args.keep;
    if let Some(bytes) = keep_bytes {
        body["keep_bytes"] = json!(bytes);
    }
    if let Some(time_ms) = keep_time {
        body["keep_ms"] = json!(time_ms);
    }
    if let Some(offset) = from {
        body["from_offset"] = json!(offset);
    }
    let answer = post(&client, &url(connection, "trim"), &body)?;
    number(&answer, "trimmed_bytes")?;
    let (size, begins) = (bytes(&answer["trimmed_bytes"]), text(&answer["earliest_offset"]));
    let held = match answer["held_by"].as_str() {
        Some(hold) => format!("; what follows its {hold} stays"),
        None => String::new(),
    };
    let line = if args.act.yes {
        format!("{size} given up, the stream begins at {begins}{held}")
    } else {
        format!("{size} would be given up, the stream would begin at {begins}{held}; `--yes` does it")
    };
    args.act.tell(connection, &answer, &line).map(drop)
}
