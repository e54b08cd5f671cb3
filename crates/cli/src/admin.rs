//! `alluvium admin …`: what an operator asks of a running server, page by page, as a table or as JSON.

mod delete;
mod delete_space;
mod prune;
mod table;
mod trim;

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;

use alluvium_server::config::exit_codes;
use alluvium_server::words::counted;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;
use ureq::http::Method;

use self::table::{Align, Table, age, bytes, shown, text};
use crate::exit_codes_help;
use crate::stream::client::{CONTENT_TYPE, Call, Client, Repeat};
use crate::stream::conclude;
use crate::stream::connection::ConnectionArgs;
use crate::stream::failure::{EXIT_CODES, Failure};

/// Most items that the server puts on a page.
const PAGE_MAX: u64 = 1000;

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
    Streams(StreamsArgs),
    /// Sum up how many streams and bytes are under each prefix.
    Totals(TotalsArgs),
    /// List the spaces of feeds, the largest first.
    Spaces(ListArgs),
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

/// How much of a list is printed, and how.
#[derive(Debug, Args)]
struct ListArgs {
    /// Print no more than so many.
    #[arg(long, short = 'n', value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,

    /// Print all there are.
    #[arg(long, conflicts_with = "limit")]
    all: bool,

    /// Print the server's JSON object of each item, one a line.
    #[arg(long)]
    json: bool,
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

#[derive(Debug, Args)]
struct StreamsArgs {
    /// Only streams at or below this place, by their URL paths: `/v1/stream/logs`, `/ds/bucket`.
    #[arg(long, default_value = "")]
    prefix: String,

    /// What comes first.
    #[arg(long, value_enum, default_value_t = By::Size)]
    by: By,

    #[command(flatten)]
    list: ListArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    /// The largest.
    Size,
    /// What was not written to for longest.
    Idle,
    /// In the order of the paths.
    Path,
}

#[derive(Debug, Args)]
struct TotalsArgs {
    /// Only streams at or below this place.
    #[arg(long, default_value = "")]
    prefix: String,

    /// How many segments of the path beyond the prefix make a group.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=8))]
    depth: u64,

