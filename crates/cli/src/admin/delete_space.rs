//! `alluvium admin delete-space`: a space of feeds as a whole.

use alluvium_server::words::counted;
use clap::Args;
use serde_json::{Value, json};

use super::table::bytes;
use super::{ActArgs, number, post, url};
use crate::stream::connection::ConnectionArgs;
use crate::stream::failure::Failure;

pub(super) const LONG_ABOUT: &str = "\
Delete a space of feeds as a whole. Without `--yes` it only says what that would come to.\n\n\
It goes for good, and only at the server: whoever asks about it is told that it is deleted, and replicas keep what they have. \
Its name is not free again. The room of its blocks comes back on the disk at once. A command that was cut short can be run \
again: it goes on with what is left.";

/// Arguments of `alluvium admin delete-space`.
#[derive(Debug, Args)]
pub(super) struct DeleteSpaceArgs {
    /// The space.
    space: String,

    #[command(flatten)]
    act: ActArgs,
}

pub(super) fn run(connection: &ConnectionArgs, args: &DeleteSpaceArgs) -> Result<(), Failure> {
    let client = connection.client()?;
    let url = url(connection, "delete-space");
    let body = json!({ "space_id": args.space, "dry_run": !args.act.yes });
    let (mut blocks, mut size) = (0, 0);
    loop {
        let answer = post(&client, &url, &body)?;
        blocks += number(&answer, "deleted_blocks")?;
        size += number(&answer, "deleted_bytes")?;
        let amount = format!("{} ({})", counted(blocks, "blocks"), bytes(&Value::from(size)));
        let line = if args.act.yes {
            format!("deleted, and {amount} removed")
        } else {
            format!("{amount} would be removed; `--yes` does it")
        };
        if args.act.tell(connection, &answer, &line)? {
            return Ok(());
        }
    }
}
