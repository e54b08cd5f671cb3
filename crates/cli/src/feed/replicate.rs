//! `alluvium feed replicate`: what to pull.

use alluvium_feed_client::{From, Id, Keep, Namespace, Selector};
use alluvium_server::config::parse_seconds;
use clap::Args;

use super::place::{Opened, Place, id, now_ms};
use super::status::ago;
use super::{failure, print};
use crate::stream::failure::Failure;

/// What `--help` says first.
pub(super) const LONG_ABOUT: &str = "\
Choose what to pull: nothing is, unless it is asked for here.

Feeds are chosen by name, or by a rule, which also picks feeds that come to be later; a feed's own setting goes before \
any rule. Each is kept from a place on, for good: --from start (the default), now, a position, or with --since what \
came within a time. Called again it moves that place. The choice stays in the file and takes effect with the next \
`feed sync` or `feed tail`. Without arguments it lists what is chosen.";

/// Arguments of `alluvium feed replicate`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(super) struct ReplicateArgs {
    /// The feeds.
    feeds: Vec<String>,

    /// Every feed of the space.
    #[arg(long)]
    all: bool,

    /// Every feed of a namespace.
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// Every feed whose name begins so.
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,

    /// Every feed that this file has written to.
    #[arg(long)]
    written: bool,

    /// Where to begin: `start`, `now` or a position.
    #[arg(long, value_name = "PLACE", default_value = "start", value_parser = parse_from)]
    from: From,

    /// Begin with what came to the server within this time, such as `3d`.
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, conflicts_with = "from")]
    since: Option<u64>,

    /// Stop: pull no more of it. What is in the file stays.
    #[arg(long, conflicts_with_all = ["from", "since"])]
    stop: bool,

    /// With --stop: remove from the file what has its place at the server.
    #[arg(long, requires = "stop")]
    drop: bool,
}

fn parse_from(text: &str) -> Result<From, String> {
    match text {
        "start" => Ok(From::Beginning),
        "now" => Ok(From::Current),
        number => number.parse().map(From::Position).map_err(|_| "`start`, `now` or a position".to_owned()),
    }
}

pub(super) fn run(place: &Place, args: &ReplicateArgs) -> Result<(), Failure> {
    let rules = rules(args)?;
    if rules.is_empty() && args.feeds.is_empty() {
        return list(place);
    }
    let opened = if args.stop { place.open()? } else { place.create()? };
    let since = args.since.map(|seconds| From::Since(now_ms().saturating_sub(seconds * 1000)));
    let from = since.unwrap_or(args.from);
    for feed in &args.feeds {
        let feed = id(feed)?;
        let done = if args.stop {
            is_known(&opened, &feed)?;
            let keep = if args.drop { Keep::Unpushed } else { Keep::All };
            opened.space.stop_replicating(&feed, keep)
        } else {
            opened.space.replicate(&feed, from)
        };
        done.map_err(failure::replica)?;
        place.notes().note(outcome(args, &format!("`{feed}`"), from));
    }
    for rule in &rules {
        if args.stop && !selectors(&opened)?.iter().any(|(known, _)| known == rule) {
            return Err(Failure::NotFound(format!("there is no rule `{}`", named(rule))));
        }
        let done = if args.stop { opened.space.unselect(rule) } else { opened.space.select(rule, from) };
        done.map_err(failure::replica)?;
        place.notes().note(outcome(args, &format!("`{}`", named(rule)), from));
    }
    Ok(())
}

/// What was done, in a line.
fn outcome(args: &ReplicateArgs, what: &str, from: From) -> String {
    match (args.stop, args.drop) {
        (false, _) => {
            format!("{what} is pulled from {} on, beginning with the next `feed sync`", shown(from))
        }
        (true, false) => format!("{what} is not pulled any more; what is in the file stays"),
        (true, true) => {
            format!("{what} is not pulled any more; only what waits to be pushed stays in the file")
        }
    }
}

fn selectors(opened: &Opened) -> Result<Vec<(Selector, From)>, Failure> {
    opened.space.selectors().map_err(failure::replica)
}

/// A feed that is neither in the file nor replicated can't be stopped, unless a rule might pick it.
fn is_known(opened: &Opened, feed: &Id) -> Result<(), Failure> {
    let replicated = opened.client.replica().replicated(opened.space.id()).map_err(failure::replica)?;
    let here = opened.space.feeds().map_err(failure::replica)?;
    let is_known = replicated.iter().any(|(known, _)| known == feed)
        || here.iter().any(|known| known.feed_id == *feed)
        || !selectors(opened)?.is_empty();
    if is_known { Ok(()) } else { Err(Failure::NotFound(format!("`{feed}` is not replicated"))) }
}

fn rules(args: &ReplicateArgs) -> Result<Vec<Selector>, Failure> {
    let mut rules = Vec::new();
    if args.all {
        rules.push(Selector::All);
    }
    if let Some(name) = &args.namespace {
        let parsed = Namespace::parse(name);
        let parsed = parsed.map_err(|error| Failure::Usage(format!("`{name}`: {error}")))?;
        rules.push(Selector::Namespace(parsed));
    }
    if let Some(prefix) = &args.prefix {
        rules.push(Selector::Prefix(prefix.clone()));
    }
    if args.written {
        rules.push(Selector::Written);
    }
    Ok(rules)
}

fn list(place: &Place) -> Result<(), Failure> {
    let opened = place.open()?;
    let selectors = selectors(&opened)?;
    let feeds = opened.client.replica().replicated(opened.space.id()).map_err(failure::replica)?;
    for (selector, from) in &selectors {
        print::line(format_args!("{}\tfrom {}", named(selector), shown(*from)))?;
    }
    for (feed, from) in &feeds {
        print::line(format_args!("{feed}\tfrom {}", shown(*from)))?;
    }
    if selectors.is_empty() && feeds.is_empty() {
        place.notes().note("nothing is replicated");
    }
    Ok(())
}

/// A rule as it is written on the command line.
fn named(rule: &Selector) -> String {
    match rule {
        Selector::All => "--all".to_owned(),
        Selector::Namespace(namespace) => format!("--namespace {namespace}"),
        Selector::Prefix(prefix) => format!("--prefix {prefix}"),
        Selector::Written => "--written".to_owned(),
    }
}

fn shown(from: From) -> String {
    match from {
        From::Beginning => "the start".to_owned(),
        From::Position(position) => position.to_string(),
        From::Current => "now".to_owned(),
        From::Since(time) => ago(time),
    }
}
