//! `alluvium stream head`: what a server says about a stream without its content.

use std::io::Write;

use clap::Args;
use serde::Serialize;
use ureq::http::Method;

use super::client::CONTENT_TYPE;
use super::client::{Answer, Call, Client};
use super::connection::ConnectionArgs;
use super::failure::Failure;
use super::snapshot::STREAM_SNAPSHOT_OFFSET;
use super::target::Target;
use alluvium_protocol::header::{STREAM_CLOSED, STREAM_EXPIRES_AT, STREAM_NEXT_OFFSET, STREAM_TTL};

/// Arguments of `alluvium stream head`.
#[derive(Debug, Args)]
pub(crate) struct HeadArgs {
    /// The stream's name or URL.
    stream: String,

    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

/// A stream's metadata, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Metadata {
    url: String,
    content_type: Option<String>,
    next_offset: String,
    closed: bool,
    snapshot_offset: Option<String>,
    ttl_seconds: Option<u64>,
    expires_at: Option<String>,
}

/// Asks for a stream's metadata (PROTOCOL §5.5).
pub(crate) fn head(client: &Client, target: &Target) -> Result<Answer, Failure> {
    client.call(&Call::new(Method::HEAD, target.url()))
}

pub(crate) fn run(connection: &ConnectionArgs, args: &HeadArgs) -> Result<(), Failure> {
    let target = connection.target(&args.stream)?;
    let answer = head(&connection.client()?, &target)?;
    let text = |name| answer.header(name).map(str::to_owned);
    let metadata = Metadata {
        url: target.url(),
        content_type: text(CONTENT_TYPE),
        next_offset: answer.require(STREAM_NEXT_OFFSET)?,
        closed: answer.flag(STREAM_CLOSED),
        snapshot_offset: text(STREAM_SNAPSHOT_OFFSET),
        ttl_seconds: answer.header(STREAM_TTL).and_then(|value| value.parse().ok()),
        expires_at: text(STREAM_EXPIRES_AT),
    };
    let mut out = std::io::stdout().lock();
    let printed = if args.json {
        serde_json::to_writer(&mut out, &metadata).map_err(Into::into).and_then(|()| writeln!(out))
    } else {
        print(&mut out, &metadata)
    };
    printed.and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

fn print(out: &mut impl Write, metadata: &Metadata) -> std::io::Result<()> {
    writeln!(out, "url:          {}", metadata.url)?;
    if let Some(content_type) = &metadata.content_type {
        writeln!(out, "content type: {content_type}")?;
    }
    writeln!(out, "next offset:  {}", metadata.next_offset)?;
    writeln!(out, "closed:       {}", if metadata.closed { "yes" } else { "no" })?;
    if let Some(offset) = &metadata.snapshot_offset {
        writeln!(out, "snapshot:     {offset}")?;
    }
    if let Some(seconds) = metadata.ttl_seconds {
        writeln!(out, "ttl:          {seconds} s after the last read or write")?;
    }
    if let Some(time) = &metadata.expires_at {
        writeln!(out, "expires at:   {time}")?;
    }
    Ok(())
}
