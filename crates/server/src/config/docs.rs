//! The documentation of options and limits, made from the tables and constants themselves.

use std::fmt::Write;

use alluvium_engine::{
    BATCH_BYTES_MAX, BATCH_FRAMES_MAX, LIST_PAGE_BYTES_MAX, LIST_PAGE_MAX, QUEUE_COMMANDS_MAX_DEFAULT,
    SEGMENT_BYTES_DEFAULT, SHARDS_MAX,
};
use alluvium_journal::SPARES_MAX;
use alluvium_protocol::limits as protocol;
use alluvium_streams::limits as streams;

use super::{
    options::OPTIONS,
    value::{ByteSize, Value},
};
use crate::exit::EXIT_CODES;

/// A configuration file as one might have it.
const EXAMPLE: &str = "\
listen = \"0.0.0.0:4437\"
access-file = \"/etc/alluvium/access.toml\"
data-dir = \"/var/lib/alluvium\"
public-url = \"https://streams.example\"
append-bytes-max = \"8MiB\"
connections-max = 4096
long-poll-timeout = \"20s\"
log-format = \"json\"
";

/// A Markdown page with every option and every fixed limit.
pub fn docs_markdown() -> String {
    let mut page = String::from(
        "# Options and limits\n\n\
         Every option is a flag of `alluvium serve`, an environment variable and a key of the configuration file\n\
         (`--config FILE`, TOML). A flag wins over the variable, the variable over the file, the file over the default.\n\
         An unknown key or an unknown variable that starts with `ALLUVIUM_` is refused. `ALLUVIUM_CONFIG` names the file\n\
         where `--config` does not. `alluvium config show` prints what is in force and where each value came from,\n\
         `alluvium config check` only whether it is valid; both take the same flags as `alluvium serve`.\n\n\
         ## Options\n\n\
         | flag and key | variable | default | meaning |\n|---|---|---|---|\n",
    );
    for option in OPTIONS {
        let default = match (option.default)() {
            text if text.is_empty() => String::from("(empty)"),
            text => format!("`{text}`"),
        };
        row(
            &mut page,
            &[
                &format!("`{}`", option.name),
                &format!("`{}`", option.variable()),
                &default,
                option.help.trim(),
            ],
        );
    }
    page.push_str(
        "\n`auto` for `reactors` is half the cores, at least one (each core beyond has a thread for large answers);\n\
         for `shards` it is half the cores, at least one and at most eight. [sql-store.md](sql-store.md) says which options a SQLite store does without. Sizes are written with `KiB`, `MiB` or `GiB`, durations with `ms`, `s`, `m`, `h` or `d`.\n\n\
         A file with some of them:\n\n```toml\n",
    );
    page.push_str(EXAMPLE);
    page.push_str("```\n\n## Fixed limits\n\n| limit | value | beyond it |\n|---|---|---|\n");
    for (limit, value, beyond) in fixed_limits() {
        row(&mut page, &[limit, &value, beyond]);
    }
    // Writing to a string does not fail.
    let _ = write!(
        page,
        "\n## Disk\n\n\
         Journal segments are written ahead of time, so that an append changes no file sizes: a new data directory takes\n\
         two segments a shard at once, {} for each shard by default, and later there are up to {SPARES_MAX} empty ones\n\
         a shard in reserve. `segment-bytes` makes them smaller; it holds for new data directories only. A segment is at\n\
         least twice as large as the largest append, so the defaults go down together: `--segment-bytes 16MiB\n\
         --append-bytes-max 8MiB` takes 32MiB for each shard.\n\n\
         ## Exit codes of `alluvium serve`\n\n",
        ByteSize(2 * u64::from(SEGMENT_BYTES_DEFAULT)).show(),
    );
    exit_codes(&mut page, EXIT_CODES);
    page
}

/// A table of exit codes.
pub fn exit_codes(page: &mut String, codes: &[(u8, &str)]) {
    page.push_str("| code | meaning |\n|--:|---|\n");
    for (code, meaning) in codes {
        row(page, &[&code.to_string(), meaning]);
    }
}

fn row(page: &mut String, cells: &[&str]) {
    // Writing to a string does not fail.
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}

/// What is limited, to what, and what happens beyond.
type Limit = (&'static str, String, &'static str);

