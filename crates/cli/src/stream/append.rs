//! `alluvium stream append`: standard input, or messages from the command line, to the end of a stream.

mod writer;

use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;

use clap::Args;
use ureq::http::Method;

use super::client::CONTENT_TYPE;
use super::client::{Answer, Call, Client};
use super::connection::ConnectionArgs;
use super::failure::Failure;
use super::follow::is_json;
use super::head::head;
use super::input::{Batches, Framing};
use super::interrupt::{Work, watch_over};
use super::notes;
use super::progress::Progress;
use super::report::ReportArgs;
use super::target::Target;
use alluvium_protocol::header::STREAM_NEXT_OFFSET;
use writer::{Appended, Producer, Writer};

/// What the protocol gives a stream that is created without a content type (PROTOCOL §5.1).
const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";

/// What `--help` says first.
pub(super) const LONG_ABOUT: &str = "\
Append standard input, or messages given as arguments, to a stream.

Standard input is appended as it arrives, in pieces of at most 1 MiB: a program that writes slowly is \
followed live (`my-agent | alluvium stream append chat`). How it is cut in messages:

  a byte or text stream            pieces are not messages; the bytes come out as they went in
  a byte or text stream, --lines   each line, with its line end, is a message
  a JSON stream                    each JSON value is a message; an array stands for its elements
  a JSON stream, --lines           each line is a message, arrays included; blank lines are skipped

Each append carries a producer id and a sequence number, so that it is repeated safely when the server \
cannot be reached, restarts or answers 429 or 503: nothing is doubled and nothing is left out. The id is \
a random one, unless --producer-id gives one that later commands can give again: then a command that is \
run twice with the same --message arguments appends once.

A command that fails or is stopped says how much of its input was appended, and the next offset as far as it knows it.";

/// Arguments of `alluvium stream append`.
#[derive(Debug, Args)]
pub(crate) struct AppendArgs {
    /// The stream's name or URL.
    stream: String,

    /// Append this text in place of standard input; may be repeated.
    #[arg(long = "message", short, value_name = "TEXT", allow_hyphen_values = true)]
    messages: Vec<String>,

    /// One message a line.
    #[arg(long, conflicts_with = "messages")]
    lines: bool,

    /// Close the stream with the last append.
    #[arg(long)]
    close: bool,

    /// Create the stream if it does not exist.
    #[arg(long)]
    create: bool,

    /// What the input is; a stream of another type refuses it [default: the stream's type].
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,

    #[command(flatten)]
    producer: ProducerArgs,

    #[command(flatten)]
    report: ReportArgs,
}

/// Who appends, for the server's eyes (PROTOCOL §5.2.1).
#[derive(Debug, Args)]
struct ProducerArgs {
    /// Append as this producer [default: a random id].
    ///
    /// Its sequence starts at 0 in each command, so the first --message of every command is sequence 0, the second
    /// sequence 1, and so on. A sequence that the server knows already is not written again, WHATEVER ITS TEXT: the
    /// command then says `already appended: nothing written`, and succeeds. To append something else as the same
    /// producer, give a higher --epoch. Standard input is refused in that case (exit code 4), because it may be cut
    /// differently each time.
    #[arg(long, value_name = "ID")]
    producer_id: Option<String>,

    /// The producer's epoch; a higher one than before takes over, and fences what still runs.
    #[arg(long, value_name = "NUMBER", requires = "producer_id", default_value_t = 0)]
    epoch: u64,

    /// Append without a producer: at most once, with no repeats after a broken connection.
    #[arg(long, conflicts_with = "producer_id")]
    no_producer: bool,
}

impl ProducerArgs {
    fn producer(&self) -> Result<Option<Producer>, Failure> {
        match &self.producer_id {
            _ if self.no_producer => Ok(None),
            Some(id) => Ok(Some(Producer::chosen(id.clone(), self.epoch))),
            None => Producer::random().map(Some),
        }
    }
}

pub(crate) fn run(connection: &ConnectionArgs, args: &AppendArgs) -> Result<(), Failure> {
    let client = connection.client()?;
    let target = connection.target(&args.stream)?;
    let (content_type, tail) = content_type(&client, &target, args)?;
    let json = is_json(&content_type);
    let at = tail.as_deref().map(|tail| notes::place(tail, false));
    let marker = watch_over(Work::Appending, connection.notes(), at)?;
    let mut writer = Writer::new(client, target, content_type, args.producer.producer()?, marker);
    writer.begin_at(tail);
    let outcome = if args.messages.is_empty() {
        let framing = match (args.lines, json) {
            (false, false) => Framing::Bytes,
            (true, false) => Framing::Lines,
            (false, true) => Framing::Json,
            (true, true) => Framing::JsonLines,
        };
        append_input(connection, &mut writer, framing, args.close)
    } else {
        append_messages(connection, &mut writer, &args.messages, args.close)
    };
    let notes = connection.notes();
    if outcome.is_err() {
        notes.note(writer.covered());
    }
    if outcome.is_ok() && !writer.has_appended() {
        notes.note("standard input is empty: nothing appended");
    } else if let Some(place) = writer.place() {
        notes.place(&place, &outcome, Work::Appending);
    }
    let already_appended = outcome?;
    args.report.print(&writer.report(already_appended))
}

