//! What can be set.

use std::path::PathBuf;

use alluvium_env::Room;
use alluvium_jetstream_archive::Options;
use alluvium_jetstream_ingest::ingest::{IngestConfig, PipelineConfig};
use alluvium_jetstream_ingest::limits::Limits;
use alluvium_jetstream_ingest::rules::Rules;

/// The folder of what is remembered, in the data directory.
pub(crate) const META: &str = "meta";
/// The folder of the archive.
pub(crate) const SEGMENTS: &str = "segments";

/// How a Jetstream is run.
#[derive(Clone, Debug)]
pub struct JetstreamConfig {
    /// The relay: `wss://…`, or `ws://…`. It may be anywhere.
    pub relay: String,
    /// The directory of `did:plc`: `https://…` or `http://…`. It may be anywhere.
    pub plc: String,
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// Where to begin if nothing is stored: behind this number of the relay, or with what happens next.
    pub start_cursor: Option<u64>,
    /// Whether the reader waits when an account's queue is full, instead of dropping from it and repairing.
    pub lossless: bool,
    /// Connects to addresses that are not public, and without TLS, where accounts name them: for a simulation on this
    /// machine.
    pub allow_private: bool,
    /// Threads that verify.
    pub workers: usize,
    /// Threads that fetch repositories.
    pub fetchers: usize,
    /// Bytes of a segment's blocks at which it is sealed.
    pub segment_bytes: u64,
    /// Rows of a full block.
    pub block_rows: usize,
    /// Bytes of what was verified and is not on the disk yet, beyond which nothing more is verified.
    pub write_queue_bytes: usize,
    /// Whether the disk has room: while it has not, nothing is taken from the relay.
    pub room: Room,
}

impl JetstreamConfig {
    /// The defaults, for a relay and an archive in `data_dir`.
    pub fn new(relay: &str, data_dir: impl Into<PathBuf>) -> Self {
        let PipelineConfig { workers, fetchers, lossless, .. } = PipelineConfig::default();
        let archive = Options::new("");
        Self {
            relay: relay.to_owned(),
            plc: "https://plc.directory".to_owned(),
            data_dir: data_dir.into(),
            start_cursor: None,
            lossless,
            allow_private: false,
            workers,
            fetchers,
            segment_bytes: archive.segment_bytes,
            block_rows: archive.blocks.block_rows,
            write_queue_bytes: Limits::default().write_queue_bytes,
            room: Room::default(),
        }
    }

    pub(crate) fn archive(&self) -> Options {
        let mut options = Options::new(self.data_dir.join(SEGMENTS));
        options.segment_bytes = self.segment_bytes;
        options.blocks.block_rows = self.block_rows;
        options
    }

    /// The relay's address for requests: the scheme that belongs to its socket's, and the host, without a path.
    pub(crate) fn relay_over_http(&self) -> Option<String> {
        let (scheme, rest) = self.relay.split_once("://")?;
        let scheme = match scheme {
            "wss" => "https",
            "ws" => "http",
            _ => return None,
        };
        let host = rest.split(['/', '?', '#']).next().filter(|host| !host.is_empty())?;
        Some(format!("{scheme}://{host}"))
    }

    pub(crate) fn ingest(&self) -> IngestConfig {
        let mut rules = Rules::default();
        rules.limits.write_queue_bytes = self.write_queue_bytes;
        let pipeline =
            PipelineConfig { rules, workers: self.workers, fetchers: self.fetchers, lossless: self.lossless };
        IngestConfig { pipeline, start_cursor: self.start_cursor }
    }
}
