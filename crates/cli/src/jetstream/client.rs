//! `alluvium jetstream tail` and `backfill`: the events of a network as lines.

mod failure;
mod follow;
mod output;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use alluvium_env::Env;
use alluvium_jetstream_client::{Client, Config, Cursor, Form, Limits, Mode, Token, Topic};
use alluvium_jetstream_wire::filter::{Collections, Prefixes, parse_dids};
use alluvium_server::config::{exit_codes, parse_seconds};
use clap::{Args, ValueEnum};

use self::failure::EXIT_CODES;
use self::output::{Output, Place};
use super::values::{number, seconds};
use crate::exit_codes_help;
use crate::stream::TLS_CA_VARIABLE;
use crate::stream::connection::{Secret, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, token};
use crate::stream::failure::Failure;
use crate::stream::notes::{self, Notes};

/// A year.
const GIVE_UP_MAX_S: u64 = 365 * 24 * 3600;

/// Which events of which server.
#[derive(Debug, Args)]
struct WantedArgs {
    /// The server: http://, https://, ws:// or wss://.
    url: String,
    /// Begin with the event of this number; from 1000000000000000 on it is a time in microseconds since 1970.
    #[arg(long, value_name = "NUMBER", value_parser = parse_cursor, conflicts_with = "since")]
    cursor: Option<Cursor>,
    /// Begin with what was seen at this time (`2026-11-30T01:00:00Z`), or so long ago (`90` seconds, `15m`, `36h`).
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    since: Option<Since>,
    /// Only this kind: commit, identity, account or sync. Can be given again.
    #[arg(long = "kind", value_name = "KIND", value_parser = parse_kind)]
    kinds: Vec<Topic>,
    /// Only this account. Can be given again, up to 10,000 times.
    #[arg(long = "did", value_name = "DID", value_parser = parse_did)]
    dids: Vec<String>,
    /// Of changes of records only those of this collection, or of all below (`app.bsky.feed.*`). Can be given again, up
    /// to 100 times.
    #[arg(long = "collection", value_name = "NSID", value_parser = parse_collection)]
    collections: Vec<String>,
    /// The form of lines.
    #[arg(long, value_name = "FORM", default_value = "v2")]
    form: FormArg,
    /// Ask for messages that are not compressed.
    #[arg(long)]
    no_compress: bool,
    /// End after this many events.
    #[arg(long, value_name = "NUMBER", value_parser = number::<u64>(1..=u64::MAX))]
    count: Option<u64>,
    /// Keep the place in this file, and go on from there if it exists: then --cursor and --since are passed over.
    #[arg(long, value_name = "FILE")]
    cursor_file: Option<PathBuf>,
    /// Give up when there was no progress for this long, such as `90` (seconds) or `15m`; 0 tries for ever.
    #[arg(long, value_name = "TIME", value_parser = seconds(GIVE_UP_MAX_S), default_value = "60")]
    give_up_after: u64,
    /// Send `Authorization: Bearer TOKEN`. The variable keeps it out of the process list.
    #[arg(long, env = TOKEN_VARIABLE, hide_env_values = true, value_name = "TOKEN")]
    token: Option<Secret>,
    /// Read the token from this file, where --token is not given.
    #[arg(
        long,
        env = TOKEN_FILE_VARIABLE,
        hide_env_values = true,
        value_name = "FILE"
    )]
    token_file: Option<PathBuf>,
    /// Trust the certificates in this file (PEM) in place of the public ones.
    #[arg(long, env = TLS_CA_VARIABLE, hide_env_values = true, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Print no notes and no progress on standard error, only errors.
    #[arg(long, short)]
    quiet: bool,
}

/// The form of lines.
#[derive(Copy, Clone, Debug, ValueEnum)]
enum FormArg {
    /// That of /subscribe-v2, with the bytes of records.
    V2,
    /// That of network.bsky.jetstream.subscribeEvents, which other servers have instead.
    Events,
}

/// Arguments of `alluvium jetstream tail`.
#[derive(Debug, Args)]
#[command(after_help = exit_codes_help(EXIT_CODES))]
pub(crate) struct TailArgs {
    #[command(flatten)]
    wanted: WantedArgs,
}

/// Arguments of `alluvium jetstream backfill`.
#[derive(Debug, Args)]
#[command(after_help = exit_codes_help(EXIT_CODES))]
pub(crate) struct BackfillArgs {
    #[command(flatten)]
    wanted: WantedArgs,
    /// Write to this file. With --cursor-file it is gone on with, and what a crash left behind its cursor is cut off.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// After the archive go on with what comes.
    #[arg(long)]
    follow: bool,
}

/// Runs `tail`.
pub(crate) fn tail(args: &TailArgs) -> ExitCode {
    run(&args.wanted, Mode::Live, None, Cursor::Now)
}

/// Runs `backfill`.
pub(crate) fn backfill(args: &BackfillArgs) -> ExitCode {
    let mode = if args.follow { Mode::Whole } else { Mode::Archive };
    run(&args.wanted, mode, args.output.as_ref(), Cursor::After(0))
}

fn run(wanted: &WantedArgs, mode: Mode, output: Option<&PathBuf>, from: Cursor) -> ExitCode {
    match read(wanted, mode, output, from) {
        Ok(code) => code,
        Err(failure) => {
            if !matches!(failure, Failure::ReaderGone) {
                notes::error(&failure);
            }
            failure.exit_code()
        }
    }
}