/// The stream's content type, which appends must name, and where it ends, if that is told; creates the stream if asked to.
fn content_type(
    client: &Client,
    target: &Target,
    args: &AppendArgs,
) -> Result<(String, Option<String>), Failure> {
    if let (Some(content_type), false) = (&args.content_type, args.create) {
        return Ok((content_type.clone(), None));
    }
    let tail = |answer: &Answer| answer.header(STREAM_NEXT_OFFSET).map(str::to_owned);
    let existing = match head(client, target) {
        Err(Failure::NotFound(_)) if args.create => {
            let content_type = args.content_type.as_deref().unwrap_or(DEFAULT_CONTENT_TYPE);
            let call = Call::new(Method::PUT, target.url()).header(CONTENT_TYPE, content_type);
            let created = client.call(&call)?;
            (content_type.to_owned(), tail(&created))
        }
        Err(Failure::NotFound(text)) => {
            return Err(Failure::NotFound(format!("{text}; `stream create` or `append --create` makes it")));
        }
        outcome => {
            let there = outcome?;
            (there.require(CONTENT_TYPE)?, tail(&there))
        }
    };
    let (existing, tail) = existing;
    Ok((args.content_type.clone().unwrap_or(existing), tail))
}

/// Appends standard input. Nothing of it can be there already.
fn append_input(
    connection: &ConnectionArgs,
    writer: &mut Writer,
    framing: Framing,
    close: bool,
) -> Result<u64, Failure> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        connection.notes().note("reading from the terminal; Ctrl-D ends the input");
    }
    let mut progress = Progress::new(connection.quiet, &stdin, input_size(&stdin));
    let mut batches = Batches::new(unbuffered(&stdin)?, framing);
    writer.cover(0, batches.unit());
    append_batches(writer, &mut batches, close, &mut progress).map(|()| 0)
}

fn append_batches(
    writer: &mut Writer,
    batches: &mut Batches,
    close: bool,
    progress: &mut Progress,
) -> Result<(), Failure> {
    while let Some(batch) = batches.next()? {
        if writer.append(&batch.body, close && batch.last)? == Appended::Before {
            return Err(writer.used_before());
        }
        writer.cover(batch.through, batches.unit());
        progress.add(batch.body.len());
    }
    if close && !writer.closed() {
        writer.close()?;
    }
    Ok(())
}

/// Appends messages, and counts those that were there already.
fn append_messages(
    connection: &ConnectionArgs,
    writer: &mut Writer,
    messages: &[String],
    close: bool,
) -> Result<u64, Failure> {
    let mut known = 0;
    writer.cover(0, "messages");
    for (index, message) in messages.iter().enumerate() {
        let last = index + 1 == messages.len();
        let number = index as u64 + 1;
        // Unlike the pieces of a pipe, these are the same each time the command is run.
        if writer.append(message.as_bytes(), close && last)? == Appended::Before {
            known += 1;
            connection.notes().note(format_args!("message {number} already appended: nothing written"));
        }
        writer.cover(number, "messages");
    }
    if known > 0 {
        let reason = writer.known_reason();
        let all = messages.len();
        connection.notes().note(format_args!("{known} of {all} messages already appended: {reason}"));
    }
    Ok(known)
}

/// Standard input without the buffer and the lock of [`io::Stdin`], which would hold back and tie up a
/// reading thread.
fn unbuffered(stdin: &io::Stdin) -> Result<impl Read + Send + 'static, Failure> {
    let fd = stdin.as_fd().try_clone_to_owned().map_err(|error| Failure::input(&error))?;
    Ok(std::fs::File::from(fd))
}

/// The size of a file on standard input, in bytes; a pipe has none.
fn input_size(stdin: &io::Stdin) -> Option<u64> {
    let file = std::fs::File::from(stdin.as_fd().try_clone_to_owned().ok()?);
    let metadata = file.metadata().ok()?;
    metadata.is_file().then_some(metadata.len())
}
