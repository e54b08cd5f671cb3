//! The configuration: declared once in [`options`], gathered in [`load`], documented by [`docs`].

mod docs;
mod load;
mod options;
mod value;

pub use docs::{docs_markdown, exit_codes};
pub use load::{CONFIG_VARIABLE, ConfigError, Loaded, Origin, Sources};
pub use options::{Config, OPTIONS, OptionSpec};
pub use value::{ByteSize, LogFilter, LogFormat, PublicUrl};

/// Bytes of a segment that are not for one append's data: headers, metadata, message lengths.
const SEGMENT_OVERHEAD_BYTES: u64 = 1024 * 1024;

impl Config {
    /// Checks what no single option can.
    fn check(&self) -> Result<(), ConfigError> {
        // A JSON body of one-digit messages grows least well: every message costs four bytes of length besides.
        if self.segment_bytes.0 > u64::from(u32::MAX) {
            return Err(ConfigError::Contradiction("`segment-bytes` must be less than 4GiB".to_owned()));
        }
        if self.append_bytes_max.0 + SEGMENT_OVERHEAD_BYTES > self.segment_bytes.0 {
            return Err(ConfigError::Contradiction(
                "`segment-bytes` must be at least 1MiB more than `append-bytes-max`".to_owned(),
            ));
        }
        Ok(())
    }
}
