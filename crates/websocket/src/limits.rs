//! The bounds of one connection, and their defaults.

/// Most payload bytes of one frame on the wire, unless said otherwise.
pub const FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most bytes of one message after joining its frames and inflating it, unless said otherwise.
pub const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most frames of one message, unless said otherwise. Each costs work, however little is in it.
pub const FRAGMENTS_MAX: usize = 1024;
/// Most bytes that wait to be written before a connection takes no more, unless said otherwise.
pub const OUTGOING_BYTES_MAX: usize = 1024 * 1024;
/// Payload bytes of a control frame (RFC 6455 §5.5).
pub const CONTROL_BYTES_MAX: usize = 125;
/// Most bytes of the head that a server answers a handshake with.
pub const RESPONSE_HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most headers of that head.
pub const RESPONSE_HEADERS_MAX: usize = 64;

/// What a peer may send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Most payload bytes of one frame, as sent.
    pub frame_bytes_max: usize,
    /// Most bytes of one message, joined and inflated.
    pub message_bytes_max: usize,
    /// Most frames of one message.
    pub fragments_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: FRAME_BYTES_MAX,
            message_bytes_max: MESSAGE_BYTES_MAX,
            fragments_max: FRAGMENTS_MAX,
        }
    }
}
