//! A client of Jetstream: every event of a network that passes a filter, once and in order, from the archive and live.
//!
//! [`Client::events`] gives a reader. Behind it, one task asks the server which parts of its archive to download, decodes
//! them, changes to the live feed where they end, and goes back to the archive if the live feed no longer reaches as far
//! back as the reader is. Trouble with the network is waited out. [`Events::cursor`] is where to go on another time: all
//! events up to it were given out.
//!
//! ```no_run
//! use alluvium_env::Env;
//! use alluvium_jetstream_client::{Client, Config, Cursor, Mode};
//!
//! # async fn follow() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config { collections: vec!["app.bsky.feed.*".to_owned()], ..Config::new("https://jetstream.example") };
//! let mut events = Client::new(config, Env::real())?.events(Cursor::After(0), Mode::Whole)?;
//! while let Some(event) = events.next().await? {
//!     // One object of JSON, the same whether it came from the archive or live.
//!     println!("{}", event.line);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! An application that keeps a copy of records must follow deletions too: those of records, those of accounts (an
//! `account` event that says so), and `sync` events, behind which a repository is sent anew.

mod archive;
mod config;
mod error;
mod event;
mod events;
mod http;
mod live;
mod patience;
mod plan;
#[doc(hidden)]
pub mod readers;
mod run;
mod segment;

pub use alluvium_jetstream_wire::Topic;

pub use self::config::{Config, ConfigError, Cursor, Form, Limits, Mode, Token};
pub use self::error::Error;
pub use self::event::Event;
pub use self::events::{Client, Events, Item, Notice, Progress};
