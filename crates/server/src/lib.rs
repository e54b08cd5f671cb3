//! Puts the parts together: reads the configuration, opens the engine, serves the surfaces, ends cleanly.
//!
//! The only crate that knows every other one. Whatever a library needs from outside (clock, randomness, disk,
//! options) it gets from here.

mod access;
mod admin;
mod causes;
pub mod config;
mod exit;
mod front;
pub mod keep;
mod logging;
mod memory;
pub mod metrics;
#[cfg(feature = "otlp")]
pub mod otlp;
mod retention;
mod room;
mod serve;
pub mod sight;
mod site;
mod stop;
mod store;
mod subscriptions;
mod watch;
pub mod words;

pub use admin::check_admin_request;
pub use causes::Causes;
pub use exit::{
    EXIT_CODES, EXIT_CONFIG, EXIT_DATA, EXIT_ENGINE_FAULT, EXIT_IO, EXIT_LOCKED, EXIT_PORT_IN_USE, ServeError,
};
pub use front::{keep_certificates, reached_at, scheme};
pub use logging::log_to_stderr;
pub use room::RoomKeeper;
pub use serve::{check_files, serve};
pub use stop::{Signals, drain, say_stopped};
pub use watch::operations;
