//! Log lines on standard error.

use std::io::IsTerminal;

use tracing_subscriber::{Layer, filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::{Config, LogFormat};

/// Starts logging as configured. A second call keeps what the first one set up.
pub(crate) fn start(config: &Config) {
    log_to_stderr(&config.log.0, config.log_format);
}

/// Writes log lines to standard error: those that `filter` lets through, as levels, also by module. A filter that
/// cannot be read lets nothing through. A second call keeps what the first one set up.
pub fn log_to_stderr(filter: &str, format: LogFormat) {
    // A configuration was checked when it was read, so the default only covers a caller with a text of its own.
    let filter: Targets = filter.parse().unwrap_or_default();
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let started = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
    if let Err(error) = started {
        tracing::debug!(%error, "logging is set up already");
    }
}
