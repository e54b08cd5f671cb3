//! Log lines on standard error.

use std::io::IsTerminal;

use tracing::Level;
use tracing_subscriber::{Layer, filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::{Config, LogFormat};

/// Starts logging as configured. A second call keeps what the first one set up.
pub(crate) fn start(config: &Config) {
    log_to_stderr(&config.log.0, config.log_format);
}

/// Libraries that tell at `info` what is of interest to whoever works on them.
const TALKATIVE: [&str; 2] = ["fjall", "lsm_tree"];

/// What `filter` lets through. Of a library that talks much only warnings, unless it is named there.
fn targets(filter: &str) -> Targets {
    // A configuration was checked when it was read, so the default only covers a caller with a text of its own.
    let mut targets: Targets = filter.parse().unwrap_or_default();
    for library in TALKATIVE {
        if !filter.contains(library) && targets.would_enable(library, &Level::INFO) {
            targets = targets.with_target(library, Level::WARN);
        }
    }
    targets
}

/// Writes log lines to standard error: those that `filter` lets through, as levels, also by module. A filter that
/// cannot be read lets nothing through. A second call keeps what the first one set up.
pub fn log_to_stderr(filter: &str, format: LogFormat) {
    let filter = targets(filter);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_as_quiet_as_the_rest_and_tell_no_more_than_warnings_unless_they_are_asked() {
        for (filter, own, fjall, lsm_tree) in [
            ("info", Level::INFO, Some(Level::WARN), Some(Level::WARN)),
            ("trace", Level::TRACE, Some(Level::WARN), Some(Level::WARN)),
            ("error", Level::ERROR, Some(Level::ERROR), Some(Level::ERROR)),
            ("off,alluvium_jetstream=info", Level::INFO, None, None),
            ("info,fjall=debug", Level::INFO, Some(Level::DEBUG), Some(Level::WARN)),
            ("info,fjall::db=info", Level::INFO, Some(Level::INFO), Some(Level::WARN)),
            ("debug,lsm_tree=off", Level::DEBUG, Some(Level::WARN), None),
        ] {
            let targets = targets(filter);
            let most = |target: &str| {
                let levels = [Level::TRACE, Level::DEBUG, Level::INFO, Level::WARN, Level::ERROR];
                levels.into_iter().find(|level| targets.would_enable(target, level))
            };
            assert_eq!(most("alluvium_jetstream"), Some(own), "{filter}");
            assert_eq!(most("fjall::db"), fjall, "{filter}");
            assert_eq!(most("lsm_tree::tree"), lsm_tree, "{filter}");
        }
    }
}
