//! From bytes as they come to messages.
//!
//! The parts of a large message are joined, checked and inflated as they arrive, so that what is wrong is refused
//! early and what is too long never lies in memory whole.

use bytes::{Buf, Bytes, BytesMut};

use crate::{
    close::Close,
    deflate::Inflater,
    error::ProtocolError,
    extension::Deflate,
    frame::{Header, Opcode, mask},
    limits::Limits,
    message::{Message, Text},
    utf8::Utf8,
};

/// Messages below this size are copied out of the buffer that they were read into, which can then be used again, and which
/// they would otherwise keep.
const COPIED_BYTES_MAX: usize = 16 * 1024;

/// Which end of a connection this is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// The one that accepted it.
    Server,
    /// The one that opened it, and masks what it sends.
    Client,
}

/// What has come.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// A message.
    Message(Message),
    /// A question whether this end is there.
    Ping(Bytes),
    /// An answer.
    Pong(Bytes),
    /// The end. Nothing that follows is to be read.
    Close(Option<Close>),
}

/// See the module's documentation. After an error or [`Event::Close`], there is nothing more to decode.
#[derive(Debug)]
pub struct Decoder {
    role: Role,
    limits: Limits,
    inflater: Option<Inflater>,
    frame: Option<Frame>,
    message: Option<Partial>,
}

/// The frame whose payload is being read.
#[derive(Clone, Copy, Debug)]
struct Frame {
    header: Header,
    /// Bytes of it that have been read.
    at: u64,
}

/// The message that is being read.
#[derive(Debug)]
struct Partial {
    is_text: bool,
    is_deflated: bool,
    fragments: usize,
    utf8: Utf8,
    bytes: Vec<u8>,
}

impl Decoder {
    /// A decoder for what the peer of `role` sends.
    pub fn new(role: Role, limits: Limits, deflate: Option<&Deflate>) -> Self {
        let inflater = deflate.map(|agreed| match role {
            Role::Server => Inflater::new(agreed.client_max_window_bits, !agreed.client_no_context_takeover),
            Role::Client => Inflater::new(agreed.server_max_window_bits, !agreed.server_no_context_takeover),
        });
        Self { role, limits, inflater, frame: None, message: None }
    }

