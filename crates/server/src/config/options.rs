//! Every option of the server, declared once.
//!
//! One entry makes a field of [`Config`], the flag `--name`, the variable `ALLUVIUM_NAME`, the key `name` of the
//! configuration file, its help text and its row in the generated documentation.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use alluvium_engine::{
    APPEND_BYTES_MAX_DEFAULT, BUCKETS_MAX_DEFAULT, Durability, PRODUCERS_PER_STREAM_MAX_DEFAULT,
    QUEUE_BYTES_MAX_DEFAULT, RECENT_BYTES_DEFAULT, SEGMENT_BYTES_DEFAULT, SNAPSHOT_BYTES_MAX_DEFAULT,
    SNAPSHOT_GRACE_MS_DEFAULT, STREAMS_MAX_DEFAULT, UPLOADS_MAX_DEFAULT,
};
use alluvium_streams::{CacheVisibility, limits as streams};

use super::value::{ByteSize, LogFilter, LogFormat, MetricsPlace, PublicUrl, StoreChoice, Value};

/// What is known about an option apart from its value.
#[derive(Debug)]
pub struct OptionSpec {
    /// The name: the flag without its dashes, and the key in the file.
    pub name: &'static str,
    /// What it does, in one or more sentences.
    pub help: &'static str,
    /// What kind of text it takes.
    pub kind: &'static str,
    /// The text of its default.
    pub default: fn() -> String,
    pub(crate) set: fn(&mut Config, &str) -> Result<(), String>,
    pub(crate) show: fn(&Config) -> String,
}

impl OptionSpec {
    /// The environment variable of this option.
    pub fn variable(&self) -> String {
        format!("ALLUVIUM_{}", self.name.replace('-', "_").to_ascii_uppercase())
    }
}

macro_rules! options {
    ($( $(#[doc = $doc:literal])+ $name:literal => $field:ident: $type:ty = $default:expr; )+) => {
        /// The configuration of a server, every option with its value.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            $( $(#[doc = $doc])+ pub $field: $type, )+
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $( $field: $default, )+ }
            }
        }

        /// The table of all options, in the order they are documented.
        pub const OPTIONS: &[OptionSpec] = &[
            $( OptionSpec {
                name: $name,
                help: concat!($($doc),+),
                kind: <$type as Value>::KIND,
                default: || { let value: $type = $default; value.show() },
                set: |config, text| {
                    config.$field = <$type as Value>::parse(text)?;
                    Ok(())
                },
                show: |config| config.$field.show(),
            }, )+
        ];
    };
}

