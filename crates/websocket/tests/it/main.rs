//! The crate from outside: the cases that every implementation is tested with, and TLS.

#![expect(clippy::unwrap_used, reason = "what fails here is a failed test")]

mod autobahn;
mod tls;
