//! The rules of feeds as pure functions: messages and their two encodings, identifiers, order, checks, signatures.
//!
//! A *space* holds *feeds*; a feed is a lane of *blocks*. Authors append blocks with a *sequence*; the one authority of
//! the space gives each block a *position*, from one counter for the whole space. So one *cursor*, a position, serves
//! any selection of feeds, whatever their namespaces.
//!
//! Nothing here does I/O, reads a clock or draws a number: server, embedded replica, command line and simulation share
//! it, and it builds for WebAssembly. The protocol is written down for authors of clients in `docs/feeds.md`.

mod block;
mod bounded;
mod check;
mod codec;
mod error;
mod id;
pub mod limits;
mod message;
mod number;
mod object;
pub mod order;
mod peers;
mod selector;
pub mod signature;

pub use block::{Block, BlockKey, Data, Unsendable};
pub use check::{Check, ContentHash, InvalidCheck};
pub use codec::{DecodeError, Encoding};
pub use error::{ClientAction, ErrorCode, ErrorResponse};
pub use id::{Id, InvalidId, Namespace, RequestId, Token};
pub use limits::Limits;
pub use message::{
    Advanced, AppendRequest, AppendResponse, BlocksPushed, FeedAdvanced, FeedInfo, Hello, ListFeedsRequest,
    ListFeedsResponse, Message, Operation, Pruned, Push, QueryRequest, QueryResponse, Request, Response,
    SpaceState, SubscribeRequest, SubscribeResponse, UnsubscribeRequest, UnsubscribeResponse, Welcome,
};
pub use peers::Peers;
pub use selector::{From, Selector};
