//! The client against a real server over real sockets.

mod http;
mod support;
mod tls;
mod trouble;
mod unasked;
