//! What a peer can do wrong, and the close code that says so.

use crate::close::CloseCode;

/// A breach of the protocol or of a limit. The connection is failed with [`ProtocolError::close_code`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ProtocolError {
    /// A reserved bit that no extension gave a meaning (RFC 6455 §5.2), or one where it has none (RFC 7692 §6).
    #[error("a reserved bit is set without a meaning")]
    ReservedBits,
    /// An opcode that has no meaning.
    #[error("opcode {0} is reserved")]
    ReservedOpcode(u8),
    /// Ping, pong and close come in one frame (§5.5).
    #[error("a control frame is fragmented")]
    FragmentedControl,
    /// Ping, pong and close have at most 125 bytes (§5.5).
    #[error("a control frame has more than 125 bytes")]
    ControlTooLong,
    /// A client masks every frame (§5.1).
    #[error("a frame of a client is not masked")]
    NotMasked,
    /// A server masks none (§5.1).
    #[error("a frame of a server is masked")]
    Masked,
    /// A length has one spelling, the shortest, and 63 bits (§5.2).
    #[error("the length of a frame is not written as it must be")]
    Length,
    /// A continuation without a message to continue (§5.4).
    #[error("a continuation frame continues nothing")]
    NothingToContinue,
    /// A new message before the last one has ended (§5.4).
    #[error("a message begins within another one")]
    Interleaved,
    /// One byte is no close code (§5.5.1).
    #[error("a close frame holds half a code")]
    CloseLength,
    /// A code that must not be sent (§7.4).
    #[error("close code {0} must not be sent")]
    CloseCode(u16),
    /// Text is UTF-8 (§8.1).
    #[error("text is not UTF-8")]
    Utf8,
    /// What should inflate does not.
    #[error("a compressed message cannot be inflated")]
    Inflate,
    /// Beyond [`Limits::frame_bytes_max`](crate::Limits::frame_bytes_max).
    #[error("a frame has more than {max} bytes")]
    FrameTooLarge {
        /// The limit.
        max: usize,
    },
    /// Beyond [`Limits::message_bytes_max`](crate::Limits::message_bytes_max).
    #[error("a message has more than {max} bytes")]
    MessageTooLarge {
        /// The limit.
        max: usize,
    },
    /// Beyond [`Limits::fragments_max`](crate::Limits::fragments_max).
    #[error("a message has more than {max} frames")]
    TooManyFragments {
        /// The limit.
        max: usize,
    },
}

impl ProtocolError {
    /// The code that the connection is closed with.
    pub const fn close_code(&self) -> CloseCode {
        match self {
            Self::ReservedBits
            | Self::ReservedOpcode(_)
            | Self::FragmentedControl
            | Self::ControlTooLong
            | Self::NotMasked
            | Self::Masked
            | Self::Length
            | Self::NothingToContinue
            | Self::Interleaved
            | Self::CloseLength
            | Self::CloseCode(_) => CloseCode::PROTOCOL,
            Self::Utf8 | Self::Inflate => CloseCode::INVALID,
            Self::FrameTooLarge { .. } | Self::MessageTooLarge { .. } | Self::TooManyFragments { .. } => {
                CloseCode::TOO_BIG
            }
        }
    }
}