options! {
    /// Address and port to listen on. Port 0 picks a free one, which is printed at the start.
    "listen" => listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 4437));
    /// Directory that holds all data. Made if missing; used by one server at a time.
    "data-dir" => data_dir: PathBuf = PathBuf::from("./alluvium-data");
    /// What keeps the streams: `engine`, in the data directory, or `sqlite:PATH`, all of them in one SQLite file, without
    /// buckets, snapshots and attributes.
    "store" => store: StoreChoice = StoreChoice::Engine;
    /// When a write is acknowledged: `fsync` after it is on the disk, `os` once the operating system has it
    /// (survives the death of the process, not of the machine).
    "durability" => durability: Durability = Durability::Fsync;
    /// URL under which clients reach the server, for `Location` headers. Empty: taken from the `Host` header.
    "public-url" => public_url: PublicUrl = PublicUrl(None);
    /// How long a long-poll waits for data before it answers `204`.
    "long-poll-timeout" => long_poll_timeout: Duration = streams::LONG_POLL_TIMEOUT;
    /// About how long an SSE response lasts before it ends and the client reconnects.
    "sse-cycle" => sse_cycle: Duration = streams::SSE_CYCLE;
    /// Largest request body. A larger one is answered `413`.
    "append-bytes-max" => append_bytes_max: ByteSize = ByteSize(APPEND_BYTES_MAX_DEFAULT as u64);
    /// Largest response to a catch-up read; the client asks again for the rest.
    "read-bytes-max" => read_bytes_max: ByteSize = ByteSize(streams::READ_BYTES_MAX);
    /// Who may cache responses with data: `public` for anyone on the way, such as a content delivery network,
    /// `private` for the client alone.
    "cache-visibility" => cache_visibility: CacheVisibility = CacheVisibility::Public;
    /// Largest snapshot. A larger one is answered `413`.
    "snapshot-bytes-max" => snapshot_bytes_max: ByteSize = ByteSize(SNAPSHOT_BYTES_MAX_DEFAULT);
    /// How long a replaced snapshot stays readable for those who were just sent to it.
    "snapshot-grace" => snapshot_grace: Duration = Duration::from_millis(SNAPSHOT_GRACE_MS_DEFAULT);
    /// Snapshots uploaded at once. One more is answered `503`.
    "uploads-max" => uploads_max: usize = UPLOADS_MAX_DEFAULT;
    /// How many bytes of messages, with what delimits them, a bootstrap brings before it ends early; the client reads on
    /// from there.
    "bootstrap-bytes-max" => bootstrap_bytes_max: ByteSize = ByteSize(streams::BOOTSTRAP_BYTES_MAX);
    /// Whether shared caches may keep reads of streams that have dropped history: `yes` says that what was once
    /// readable may stay so for a while. Otherwise such reads are `no-store`.
    "public-history" => public_history: bool = false;
    /// Buckets held at once.
    "buckets-max" => buckets_max: usize = BUCKETS_MAX_DEFAULT;
    /// Whether the server is an authority of feeds, under `/feeds/`.
    "feeds" => feeds: bool = true;
    /// Most spaces of feeds. Reading makes none; an append or subscription that would make one more is answered `409`
    /// (`spaces_full`).
    "feed-spaces-max" => feed_spaces_max: usize = alluvium_feeds::SPACES_MAX_DEFAULT;
    /// Connections held at once. One more is answered `503` and closed.
    "connections-max" => connections_max: usize = alluvium_http::CONNECTIONS_MAX;
    /// Long-polls and SSE responses that wait at once. One more is answered `503`.
    "waiters-max" => waiters_max: usize = streams::WAITERS_MAX;
    /// Largest request head. A larger one is answered `431`.
    "header-bytes-max" => header_bytes_max: ByteSize = ByteSize(alluvium_http::HEADER_BYTES_MAX as u64);
    /// Bytes of partly received request bodies held at once. More is answered `503`.
    "bodies-bytes-max" => bodies_bytes_max: ByteSize = ByteSize(streams::BODIES_BYTES_MAX as u64);
    /// Bytes of responses that may wait in memory for readers that have stopped reading. Beyond it, responses go out
    /// in pieces of 16 KiB, and each further reader that stops holds no more than two of those.
    "responses-bytes-max" => responses_bytes_max: ByteSize = ByteSize(alluvium_http::RESPONSES_BYTES_MAX as u64);
    /// How long a request body may take to arrive. A slower one is answered `408`.
    "body-timeout" => body_timeout: Duration = streams::BODY_TIMEOUT;
    /// How long a connection may stay without a request before it is closed.
    "idle-timeout" => idle_timeout: Duration = Duration::from_secs(alluvium_http::IDLE_TIMEOUT_S);
    /// How long a shutdown waits for requests to finish before it cuts them.
    "shutdown-timeout" => shutdown_timeout: Duration = Duration::from_secs(10);
    /// Streams held at once.
    "streams-max" => streams_max: u64 = STREAMS_MAX_DEFAULT;
    /// Producers one stream remembers. A further one is refused.
    "producers-max" => producers_max: usize = PRODUCERS_PER_STREAM_MAX_DEFAULT;
    /// Bytes of writes that may wait for one committer. More is answered `503`.
    "queue-bytes-max" => queue_bytes_max: ByteSize = ByteSize(QUEUE_BYTES_MAX_DEFAULT);
    /// Memory for recently written bytes, from which live readers are served.
    "recent-bytes" => recent_bytes: ByteSize = ByteSize(RECENT_BYTES_DEFAULT as u64);
    /// Shards of a new data directory, each with its own journal and committer. An existing one keeps its own.
    "shards" => shards: Option<usize> = None;
    /// Threads that serve connections.
    "reactors" => reactors: Option<usize> = None;
    /// Size of a journal segment of a new data directory. At least twice `append-bytes-max`, so that a smaller one
    /// needs that smaller too.
    "segment-bytes" => segment_bytes: ByteSize = ByteSize(SEGMENT_BYTES_DEFAULT as u64);
    /// Where `/metrics` is: `main` beside everything else, if the server listens on a loopback address; an address and port
    /// of its own, together with `/healthz` and `/readyz`, which answers during recovery and shutdown too; or `off`.
    "metrics-listen" => metrics_listen: MetricsPlace = MetricsPlace::Main;
    /// The OpenTelemetry collector that traces and metrics are exported to, by OTLP over HTTP, as in
    /// `http://127.0.0.1:4318`. Empty: none. Only in builds with the cargo feature `otlp`.
    "otlp-endpoint" => otlp_endpoint: PublicUrl = PublicUrl(None);
    /// Which log lines are written to standard error: a level (`off`, `error`, `warn`, `info`, `debug`, `trace`),
    /// `target=level` pairs for parts of the program, or both, with commas between, as in `warn,alluvium_engine=debug`.
    "log" => log: LogFilter = LogFilter("info".to_owned());
    /// How log lines are written: `text` for people, or `json`, one object a line.
    "log-format" => log_format: LogFormat = LogFormat::Text;
}
