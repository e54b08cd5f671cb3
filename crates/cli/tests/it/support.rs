//! Running the binary: as a command that ends, and as a server on a free port with a data directory of its
//! own; and a server that answers as scripted, for faults that a real one shows only by chance.

mod command;
mod http;
mod script;
mod server;

pub(crate) use command::{Cli, Ended, json_lines, signal};
pub(crate) use http::{Answer, Events, call, open, request};
pub(crate) use script::{Request, Scripted};
pub(crate) use server::Server;
