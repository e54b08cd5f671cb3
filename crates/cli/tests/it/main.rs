//! Black-box tests of the `alluvium` binary: the built program, real sockets, real files.

#![expect(clippy::unwrap_used, reason = "what fails here is a failed test")]

mod buckets;
mod configuration;
mod contract;
mod event_source;
mod fan_out;
mod feeds;
mod inspect;
mod jetstream;
mod jetstream_options;
mod jetstream_server;
mod keep;
mod lifecycle;
mod limits;
mod live;
mod metrics;
mod protocol;
mod readme;
mod refusals;
mod scripted;
mod slow_readers;
mod sqlite;
mod stream;
mod support;
mod tls;
mod top;
