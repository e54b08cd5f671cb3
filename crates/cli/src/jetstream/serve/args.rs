//! The options of `alluvium jetstream serve`: each a flag and a variable, checked before anything is started.

use std::net::SocketAddr;
use std::path::PathBuf;

use alluvium_access::{Doors, Options as AccessOptions, Origins, Rates};
use alluvium_http::{Networks, QUERIES_BYTES_MAX};
use alluvium_jetstream::Options;
use alluvium_jetstream_server::JetstreamConfig;
use alluvium_server::config::{
    DISK_FREE_MIN, DISK_FREE_WARN, FreeSpace, LogFilter, LogFormat, MetricsPlace, closest,
};
use clap::builder::BoolishValueParser;
use clap::{Arg, ArgAction, Args, Command};

use super::super::tls::TlsArgs;
use super::super::values::{SUBSCRIBERS_MAX, number, url, zero_or};

/// What the variables of this command begin with. The rest is the name of a flag.
const VARIABLE_PREFIX: &str = "ALLUVIUM_JETSTREAM_";
/// Where the network's directory of accounts is, unless said otherwise.
const PLC: &str = "https://plc.directory";
/// A query of ten thousand accounts is some 400 KiB, and as the reference implementation takes it.
const QUERY_BYTES_MAX: usize = 1024 * 1024;
/// The largest number that a relay gives.
const CURSOR_MAX: u64 = i64::MAX as u64;
/// Ten years.
const HOURS_MAX: u64 = 87_600;
const YEAR_S: u64 = 365 * 24 * 3600;
/// With less a reader of files would wait for minutes between two blocks.
const REPLAY_BYTES_MIN: u64 = 64 * 1024;
const FILTER_DIDS_MAX: u64 = 1_000_000_000;
/// A terabyte, for everything that is a file or goes through one.
const BYTES_MAX: u64 = 1 << 40;
/// Less than this is a file for each block or two.
const SEGMENT_BYTES_MIN: u64 = 512;
/// One event of the longest kind.
const WRITE_QUEUE_BYTES_MIN: u64 = 1 << 20;
/// As many as a block of the format can have.
const BLOCK_ROWS_MAX: u64 = alluvium_jss::ROWS_MAX as u64;
/// Arguments of `alluvium jetstream serve`.
#[derive(Debug, Args)]
#[command(mut_args(with_variable))]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct ServeArgs {
    /// The relay to follow: `wss://…`, or `ws://…` without TLS. It may be anywhere: whoever names it is believed.
    #[arg(long, value_name = "URL", value_parser = url(["wss", "ws"]))]
    pub(super) relay: String,
    /// The directory of `did:plc` accounts: `https://…`, or `http://…` without TLS. It may be anywhere, too.
    #[arg(long, value_name = "URL", default_value = PLC, value_parser = url(["https", "http"]))]
    pub(super) plc: String,
    /// Where feeds and archive are served.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(super) listen: SocketAddr,
    /// Where everything is kept.
    #[arg(long, value_name = "DIR", default_value = "alluvium-jetstream")]
    pub(super) data_dir: PathBuf,
    /// Folder that backups of the running server are made in, each in a folder of its own: `docs/operating/backup.md`.
    /// Finished segments take no room in it if it is on the file system of `--data-dir`. Without it none are made.
    #[arg(long, value_name = "DIR")]
    pub(super) backup_dir: Option<PathBuf>,
    /// With an empty archive: begin behind this number of the relay, 0 for all that it still has; else with what comes.
    #[arg(long, value_name = "NUMBER", value_parser = number::<u64>(0..=CURSOR_MAX))]
    pub(super) start_cursor: Option<u64>,
    /// Begin with an empty archive and gather nothing of the past; the only mode there is so far.
    #[arg(long)]
    pub(super) no_backfill: bool,
    /// Slow the relay down when an account's queue is full, instead of dropping from it and repairing the account.
    #[arg(long)]
    pub(super) lossless: bool,
    /// Connect to addresses that are not public, and without TLS, where accounts say that their servers or documents are:
    /// for a network on this machine. Relay and directory need it not.
    #[arg(long)]
    pub(super) allow_private: bool,
    /// How many hours back a live feed may begin; 0 for feeds that always begin with what comes.
    #[arg(long, value_name = "HOURS", default_value_t = 36, value_parser = number::<u64>(0..=HOURS_MAX))]
    pub(super) lookback_hours: u64,
    /// Subscribers of live feeds at once.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = Options::default().subscribers_max,
        value_parser = number::<usize>(1..=SUBSCRIBERS_MAX)
    )]
    pub(super) subscribers_max: usize,
    /// Of them, those of one address that is not of this machine; 0 for any number.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = Options::default().subscribers_per_address_max,
        value_parser = number::<usize>(0..=SUBSCRIBERS_MAX)
    )]
    pub(super) subscribers_per_address_max: usize,
    /// Of one address's, those that begin in the past and have not caught up yet; 0 for any number.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = Options::default().replays_per_address_max,
        value_parser = number::<usize>(0..=SUBSCRIBERS_MAX)
    )]
    pub(super) replays_per_address_max: usize,
    /// Bytes of events a second that are read of files for one address, and as many at once; 0 for any number.
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = Options::default().replay_bytes_per_address_per_s,
        value_parser = zero_or::<u64>(REPLAY_BYTES_MIN..=BYTES_MAX)
    )]
    pub(super) replay_bytes_per_address_per_s: u64,
    /// Accounts that the filters of all subscribers name together; 0 for any number.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = Options::default().filter_dids_max,
        value_parser = number::<usize>(0..=FILTER_DIDS_MAX)
    )]
    pub(super) filter_dids_max: usize,
    /// Bytes of the query of a request over HTTP/1.1. Over HTTP/2 there are 64 KiB, the path included.
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = QUERY_BYTES_MAX,
        value_parser = number::<usize>(1..=QUERIES_BYTES_MAX as u64)
    )]
    pub(super) query_bytes_max: usize,
    /// Proxies that are believed what they say of their clients (`Forwarded`, `X-Forwarded-For`, `X-Forwarded-Proto`):
    /// addresses and networks with commas between, as in `127.0.0.1,10.0.0.0/8`.
    #[arg(long, value_name = "ADDRESSES", default_value = "")]
    pub(super) trusted_proxies: Networks,
    /// Seconds for which a long-poll of `/streams/events` waits for news before it is answered 204.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = Options::default().long_poll_timeout.as_secs(),
        value_parser = number::<u64>(1..=3600)
    )]
    pub(super) long_poll_timeout: u64,
    /// Seconds for which a subscriber may take nothing of what is sent to it. It is then told why and dropped.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = Options::default().write_timeout.as_secs(),
        value_parser = number::<u64>(1..=3600)
    )]
    pub(super) write_timeout: u64,
    /// Never compress a live feed's messages by the socket's own means: some browsers cannot read them.
    #[arg(long)]
    pub(super) no_deflate: bool,
    /// Seconds for which others may keep a segment without asking; it may be replaced when accounts are deleted.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = number::<u64>(0..=YEAR_S))]
    pub(super) segment_max_age: u64,
    /// Bytes of a segment's blocks at which it is finished. A smaller one can be downloaded sooner, and there are more.
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = JetstreamConfig::new("", "").segment_bytes,
        value_parser = number::<u64>(SEGMENT_BYTES_MIN..=BYTES_MAX)
    )]
    pub(super) segment_bytes: u64,
    /// Events of a block, the least that is downloaded of a segment. Fewer compress worse.
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = JetstreamConfig::new("", "").block_rows,
        value_parser = number::<usize>(1..=BLOCK_ROWS_MAX)
    )]
    pub(super) block_rows: usize,
    /// Bytes of verified events that may wait for the disk. Beyond them nothing more is verified until it has caught up.
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = JetstreamConfig::new("", "").write_queue_bytes,
        value_parser = number::<usize>(WRITE_QUEUE_BYTES_MIN..=BYTES_MAX)
    )]
    pub(super) write_queue_bytes: usize,
    /// With less of its disk free, nothing is taken from the relay until there is a quarter more: bytes, a part of the disk
    /// as in `5%`, or `off`.
    #[arg(long, value_name = "BYTES|PERCENT%|off", default_value_t = DISK_FREE_MIN)]
    pub(super) disk_free_min: FreeSpace,
    /// With less of its disk free, the log and the metrics say so.
    #[arg(long, value_name = "BYTES|PERCENT%|off", default_value_t = DISK_FREE_WARN)]
    pub(super) disk_free_warn: FreeSpace,
    #[command(flatten)]
    pub(super) access: AccessArgs,
    #[command(flatten)]
    pub(super) tls: TlsArgs,
    /// What is logged to standard error: levels, also by module.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub(super) log: LogFilter,
    /// How log lines are written: `text` for people, or `json`, one object a line.
    #[arg(long, value_name = "text|json", default_value = "text")]
    pub(super) log_format: LogFormat,
    /// Where `/metrics` is: `main` beside the feeds, if those are served on a loopback address; an address and port of its
    /// own, with `/healthz` and `/readyz`; or `off`.
    #[arg(long, value_name = "main|off|ADDRESS:PORT", default_value = "main")]
    pub(super) metrics_listen: MetricsPlace,
    /// The OpenTelemetry collector that traces and metrics are exported to, by OTLP over HTTP.
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL", value_parser = url(["https", "http"]))]
    pub(super) otlp_endpoint: Option<String>,
}

