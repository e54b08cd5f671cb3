//! Feeds for applications: a file of their own to append to and read from at once, and loops that keep it in step with a
//! server when there is one.
//!
//! [`Client`] opens the file and [`Space`] is what an application works with. [`Space::start`] synchronises in the
//! background over HTTP or a WebSocket until it is dropped: what was appended is pushed, what is replicated is pulled, and what others
//! append comes within moments, because a request waits at the server for it. Trouble with the network is waited out,
//! longer each time and never in step with other clients; it shows in [`Space::status`], which asks nobody.
//!
//! ```
//! use alluvium_feed_client::{Client, From, Id, Options, Server};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("notes.sqlite");
//! // A file, a space in it, and a feed. None of this needs a server.
//! let client = Client::open(&path, None, Options::default())?;
//! let family = client.space(&Id::parse("family")?);
//! let groceries = Id::parse("groceries")?;
//! family.append(&groceries, None, b"milk".to_vec())?;
//! family.replicate(&groceries, From::Beginning)?;
//! assert_eq!(family.status()?.blocks_to_push, 1);
//!
//! // When there is one: in the background, until `syncing` is dropped.
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! let _inside = runtime.enter();
//! let syncing = family.start(&Server::new("http://127.0.0.1:4437"))?;
//!
//! // Local reads wait for nobody: settled blocks first, in the order that everyone has, then what is on its way.
//! for block in family.read(&groceries, &Default::default(), 100)? {
//!     println!("{:?} {:?}", block.position, block.data);
//! }
//! # drop(syncing);
//! # Ok(())
//! # }
//! ```
//!
//! What a refusal means for the client is decided in one place, [`ClientAction`]; the transport adds the two that need
//! the network: a redirect to another authority, and a fresh token.
//!
//! [`ClientAction`]: alluvium_feed_protocol::ClientAction

mod client;
mod http;
mod server;
mod socket;
mod way;

pub use alluvium_feed_protocol::{Block, Data, FeedInfo, From, Id, InvalidId, Namespace, Selector};
pub use alluvium_feed_replica::{
    After, Appended, Conflict, Keep, LocalCursor, Options, Replica, ReplicaError, ReplicaResult, Repush,
    SyncStatus, Tailed, Transport, driver,
};

pub use self::client::{Claim, Client, Space, StartError, SyncError, Syncing};
pub use self::http::HttpTransport;
pub use self::server::{Credentials, Hints, Server, ServerError};
pub use self::socket::SocketTransport;
pub use self::way::Way;
