//! `alluvium admin …`: what an operator asks of a running server, page by page, as a table or as JSON.

mod delete;
mod delete_space;
mod list;
mod prune;
mod table;
mod trim;

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

use alluvium_server::config::exit_codes;
use clap::{Args, Subcommand};
use serde_json::Value;
use ureq::http::Method;

use crate::exit_codes_help;
use crate::stream::client::{CONTENT_TYPE, Call, Client, Repeat};
use crate::stream::conclude;
use crate::stream::connection::ConnectionArgs;
use crate::stream::failure::{EXIT_CODES, Failure};

/// Arguments of `alluvium admin`.
#[derive(Debug, Args)]
#[command(after_help = exit_codes_help(EXIT_CODES))]
pub(crate) struct AdminArgs {
    #[command(flatten)]
    connection: ConnectionArgs,

    #[command(subcommand)]
    command: AdminCommand,
}

#[derive(Debug, Subcommand)]
enum AdminCommand {
    /// List streams: the largest, or those that were not written to for longest.
    Streams(list::StreamsArgs),
    /// Sum up how many streams and bytes are under each prefix.
    Totals(list::TotalsArgs),
    /// List the spaces of feeds, the largest first.
    Spaces(list::ListArgs),
    /// Delete all streams under a prefix. Without `--yes` it only says what that would come to.
    #[command(long_about = delete::LONG_ABOUT)]
    Delete(delete::DeleteArgs),
    /// Give up the beginning of one stream. Without `--yes` it only says what that would come to.
    #[command(long_about = trim::LONG_ABOUT)]
    Trim(trim::TrimArgs),
    /// Remove the old blocks of a feed. Without `--yes` it only says what that would come to.
    #[command(long_about = prune::LONG_ABOUT)]
    PruneFeed(prune::PruneArgs),
    /// Delete a space of feeds as a whole. Without `--yes` it only says what that would come to.
    #[command(long_about = delete_space::LONG_ABOUT)]
    DeleteSpace(delete_space::DeleteSpaceArgs),
}

/// Whether it is done, and how it is told what came of it.
#[derive(Debug, Args)]
struct ActArgs {
    /// Do it, and not only say what it would come to.
    #[arg(long)]
    yes: bool,

    /// Print the server's JSON, an object for each request.
    #[arg(long)]
    json: bool,
}

impl ActArgs {
    /// Tells what a request came to, as a line or as the server says it. Whether it was the last: lines before that are only
    /// notes.
    fn tell(&self, connection: &ConnectionArgs, answer: &Value, line: &str) -> Result<bool, Failure> {
        let is_last = answer["has_more"] != true;
        if self.json {
            print_line(answer)?;
        } else if is_last {
            print_line(line)?;
        } else {
            connection.notes().note(line);
        }
        Ok(is_last)
    }
}

/// Prints a line at once.
fn print_line(line: impl fmt::Display) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

/// Runs one command against a server.
pub(crate) fn run(args: AdminArgs) -> ExitCode {
    let AdminArgs { connection, command } = args;
    conclude(match command {
        AdminCommand::Streams(args) => list::streams(&connection, &args),
        AdminCommand::Totals(args) => list::totals(&connection, &args),
        AdminCommand::Spaces(args) => list::spaces(&connection, &args),
        AdminCommand::Delete(args) => delete::run(&connection, &args),
        AdminCommand::Trim(args) => trim::run(&connection, &args),
        AdminCommand::PruneFeed(args) => prune::run(&connection, &args),
        AdminCommand::DeleteSpace(args) => delete_space::run(&connection, &args),
    })
}

/// The part of the page of options that is about `alluvium admin`.
pub(crate) fn docs_markdown() -> String {
    let mut page = "\n## Exit codes of `alluvium admin`\n\nIts flags are in the `--help` of each command; those that name \
                    the server are those of `alluvium stream`.\n\n"
        .to_owned();
    exit_codes(&mut page, EXIT_CODES);
    page
}

/// The URL of something that is the operator's.
fn url(connection: &ConnectionArgs, what: &str) -> String {
    connection.access.place.at(&format!("/admin/v1/{what}"))
}

/// Sends what is to be done and reads what became of it. What is done already is no trouble, so every attempt may be
/// repeated.
fn post(client: &Client, url: &str, body: &Value) -> Result<Value, Failure> {
    let body = body.to_string();
    let call = Call::new(Method::POST, url.to_owned())
        .header(CONTENT_TYPE, "application/json")
        .body(body.as_bytes())
        .repeat(Repeat::Safe);
    ask(client, &call)
}

/// A number of an answer.
fn number(answer: &Value, name: &str) -> Result<u64, Failure> {
    let missing = || Failure::Other(format!("the server's answer has no `{name}`"));
    answer[name].as_u64().ok_or_else(missing)
}

/// Sends a request and reads its JSON.
fn ask(client: &Client, call: &Call<'_>) -> Result<Value, Failure> {
    let answer = client.call(call)?;
    serde_json::from_reader(answer.into_reader())
        .map_err(|error| Failure::Other(format!("the server's answer is not JSON: {error}")))
}
