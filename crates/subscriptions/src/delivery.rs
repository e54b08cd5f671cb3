//! A webhook on its way, and how it went.

use std::time::Duration;

use alluvium_protocol::subscription::Fencing;
use alluvium_protocol::{Incarnation, Offset, StreamPath};
use bytes::Bytes;

/// A webhook to be sent.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Which subscription's: its place, and a number that no later one at that place has.
    pub(crate) place: (u32, u64),
    /// Which wake's.
    pub(crate) fencing: Fencing,
    /// How far the streams in it are read once its receiver is done.
    pub(crate) covers: Vec<Cursor>,
    /// It was sent before, in vain.
    pub(crate) is_retry: bool,
    /// Where it goes.
    pub url: String,
    /// What it says.
    pub body: Bytes,
    /// The value of its signature header.
    pub signature: String,
    /// How long it may take.
    pub timeout: Duration,
}

impl Delivery {
    /// One that belongs to nothing, to try a [`Transport`] with.
    pub fn to(url: &str, timeout: Duration) -> Self {
        Self {
            place: (u32::MAX, u64::MAX),
            fencing: Fencing { wake_id: String::new(), generation: 0 },
            covers: Vec::new(),
            is_retry: false,
            url: url.to_owned(),
            body: Bytes::from_static(b"{}"),
            signature: "t=1,kid=ds_x,ed25519=y".to_owned(),
            timeout,
        }
    }
}

/// How far a stream is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) path: StreamPath,
    pub(crate) incarnation: Incarnation,
    pub(crate) offset: Offset,
}

/// How a webhook went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its receiver has it.
    Accepted {
        /// And is done with it.
        done: bool,
    },
    /// Its receiver does not have it, as far as anyone knows.
    Failed(Failure),
}

/// Why a webhook failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The URL is none, or one that webhooks must not go to.
    Target,
    /// The name has no address.
    Name,
    /// One of its addresses is not of the public internet.
    Address,
    /// No connection, or it broke.
    Connection,
    /// No TLS that can be trusted.
    Tls,
    /// It took too long.
    Timeout,
    /// The answer is not HTTP, or too large.
    Answer,
    /// It was sent elsewhere. Nobody follows.
    Redirect,
    /// Status 4xx.
    Refused,
    /// Status 5xx, or another that is not success.
    Error,
}

impl Failure {
    /// All classes.
    pub const ALL: [Self; 10] = [
        Self::Target,
        Self::Name,
        Self::Address,
        Self::Connection,
        Self::Tls,
        Self::Timeout,
        Self::Answer,
        Self::Redirect,
        Self::Refused,
        Self::Error,
    ];

    /// The class in one word, for figures and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Name => "name",
            Self::Address => "address",
            Self::Connection => "connection",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Answer => "answer",
            Self::Redirect => "redirect",
            Self::Refused => "refused",
            Self::Error => "error",
        }
    }
}

/// A webhook that was sent, and how it went.
#[derive(Debug)]
pub struct Delivered {
    /// Which.
    pub delivery: Delivery,
    /// How.
    pub outcome: Outcome,
}

/// What sends webhooks.
pub trait Transport: Send + Sync + std::fmt::Debug {
    /// Sends one and reads the answer, within its timeout. Blocks.
    fn send(&self, delivery: &Delivery) -> Outcome;
}
