//! `alluvium stream bootstrap`: a snapshot and everything after it, in one request (extensions §3).

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use ureq::http::Method;

use super::client::{CONTENT_TYPE, Call};
use super::connection::ConnectionArgs;
use super::failure::Failure;
use super::multipart::{Headers, Parts, boundary_of};
use super::snapshot::{STREAM_SNAPSHOT_OFFSET, create};
use alluvium_protocol::header::{STREAM_CLOSED, STREAM_NEXT_OFFSET, STREAM_UP_TO_DATE};

pub(super) const LONG_ABOUT: &str = "\
Fetch a stream's snapshot and every message after it, in one request.

The snapshot goes to the file given by --snapshot, and nowhere without it; the messages go to standard \
output or to --messages: those of a JSON stream one a line, others one after another. With --dir everything \
is kept apart in a directory: `snapshot`, `message-00000000`, `message-00000001`, ... and `bootstrap.json`, \
which has the content types and the offsets.

The next offset is printed on standard error at the end: give it to `alluvium stream tail --offset` to go on \
from there.";

/// Arguments of `alluvium stream bootstrap`.
#[derive(Debug, Args)]
pub(crate) struct BootstrapArgs {
    /// The stream, as `/ds/BUCKET/STREAM` or a URL.
    stream: String,

    /// Write the snapshot to this file; nothing is written if there is none.
    #[arg(long, value_name = "FILE", conflicts_with = "dir")]
    snapshot: Option<PathBuf>,

    /// Write the messages to this file instead of standard output.
    #[arg(long, value_name = "FILE", conflicts_with = "dir")]
    messages: Option<PathBuf>,

    /// Write everything apart into this new directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// The response's headers that matter.
struct Heading {
    snapshot_offset: String,
    next_offset: String,
    up_to_date: bool,
    closed: bool,
}

pub(crate) fn run(connection: &ConnectionArgs, args: &BootstrapArgs) -> Result<(), Failure> {
    let target = connection.target(&args.stream)?.resource("bootstrap")?;
    let answer = connection.client()?.call(&Call::new(Method::GET, target.url()))?;
    let heading = Heading {
        snapshot_offset: answer.require(STREAM_SNAPSHOT_OFFSET)?,
        next_offset: answer.require(STREAM_NEXT_OFFSET)?,
        up_to_date: answer.flag(STREAM_UP_TO_DATE),
        closed: answer.flag(STREAM_CLOSED),
    };
    let content_type = answer.require(CONTENT_TYPE)?;
    let boundary = boundary_of(&content_type)
        .ok_or_else(|| Failure::Other(format!("the answer is `{content_type}`, not a bootstrap")))?;
    let mut parts = Parts::new(answer.into_reader(), &boundary);
    match &args.dir {
        Some(dir) => write_dir(&mut parts, &heading, dir)?,
        None => write_apart(&mut parts, &heading, args)?,
    }
    let is_left_out = heading.has_snapshot() && args.snapshot.is_none() && args.dir.is_none();
    let Heading { snapshot_offset, next_offset, up_to_date, .. } = heading;
    let more = if up_to_date { "" } else { " (more follows)" };
    let left_out = if is_left_out { "\nsnapshot not written; give --snapshot" } else { "" };
    connection
        .notes()
        .note(format_args!("snapshot offset: {snapshot_offset}{left_out}\nnext offset: {next_offset}{more}"));
    Ok(())
}

impl Heading {
    fn has_snapshot(&self) -> bool {
        self.snapshot_offset != "-1"
    }
}

fn write_apart<R: Read>(
    parts: &mut Parts<R>,
    heading: &Heading,
    args: &BootstrapArgs,
) -> Result<(), Failure> {
    first_part(parts)?;
    if let Some(path) = &args.snapshot
        && heading.has_snapshot()
    {
        let mut file = create(path)?;
        copy(parts, &mut file)?;
    }
    let mut out: Box<dyn Write> = match &args.messages {
        Some(path) => Box::new(io::BufWriter::new(create(path)?)),
        None => Box::new(io::BufWriter::new(io::stdout().lock())),
    };
    while let Some(headers) = parts.next_part().map_err(|error| broken(&error))? {
        copy(parts, &mut out)?;
        if content_type_of(&headers).starts_with("application/json") {
            out.write_all(b"\n").map_err(|error| Failure::output(&error))?;
        }
    }
    out.flush().map_err(|error| Failure::output(&error))
}

fn write_dir<R: Read>(parts: &mut Parts<R>, heading: &Heading, dir: &Path) -> Result<(), Failure> {
    fs::create_dir(dir)
        .map_err(|error| Failure::Other(format!("cannot make `{}`: {error}", dir.display())))?;
    let headers = first_part(parts)?;
    let mut snapshot = Value::Null;
    if heading.has_snapshot() {
        copy(parts, &mut create(&dir.join("snapshot"))?)?;
        snapshot = json!({ "file": "snapshot", "content_type": content_type_of(&headers) });
    }
    let mut messages = Vec::new();
    while let Some(headers) = parts.next_part().map_err(|error| broken(&error))? {
        let name = format!("message-{:08}", messages.len());
        copy(parts, &mut create(&dir.join(&name))?)?;
        messages.push(json!({
            "file": name,
            "content_type": content_type_of(&headers),
            "offset": value_of(&headers, "stream-offset"),
        }));
    }
    let description = json!({
        "snapshot_offset": heading.snapshot_offset,
        "next_offset": heading.next_offset,
        "up_to_date": heading.up_to_date,
        "closed": heading.closed,
        "snapshot": snapshot,
        "messages": messages,
    });
    // Written last: a directory without it is a bootstrap that broke off.
    let mut file = create(&dir.join("bootstrap.json"))?;
    writeln!(file, "{description:#}").map_err(|error| Failure::output(&error))
}

fn first_part<R: Read>(parts: &mut Parts<R>) -> Result<Headers, Failure> {
    let headers = parts.next_part().map_err(|error| broken(&error))?;
    headers.ok_or_else(|| Failure::Other("the bootstrap has no parts".to_owned()))
}

fn value_of<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

fn content_type_of(headers: &Headers) -> &str {
    value_of(headers, CONTENT_TYPE).unwrap_or_default()
}

/// Copies the current part. Which end failed decides what the user is told.
fn copy<R: Read>(parts: &mut Parts<R>, to: &mut dyn Write) -> Result<(), Failure> {
    let mut written = Ok(());
    let read = parts.body(&mut |piece| {
        written = to.write_all(piece);
        if written.is_err() { Err(io::ErrorKind::Other.into()) } else { Ok(()) }
    });
    written.map_err(|error| Failure::output(&error))?;
    read.map_err(|error| broken(&error))
}

fn broken(error: &io::Error) -> Failure {
    Failure::Unavailable(format!("the bootstrap broke off: {error}"))
}
