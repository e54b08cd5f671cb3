//! Options about who may use the server.

use std::path::PathBuf;

use alluvium_access::Origins;

use super::load::ConfigError;
use super::options::Config;
use super::value::{ByteSize, Value};

/// A file, or none.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AccessPath(pub Option<PathBuf>);

impl Value for AccessPath {
    const KIND: &'static str = "PATH";

    fn parse(text: &str) -> Result<Self, String> {
        Ok(Self((!text.is_empty()).then(|| PathBuf::from(text))))
    }

    fn show(&self) -> String {
        self.0.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
    }
}

/// How `off` is written, for a limit that there is not.
pub(super) const OFF: &str = "off";

/// A number in a second, or as many as there are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RateLimit(pub Option<u64>);

impl Value for RateLimit {
    const KIND: &'static str = "NUMBER|off";

    fn parse(text: &str) -> Result<Self, String> {
        if text == OFF { Ok(Self(None)) } else { u64::parse(text).map(|rate| Self(Some(rate))) }
    }

    fn show(&self) -> String {
        self.0.map_or_else(|| OFF.to_owned(), |rate| rate.to_string())
    }
}

/// Bytes, or as many as there are.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ByteLimit(pub Option<u64>);

impl Value for ByteLimit {
    const KIND: &'static str = "BYTES|off";

    fn parse(text: &str) -> Result<Self, String> {
        if text == OFF { Ok(Self(None)) } else { ByteSize::parse(text).map(|size| Self(Some(size.0))) }
    }

    fn show(&self) -> String {
        self.0.map_or_else(|| OFF.to_owned(), |rate| ByteSize(rate).show())
    }
}

impl Value for Origins {
    const KIND: &'static str = "ORIGINS";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: alluvium_access::InvalidOrigins| error.to_string())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Config {
    /// Whether only this machine reaches the address.
    fn is_local(&self) -> bool {
        self.listen.ip().to_canonical().is_loopback()
    }

    /// Nobody opens a server to a network by mistake.
    pub(super) fn check_access(&self) -> Result<(), ConfigError> {
        if self.is_local() || self.insecure || self.access_file.0.is_some() {
            return Ok(());
        }
        Err(ConfigError::Contradiction(format!(
            "others than this machine reach `listen = {}`: name an `access-file` (`alluvium token` makes a token for \
             it), or say `--insecure` (`insecure = true` in a file) if whoever reaches the server may do everything",
            self.listen
        )))
    }
}

#[cfg(test)]
mod tests {
    use alluvium_access::Rates;

    use super::*;
    use crate::config::{Loaded, Sources};

    fn load(flags: &[(&str, &str)]) -> Result<Config, String> {
        let flags = flags.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let loaded = Loaded::from_sources(&Sources { flags, ..Sources::default() });
        loaded.map(|loaded| loaded.config).map_err(|error| error.to_string())
    }

    #[test]
    fn a_server_that_others_reach_needs_tokens_or_a_word() {
        for local in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(load(&[("listen", local)]).is_ok(), "{local}");
        }
        for remote in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[2001:db8::1]:1"] {
            let refused = load(&[("listen", remote)]).unwrap_err();
            assert!(refused.contains("access-file") && refused.contains("insecure"), "{refused}");
            assert!(load(&[("listen", remote), ("insecure", "yes")]).is_ok());
            assert!(load(&[("listen", remote), ("access-file", "tokens.toml")]).is_ok());
        }
    }

    #[test]
    fn limits_are_numbers_or_off() {
        let config = load(&[("address-requests-per-s", "5"), ("token-append-bytes-per-s", "1MiB")]).unwrap();
        let options = crate::access::options(&config);
        assert_eq!(options.address_rates, Rates { requests_per_s: Some(5), append_bytes_per_s: None });
        assert_eq!(options.caller_rates, Rates { requests_per_s: None, append_bytes_per_s: Some(1 << 20) });
        load(&[("address-requests-per-s", "0")]).unwrap_err();
        load(&[("cors-origins", "https://a.example/")]).unwrap_err();
    }
}
