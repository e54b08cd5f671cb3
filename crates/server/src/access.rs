//! From options to who may use the server.

use alluvium_access::{Doors, Options, Rates};

use crate::config::Config;

/// How access is given.
pub(crate) fn options(config: &Config) -> Options {
    if config.insecure && config.access_file.0.is_none() {
        tracing::warn!(listen = %config.listen, "whoever reaches the server may do everything: `--insecure`");
    }
    Options {
        doors: Doors::Server,
        file: config.access_file.0.clone(),
        // Without a file the check has seen to it that this is meant.
        is_open: config.access_file.0.is_none(),
        token_in_query: config.token_in_query,
        origins: config.cors_origins.clone(),
        address_rates: Rates {
            requests_per_s: config.address_requests_per_s.0,
            append_bytes_per_s: config.address_append_bytes_per_s.0,
        },
        caller_rates: Rates {
            requests_per_s: config.token_requests_per_s.0,
            append_bytes_per_s: config.token_append_bytes_per_s.0,
        },
        burst: config.rate_burst,
        addresses_max: config.rate_addresses_max,
    }
}
