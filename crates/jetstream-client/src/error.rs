//! Why reading ends before it is done.

use alluvium_jss::Damage;
use alluvium_websocket::{ConnectError, Error as SocketError};

use crate::http::retry_after_s;

/// Why there are no further events.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server was not reached, or the connection broke.
    #[error("{0}")]
    Network(String),
    /// The server is none that can be trusted, or does not speak TLS.
    #[error("the server cannot be asked: {0}")]
    Untrusted(&'static str),
    /// The server says no.
    #[error("the server answers with status {status}: {message}")]
    Refused {
        /// The status.
        status: u16,
        /// The name of the error; empty where the server gives none.
        name: String,
        /// What it says.
        message: String,
        /// After how many seconds to come again, if it says so.
        retry_after_s: Option<u64>,
    },
    /// The server has no archive to download.
    #[error("the server has neither `planSnapshot` nor `planBackfill`")]
    NoArchive,
    /// What the server answers is not what was asked for.
    #[error("the server's answer cannot be right: {0}")]
    Answer(String),
    /// A segment is another one than was planned.
    #[error("{segment} was replaced meanwhile")]
    Replaced {
        /// The name of the file.
        segment: String,
    },
    /// A part of the archive is damaged. It is never read around.
    #[error("{segment}, block {block}: {damage}")]
    Block {
        /// The name of the file.
        segment: String,
        /// The number of the block.
        block: u32,
        /// What is wrong with it.
        damage: Damage,
    },
    /// The header or footer of a segment is damaged.
    #[error("{segment}: {damage}")]
    Segment {
        /// The name of the file.
        segment: String,
        /// What is wrong with it.
        damage: Damage,
    },
    /// The live feed begins after this event, and the archive ends before that.
    #[error("neither the live feed nor the archive has what follows event {after}")]
    CursorTooOld {
        /// The last event that was given out.
        after: u64,
    },
    /// The live feed could not be opened.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection of the live feed broke.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The server ended the live feed.
    #[error("the server ended the feed: {0}")]
    Ended(String),
    /// The server's numbers are lower than before: it is another server, or it lost what it had.
    #[error("event {found} comes after event {after}: the server's numbers went back")]
    WentBack {
        /// The last event that was given out.
        after: u64,
        /// The last one that came.
        found: u64,
    },
    /// The task behind the reader is gone, because its runtime is.
    #[error("the task that reads has ended")]
    Stopped,
}

impl Error {
    /// Whether it may be better another time, by itself.
    pub const fn is_passing(&self) -> bool {
        match self {
            Self::Network(_)
            | Self::Replaced { .. }
            | Self::CursorTooOld { .. }
            | Self::Socket(_)
            | Self::Ended(_) => true,
            Self::Refused { status, .. } => passes(*status),
            Self::Connect(error) => match error {
                ConnectError::Io { .. } | ConnectError::Timeout(_) => true,
                ConnectError::Refused(refusal) => passes(refusal.status.as_u16()),
                _ => false,
            },
            Self::NoArchive
            | Self::Untrusted(_)
            | Self::Answer(_)
            | Self::Block { .. }
            | Self::Segment { .. }
            | Self::WentBack { .. }
            | Self::Stopped => false,
        }
    }

    /// Whether the server did not even answer a ping.
    pub(crate) const fn is_silence(&self) -> bool {
        matches!(self, Self::Socket(SocketError::Silent | SocketError::Stalled))
    }

    /// The status of a refusal.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::Connect(ConnectError::Refused(refusal)) => Some(refusal.status.as_u16()),
            _ => None,
        }
    }

    /// How long the server wants to be left alone, in seconds.
    pub(crate) fn retry_after_s(&self) -> Option<u64> {
        match self {
            Self::Refused { retry_after_s, .. } => *retry_after_s,
            Self::Connect(ConnectError::Refused(refusal)) => retry_after_s(&refusal.headers),
            _ => None,
        }
    }
}

/// Whether a status stands for a server that cannot at the moment.
const fn passes(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500 | 502..=599)
}
