//! `alluvium feed ls`: feeds in the file, or at the server.

use alluvium_feed_client::FeedInfo;
use alluvium_feed_client::Transport as _;
use alluvium_feed_protocol::{Id, ListFeedsRequest, Namespace, Request, RequestId, Response};
use clap::Args;
use serde::Serialize;

use super::place::{Opened, Place};
use super::{conflicts, failure, print};
use crate::stream::failure::Failure;

/// Arguments of `alluvium feed ls`.
#[derive(Debug, Args)]
pub(super) struct LsArgs {
    /// Ask the server, which knows all feeds of the space.
    #[arg(long)]
    remote: bool,

    /// Only feeds of this namespace.
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// Only feeds whose name begins so.
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,

    /// A JSON object for each feed.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Printed<'a> {
    feed: &'a Id,
    namespace: Option<&'a str>,
    blocks: u64,
    bytes: u64,
    head_position: Option<u64>,
    /// From where on it is complete, if older blocks were removed at the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pruned_below: Option<u64>,
}

pub(super) fn run(place: &Place, args: &LsArgs) -> Result<(), Failure> {
    let namespace = args
        .namespace
        .as_deref()
        .map(|name| Namespace::parse(name).map_err(|error| Failure::Usage(format!("`{name}`: {error}"))));
    let namespace = namespace.transpose()?;
    if args.remote {
        return remote(place, args, namespace.as_ref());
    }
    let feeds = place.open()?.space.feeds().map_err(failure::replica)?;
    let prefix = args.prefix.as_deref().unwrap_or_default();
    for feed in &feeds {
        let is_wanted = namespace.is_none() || feed.namespace == namespace;
        if is_wanted && feed.feed_id.as_str().starts_with(prefix) {
            show(args, feed)?;
        }
    }
    if feeds.is_empty() {
        place.notes().note("no feed is in the file; `feed ls --remote` asks the server");
    }
    Ok(())
}

/// Asks the server, page by page.
fn remote(place: &Place, args: &LsArgs, namespace: Option<&Namespace>) -> Result<(), Failure> {
    let Opened { space, client: _client } = place.create()?;
    let transport = space.transport(&place.server()?).map_err(|error| failure::server(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Other(format!("no runtime: {error}")))?;
    let mut after = None;
    loop {
        let request = Request::ListFeeds(ListFeedsRequest {
            request_id: RequestId::parse("ls").unwrap_or_default(),
            namespace: namespace.cloned(),
            prefix: args.prefix.clone(),
            after: after.take(),
            ..ListFeedsRequest::default()
        });
        let answer = runtime.block_on(transport.call(space.id(), request));
        let answer = answer.map_err(|error| Failure::Unavailable(error.to_string()))?;
        match answer {
            Response::ListFeeds(page) => {
                for feed in &page.feeds {
                    show(args, feed)?;
                }
                after = page.next_after;
            }
            Response::Error(error) => return Err(failure::answer(&error)),
            _ => return Err(Failure::Other("the server answers something else".to_owned())),
        }
        if after.is_none() {
            return Ok(());
        }
    }
}

fn show(args: &LsArgs, feed: &FeedInfo) -> Result<(), Failure> {
    let namespace = feed.namespace.as_ref().map(Namespace::as_str);
    if args.json {
        return print::json(&Printed {
            feed: &feed.feed_id,
            namespace,
            blocks: feed.block_count,
            bytes: feed.byte_count,
            head_position: feed.head_position,
            pruned_below: feed.pruned_below,
        });
    }
    let namespace = namespace.unwrap_or("-");
    let pruned = feed.pruned_below.map(|below| format!("\tfrom position {below} on")).unwrap_or_default();
    let blocks = conflicts::blocks(feed.block_count);
    print::line(format_args!("{}\t{namespace}\t{blocks}{pruned}", feed.feed_id))
}
