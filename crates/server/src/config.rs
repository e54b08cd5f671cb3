//! The configuration: declared once in [`options`], gathered in [`load`], documented by [`docs`].

mod docs;
mod load;
mod options;
mod value;

use alluvium_engine::SHARDS_MAX;

pub use docs::{docs_markdown, exit_codes};
pub use load::{CONFIG_VARIABLE, ConfigError, Loaded, Origin, Sources};
pub use options::{Config, OPTIONS, OptionSpec};
pub use value::{ByteSize, LogFilter, LogFormat, PublicUrl, parse_seconds};

impl Config {
    /// Checks what no single option can, and what the engine would refuse later.
    fn check(&self) -> Result<(), ConfigError> {
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
