//! Feeds for applications: a file of their own to append to and read from at once, and loops that keep it in step with a
//! server when there is one.
//!
//! [`Client`] opens the file and [`Space`] is what an application works with. [`Space::start`] synchronises in the
//! background over HTTP or a WebSocket until it is dropped: what was appended is pushed, what is replicated is pulled, and what others
//! append comes within moments, because a request waits at the server for it. Trouble with the network is waited out,
//! longer each time and never in step with other clients; it shows in [`Space::status`], which asks nobody, in words and by
//! its [kind](CallErrorKind).
//!
//! Local calls need nothing; [`Space::start`] needs a tokio runtime that is being driven: one with threads of its own, or
//! one that is inside `block_on`. Entering a runtime that nobody drives lets nothing happen.
//!
//! ```
//! use alluvium_feed_client::{Client, From, Id, Options, Server};
//!
//! # use std::sync::Arc;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("notes.sqlite");
//! # let shutdown = alluvium_http::Shutdown::new();
//! # let service = alluvium_feeds::Service::open(
//! #     &folder.path().join("server"),
//! #     alluvium_env::Env::real(),
//! #     alluvium_feeds::Options::default(),
//! # )?;
//! # let surface = alluvium_feeds::http::Surface::new(
//! #     Arc::new(service),
//! #     Arc::new(alluvium_feeds::OpenGate),
//! #     alluvium_feeds::http::SurfaceOptions::default(),
//! #     shutdown.clone(),
//! # );
//! # let options = alluvium_http::ServerOptions {
//! #     reactors: 1,
//! #     heavy_reactors: 0,
//! #     connections_max: 10,
//! #     header_bytes_max: 16 * 1024,
//! #     idle_timeout: std::time::Duration::from_secs(30),
//! #     responses: Arc::new(alluvium_http::ResponseBudget::new(1024 * 1024)),
//! # };
//! # let listener = alluvium_http::bind("127.0.0.1:0".parse()?)?;
//! # let server = alluvium_http::Server::start(listener, surface, options, shutdown)?;
//! # let url = format!("http://{}", server.address());
//! // A file, a space in it, and a feed. None of this needs a server.
//! let client = Client::open(&path, None, Options::default())?;
//! let family = client.space(&Id::parse("family")?);
//! let groceries = Id::parse("groceries")?;
//! family.append(&groceries, None, b"milk".to_vec())?;
//! family.replicate(&groceries, From::Beginning)?;
//! assert_eq!(family.status()?.blocks_to_push, 1);
//!
//! // When there is one, say `let url = "http://127.0.0.1:4437"`: in the background, until `syncing` is dropped.
//! let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
//! runtime.block_on(async {
//!     let syncing = family.start(&Server::new(url))?;
//!     let mut changes = family.changes();
//!     while !family.status()?.is_done() {
//!         changes.changed().await?;
//!     }
//!     drop(syncing);
//!     Ok::<_, Box<dyn std::error::Error>>(())
//! })?;
//!
//! // Local reads wait for nobody: settled blocks first, in the order that everyone has, then what is on its way.
//! let blocks = family.read(&groceries, &Default::default(), 100)?;
//! assert_eq!(blocks[0].position, Some(1));
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
mod trouble;
mod way;

pub use alluvium_feed_protocol::{Block, Data, FeedInfo, From, Id, InvalidId, Namespace, Selector};
pub use alluvium_feed_replica::{
    After, Appended, CallError, CallErrorKind, Conflict, Keep, LocalCursor, Options, Refused, Replica,
    ReplicaError, ReplicaResult, Repush, SyncStatus, Tailed, Transport, driver,
};

pub use self::client::{Claim, Client, Space, StartError, SyncError, Syncing};
pub use self::http::HttpTransport;
pub use self::server::{Credentials, Hints, Server, ServerError};
pub use self::socket::SocketTransport;
pub use self::way::Way;