fn read(
    wanted: &WantedArgs,
    mode: Mode,
    output: Option<&PathBuf>,
    from: Cursor,
) -> Result<ExitCode, Failure> {
    let env = Env::real();
    let from = match (wanted.cursor, &wanted.since) {
        (Some(cursor), _) => cursor,
        (None, Some(since)) => Cursor::Time(since.us(env.clock.now_us())),
        (None, None) => from,
    };
    // What is wrong with the arguments is told before a file is touched.
    let client = Client::new(config(wanted)?, env.clone()).map_err(|error| failure::of_config(&error))?;
    let place = Place { server: wanted.url.clone(), cursor: from, output_bytes: None };
    let (output, place) =
        Output::open(&env.disk, output.map(PathBuf::as_path), wanted.cursor_file.as_deref(), place)?;
    let other = |error: std::io::Error| Failure::Other(error.to_string());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(other)?;
    let ended = runtime.block_on(async {
        let events = client.events(place.cursor, mode).map_err(|error| failure::of_config(&error))?;
        follow::follow(events, output, wanted.count, Notes::new(wanted.quiet), wanted.quiet).await
    });
    // A request that is on its way is nobody's business any more.
    runtime.shutdown_background();
    ended
}

fn config(wanted: &WantedArgs) -> Result<Config, Failure> {
    let limits = Limits {
        give_up_after: (wanted.give_up_after > 0).then(|| Duration::from_secs(wanted.give_up_after)),
        ..Limits::default()
    };
    let no_header = || Failure::Usage("the token has characters that a header cannot hold".to_owned());
    let token = token(wanted.token.as_ref(), wanted.token_file.as_deref())?;
    let roots_pem = match &wanted.tls_ca {
        None => None,
        Some(path) => Some(
            std::fs::read(path)
                .map_err(|error| Failure::Usage(format!("cannot read `{}`: {error}", path.display())))?,
        ),
    };
    Ok(Config {
        roots_pem,
        form: match wanted.form {
            FormArg::V2 => Form::V2,
            FormArg::Events => Form::Events,
        },
        kinds: wanted.kinds.clone(),
        dids: wanted.dids.clone(),
        collections: wanted.collections.clone(),
        compress: !wanted.no_compress,
        token: token.map(|token| Token::new(&token).ok_or_else(no_header)).transpose()?,
        limits,
        ..Config::new(&wanted.url)
    })
}

fn parse_cursor(text: &str) -> Result<Cursor, String> {
    Cursor::parse(text).ok_or_else(|| "a cursor is a number that is not negative".to_owned())
}

fn parse_kind(text: &str) -> Result<Topic, String> {
    Topic::from_name(text).ok_or_else(|| "kinds are commit, identity, account and sync".to_owned())
}

fn parse_did(text: &str) -> Result<String, String> {
    let did = parse_dids([text]).map(|_| text.to_owned());
    did.map_err(|_| "expected a DID as in `did:plc:…`".to_owned())
}

fn parse_collection(text: &str) -> Result<String, String> {
    let collection = Collections::parse([text], Prefixes::OfNsids).map(|_| text.to_owned());
    collection.map_err(|_| "expected an NSID as in `app.bsky.feed.post` or `app.bsky.feed.*`".to_owned())
}

/// A time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Since {
    /// In microseconds since the Unix epoch.
    At(i64),
    /// So many seconds ago.
    Ago(u64),
}

impl Since {
    /// In microseconds since the Unix epoch, of which there are `now_us` now.
    fn us(self, now_us: u64) -> i64 {
        match self {
            Self::At(us) => us,
            Self::Ago(seconds) => {
                let us = now_us.saturating_sub(seconds.saturating_mul(1_000_000));
                i64::try_from(us).unwrap_or(i64::MAX)
            }
        }
    }
}

fn parse_since(text: &str) -> Result<Since, String> {
    if let Ok(time) = text.parse::<jiff::Timestamp>()
        && time.as_microsecond() >= 0
    {
        return Ok(Since::At(time.as_microsecond()));
    }
    let ago = parse_seconds(text).map(Since::Ago);
    ago.map_err(|_| {
        "expected a time since 1970 as in `2026-11-30T01:00:00Z`, or one ago as in `15m`".to_owned()
    })
}

/// The part of the page of options that is about these commands.
pub(crate) fn docs_markdown() -> String {
    let alone = || clap::Command::new("alone");
    let mut page = super::flags_markdown("alluvium jetstream tail URL", &TailArgs::augment_args(alone()));
    page += &super::flags_markdown("alluvium jetstream backfill URL", &BackfillArgs::augment_args(alone()));
    page.push_str("\n## Exit codes of `alluvium jetstream tail` and `backfill`\n\n");
    exit_codes(&mut page, EXIT_CODES);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_a_time_or_a_while_ago() {
        let now = 1_783_000_000_000_000;
        let since_us = |text| parse_since(text).map(|since| since.us(now));
        assert_eq!(since_us("2026-11-30T01:00:00Z"), Ok(1_796_000_400_000_000));
        assert_eq!(since_us("90"), Ok(1_782_999_910_000_000));
        assert_eq!(since_us("15m"), Ok(1_782_999_100_000_000));
        assert_eq!(since_us("999999999d"), Ok(0));
        for text in ["yesterday", "", "1969-12-31T23:00:00Z", "-5"] {
            since_us(text).unwrap_err();
        }
    }

    #[test]
    fn a_cursor_is_the_number_of_the_first_event_or_a_time() {
        assert_eq!(parse_cursor("7"), Ok(Cursor::After(6)));
        assert_eq!(parse_cursor("0"), Ok(Cursor::After(0)));
        assert_eq!(parse_cursor("1783000000000000"), Ok(Cursor::Time(1_783_000_000_000_000)));
        parse_cursor("-1").unwrap_err();
    }
}