    /// Takes bytes from the front of `input`, up to the end of the next event. `None` asks for more of them.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Event>, ProtocolError> {
        loop {
            let frame = match self.frame {
                Some(frame) => frame,
                None => match self.begin(input)? {
                    Some(frame) => frame,
                    None => return Ok(None),
                },
            };
            let event = if frame.header.opcode.is_control() {
                self.control(&frame.header, input)?
            } else {
                self.data(frame, input)?
            };
            if event.is_some() || self.frame.is_some() {
                return Ok(event);
            }
        }
    }

    /// Reads a header and checks it against what came before.
    fn begin(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, ProtocolError> {
        let Some((header, len)) = Header::parse(input)? else { return Ok(None) };
        match (self.role, header.mask) {
            (Role::Server, None) => return Err(ProtocolError::NotMasked),
            (Role::Client, Some(_)) => return Err(ProtocolError::Masked),
            _ => {}
        }
        if header.is_deflated && self.inflater.is_none() {
            return Err(ProtocolError::ReservedBits);
        }
        match (header.opcode, &mut self.message) {
            (Opcode::Continuation, None) => return Err(ProtocolError::NothingToContinue),
            (Opcode::Text | Opcode::Binary, Some(_)) => return Err(ProtocolError::Interleaved),
            (Opcode::Continuation, Some(message)) => {
                message.fragments += 1;
                if message.fragments > self.limits.fragments_max {
                    return Err(ProtocolError::TooManyFragments { max: self.limits.fragments_max });
                }
            }
            (Opcode::Text | Opcode::Binary, none) => {
                *none = Some(Partial {
                    is_text: header.opcode == Opcode::Text,
                    is_deflated: header.is_deflated,
                    fragments: 1,
                    utf8: Utf8::default(),
                    bytes: Vec::new(),
                });
            }
            (Opcode::Close | Opcode::Ping | Opcode::Pong, _) => {}
        }
        if let Some(message) = self.message.as_ref().filter(|_| !header.opcode.is_control()) {
            let Limits { frame_bytes_max, message_bytes_max, .. } = self.limits;
            if header.len > frame_bytes_max as u64 {
                return Err(ProtocolError::FrameTooLarge { max: frame_bytes_max });
            }
            let joined = message.bytes.len() as u64 + header.len;
            if !message.is_deflated && joined > message_bytes_max as u64 {
                return Err(ProtocolError::MessageTooLarge { max: message_bytes_max });
            }
        }
        input.advance(len);
        let frame = Frame { header, at: 0 };
        self.frame = Some(frame);
        Ok(Some(frame))
    }

    fn control(&mut self, header: &Header, input: &mut BytesMut) -> Result<Option<Event>, ProtocolError> {
        let len = usize::try_from(header.len).map_err(|_| ProtocolError::ControlTooLong)?;
        if input.len() < len {
            return Ok(None);
        }
        self.frame = None;
        let mut payload = input.split_to(len);
        if let Some(key) = header.mask {
            mask(&mut payload, key, 0);
        }
        let payload = Bytes::copy_from_slice(&payload);
        Ok(Some(match header.opcode {
            Opcode::Ping => Event::Ping(payload),
            Opcode::Pong => Event::Pong(payload),
            _ => Event::Close(Close::parse(&payload)?),
        }))
    }

    /// Reads on in a frame of a message. Returns the message if this was the end of it.
    fn data(&mut self, mut frame: Frame, input: &mut BytesMut) -> Result<Option<Event>, ProtocolError> {
        let left = frame.header.len - frame.at;
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        let mut part = input.split_to(len);
        if let Some(key) = frame.header.mask {
            mask(&mut part, key, frame.at);
        }
        let is_whole = frame.at == 0 && frame.header.is_final && len as u64 == left;
        frame.at += len as u64;
        let is_frame_over = frame.at == frame.header.len;
        self.frame = (!is_frame_over).then_some(frame);
        let Some(message) = &mut self.message else { return Err(ProtocolError::NothingToContinue) };
        if is_whole && message.fragments == 1 && !message.is_deflated {
            if message.is_text && std::str::from_utf8(&part).is_err() {
                return Err(ProtocolError::Utf8);
            }
            let payload = if len < COPIED_BYTES_MAX { Bytes::copy_from_slice(&part) } else { part.freeze() };
            return Ok(self.end(payload));
        }
        let max = self.limits.message_bytes_max;
        message.take(&part, self.inflater.as_mut(), max)?;
        if !(is_frame_over && frame.header.is_final) {
            return Ok(None);
        }
        message.finish(self.inflater.as_mut(), max)?;
        let payload = std::mem::take(&mut message.bytes).into();
        Ok(self.end(payload))
    }

    fn end(&mut self, payload: Bytes) -> Option<Event> {
        let message = self.message.take()?;
        Some(Event::Message(if message.is_text {
            Message::Text(Text::checked(payload))
        } else {
            Message::Binary(payload)
        }))
    }
}

impl Partial {
    /// Adds a part that has been unmasked.
    fn take(
        &mut self,
        part: &[u8],
        inflater: Option<&mut Inflater>,
        max: usize,
    ) -> Result<(), ProtocolError> {
        let begin = self.bytes.len();
        match inflater {
            Some(inflater) if self.is_deflated => inflater.inflate(part, &mut self.bytes, max)?,
            _ => self.bytes.extend_from_slice(part),
        }
        self.check(begin)
    }

    fn finish(&mut self, inflater: Option<&mut Inflater>, max: usize) -> Result<(), ProtocolError> {
        let begin = self.bytes.len();
        if let Some(inflater) = inflater.filter(|_| self.is_deflated) {
            inflater.finish(&mut self.bytes, max)?;
        }
        self.check(begin)?;
        if self.utf8.is_complete() { Ok(()) } else { Err(ProtocolError::Utf8) }
    }

    fn check(&mut self, begin: usize) -> Result<(), ProtocolError> {
        if self.is_text && !self.utf8.take(&self.bytes[begin..]) {
            return Err(ProtocolError::Utf8);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
