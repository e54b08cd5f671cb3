//! From messages to the bytes of frames.

use std::sync::Arc;

use alluvium_env::Random;
use bytes::{Bytes, BytesMut};

use crate::{
    decoder::Role,
    deflate::{DeflateError, Deflater, WINDOW_BITS_MIN, alone},
    extension::Deflate,
    frame::{HEADER_BYTES_MAX, Header, Opcode, mask},
    message::{EncodedFrame, Message, header},
};

/// Payloads up to this many bytes are joined with their header: one buffer is cheaper to write than two.
const JOINED_BYTES_MAX: usize = 1024;

/// Writes the frames of one end of a connection.
#[derive(Debug)]
pub struct Encoder {
    /// Where a client's masks come from; a server has none.
    masks: Option<Arc<dyn Random>>,
    deflate: Option<Own>,
}

/// How this end compresses.
#[derive(Debug)]
struct Own {
    level: u8,
    bytes_min: usize,
    window_bits: u8,
    /// Whether later messages refer to earlier ones.
    keeps_context: bool,
    /// Made for the first message that needs it.
    deflater: Option<Deflater>,
}

/// The buffers of a frame: header and payload, or both in the first.
pub type Buffers = (Bytes, Bytes);

impl Encoder {
    /// The encoder of a server.
    pub fn server(deflate: Option<&Deflate>) -> Self {
        Self { masks: None, deflate: deflate.map(|agreed| Own::new(agreed, Role::Server)) }
    }

    /// The encoder of a client, with the randomness for its masks (§5.3 wants it to be unpredictable).
    pub fn client(deflate: Option<&Deflate>, masks: Arc<dyn Random>) -> Self {
        let own = deflate.map(|agreed| Own::new(agreed, Role::Client));
        // A window that zlib has not is kept by compressing nothing.
        Self { masks: Some(masks), deflate: own.filter(|own| own.window_bits >= WINDOW_BITS_MIN) }
    }

    /// A message in one frame, deflated if that was agreed on and it is long enough.
    pub fn message(&mut self, message: &Message) -> Result<Buffers, DeflateError> {
        let long = self.deflate.as_mut().filter(|own| message.payload().len() >= own.bytes_min);
        let (is_deflated, payload) = match long {
            Some(own) => (true, own.deflate(message.payload())?),
            None => (false, message.clone().into_payload()),
        };
        Ok(self.frame(header(message.opcode(), is_deflated, payload.len()), payload))
    }

    /// A control frame. Its payload has at most 125 bytes.
    pub fn control(&self, opcode: Opcode, payload: Bytes) -> Buffers {
        debug_assert!(opcode.is_control() && payload.len() <= crate::limits::CONTROL_BYTES_MAX);
        self.frame(header(opcode, false, payload.len()), payload)
    }

    /// A frame that was encoded for many; `None` if it does not fit this connection.
    pub fn encoded(&mut self, frame: &EncodedFrame) -> Option<Bytes> {
        if self.masks.is_some() {
            return None;
        }
        if let Some(window_bits) = frame.window_bits() {
            let own = self.deflate.as_mut().filter(|own| own.window_bits >= window_bits)?;
            // The peer now has in its window what our compressor has never seen, so it must not look back.
            if let Some(deflater) = &mut own.deflater {
                deflater.forget();
            }
        }
        Some(frame.bytes().clone())
    }

    fn frame(&self, mut head: Header, payload: Bytes) -> Buffers {
        head.mask = self.masks.as_ref().map(|masks| {
            let [a, b, c, d, ..] = masks.next_u64().to_ne_bytes();
            [a, b, c, d]
        });
        let is_joined = head.mask.is_some() || payload.len() <= JOINED_BYTES_MAX;
        let capacity = HEADER_BYTES_MAX + if is_joined { payload.len() } else { 0 };
        let mut buffer = BytesMut::with_capacity(capacity);
        head.encode(&mut buffer);
        if !is_joined {
            return (buffer.freeze(), payload);
        }
        let begin = buffer.len();
        buffer.extend_from_slice(&payload);
        if let Some(key) = head.mask {
            mask(&mut buffer[begin..], key, 0);
        }
        (buffer.freeze(), Bytes::new())
    }
}

impl Own {
    fn new(agreed: &Deflate, role: Role) -> Self {
        let (window_bits, alone) = match role {
            Role::Server => (agreed.server_max_window_bits, agreed.server_no_context_takeover),
            Role::Client => (agreed.client_max_window_bits, agreed.client_no_context_takeover),
        };
        Self {
            level: agreed.level,
            bytes_min: agreed.bytes_min,
            window_bits,
            keeps_context: !alone,
            deflater: None,
        }
    }

    fn deflate(&mut self, payload: &[u8]) -> Result<Bytes, DeflateError> {
        if !self.keeps_context {
            return alone(self.level, self.window_bits, payload);
        }
        let new = || Deflater::new(self.level, self.window_bits, true);
        let mut out = Vec::new();
        self.deflater.get_or_insert_with(new).deflate(payload, &mut out)?;
        Ok(out.into())
    }
}