fn fixed_limits() -> Vec<Limit> {
    [limits_of_requests(), limits_of_access(), limits_of_responses(), limits_of_the_engine()].concat()
}

fn bytes(bytes: u64) -> String {
    match ByteSize(bytes).show() {
        // Without a unit of its own, which a reader of a table would miss.
        number if number.ends_with(|last: char| last.is_ascii_digit()) => format!("{number} bytes"),
        size => size,
    }
}

fn seconds(seconds: u64) -> String {
    format!("{seconds} s")
}

fn limits_of_requests() -> Vec<Limit> {
    vec![
        ("stream path, decoded", bytes(protocol::PATH_BYTES_MAX as u64), "`400 invalid_path`"),
        (
            "bucket id",
            format!("{} to {} characters", protocol::BUCKET_ID_BYTES_MIN, protocol::BUCKET_ID_BYTES_MAX),
            "`400 invalid_bucket`",
        ),
        (
            "bucket id, slash and stream id, decoded",
            bytes(protocol::BUCKETED_PATH_BYTES_MAX as u64),
            "`400 invalid_stream_id`",
        ),
        ("attributes of a stream", bytes(protocol::ATTRIBUTES_BYTES_MAX as u64), "`413 attrs_too_large`"),
        ("frames of one batch of appends", BATCH_FRAMES_MAX.to_string(), "`400 invalid_batch`"),
        ("streams on one page of a list", LIST_PAGE_MAX.to_string(), "`400 invalid_limit`"),
        ("one page of a list, about", bytes(LIST_PAGE_BYTES_MAX as u64), "it ends early, with `has_more`"),
        (
            "replaced snapshots of one stream that stay readable for a while",
            protocol::SUPERSEDED_SNAPSHOTS_MAX.to_string(),
            "the oldest are gone at once",
        ),
        ("upload of a snapshot", seconds(streams::SNAPSHOT_TIMEOUT.as_secs()), "`408 body_timeout`"),
        ("`Content-Type`", bytes(protocol::CONTENT_TYPE_BYTES_MAX as u64), "`400 invalid_content_type`"),
        ("`Producer-Id`", bytes(protocol::PRODUCER_ID_BYTES_MAX as u64), "`400 invalid_producer`"),
        ("`Producer-Epoch`, `Producer-Seq`", "2^53 - 1".to_owned(), "`400 invalid_producer`"),
        ("`Stream-Seq`", bytes(protocol::STREAM_SEQ_BYTES_MAX as u64), "`400 invalid_seq`"),
        ("nesting of one JSON message", protocol::JSON_NESTING_LEVELS_MAX.to_string(), "`400 invalid_json`"),
        ("headers of one request", alluvium_http::HEADERS_MAX.to_string(), "`431 too_many_headers`"),
    ]
}

fn limits_of_access() -> Vec<Limit> {
    use alluvium_access::limits as access;
    vec![
        ("a token", bytes(access::TOKEN_BYTES_MAX as u64), "`401 invalid_token`"),
        (
            "scopes with their prefixes that one token has",
            access::GRANTS_MAX.to_string(),
            "the token is refused",
        ),
        ("the access file", bytes(access::FILE_BYTES_MAX), "it is not taken over"),
        ("issuers in it", access::ISSUERS_MAX.to_string(), "it is not taken over"),
        (
            "keys of one issuer",
            format!("{}, in {}", access::KEYS_MAX, bytes(access::KEYS_BYTES_MAX)),
            "they are not taken over",
        ),
        ("one fetch of keys", seconds(access::KEYS_TIMEOUT_S), "the keys in use stay in use"),
        (
            "time between two fetches of the same keys, at least",
            seconds(access::KEYS_RETRY_S),
            "`401 invalid_token`",
        ),
        (
            "time for which keys that cannot be fetched stay in use",
            seconds(access::KEYS_STALE_S),
            "`503 keys_pending`",
        ),
        ("signed tokens that are remembered", access::REMEMBERED_MAX.to_string(), "they are verified again"),
        (
            "tokens whose requests are counted",
            access::CALLERS_MAX.to_string(),
            "those are forgotten that have used up least",
        ),
        ("origins in `cors-origins`", access::ORIGINS_MAX.to_string(), "refused at the start"),
    ]
}

