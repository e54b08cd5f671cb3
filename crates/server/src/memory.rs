//! What the limits of a configuration come to: the most memory that peers can have the server hold at once.
//!
//! What is stored and remembered for good (streams, producers, subscriptions, spaces) is not in it: that is bounded by
//! `streams-max` and the like, and grows with use and not with load. The terms are those of docs/operating/limits.md.

use std::fmt::Write as _;

use alluvium_streams::limits::BOOTSTRAPS_SCARCE_MAX;

use crate::config::{ByteLimit, ByteSize, Config, ConfigError, StoreChoice, Value as _};
use crate::store::default_shards;

const KIB: u64 = 1024;
/// The program, its threads, and what it does in the background.
const PROGRAM: u64 = 96 * 1024 * KIB;
/// A connection of HTTP/2 without requests.
const CONNECTION: u64 = 64 * KIB;
/// What TLS adds to a connection.
const TLS: u64 = 32 * KIB;
/// What the streams of one connection hold of answers while the budget of those is used up.
const STALLED: u64 = 144 * KIB;
/// A request that waits, or is carried out.
const REQUEST: u64 = 12 * KIB;
/// A piece of an answer that has begun.
const BEGUN: u64 = 16 * KIB;
/// A bootstrap whose reader has stopped while the budget of answers is used up, beside that.
const BOOTSTRAP: u64 = 128 * KIB;
/// A batch, while it is written.
const BATCH: u64 = 2 * alluvium_engine::BATCH_BYTES_MAX;
/// An upload of a snapshot: what has come and is not written.
const UPLOAD: u64 = 4 * alluvium_engine::UPLOAD_PART_BYTES_DEFAULT as u64;
/// A webhook under way, with its thread.
const WEBHOOK: u64 = 512 * KIB;

/// One term of the sum.
struct Term {
    what: &'static str,
    bytes: u64,
    /// The options that it follows from.
    options: &'static str,
}

impl Config {
    /// Memory that each connection can have the server hold: one of HTTP/2 with all its requests, or a socket of feeds with
    /// a message that is half there.
    fn connection_bytes(&self) -> u64 {
        let streams = u64::try_from(self.http2_streams_max).unwrap_or(u64::MAX);
        let requests = streams.saturating_mul(REQUEST + BEGUN);
        let socket = if self.feeds { self.feed_frame_bytes_max.0 } else { 0 };
        let tls = if self.tls_cert.is_some() { TLS } else { 0 };
        (CONNECTION + STALLED).saturating_add(requests.max(socket)).saturating_add(tls)
    }

    fn memory(&self, shards: usize) -> Vec<Term> {
        let times =
            |number: usize, bytes: u64| u64::try_from(number).unwrap_or(u64::MAX).saturating_mul(bytes);
        // Streams, feeds, what sockets of feeds hold, and subscriptions have a budget each.
        let bodies = if self.feeds { 4 } else { 2 };
        let largest = self.append_bytes_max.0;
        vec![
            Term { what: "the program", bytes: PROGRAM, options: "" },
            Term {
                what: "connections",
                bytes: times(self.connections_max, self.connection_bytes()),
                options: "`connections-max`, `http2-streams-max`, `feed-frame-bytes-max`",
            },
            Term { what: "answers", bytes: self.responses_bytes_max.0, options: "`responses-bytes-max`" },
            Term {
                what: "bootstraps",
                bytes: times(BOOTSTRAPS_SCARCE_MAX, BOOTSTRAP).saturating_add(largest.saturating_mul(2)),
                options: "`append-bytes-max`",
            },
            Term {
                what: "bodies",
                bytes: self.bodies_bytes_max.0.saturating_mul(bodies),
                options: "`bodies-bytes-max`",
            },
            Term {
                what: "writes",
                bytes: times(shards, self.queue_bytes_max.0.saturating_add(BATCH).saturating_add(largest)),
                options: "`queue-bytes-max`, `shards`, `append-bytes-max`",
            },
            Term { what: "recent bytes", bytes: self.recent_bytes.0, options: "`recent-bytes`" },
            Term {
                what: "uploads and webhooks",
                bytes: times(self.uploads_max, UPLOAD).saturating_add(times(self.webhooks_max, WEBHOOK)),
                options: "`uploads-max`, `webhooks-max`",
            },
        ]
    }

    /// Shards of a new data directory.
    pub(crate) fn shards_wanted(&self) -> usize {
        match self.store {
            StoreChoice::Engine => self.shards.unwrap_or_else(default_shards),
            StoreChoice::Sqlite(_) => 1,
        }
    }

