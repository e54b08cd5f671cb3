//! `alluvium admin streams`, `totals` and `spaces`: what there is, page by page.

use std::io::Write as _;

use alluvium_server::words::counted;
use clap::{Args, ValueEnum};
use serde_json::Value;
use ureq::http::Method;

use super::table::{Align, Table, age, bytes, shown, text};
use super::{ask, number, url};
use crate::stream::client::Call;
use crate::stream::connection::ConnectionArgs;
use crate::stream::failure::Failure;

/// Most items that the server puts on a page.
const PAGE_MAX: u64 = 1000;

/// How much of a list is printed, and how.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
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

/// Arguments of `alluvium admin streams`.
#[derive(Debug, Args)]
pub(super) struct StreamsArgs {
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

/// Arguments of `alluvium admin totals`.
#[derive(Debug, Args)]
pub(super) struct TotalsArgs {
    /// Only streams at or below this place.
    #[arg(long, default_value = "")]
    prefix: String,

    /// How many segments of the path beyond the prefix make a group.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=8))]
    depth: u64,

    #[command(flatten)]
    list: ListArgs,
}

/// A list that the server gives in pages.
struct Listing<'a> {
    connection: &'a ConnectionArgs,
    /// What of the operator's it is.
    what: &'static str,
    /// What is asked of it, beside places and lengths.
    query: &'a [(&'static str, &'a str)],
    /// The field of a page that has the items.
    items: &'static str,
    args: &'a ListArgs,
}

impl Listing<'_> {
    /// Asks for page after page until enough items came; the last page. `each` is given those of one page, with the page.
    fn pages(&self, mut each: impl FnMut(&Value, &Value) -> Result<(), Failure>) -> Result<Value, Failure> {
        let client = self.connection.client()?;
        let mut left = if self.args.all { u64::MAX } else { self.args.limit };
        let mut cursor = String::new();
        loop {
            let limit = left.min(PAGE_MAX).to_string();
            let mut url = format!("{}?limit={limit}", url(self.connection, self.what));
            for (name, value) in self.query.iter().chain(&[("cursor", cursor.as_str())]) {
                if !value.is_empty() {
                    url = format!("{url}&{name}={}", encode(value));
                }
            }
            let mut page = ask(&client, &Call::new(Method::GET, url))?;
            let found = page[self.items].take();
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

    /// Prints items as they come, one a line, or a table with a row for each; the last page.
    fn print(
        &self,
        columns: &[(&str, Align)],
        row: impl Fn(&Value, &Value) -> Vec<String>,
    ) -> Result<Value, Failure> {
        let mut table = Table::new(columns);
        let mut out = std::io::stdout().lock();
        let page = self.pages(|page, item| {
            if self.args.json {
                return writeln!(out, "{item}").map_err(|error| Failure::output(&error));
            }
            table.add(row(page, item));
            Ok(())
        })?;
        if !self.args.json {
            out.write_all(table.to_string().as_bytes()).map_err(|error| Failure::output(&error))?;
        }
        out.flush().map_err(|error| Failure::output(&error))?;
        Ok(page)
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

pub(super) fn streams(connection: &ConnectionArgs, args: &StreamsArgs) -> Result<(), Failure> {
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
    let listing = Listing { connection, what: "streams", query: &query, items: "streams", args: &args.list };
    listing.print(&columns, row).map(drop)
}

pub(super) fn totals(connection: &ConnectionArgs, args: &TotalsArgs) -> Result<(), Failure> {
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
    let listing = Listing { connection, what: "totals", query: &query, items: "groups", args: &args.list };
    let page = listing.print(&columns, row)?;
    if !args.list.json {
        let all = cells(&page, &page["total"], "all".to_owned());
        let streams = counted(number(&page["total"], "streams")?, "streams");
        connection.notes().note(format_args!("all: {streams}, {}", all[2]));
    }
    Ok(())
}

pub(super) fn spaces(connection: &ConnectionArgs, list: &ListArgs) -> Result<(), Failure> {
    let columns =
        [("BYTES", Align::Right), ("DELETED", Align::Right), ("FOLDER", Align::Left), ("SPACE", Align::Left)];
    let row = |page: &Value, item: &Value| {
        vec![
            bytes(&item["bytes"]),
            age(&page["as_of_ms"], &item["deleted_at_ms"]),
            text(&item["folder"]),
            shown(&item["space_id"]),
        ]
    };
    let listing = Listing { connection, what: "spaces", query: &[], items: "spaces", args: list };
    let page = listing.print(&columns, row)?;
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
