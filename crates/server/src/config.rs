//! The configuration: declared once in [`options`], gathered in [`load`], documented by [`docs`].

mod docs;
mod load;
mod options;
mod value;

use alluvium_engine::{Durability, SHARDS_MAX};
use alluvium_sqlstore::{CHUNK_ROWS_MAX, VALUE_BYTES_MAX};

pub use docs::{docs_markdown, exit_codes};
pub use load::{CONFIG_VARIABLE, ConfigError, Loaded, Origin, Sources};
pub use options::{Config, OPTIONS, OptionSpec};
pub use value::{ByteSize, LogFilter, LogFormat, PublicUrl, StoreChoice, parse_seconds};

/// Bytes of an append that a SQLite store can take in one transaction.
const SQLITE_APPEND_BYTES_MAX: u64 = CHUNK_ROWS_MAX * VALUE_BYTES_MAX;

impl Config {
    /// Checks what no single option can, and what the store would refuse later.
    fn check(&self) -> Result<(), ConfigError> {
        match self.store {
            StoreChoice::Engine => self.check_engine(),
            StoreChoice::Sqlite(_) => self.check_sqlite(),
        }
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
        if self.segment_bytes.0 > u64::from(u32::MAX) {
            return Err(ConfigError::Contradiction("`segment-bytes` must be less than 4GiB".to_owned()));
        }
        // A JSON body of one-digit messages grows least well: every message costs four bytes of length besides.
        if self.append_bytes_max.0.saturating_mul(2) > self.segment_bytes.0 {
            return Err(ConfigError::Contradiction(
                "`segment-bytes` must be at least twice `append-bytes-max`".to_owned(),
            ));
        }
        if self.shards.is_some_and(|shards| shards > usize::from(SHARDS_MAX)) {
            return Err(ConfigError::Contradiction(format!("`shards` must be at most {SHARDS_MAX}")));
        }
        Ok(())
    }
}