    #[command(flatten)]
    list: ListArgs,
}

/// Runs one command against a server.
pub(crate) fn run(args: AdminArgs) -> ExitCode {
    let AdminArgs { connection, command } = args;
    conclude(match command {
        AdminCommand::Streams(args) => streams(&connection, &args),
        AdminCommand::Totals(args) => totals(&connection, &args),
        AdminCommand::Spaces(args) => spaces(&connection, &args),
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
    format!("{}/admin/v1/{what}", connection.url().trim_end_matches('/'))
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

/// Asks for page after page until enough items came. `each` is given those of one page, with the page.
fn pages(
    connection: &ConnectionArgs,
    what: &str,
    query: &[(&str, &str)],
    (list, items): (&ListArgs, &str),
    mut each: impl FnMut(&Value, &Value) -> Result<(), Failure>,
) -> Result<Value, Failure> {
    let client = connection.client()?;
    let mut left = if list.all { u64::MAX } else { list.limit };
    let mut cursor = String::new();
    loop {
        let limit = left.min(PAGE_MAX).to_string();
        let mut url = format!("{}?limit={limit}", url(connection, what));
        for (name, value) in query.iter().chain(&[("cursor", cursor.as_str())]) {
            if !value.is_empty() {
                url = format!("{url}&{name}={}", encode(value));
            }
        }
        let mut page = ask(&client, &Call::new(Method::GET, url))?;
        let found = page[items].take();
        for item in found.as_array().into_iter().flatten() {
            each(&page, item)?;
            left -= 1;
        }
        match page["next_cursor"].as_str() {
            Some(next) if left > 0 && next != cursor => next.clone_into(&mut cursor),
            _ => return Ok(page),
        }
    }
}

/// Escapes what would end a value of a query.
fn encode(text: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.extend([
                '%',
                char::from(HEX[usize::from(byte >> 4)]),
                char::from(HEX[usize::from(byte & 15)]),
            ]);
        }
    }
    encoded
}

/// Prints items as they come, one a line, or gathers the rows of a table.
fn print(
    connection: &ConnectionArgs,
    (what, query): (&str, &[(&str, &str)]),
    (list, items): (&ListArgs, &str),
    mut table: Table,
    row: impl Fn(&Value, &Value) -> Vec<String>,
) -> Result<(Value, Table), Failure> {
    let mut out = std::io::stdout().lock();
    let page = pages(connection, what, query, (list, items), |page, item| {
        if list.json {
            return writeln!(out, "{item}").map_err(|error| Failure::output(&error));
        }
        table.add(row(page, item));
        Ok(())
    })?;
    if !list.json {
        out.write_all(table.to_string().as_bytes()).map_err(|error| Failure::output(&error))?;
    }
    out.flush().map_err(|error| Failure::output(&error))?;
    Ok((page, table))
}

fn streams(connection: &ConnectionArgs, args: &StreamsArgs) -> Result<(), Failure> {
    let order = match args.by {
        By::Size => "size",
        By::Idle => "idle",
        By::Path => "path",
    };
    let query = [("prefix", args.prefix.as_str()), ("order", order)];
    let columns =
        [("BYTES", Align::Right), ("IDLE", Align::Right), ("STATUS", Align::Left), ("STREAM", Align::Left)];
    let row = |page: &Value, item: &Value| {
        vec![
            bytes(&item["bytes"]),
            age(&page["as_of_ms"], &item["last_write_at_ms"]),
            text(&item["status"]),
            shown(&item["path"]),
        ]
    };
    print(connection, ("streams", &query), (&args.list, "streams"), Table::new(&columns), row).map(drop)
}

fn totals(connection: &ConnectionArgs, args: &TotalsArgs) -> Result<(), Failure> {
    let depth = args.depth.to_string();
    let query = [("prefix", args.prefix.as_str()), ("depth", &depth)];
    let columns = [
        ("STREAMS", Align::Right),
        ("CLOSED", Align::Right),
        ("BYTES", Align::Right),
        ("IDLE", Align::Right),
        ("PREFIX", Align::Left),
    ];
    let cells = |page: &Value, total: &Value, prefix: String| {
        vec![
            text(&total["streams"]),
            text(&total["closed_streams"]),
            bytes(&total["bytes"]),
            age(&page["as_of_ms"], &total["last_write_at_ms"]),
            prefix,
        ]
    };
    let row = |page: &Value, group: &Value| cells(page, group, shown(&group["prefix"]));
    let (page, _) = print(connection, ("totals", &query), (&args.list, "groups"), Table::new(&columns), row)?;
    if !args.list.json {
        let all = cells(&page, &page["total"], "all".to_owned());
        let streams = counted(number(&page["total"], "streams")?, "streams");
        connection.notes().note(format_args!("all: {streams}, {}", all[2]));
    }
    Ok(())
}

fn spaces(connection: &ConnectionArgs, list: &ListArgs) -> Result<(), Failure> {
    let columns = [("BYTES", Align::Right), ("FOLDER", Align::Left), ("SPACE", Align::Left)];
    let row = |_: &Value, item: &Value| {
        vec![bytes(&item["bytes"]), text(&item["folder"]), shown(&item["space_id"])]
    };
    let (page, _) = print(connection, ("spaces", &[]), (list, "spaces"), Table::new(&columns), row)?;
    if !list.json {
        let total = &page["total"];
        connection.notes().note(format_args!(
            "all: {} spaces, {}",
            text(&total["spaces"]),
            bytes(&total["bytes"])
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_a_query_keeps_what_it_is() {
        assert_eq!(encode("/ds/a%20b&c=+é"), "/ds/a%2520b%26c%3D%2B%C3%A9");
    }
}