fn limits_of_responses() -> Vec<Limit> {
    vec![
        (
            "stored bytes of one SSE data event, unless a single message is larger",
            bytes(streams::SSE_EVENT_BYTES_MAX),
            "further events",
        ),
        (
            "one piece of an SSE data event that is longer",
            format!("about {}", bytes(streams::SSE_PIECE_BYTES as u64)),
            "it is encoded while it is sent",
        ),
        (
            "response bytes that one reader which stopped reading holds",
            format!("about {}", bytes((alluvium_http::QUEUED_BYTES_MAX + alluvium_http::PIECE_BYTES) as u64)),
            "the rest is made once it reads on",
        ),
        (
            "stored bytes that a bootstrap holds beside that",
            format!("about {}", bytes(alluvium_engine::BOOTSTRAP_WINDOW_BYTES as u64)),
            "they are read again; beyond `responses-bytes-max` it holds 64KiB",
        ),
        (
            "bootstraps that hold any beyond `responses-bytes-max`",
            streams::BOOTSTRAPS_SCARCE_MAX.to_string(),
            "they queue",
        ),
        (
            "stored units that are read for bootstraps at once",
            streams::BOOTSTRAP_LOADS_MAX.to_string(),
            "they queue",
        ),
        ("silence of an SSE response", seconds(streams::SSE_HEARTBEAT.as_secs()), "a comment is sent"),
        (
            "variation of `sse-cycle`",
            format!("up to {} % longer", streams::SSE_CYCLE_JITTER_PERCENT),
            "the response ends, the client reconnects",
        ),
        ("caching of a response with data", seconds(streams::CACHE_FRESH_S), "revalidated"),
        (
            "unacknowledged bytes or a shut window of a peer",
            seconds(alluvium_http::STALLED_PEER_TIMEOUT_S),
            "the connection is dropped",
        ),
        ("a TLS handshake", seconds(alluvium_http::HANDSHAKE_TIMEOUT_S), "the connection is dropped"),
        (
            "bytes of a body that are on their way over HTTP/2",
            format!(
                "{} a request, {} a connection",
                bytes(u64::from(alluvium_http::STREAM_WINDOW_BYTES)),
                bytes(u64::from(alluvium_http::CONNECTION_WINDOW_BYTES))
            ),
            "the client waits",
        ),
        (
            "requests over HTTP/2 taken back before they were looked at",
            alluvium_http::RESETS_PENDING_MAX.to_string(),
            "the connection is dropped",
        ),
        (
            "connections waiting to be accepted",
            alluvium_http::LISTEN_BACKLOG.to_string(),
            "the system refuses",
        ),
        (
            "reads of one reactor that wait for the disk",
            alluvium_http::BLOCKING_THREADS_MAX.to_string(),
            "they queue",
        ),
    ]
}

fn limits_of_the_engine() -> Vec<Limit> {
    vec![
        ("writes waiting for one committer", QUEUE_COMMANDS_MAX_DEFAULT.to_string(), "`503 busy`"),
        ("data gathered into one batch", bytes(BATCH_BYTES_MAX), "the next batch"),
        ("shards of a data directory", SHARDS_MAX.to_string(), "refused at the start"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Loaded, Sources};

    #[test]
    fn the_example_is_a_valid_file_that_changes_something() {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::io::Write::write_all(&mut file, EXAMPLE.as_bytes()).expect("written");
        let sources = Sources { file: Some(file.path().to_owned()), ..Sources::default() };
        let config = Loaded::from_sources(&sources).expect("valid").config;
        assert_eq!(config.append_bytes_max, ByteSize(8 * 1024 * 1024));
        assert!(docs_markdown().contains(EXAMPLE));
    }

    #[test]
    fn every_option_has_a_row_with_a_default_that_can_be_read_back() {
        let page = docs_markdown();
        for option in OPTIONS {
            assert!(
                page.contains(&format!("| `{}` | `{}` |", option.name, option.variable())),
                "{}",
                option.name
            );
            assert!(option.help.trim().ends_with('.'), "{}", option.name);
            let mut config = super::super::Config::default();
            assert_eq!((option.set)(&mut config, &(option.default)()), Ok(()), "{}", option.name);
            assert_eq!(config, super::super::Config::default(), "{}", option.name);
        }
    }
}
