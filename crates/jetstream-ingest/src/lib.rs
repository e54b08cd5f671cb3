//! The ingest of a Jetstream: events of a relay are read, verified against the repositories that they claim to come
//! from, and handed on as rows to archive.
//!
//! Everything that a relay, a server or a directory says is a stranger's word: it is bounded, checked, dropped in the
//! smallest part and counted, and it never stops the ingest. What is known of an account changes only together with the
//! rows that it came with ([`state`]), and events of one account are archived in their order ([`account`]).
//!
//! The rules are functions of their arguments; clock, network and archive are seams.

pub mod account;
mod accounts;
pub mod budget;
mod consumer;
pub mod convert;
pub mod counters;
pub mod fetched;
#[cfg(test)]
mod fixtures;
pub mod frame;
mod generations;
pub mod http;
mod identity;
pub mod ingest;
pub mod limits;
pub mod network;
mod pipeline;
mod queues;
pub mod relay;
mod repairs;
pub mod rules;
pub mod sink;
pub mod snapshot;
pub mod state;
mod watermark;
