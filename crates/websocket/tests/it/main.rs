//! The crate from outside: the cases that everyone's implementation is tested with, over a stream.

#![expect(clippy::unwrap_used, reason = "what fails here is a failed test")]

mod autobahn;