/// Who may use it. Anyone may read the feeds and the archive, as what is in them is public; what is for an operator needs
/// a token, but on an address of this machine without a file.
#[derive(Debug, Args)]
pub(super) struct AccessArgs {
    /// File with tokens, read again when it changes: see docs/operating/access.md.
    #[arg(long, value_name = "PATH")]
    pub(super) access_file: Option<PathBuf>,
    /// Whether a token may stand in the query of a URL, as `access_token`.
    #[arg(long)]
    token_in_query: bool,
    /// Origins of web pages that may use it, with commas between; * for all.
    #[arg(long, value_name = "ORIGINS", default_value = "*")]
    cors_origins: Origins,
    /// Requests in a second that one address may make; more are answered 429. Connections that are open are not counted
    /// again.
    #[arg(long, value_name = "NUMBER", value_parser = number::<u64>(1..=1_000_000_000))]
    address_requests_per_s: Option<u64>,
}

impl AccessArgs {
    pub(super) fn options(&self, listen: SocketAddr) -> AccessOptions {
        AccessOptions {
            file: self.access_file.clone(),
            is_open: self.access_file.is_none() && listen.ip().to_canonical().is_loopback(),
            token_in_query: self.token_in_query,
            origins: self.cors_origins.clone(),
            address_rates: Rates { requests_per_s: self.address_requests_per_s, append_bytes_per_s: None },
            ..AccessOptions::open(Doors::Jetstream)
        }
    }
}

