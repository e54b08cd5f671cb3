//! `alluvium bucket …`: the groups that streams under `/ds/` live in.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;
use ureq::http::Method;

use super::client::{Call, Client, Repeat};
use super::conclude;
use super::connection::ConnectionArgs;
use super::failure::{EXIT_CODES, Failure};
use super::target::Target;
use crate::exit_codes_help;

/// Arguments of `alluvium bucket`.
#[derive(Debug, Args)]
#[command(after_help = exit_codes_help(EXIT_CODES))]
pub(crate) struct BucketArgs {
    #[command(flatten)]
    connection: ConnectionArgs,

    #[command(subcommand)]
    command: BucketCommand,
}

#[derive(Debug, Subcommand)]
enum BucketCommand {
    /// Create buckets. One that exists already is a conflict.
    Create {
        /// Names: 4 to 64 of `a-z`, `0-9`, `_` and `-`.
        #[arg(required = true)]
        buckets: Vec<String>,

        /// A bucket that exists already is no failure.
        #[arg(long)]
        exist_ok: bool,
    },
    /// List the streams of a bucket.
    #[command(name = "ls")]
    List(ListArgs),
    /// Delete buckets that have no streams.
    #[command(name = "rm")]
    Remove {
        /// Names. The first that cannot be deleted ends the command.
        #[arg(required = true)]
        buckets: Vec<String>,

        /// A bucket that does not exist is no failure.
        #[arg(long, short)]
        force: bool,
    },
}

#[derive(Debug, Args)]
struct ListArgs {
    /// The bucket's name.
    bucket: String,

    /// Only streams whose id begins like this.
    #[arg(long, default_value = "")]
    prefix: String,

    /// Print the server's JSON object of each stream, one a line.
    #[arg(long)]
    json: bool,
}

/// Runs one bucket command against a server.
pub(crate) fn run(args: BucketArgs) -> ExitCode {
    let BucketArgs { connection, command } = args;
    conclude(match command {
        BucketCommand::Create { buckets, exist_ok } => each(&connection, &buckets, |client, target| {
            let made = match create(client, target) {
                Ok(()) => "created",
                Err(Failure::Conflict(_)) if exist_ok => "exists already",
                Err(failure) => return Err(failure),
            };
            connection.notes().note(format_args!("{made}: {target}"));
            Ok(())
        }),
        BucketCommand::List(args) => list(&connection, &args),
        BucketCommand::Remove { buckets, force } => {
            each(&connection, &buckets, |client, target| match remove(client, target) {
                Err(Failure::NotFound(_)) if force => Ok(()),
                outcome => outcome,
            })
        }
    })
}

fn each(
    connection: &ConnectionArgs,
    buckets: &[String],
    mut run: impl FnMut(&Client, &Target) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let client = connection.client()?;
    let targets: Vec<Target> =
        buckets.iter().map(|bucket| connection.bucket(bucket)).collect::<Result<_, _>>()?;
    targets.iter().try_for_each(|target| run(&client, target))
}

fn create(client: &Client, target: &Target) -> Result<(), Failure> {
    let mut outage = client.outage();
    match client.call_during(&Call::new(Method::PUT, target.url()), &mut outage) {
        // An attempt whose answer was lost has done it, or another client has: either way it is there.
        Err(Failure::Conflict(_)) if outage.is_on() => Ok(()),
        outcome => outcome.map(drop),
    }
}

fn remove(client: &Client, target: &Target) -> Result<(), Failure> {
    let mut outage = client.outage();
    match client.call_during(&Call::new(Method::DELETE, target.url()), &mut outage) {
        // An attempt whose answer was lost has done it.
        Err(Failure::NotFound(_)) if outage.is_on() => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// Walks the pages; what is printed was there when its page was asked for.
fn list(connection: &ConnectionArgs, args: &ListArgs) -> Result<(), Failure> {
    let client = connection.client()?;
    let target = connection.bucket(&args.bucket)?.below("streams");
    let mut out = std::io::stdout().lock();
    let mut after = String::new();
    loop {
        let url = target.url_with(&[("after", &after), ("prefix", &args.prefix)]);
        let answer = client.call(&Call::new(Method::GET, url).repeat(Repeat::Safe))?;
        let page: Value = serde_json::from_reader(answer.into_reader())
            .map_err(|error| Failure::Other(format!("the server's list is not JSON: {error}")))?;
        for item in page["streams"].as_array().into_iter().flatten() {
            print(&mut out, item, args.json).map_err(|error| Failure::output(&error))?;
        }
        match page["next_cursor"].as_str() {
            Some(cursor) if cursor > after.as_str() => cursor.clone_into(&mut after),
            _ => break,
        }
    }
    out.flush().map_err(|error| Failure::output(&error))
}

fn print(out: &mut impl Write, item: &Value, as_json: bool) -> std::io::Result<()> {
    if as_json {
        return writeln!(out, "{item}");
    }
    let text = |name: &str| item[name].as_str().unwrap_or_default();
    // An id may hold any character; those that move the cursor are shown escaped.
    let id: String = text("stream_id")
        .chars()
        .flat_map(|char| if char.is_control() { char.escape_default().collect() } else { vec![char] })
        .collect();
    let status = text("status").to_ascii_lowercase();
    writeln!(out, "{}  {status:<6}  {:>12}  {id}", text("next_offset"), item["tail_offset"])
}
