//! `alluvium stream snapshot`: what stands for a stream's beginning (extensions §2).

use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use ureq::http::Method;

use super::client::{Answer, AttemptError, CONTENT_TYPE, Call, Content, Repeat};
use super::connection::ConnectionArgs;
use super::failure::Failure;
use super::progress::Progress;

/// The offset that a snapshot stands before.
pub(super) const STREAM_SNAPSHOT_OFFSET: &str = "stream-snapshot-offset";
/// Asks to keep the history.
const STREAM_RETAIN: &str = "stream-retain";
const IF_MATCH: &str = "if-match";
const ETAG: &str = "etag";
/// Bytes copied at once.
const COPIED_BYTES: usize = 64 * 1024;

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Publish a snapshot of everything before an offset; the history before it goes.
    Put(PutArgs),
    /// Fetch the latest snapshot.
    Get(GetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// The stream, as `/ds/BUCKET/STREAM` or a URL.
    stream: String,

    /// Where the snapshot ends: an offset that the server gave.
    #[arg(long, value_name = "OFFSET", allow_hyphen_values = true)]
    offset: String,

    /// The file with the snapshot, or `-` for standard input, which is sent once and not again.
    file: PathBuf,

    /// What the snapshot is [default: application/octet-stream].
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,

    /// Keep what is before the offset readable.
    #[arg(long)]
    retain_all: bool,

    /// Publish though there is nothing in the file or on standard input, which is refused otherwise.
    #[arg(long)]
    allow_empty: bool,

    /// Replace only the snapshot with this entity tag; `*` for any.
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The stream, as `/ds/BUCKET/STREAM` or a URL.
    stream: String,

    /// The snapshot at this offset instead of the latest.
    #[arg(long, value_name = "OFFSET", allow_hyphen_values = true)]
    offset: Option<String>,

    /// Write to this file instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(connection: &ConnectionArgs, command: &SnapshotCommand) -> Result<(), Failure> {
    match command {
        SnapshotCommand::Put(args) => put(connection, args),
        SnapshotCommand::Get(args) => get(connection, args),
    }
}

fn put(connection: &ConnectionArgs, args: &PutArgs) -> Result<(), Failure> {
    if let "-1" | "now" = args.offset.as_str() {
        return Err(Failure::Usage(format!(
            "`{}` is a place to read from; a snapshot stands at an offset that the server gave",
            args.offset
        )));
    }
    let target = connection.target(&args.stream)?.resource(&format!("snapshot/{}", args.offset))?;
    let from_stdin = args.file == Path::new("-");
    let is_empty = if from_stdin { is_stdin_empty()? } else { is_file_empty(&args.file)? };
    if is_empty && !args.allow_empty {
        // A broken pipe before this command would otherwise cost the history.
        return Err(Failure::Other(
            "the snapshot is empty, nothing was published; give --allow-empty if that is meant".to_owned(),
        ));
    }
    let (content, repeat) = if from_stdin {
        (Content::Stdin, Repeat::OnlyIfUntouched)
    } else {
        // The same snapshot again replaces itself, unless another one must be there.
        let repeat = if args.if_match.is_some() { Repeat::OnlyIfUntouched } else { Repeat::Safe };
        (Content::File(&args.file), repeat)
    };
    let call = Call::new(Method::PUT, target.url())
        .maybe_header(CONTENT_TYPE, args.content_type.clone())
        .maybe_header(STREAM_RETAIN, args.retain_all.then_some("all"))
        .maybe_header(IF_MATCH, args.if_match.clone())
        .content(content)
        .repeat(repeat);
    let client = connection.client()?;
    let answer = if from_stdin {
        client.attempt(&call).map_err(AttemptError::into_failure)?
    } else {
        client.call(&call)?
    };
    let tag = published(&answer)?;
    connection.notes().note(format_args!("published: {target}\netag: {tag}"));
    Ok(())
}

/// The entity tag in the answer to a publication. A success that does not look like one is none: a server without
/// snapshots may have done anything else.
fn published(answer: &Answer) -> Result<String, Failure> {
    let status = answer.status;
    if status != 204 {
        return Err(Failure::Other(format!(
            "the server's answer is {status}, which is not that of a publication"
        )));
    }
    answer.require(STREAM_SNAPSHOT_OFFSET)?;
    answer.require(ETAG)
}

/// Looks for the first byte without taking it.
fn is_stdin_empty() -> Result<bool, Failure> {
    let mut stdin = io::stdin().lock();
    loop {
        match stdin.fill_buf() {
            Ok(bytes) => return Ok(bytes.is_empty()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Failure::input(&error)),
        }
    }
}

/// Refuses what cannot be sent before any request, so that it is never taken for an outage. What has no length that is
/// known before, such as a named pipe, is not looked into.
#[expect(clippy::disallowed_methods, reason = "the edge of the program: the file is the user's")]
fn is_file_empty(path: &Path) -> Result<bool, Failure> {
    let unreadable = |reason: &dyn std::fmt::Display| {
        Failure::Other(format!("cannot read `{}`: {reason}", path.display()))
    };
    // Asked first: to open a pipe is to take its only reader's place.
    let kind = std::fs::metadata(path).map_err(|error| unreadable(&error))?;
    if kind.is_dir() {
        return Err(unreadable(&"it is a directory"));
    }
    if !kind.is_file() {
        return Ok(false);
    }
    File::open(path).map_err(|error| unreadable(&error))?;
    Ok(kind.len() == 0)
}

fn get(connection: &ConnectionArgs, args: &GetArgs) -> Result<(), Failure> {
    let stream = connection.target(&args.stream)?;
    let target = match &args.offset {
        Some(offset) => stream.resource(&format!("snapshot/{offset}"))?,
        None => stream.resource("snapshot")?,
    };
    let answer = connection.client()?.call(&Call::new(Method::GET, target.url()))?;
    let offset = answer.require(STREAM_SNAPSHOT_OFFSET)?;
    let tag = answer.header(ETAG).unwrap_or("unknown").to_owned();
    let length = answer.header("content-length").and_then(|length| length.parse().ok());
    let mut out: Box<dyn Write> = Box::new(io::stdout().lock());
    let mut progress = Progress::new(connection.quiet, &io::stdout(), length);
    if let Some(path) = &args.output {
        let file = create(path)?;
        progress = Progress::new(connection.quiet, &file, length);
        out = Box::new(file);
    }
    copy(answer.into_reader(), &mut out, progress)?;
    connection.notes().note(format_args!("snapshot offset: {offset}\netag: {tag}"));
    Ok(())
}

/// Makes a file for what is fetched.
#[expect(clippy::disallowed_methods, reason = "the edge of the program: the file is the user's")]
pub(super) fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| Failure::Other(format!("cannot write `{}`: {error}", path.display())))
}

fn copy(mut from: impl Read, to: &mut impl Write, mut progress: Progress) -> Result<(), Failure> {
    let mut buffer = vec![0; COPIED_BYTES];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) => return Err(Failure::Unavailable(format!("the snapshot broke off: {error}"))),
        };
        to.write_all(&buffer[..count]).map_err(|error| Failure::output(&error))?;
        progress.add(count);
    }
    to.flush().map_err(|error| Failure::output(&error))
}
