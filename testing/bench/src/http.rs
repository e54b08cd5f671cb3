//! A minimal HTTP/1.1 client for measuring servers.
//!
//! One keep-alive connection, one request in flight, requests written from bytes prepared beforehand. It
//! exists because a general client library costs more CPU per request than a fast server, and on a machine
//! shared by both the measurement would mostly be of the client.

mod connection;
mod request;
mod wire;

pub(crate) use connection::Connection;
pub(crate) use request::{Method, request};
pub(crate) use wire::{BodyDecoder, Head};
