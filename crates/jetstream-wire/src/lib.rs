//! The live feeds of Jetstream as pure functions: what a client may ask for, which events it gets, and their bytes.
//!
//! Three feeds exist side by side ([`Wire`]): `/subscribe`, which every Jetstream client speaks; `/subscribe-v2`, its
//! extension by `#sync` events, sequence numbers and the records' own bytes; and `subscribeEvents`, the form of AT
//! Protocol proposal 0015. They differ in parameters, errors and JSON, and have one notion of a filter and of a cursor.
//!
//! Nothing here does I/O. An event is rendered and compressed once and shared by all who get it; that sharing is the
//! business of the caller.

mod cursor;
pub mod dictionary;
pub mod filter;
pub mod query;
pub mod render;
pub mod request;
pub mod update;

pub use cursor::{Cursor, InvalidCursor};
pub use dictionary::{Dictionary, Encoder};
pub use filter::{Filter, KindSet, Topic};
pub use render::{Unrenderable, Wire};
pub use request::{Compression, RequestError, Subscription};
pub use update::{Update, UpdateError};
