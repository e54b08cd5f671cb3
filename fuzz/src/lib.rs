//! What the fuzz targets do with their input, one module per crate under test.
//!
//! The modules need nothing from libFuzzer. Ordinary tests include them by path and run them over the seeds in
//! `fuzz/seeds`, so that every seed is also a regression test on the stable toolchain.

pub mod access;
pub mod admin;
pub mod archive;
pub mod atproto;
pub mod config;
pub mod feed;
pub mod guard;
pub mod http;
pub mod ingest;
pub mod jetstream_client;
pub mod journal;
pub mod jss;
pub mod keep;
pub mod metrics;
pub mod multipart;
pub mod protocol;
pub mod sqlstore;
pub mod sse;
pub mod subscription;
pub mod websocket;
pub mod wire;
