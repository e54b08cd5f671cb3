//! The configuration: declared once in [`options`], gathered in [`load`], documented by [`docs`].

mod access;
mod disk;
mod docs;
mod load;
mod options;
mod retention;
mod value;

use alluvium_engine::{Durability, SHARDS_MAX};
use alluvium_journal::SEGMENT_BYTES_MIN;
use alluvium_sqlstore::{CHUNK_ROWS_MAX, VALUE_BYTES_MAX};

use crate::memory::check_memory;

pub use access::{AccessPath, ByteLimit, RateLimit};
pub use disk::{DISK_FREE_MIN, DISK_FREE_WARN, FreeSpace, check_free_space};
pub use docs::{docs_markdown, exit_codes};
pub use load::{CONFIG_VARIABLE, ConfigError, Loaded, Origin, Sources, closest};
pub use options::{Config, OPTIONS, OptionSpec};
pub use retention::{
    InvalidRetention, RETENTION_RULES_MAX, RetentionRules, parse_prefix, parse_size, parse_time_ms,
};
pub(crate) use value::Value;
pub use value::{ByteSize, LogFilter, LogFormat, MetricsPlace, PublicUrl, StoreChoice, parse_seconds};

/// Options that a SQLite store has no use for: `docs/sql-store.md` lists them too.
const ENGINE_ONLY: [&str; 17] = [
    "shards",
    "segment-bytes",
    "recent-bytes",
    "streams-max",
    "buckets-max",
    "snapshot-bytes-max",
    "snapshot-grace",
    "uploads-max",
    "bootstrap-bytes-max",
    "public-history",
    "subscriptions-max",
    "subscription-links-max",
    "webhooks-max",
    "webhook-timeout",
    "webhook-loopback",
    "webhook-key-rotation",
    "retention-interval",
];

/// Threads that serve connections: more than any machine has cores.
const REACTORS_MAX: usize = 1024;
/// Bytes of an append that a SQLite store can take in one transaction.
const SQLITE_APPEND_BYTES_MAX: u64 = CHUNK_ROWS_MAX * VALUE_BYTES_MAX;

impl Config {
    /// Checks what no single option can, and what the store would refuse later.
    fn check(&self) -> Result<(), ConfigError> {
        self.check_access()?;
        self.check_disk()?;
        self.check_retention()?;
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return Err(ConfigError::Contradiction(
                "`tls-cert` and `tls-key` go together: one of them is not set".to_owned(),
            ));
        }
        if self.otlp_endpoint.0.is_some() && !cfg!(feature = "otlp") {
            return Err(ConfigError::Contradiction(
                "`otlp-endpoint` is set, and this program was built without the cargo feature `otlp`"
                    .to_owned(),
            ));
        }
        if self.reactors.is_some_and(|reactors| reactors > REACTORS_MAX) {
            return Err(ConfigError::Contradiction(format!("`reactors` must be at most {REACTORS_MAX}")));
        }
        check_memory(self, self.shards_wanted())?;
        match self.store {
            StoreChoice::Engine => self.check_engine(),
            StoreChoice::Sqlite(_) => self.check_sqlite(),
        }
    }

    /// The options that are set to something else than their default and make no difference to the chosen store.
    pub fn without_effect(&self) -> Vec<&'static str> {
        if self.store == StoreChoice::Engine {
            return Vec::new();
        }
        let is_set = |option: &&OptionSpec| (option.show)(self) != (option.default)();
        let unused = |option: &&OptionSpec| ENGINE_ONLY.contains(&option.name);
        OPTIONS.iter().filter(unused).filter(is_set).map(|option| option.name).collect()
    }

    fn check_sqlite(&self) -> Result<(), ConfigError> {
        if self.durability == Durability::Os {
            return Err(ConfigError::Contradiction(
                "`durability` must be `fsync` with a SQLite store, which knows no other".to_owned(),
            ));
        }
        if self.append_bytes_max.0 > SQLITE_APPEND_BYTES_MAX {
            return Err(ConfigError::Contradiction(format!(
                "`append-bytes-max` must be at most {SQLITE_APPEND_BYTES_MAX} with a SQLite store"
            )));
        }
        if u32::try_from(self.producers_max).is_err() {
            return Err(ConfigError::Contradiction(
                "`producers-max` must be less than 4294967296 with a SQLite store".to_owned(),
            ));
        }
        Ok(())
    }

    fn check_engine(&self) -> Result<(), ConfigError> {
        if self.segment_bytes.0 < u64::from(SEGMENT_BYTES_MIN) {
            return Err(ConfigError::Contradiction(format!(
                "`segment-bytes` must be at least {}",
                ByteSize(u64::from(SEGMENT_BYTES_MIN)).show()
            )));
        }
        if self.segment_bytes.0 > u64::from(u32::MAX) {
            return Err(ConfigError::Contradiction("`segment-bytes` must be less than 4GiB".to_owned()));
        }
        // A JSON body of one-digit messages grows least well: every message costs four bytes of length besides.
        if self.append_bytes_max.0.saturating_mul(2) > self.segment_bytes.0 {
            return Err(ConfigError::Contradiction(format!(
                "`segment-bytes` ({}) must be at least twice `append-bytes-max` ({}): set `append-bytes-max` to {} or \
                 less, or `segment-bytes` to {} or more",
                self.segment_bytes.show(),
                self.append_bytes_max.show(),
                ByteSize(self.segment_bytes.0 / 2).show(),
                ByteSize(self.append_bytes_max.0.saturating_mul(2)).show(),
            )));
        }
        if self.webhook_key_rotation < alluvium_subscriptions::KEY_ROTATION_MIN {
            return Err(ConfigError::Contradiction(
                "`webhook-key-rotation` must be at least an hour".to_owned(),
            ));
        }
        if self.shards.is_some_and(|shards| shards > usize::from(SHARDS_MAX)) {
            return Err(ConfigError::Contradiction(format!("`shards` must be at most {SHARDS_MAX}")));
        }
        Ok(())
    }
}
