//! Subscriptions: durable cursors that wake workers (PROTOCOL §6, §7).
//!
//! Rules alone: which documents are well formed ([`config`], [`request`]), which streams a pattern means ([`glob`]), how
//! streams are named there ([`name`]), what a wake is and what ends it ([`machine`]), what a webhook's signature covers
//! ([`signature`]). Who keeps the state, sends the webhooks and looks at the clock calls these.

pub mod answer;
pub mod config;
pub mod glob;
pub mod machine;
pub mod name;
pub mod request;
pub mod signature;

pub use config::{Config, InvalidConfig, Kind};
pub use glob::{InvalidPattern, Pattern, PatternSet, Reach};
pub use machine::{ClaimRefusal, Delivery, Due, Event, Fenced, Fencing, Phase, State, retry_delay_ms};
pub use name::{InvalidName, name_of, parse_name};
pub use request::{Ack, InvalidRequest, WakeRequest};

#[cfg(test)]
mod tests;
