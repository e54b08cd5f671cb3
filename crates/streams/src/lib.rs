//! The Durable Streams surface: HTTP requests become calls of a store, and its answers become responses.
//!
//! Protocol rules live in `alluvium-protocol`, storage in `alluvium-engine` or `alluvium-sqlstore` ([`Backend`]),
//! sockets in `alluvium-http`. What is left is here: one file per operation under `http/`, each the same three steps
//! (read the request, ask the store, write the response), and one file, `http/error.rs`, that gives every refusal its status and code.

mod backend;
mod http;
pub mod limits;
mod options;
mod state;
mod waiters;

pub use backend::Backend;
pub use http::MOUNT;
pub use http::operation::{Operation, operation};
pub use options::{CacheVisibility, Options};
pub use state::{Standing, Streams};
