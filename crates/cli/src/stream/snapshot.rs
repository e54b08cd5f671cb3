//! `alluvium stream snapshot`: what stands for a stream's beginning (extensions §2).

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use ureq::http::Method;

use super::client::{CONTENT_TYPE, Call, Content, Repeat};
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
    #[arg(long, value_name = "OFFSET")]
    offset: String,

    /// The file with the snapshot, or `-` for standard input, which is sent once and not again.
    file: PathBuf,

    /// What the snapshot is [default: application/octet-stream].
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,

    /// Keep what is before the offset readable.
    #[arg(long)]
    retain_all: bool,

    /// Replace only the snapshot with this entity tag; `*` for any.
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The stream, as `/ds/BUCKET/STREAM` or a URL.
    stream: String,

    /// The snapshot at this offset instead of the latest.
    #[arg(long, value_name = "OFFSET")]
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
    let target = connection.target(&args.stream)?.below(&format!("snapshot/{}", args.offset));
    let from_stdin = args.file == Path::new("-");
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
        client.attempt(&call).map_err(super::client::AttemptError::into_failure)?
    } else {
        client.call(&call)?
    };
    let tag = answer.header(ETAG).unwrap_or("unknown");
    connection.notes().note(format_args!("published: {target}\netag: {tag}"));
    Ok(())
}

fn get(connection: &ConnectionArgs, args: &GetArgs) -> Result<(), Failure> {
    let stream = connection.target(&args.stream)?;
    let target = match &args.offset {
        Some(offset) => stream.below(&format!("snapshot/{offset}")),
        None => stream.below("snapshot"),
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
pub(super) fn create(path: &Path) -> Result<std::fs::File, Failure> {
    std::fs::File::create(path)
        .map_err(|error| Failure::Other(format!("cannot write `{}`: {error}", path.display())))
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