    /// The sum over all limits in bytes, with so many shards.
    pub fn memory_bytes(&self, shards: usize) -> u64 {
        self.memory(shards).iter().fold(0, |sum, term| sum.saturating_add(term.bytes))
    }
}

/// Nothing is promised that the limits do not keep.
pub(crate) fn check_memory(config: &Config, shards: usize) -> Result<(), ConfigError> {
    let ByteLimit(Some(max)) = config.memory_max else { return Ok(()) };
    let sum = config.memory_bytes(shards);
    if sum <= max {
        return Ok(());
    }
    let mut terms = config.memory(shards);
    terms.sort_by_key(|term| std::cmp::Reverse(term.bytes));
    let mut told = String::new();
    for Term { what, bytes, options } in terms {
        let options = if options.is_empty() { String::new() } else { format!(" ({options})") };
        // Writing to a string does not fail.
        let _ = write!(told, "{}{what} {}{options}", if told.is_empty() { "" } else { ", " }, rounded(bytes));
    }
    Err(ConfigError::Contradiction(format!(
        "`memory-max` is {}, and all limits together let peers have {} held: {told}; each connection counts {}. Lower \
         some of them",
        ByteSize(max).show(),
        rounded(sum),
        rounded(config.connection_bytes()),
    )))
}

/// Bytes as people read them, rounded up.
fn rounded(bytes: u64) -> String {
    let (unit, name) = if bytes < 1024 * 1024 { (KIB, "KiB") } else { (1024 * KIB, "MiB") };
    format!("{}{name}", bytes.div_ceil(unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Loaded, Sources};

    fn load(flags: &[(&str, &str)]) -> Result<Config, String> {
        let flags = flags.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let loaded = Loaded::from_sources(&Sources { flags, ..Sources::default() });
        loaded.map(|loaded| loaded.config).map_err(|error| error.to_string())
    }

    #[test]
    fn a_budget_that_the_limits_do_not_keep_is_refused_with_what_to_lower() {
        let small = [
            ("shards", "1"),
            ("connections-max", "1000"),
            ("http2-streams-max", "8"),
            ("feed-frame-bytes-max", "64KiB"),
            ("responses-bytes-max", "64MiB"),
            ("bodies-bytes-max", "32MiB"),
            ("queue-bytes-max", "32MiB"),
            ("recent-bytes", "16MiB"),
            ("append-bytes-max", "8MiB"),
            ("memory-max", "1GiB"),
        ];
        let config = load(&small).unwrap();
        let kib = 96 * 1024 // the program
            + 1000 * (64 + 144 + 8 * 28)
            + 64 * 1024
            + 256 * 128 + 2 * 8 * 1024
            + 4 * 32 * 1024
            + (32 + 8 + 8) * 1024
            + 16 * 1024
            + 64 * 1024 + 32 * 512;
        assert_eq!(config.memory_bytes(1), kib * 1024);
        assert_eq!(config.memory_bytes(2), (kib + 48 * 1024) * 1024);
        let refused = load(&[&small[..], &[("connections-max", "2000")]].concat()).unwrap_err();
        for told in
            ["`memory-max` is 1GiB", "connections 844MiB (`connections-max`", "each connection counts 432KiB"]
        {
            assert!(refused.contains(told), "{refused}");
        }
        // It is told as it is, and not as what it is rounded to.
        for (written, told) in [("100", "is 100,"), ("1KiB", "is 1KiB,"), ("1536KiB", "is 1536KiB,")] {
            let refused = load(&[("memory-max", written)]).unwrap_err();
            assert!(refused.contains(&format!("`memory-max` {told}")), "{refused}");
        }
        assert!(load(&[("memory-max", "off")]).is_ok());
        assert!(load(&[("memory-max", "1GiB")]).unwrap_err().contains("`http2-streams-max`"));
    }

    #[test]
    fn every_limit_counts_and_none_overflows() {
        let bytes = |flags: &[(&str, &str)]| {
            let config = load(flags).unwrap();
            config.memory_bytes(config.shards_wanted())
        };
        let base = bytes(&[]);
        for (name, more) in [
            ("connections-max", "20000"),
            ("http2-streams-max", "256"),
            ("responses-bytes-max", "512MiB"),
            ("bodies-bytes-max", "512MiB"),
            ("queue-bytes-max", "512MiB"),
            ("recent-bytes", "512MiB"),
            ("uploads-max", "100"),
            ("webhooks-max", "100"),
            ("feed-frame-bytes-max", "64MiB"),
            ("shards", "64"),
        ] {
            assert!(bytes(&[(name, more)]) > base, "{name}");
        }
        let all = [("connections-max", "4294967295"), ("http2-streams-max", "4294967295")];
        assert_eq!(bytes(&all), u64::MAX);
    }
}
