//! The authority as its callers see it, without a transport.

#![expect(clippy::unwrap_used, reason = "what fails here is a failed test")]

mod append;
mod behaviours;
mod bits;
mod damage;
mod deleted;
mod events;
mod exchanges;
mod greetings;
mod guard;
mod held;
mod hidden;
mod hostile;
mod http;
mod model;
mod older;
mod plans;
mod principal;
mod query;
mod refused;
mod replicas;
mod rows;
mod schema;
mod sockets;
mod spaces;
mod streams;
mod subscribe;
mod support;
mod unasked;
mod waiting;
