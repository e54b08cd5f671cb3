//! Every option of the server, declared once.
//!
//! One entry makes a field of [`Config`], the flag `--name`, the variable `ALLUVIUM_NAME`, the key `name` of the
//! configuration file, its help text and its row in the generated documentation.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use alluvium_access::Origins;
use alluvium_engine::{
    APPEND_BYTES_MAX_DEFAULT, BUCKETS_MAX_DEFAULT, Durability, PRODUCERS_PER_STREAM_MAX_DEFAULT,
    QUEUE_BYTES_MAX_DEFAULT, RECENT_BYTES_DEFAULT, SEGMENT_BYTES_DEFAULT, SNAPSHOT_BYTES_MAX_DEFAULT,
    SNAPSHOT_GRACE_MS_DEFAULT, STREAMS_MAX_DEFAULT, UPLOADS_MAX_DEFAULT,
};
use alluvium_feeds::limits as feeds;
use alluvium_http::Networks;
use alluvium_streams::{CacheVisibility, limits as streams};

use super::access::{AccessPath, ByteLimit, RateLimit};
use super::disk::{DISK_FREE_MIN, DISK_FREE_WARN, FreeSpace};
use super::retention::RetentionRules;
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

    /// Whether it is `yes` or `no`: its flag alone says `yes`.
    pub fn is_switch(&self) -> bool {
        self.kind == <bool as Value>::KIND
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
    /// File with the tokens that give access, and whose signed tokens do: `docs/operating/access.md`. Read again when it
    /// changes. With one, every request needs a token but for what the file says that anyone may do.
    "access-file" => access_file: AccessPath = AccessPath(None);
    /// Whether the server may listen on an address that is not this machine's own without an `access-file`: then whoever
    /// reaches it may do everything.
    "insecure" => insecure: bool = false;
    /// Whether a token may stand in the query of a URL, as `access_token`, for what cannot send a header. URLs are kept
    /// by proxies and browsers.
    "token-in-query" => token_in_query: bool = false;
    /// Origins of web pages that may use the server, with commas between, or `*` for all. Those that are listed may also
    /// send what a browser sends by itself, such as a proxy's cookies.
    "cors-origins" => cors_origins: Origins = Origins::Any;
    /// Requests in a second that one address may make (of IPv6 one network of 64 bits). More are answered `429`.
    "address-requests-per-s" => address_requests_per_s: RateLimit = RateLimit(None);
    /// Bytes of bodies in a second that one address may have kept. More is answered `429`.
    "address-append-bytes-per-s" => address_append_bytes_per_s: ByteLimit = ByteLimit(None);
    /// Requests in a second that the holder of one token may make, unless the file says otherwise for it.
    "token-requests-per-s" => token_requests_per_s: RateLimit = RateLimit(None);
    /// Bytes of bodies in a second that the holder of one token may have kept, unless the file says otherwise for it.
    "token-append-bytes-per-s" => token_append_bytes_per_s: ByteLimit = ByteLimit(None);
    /// How much can be saved up of what these four allow: as much as comes in this time, a second at least.
    "rate-burst" => rate_burst: Duration = Duration::from_secs(10);
    /// Addresses that are counted at once. Beyond it those are forgotten that have used up least.
    "rate-addresses-max" => rate_addresses_max: usize = alluvium_access::limits::ADDRESSES_MAX;
    /// Directory that holds all data. Made if missing; used by one server at a time.
    "data-dir" => data_dir: PathBuf = PathBuf::from("./alluvium-data");
    /// Folder that backups of the running server are made in, each in a folder of its own: `docs/operating/backup.md`. Tables
    /// of streams take no room in it if it is on the file system of `data-dir`. Empty: none are made.
    "backup-dir" => backup_dir: Option<PathBuf> = None;
    /// What keeps the streams: `engine`, in the data directory, or `sqlite:PATH`, all of them in one SQLite file, without
    /// buckets, snapshots and attributes.
    "store" => store: StoreChoice = StoreChoice::Engine;
    /// With less of its disk free, the server answers what adds data with `507`, until there is a quarter more than this.
    /// Reading, deleting and the reclaiming of space go on. Bytes or a part of the disk; `docs/operating/disk.md`.
    "disk-free-min" => disk_free_min: FreeSpace = DISK_FREE_MIN;
    /// With less of its disk free, the server says so in the log and in its metrics, until there is a quarter more.
    "disk-free-warn" => disk_free_warn: FreeSpace = DISK_FREE_WARN;
    /// Which streams end by themselves: rules with `;` between, each of a `prefix` of their URL paths (all, if it has none)
    /// and one or more of `max-idle` (time without a write), `max-closed` (time since they were closed), `max-bytes` (of
    /// all under the prefix together; the longest idle go first), and, of which only the beginning goes, `stream-max-bytes`
    /// and `stream-max-age` of each stream, as in `prefix=/v1/stream/logs/,max-idle=30d,stream-max-age=7d;max-bytes=100GiB`.
    /// See `docs/operating/disk.md`.
    "retention" => retention: RetentionRules = RetentionRules::default();
    /// How often it is looked which streams are to go, and what of those that stay.
    "retention-interval" => retention_interval: Duration = Duration::from_mins(1);
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
    /// Most spaces of feeds. Reading makes none, nor does subscribing; an append that would make one more is answered `409`
    /// (`spaces_full`).
    "feed-spaces-max" => feed_spaces_max: usize = alluvium_feeds::SPACES_MAX_DEFAULT;
    /// Most spaces of feeds that are open at once, and as many again that aren't there and are asked for. The one that was unused for longest is closed
    /// for another; where none is unused, a request for one more is answered `503` (`overloaded`). An open space takes up to 12 descriptors
    /// and some MiB of memory.
    "feed-open-spaces-max" => feed_open_spaces_max: usize = alluvium_feeds::OPEN_SPACES_MAX_DEFAULT;
    /// Most feeds of one space, and of one subscription. An append that would make one more is answered `409`
    /// (`limit_reached`).
    "feed-count-max" => feed_count_max: usize = feeds::FEEDS_MAX;
    /// Feeds of one space beyond which an append that makes one more is warned.
    "feed-count-warn" => feed_count_warn: usize = feeds::FEEDS_SOFT_MAX;
    /// Most blocks of one feed. An append beyond it is answered `409` (`limit_reached`).
    "feed-blocks-max" => feed_blocks_max: u64 = feeds::FEED_BLOCKS_MAX;
    /// Blocks of one feed beyond which an append to it is warned.
    "feed-blocks-warn" => feed_blocks_warn: u64 = feeds::FEED_BLOCKS_SOFT_MAX;
    /// Largest data of one block of a feed; at most 1.5 MiB.
    "feed-block-bytes-max" => feed_block_bytes_max: ByteSize = ByteSize(feeds::DATA_BYTES_MAX as u64);
    /// Most blocks of one append to feeds; at most 1000.
    "feed-append-blocks-max" => feed_append_blocks_max: usize = feeds::APPEND_BLOCKS_MAX;
    /// Most bytes of one append to feeds, in blocks. The body may be twice as long.
    "feed-append-bytes-max" => feed_append_bytes_max: ByteSize = ByteSize(feeds::APPEND_BYTES_MAX as u64);
    /// Most blocks of one page of feeds; at most 1000.
    "feed-page-blocks-max" => feed_page_blocks_max: usize = feeds::PAGE_BLOCKS_MAX;
    /// Most bytes of one page of feeds, in blocks. One block always fits.
    "feed-page-bytes-max" => feed_page_bytes_max: ByteSize = ByteSize(feeds::PAGE_BYTES_MAX as u64);
    /// Largest message to a socket of feeds. A larger one ends it (close code 1009).
    "feed-frame-bytes-max" => feed_frame_bytes_max: ByteSize = ByteSize(feeds::FRAME_BYTES_MAX as u64);
    /// Most feeds that one subscription names in a message; at most 1000. Further ones are added.
    "feed-subscribe-max" => feed_subscribe_max: usize = feeds::SUBSCRIBE_FEEDS_MAX;
    /// Most subscriptions of one caller in one space of feeds. One more takes the place of the one that is used least.
    "feed-subscriptions-max" => feed_subscriptions_max: usize = feeds::SUBSCRIPTIONS_MAX;
    /// Most requests of one socket of feeds that are without an answer. One more is answered `overloaded`.
    "feed-requests-max" => feed_requests_max: usize = feeds::OPEN_REQUESTS_MAX;
    /// How long a socket of feeds may be silent before it is asked whether it is there.
    "feed-ping-interval" => feed_ping_interval: Duration = alluvium_feeds::http::PING_INTERVAL;
    /// How long a socket of feeds that has presented no token may take until it greets with one.
    "feed-greeting-timeout" => feed_greeting_timeout: Duration = alluvium_feeds::http::GREETING_TIMEOUT;
    /// How long something may wait for the reader of a socket of feeds before that is dropped.
    "feed-reader-timeout" => feed_reader_timeout: Duration = alluvium_feeds::http::READER_TIMEOUT;
    /// File with the certificate chain of the server in PEM, its own certificate first. With it the server speaks TLS, and
    /// nothing else. The file is read again when it changes, and on SIGHUP.
    "tls-cert" => tls_cert: Option<PathBuf> = None;
    /// File with the key of that certificate in PEM. Read again as that is.
    "tls-key" => tls_key: Option<PathBuf> = None;
    /// Proxies that are believed what they say of their clients (`Forwarded`, `X-Forwarded-For`, `X-Forwarded-Proto`):
    /// addresses and networks with commas between, as in `127.0.0.1,10.0.0.0/8`.
    "trusted-proxies" => trusted_proxies: Networks = Networks::default();
    /// Subscriptions held at once. One more is answered `409`.
    "subscriptions-max" => subscriptions_max: usize = alluvium_subscriptions::SUBSCRIPTIONS_MAX_DEFAULT;
    /// Streams that all subscriptions together follow; one that two follow counts twice. A subscription that needs more
    /// is answered `409`; a new stream that patterns mean beyond that is not followed, and the log says so.
    "subscription-links-max" => subscription_links_max: usize = alluvium_subscriptions::LINKS_MAX_DEFAULT;
    /// Webhooks under way at once. Others wait for their turn; those whose last attempt failed get at most half of these.
    "webhooks-max" => webhooks_max: usize = alluvium_subscriptions::DELIVERIES_MAX_DEFAULT;
    /// How long a webhook's receiver may take to answer; the lease of the subscription if that is shorter.
    "webhook-timeout" => webhook_timeout: Duration = alluvium_subscriptions::WEBHOOK_TIMEOUT_DEFAULT;
    /// Whether webhooks may go to `localhost` and `127.0.0.x`, also without TLS: for development. All other addresses that
    /// are not on the public internet are always refused.
    "webhook-loopback" => webhook_loopback: bool = false;
    /// How often a new key takes over signing webhooks; at least an hour. It is in the key set ten minutes before, and the
    /// old one for an hour after.
    "webhook-key-rotation" => webhook_key_rotation: Duration = alluvium_subscriptions::KEY_ROTATION_DEFAULT;
    /// The most memory that peers may have the server hold at once: it does not start if its limits come to more together.
    /// What is stored and remembered for good is not in it (see docs/operating/limits.md).
    "memory-max" => memory_max: ByteLimit = ByteLimit(None);
    /// Connections held at once. One more is answered `503` and closed.
    "connections-max" => connections_max: usize = alluvium_http::CONNECTIONS_MAX;
    /// Connections held at once for one address, or for the first 64 bits of one of IPv6; not for trusted proxies. One more
    /// is answered `429` and closed. `auto` is 1024, and has this machine's own addresses exempt.
    "connections-per-address-max" => connections_per_address_max: Option<usize> = None;
    /// Requests under way at once on one connection of HTTP/2. The client keeps further ones back.
    "http2-streams-max" => http2_streams_max: usize = alluvium_http::STREAMS_PER_CONNECTION_MAX;
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
