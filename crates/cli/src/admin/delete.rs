//! `alluvium admin delete`: all streams under a prefix, in bounded batches.

use alluvium_server::words::counted;
use clap::Args;
use serde_json::json;

use super::table::bytes;
use super::{ActArgs, number, post, url};
use crate::stream::connection::ConnectionArgs;
use crate::stream::failure::Failure;

pub(super) const LONG_ABOUT: &str = "\
Delete all streams under a prefix. Without `--yes` it only says how many there are and what they hold.\n\n\
Streams are deleted in batches, in the order of their paths. Those that are created after the command has begun stay. A \
command that was cut short can be run again: it goes on with what is left. What forks have of a deleted stream stays theirs. \
The space comes back on the disk with later folds.";

/// Arguments of `alluvium admin delete`.
#[derive(Debug, Args)]
pub(super) struct DeleteArgs {
    /// Where the streams are, by their URL paths: `/v1/stream/logs`, `/ds/bucket`. That stream and all below it, by whole
    /// segments.
    prefix: String,

    /// How many streams are deleted with one request.
    #[arg(long, value_name = "NUMBER", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=1000))]
    batch: u64,

    #[command(flatten)]
    act: ActArgs,
}

pub(super) fn run(connection: &ConnectionArgs, args: &DeleteArgs) -> Result<(), Failure> {
    let client = connection.client()?;
    let url = url(connection, "delete");
    let found = post(&client, &url, &json!({ "prefix": args.prefix, "dry_run": true }))?;
    let (streams, size) = (number(&found, "streams")?, bytes(&found["bytes"]));
    if !args.act.yes {
        let counted =
            format!("{} with {size} would be deleted; `--yes` does it", counted(streams, "streams"));
        return args.act.tell(connection, &found, &counted).map(drop);
    }
    // Nothing that is created from now on is meant.
    let before_ms = number(&found, "as_of_ms")?;
    let body = json!({
        "prefix": args.prefix, "dry_run": false, "limit": args.batch, "created_before_ms": before_ms,
    });
    let (mut deleted, mut deleted_bytes) = (0, 0);
    loop {
        let batch = post(&client, &url, &body)?;
        deleted += number(&batch, "deleted_streams")?;
        deleted_bytes += number(&batch, "deleted_bytes")?;
        let left = number(&batch, "remaining_streams")?;
        let size = bytes(&json!(deleted_bytes));
        let line = format!("{} with {size} deleted, {left} left", counted(deleted, "streams"));
        args.act.tell(connection, &batch, &line)?;
        if left == 0 {
            return Ok(());
        }
    }
}