/// Gives a flag a variable of its name, as flags of `alluvium serve` have one.
fn with_variable(arg: Arg) -> Arg {
    let Some(name) = arg.get_long().filter(|name| *name != "help") else { return arg };
    // Made once for the life of the process, a few dozen of them.
    let variable: &'static str = variable(name).leak();
    let arg = arg.env(variable);
    match arg.get_action() {
        ArgAction::SetTrue => arg.value_parser(BoolishValueParser::new()),
        _ => arg,
    }
}

fn variable(flag: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", flag.to_uppercase().replace('-', "_"))
}

/// The variables of this command, which `alluvium serve` passes over.
pub(crate) fn variables() -> Vec<String> {
    command().get_arguments().filter_map(Arg::get_long).map(variable).collect()
}

/// What is wrong with the environment: a variable of this command that it does not know.
pub(super) fn unknown_variable() -> Option<String> {
    let known = variables();
    let mut ours = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let unknown = ours.find(|name| name.starts_with(VARIABLE_PREFIX) && !known.contains(name))?;
    let names: Vec<&str> = known.iter().filter_map(|name| name.strip_prefix(VARIABLE_PREFIX)).collect();
    let meant = unknown.strip_prefix(VARIABLE_PREFIX).and_then(|name| closest(name, &names));
    let hint = meant.map(|name| format!("; did you mean `{VARIABLE_PREFIX}{name}`?")).unwrap_or_default();
    Some(format!("unknown environment variable `{unknown}`{hint}"))
}

/// The flags alone.
pub(super) fn command() -> Command {
    ServeArgs::augment_args(Command::new("alone"))
}
