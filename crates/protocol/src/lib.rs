//! The rules of the Durable Streams protocol, and nothing else.
//!
//! Everything here is a pure function of its arguments: no I/O, no clock, no randomness, no runtime. Callers
//! bring the time, the stored state and the bytes; this crate answers what the protocol says about them. That
//! keeps each rule testable against a small model, and lets the same rules run in a server, in a simulation
//! and in WebAssembly.
//!
//! References such as `PROTOCOL §5.2.1` point into `PROTOCOL.md` of the Durable Streams specification.
//!
//! | Module | Rule |
//! |---|---|
//! | [`offset`] | resume tokens and the two sentinels |
//! | [`path`] | which URL paths name a stream |
//! | [`bucket`] | which names are those of buckets and of streams in them |
//! | [`snapshot`] | what publishing a snapshot keeps and drops |
//! | [`attributes`] | the small JSON object that describes a stream |
//! | [`content_type`] | media type equality, JSON mode, SSE encoding |
//! | [`json`] | flattening a JSON body into messages, wrapping messages for a read |
//! | [`lifetime`] | TTL, absolute expiry, inheritance by forks |
//! | [`producer`] | idempotent producers: epochs, sequence numbers, fencing |
//! | [`admit`] | whether one append may happen, in which order the checks run |
//! | [`create`] | whether a repeated create names the same stream |
//! | [`fork`] | fork headers and where a fork parts from its source |
//! | [`cursor`] | cache-busting cursors of live reads |
//! | [`etag`] | entity tags and `If-None-Match` |
//! | [`sse`] | events of a live SSE read |
//! | [`claim`] | one fenced writer for a whole stream |
//! | [`mod@error`] | the twelve kinds of refusal, with status, headers and event data |
//! | [`store`] | what any keeper of streams does, and a suite that checks it |
//! | [`subscription`] | cursors that wake workers: documents, patterns, wakes and leases |
//! | [`batch`] | many appends in one body |
//! | [`prefix`] | a place and everything below it |
//! | [`path_token`] | a path as one word |
//! | [`header`], [`limits`] | names and bounds |

pub mod admit;
pub mod attributes;
pub mod batch;
pub mod bucket;
pub mod claim;
pub mod content_type;
pub mod create;
pub mod cursor;
pub mod error;
pub mod etag;
pub mod fork;
pub mod header;
mod integer;
pub mod json;
pub mod lifetime;
pub mod limits;
pub mod offset;
pub mod path;
pub mod path_token;
pub mod prefix;
pub mod producer;
pub mod snapshot;
pub mod sse;
pub mod store;
pub mod subscription;

pub use admit::{Admission, AppendIntent, AppendRejection, StreamView};
pub use attributes::{Attributes, InvalidAttributes};
pub use bucket::{BucketId, InvalidBucketId, InvalidStreamId};
pub use claim::{Claim, ProducerStateMap};
pub use content_type::{ContentType, InvalidContentType, SseEncoding};
pub use create::{ConfigConflict, RequestedConfig, StreamConfig};
pub use error::StreamError;
pub use etag::{EntityTag, Incarnation, InvalidIncarnation};
pub use fork::{ForkCutError, ForkOrigin, InvalidFork, MessageBoundary, SubOffsetUnit};
pub use json::{InvalidJson, JsonMessages};
pub use lifetime::{InvalidLifetime, Lifetime};
pub use offset::{InvalidOffset, Offset, OffsetQuery};
pub use path::{InvalidPath, StreamPath};
pub use producer::{
    InvalidProducer, ProducerId, ProducerRejection, ProducerStamp, ProducerState, ProducerVerdict,
};
pub use snapshot::{Mark, PublishRejection, Retention, Snapshot, Superseded};
