//! Who a request comes from and what it may do: decided once, before any surface sees the request.
//!
//! The rules are pure. [`Prefix`] and [`Grants`] say what a caller may do where; [`routes`] says what each request needs;
//! [`mod@file`] reads static tokens and issuers; [`jwt`] and [`keys`] check signed tokens; [`rate`] counts against limits.
//! [`Access`] puts them together with a file that is read again when it changes and keys that are fetched now and then,
//! and [`Guarded`] stands between an HTTP server and a surface. A response or connection that stays open has a [`Lease`],
//! which ends with what the caller may do.
//!
//! A token is never kept in a log, an error or a `Debug` output.

mod access;
mod bearer;
mod caller;
mod cors;
mod counters;
mod fetch;
pub mod file;
mod grants;
mod guarded;
mod issuer;
pub mod jwt;
mod keeper;
pub mod keys;
mod lease;
pub mod limits;
mod meter;
pub mod rate;
mod refusal;
pub mod routes;
mod scope;
mod token;

pub use alluvium_protocol::prefix::{InvalidPrefix, Prefix};

pub use access::{Access, AccessError, Doors, Options};
pub use bearer::{SUBPROTOCOLS, redact};
pub use caller::Caller;
pub use cors::{InvalidOrigins, Origins};
pub use counters::Counts;
pub use grants::{Grants, InvalidGrant};
pub use guarded::Guarded;
pub use lease::Lease;
pub use meter::Meter;
pub use rate::{Rate, Rates};
pub use scope::Scope;
pub use token::{InvalidHash, Token, TokenHash};
