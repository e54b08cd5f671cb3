//! Deflating and inflating messages (RFC 7692 §7.2).
//!
//! A deflated message is a raw deflate stream up to a sync flush, without the four bytes that the flush ends with.
//! With *context takeover* a message may refer back into those before it on its connection; without, it stands for
//! itself, so that the same bytes can be sent to any number of connections.

use std::cell::RefCell;

use bytes::Bytes;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::error::ProtocolError;

/// What every sync flush ends with, and no message carries.
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
/// The window that is agreed on when nothing is said.
pub(crate) const WINDOW_BITS_MAX: u8 = 15;
/// The smallest window that can be compressed for: zlib has no raw streams with a window of 256 bytes.
pub(crate) const WINDOW_BITS_MIN: u8 = 9;
/// Output is given room in steps of this many bytes at least.
const STEP: usize = 4096;

/// Something went wrong within the compressor, which only a fault in it can cause.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a message could not be compressed")]
pub struct DeflateError;

/// The compressor of one direction of one connection, or of one thread.
pub(crate) struct Deflater {
    stream: Compress,
    keeps_context: bool,
}

impl std::fmt::Debug for Deflater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deflater").field("keeps_context", &self.keeps_context).finish_non_exhaustive()
    }
}

impl Deflater {
    /// `level` is that of zlib, 0 to 9.
    pub(crate) fn new(level: u8, window_bits: u8, keeps_context: bool) -> Self {
        let level = Compression::new(u32::from(level.min(9)));
        let window_bits = window_bits.clamp(WINDOW_BITS_MIN, WINDOW_BITS_MAX);
        Self { stream: Compress::new_with_window_bits(level, false, window_bits), keeps_context }
    }

    /// Appends the deflated message to `out`.
    pub(crate) fn deflate(&mut self, mut message: &[u8], out: &mut Vec<u8>) -> Result<(), DeflateError> {
        if message.is_empty() {
            // §7.2.3.6. zlib would not flush a second time when nothing has come between.
            out.push(0);
            return Ok(());
        }
        loop {
            out.reserve(STEP.max(message.len() / 4));
            let before = self.stream.total_in();
            let status = self.stream.compress_vec(message, out, FlushCompress::Sync);
            let taken = usize::try_from(self.stream.total_in() - before).map_err(|_| DeflateError)?;
            message = &message[taken..];
            match status {
                // Room left over: everything is flushed.
                Ok(Status::Ok | Status::BufError) if message.is_empty() && out.len() < out.capacity() => {
                    break;
                }
                Ok(Status::Ok | Status::BufError) => {}
                Ok(Status::StreamEnd) | Err(_) => return Err(DeflateError),
            }
        }
        if !out.ends_with(&TAIL) {
            return Err(DeflateError);
        }
        out.truncate(out.len() - TAIL.len());
        if !self.keeps_context {
            self.stream.reset();
        }
        Ok(())
    }

    /// Forgets what came before. What follows refers to nothing of it.
    pub(crate) fn forget(&mut self) {
        self.stream.reset();
    }
}

/// The most compressors that a thread keeps, one for each level and window in use.
const KEPT_MAX: usize = 4;

thread_local! {
    static KEPT: RefCell<Vec<(u8, u8, Deflater)>> = const { RefCell::new(Vec::new()) };
}

/// Deflates one message by itself, with a compressor that the thread keeps.
pub(crate) fn deflate_alone(
    level: u8,
    window_bits: u8,
    message: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), DeflateError> {
    KEPT.with_borrow_mut(|kept| {
        let index = kept.iter().position(|(l, w, _)| (*l, *w) == (level, window_bits));
        let index = index.unwrap_or_else(|| {
            if kept.len() == KEPT_MAX {
                kept.remove(0);
            }
            kept.push((level, window_bits, Deflater::new(level, window_bits, false)));
            kept.len() - 1
        });
        let outcome = kept[index].2.deflate(message, out);
        if outcome.is_err() {
            kept.remove(index);
        }
        outcome
    })
}

/// The decompressor of one direction of one connection.
pub(crate) struct Inflater {
    stream: Decompress,
    keeps_context: bool,
    /// The stream's last block was marked as such. What comes next is another stream.
    has_ended: bool,
}

impl std::fmt::Debug for Inflater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflater").field("keeps_context", &self.keeps_context).finish_non_exhaustive()
    }
}

impl Inflater {
    pub(crate) fn new(window_bits: u8, keeps_context: bool) -> Self {
        let window_bits = window_bits.clamp(WINDOW_BITS_MIN, WINDOW_BITS_MAX);
        Self { stream: Decompress::new_with_window_bits(false, window_bits), keeps_context, has_ended: false }
    }

    /// Appends what a part of a message inflates to. `out` never holds more than `max` bytes and one.
    pub(crate) fn inflate(
        &mut self,
        mut part: &[u8],
        out: &mut Vec<u8>,
        max: usize,
    ) -> Result<(), ProtocolError> {
        while !part.is_empty() {
            if self.has_ended {
                self.stream.reset(false);
                self.has_ended = false;
            }
            part = self.step(part, out, max)?;
        }
        Ok(())
    }

    /// Ends a message.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>, max: usize) -> Result<(), ProtocolError> {
        if !self.has_ended {
            self.inflate(&TAIL, out, max)?;
        }
        if self.has_ended || !self.keeps_context {
            self.stream.reset(false);
            self.has_ended = false;
        }
        Ok(())
    }

    /// Inflates until the part is used up or the stream has ended; returns what is left of the part.
    fn step<'a>(
        &mut self,
        mut part: &'a [u8],
        out: &mut Vec<u8>,
        max: usize,
    ) -> Result<&'a [u8], ProtocolError> {
        loop {
            if out.len() == out.capacity() {
                let step = STEP.max(part.len().saturating_mul(2)).max(out.len());
                out.reserve_exact(step.min((max + 1).saturating_sub(out.len())));
            }
            let (given, had) = (self.stream.total_in(), out.len());
            let status = self.stream.decompress_vec(part, out, FlushDecompress::None);
            let status = status.map_err(|_| ProtocolError::Inflate)?;
            let taken =
                usize::try_from(self.stream.total_in() - given).map_err(|_| ProtocolError::Inflate)?;
            part = &part[taken..];
            if out.len() > max {
                return Err(ProtocolError::MessageTooLarge { max });
            }
            if status == Status::StreamEnd {
                self.has_ended = true;
                return Ok(part);
            }
            let has_room = out.len() < out.capacity();
            if part.is_empty() && has_room {
                return Ok(part);
            }
            if taken == 0 && out.len() == had && has_room {
                return Err(ProtocolError::Inflate);
            }
        }
    }
}

/// One message deflated by itself.
pub(crate) fn alone(level: u8, window_bits: u8, message: &[u8]) -> Result<Bytes, DeflateError> {
    let mut out = Vec::new();
    deflate_alone(level, window_bits, message, &mut out)?;
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn inflated(inflater: &mut Inflater, deflated: &[u8], max: usize) -> Result<Vec<u8>, ProtocolError> {
        let mut out = Vec::new();
        inflater.inflate(deflated, &mut out, max)?;
        inflater.finish(&mut out, max)?;
        Ok(out)
    }

    #[test]
    fn the_examples_of_the_standard_inflate() {
        // RFC 7692 §7.2.3: one block, with takeover, not compressed, with a final block, and two blocks.
        let mut inflater = Inflater::new(15, true);
        for deflated in [
            &b"\xf2\x48\xcd\xc9\xc9\x07\x00"[..],
            b"\xf2\x00\x11\x00\x00",
            b"\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00",
            b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00",
            b"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00",
        ] {
            assert_eq!(inflated(&mut inflater, deflated, 5).unwrap(), b"Hello", "{deflated:x?}");
        }
    }

    #[test]
    fn a_bomb_goes_off_at_the_limit() {
        let bomb = alone(9, 15, &vec![0; 50_000_000]).unwrap();
        assert!(bomb.len() < 60_000);
        let mut inflater = Inflater::new(15, false);
        let mut out = Vec::new();
        let refused = inflater.inflate(&bomb, &mut out, 100_000);
        assert_eq!(refused, Err(ProtocolError::MessageTooLarge { max: 100_000 }));
        assert!(out.capacity() <= 200_000, "{}", out.capacity());
    }

    #[test]
    fn what_is_no_deflate_stream_is_refused() {
        for bad in [&b"\xff\xff\xff"[..], b"\x00\x05\x00\x00\x00Hello", b"\x07", b"\x06"] {
            let outcome = inflated(&mut Inflater::new(15, false), bad, 1000);
            assert_eq!(outcome, Err(ProtocolError::Inflate), "{bad:x?}");
        }
        // Referring to what another message said, where nothing is taken over.
        let mut inflater = Inflater::new(15, false);
        inflated(&mut inflater, b"\xf2\x48\xcd\xc9\xc9\x07\x00", 9).unwrap();
        assert_eq!(inflated(&mut inflater, b"\xf2\x00\x11\x00\x00", 9), Err(ProtocolError::Inflate));
    }

    fn messages() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let message = prop_oneof![
            prop::collection::vec(any::<u8>(), 0..3000),
            prop::collection::vec(0..3_u8, 0..3000),
            (any::<u8>(), 0..70_000_usize).prop_map(|(byte, len)| vec![byte; len]),
            Just(Vec::new()),
        ];
        prop::collection::vec(message, 1..8)
    }

    proptest! {
        /// Messages survive every window, level, cut and way to treat the context, also when the sender forgets it.
        #[test]
        fn messages_come_back(
            messages in messages(),
            level in 0..10_u8,
            window_bits in 9..16_u8,
            keeps_context: bool,
            cut in 1..2000_usize,
            forgets in any::<u8>(),
        ) {
            let mut deflater = Deflater::new(level, window_bits, keeps_context);
            let mut inflater = Inflater::new(window_bits, keeps_context);
            for (number, message) in messages.iter().enumerate() {
                let mut deflated = Vec::new();
                if forgets >> number & 1 == 1 {
                    deflate_alone(level, window_bits, message, &mut deflated).unwrap();
                    deflater.forget();
                } else {
                    deflater.deflate(message, &mut deflated).unwrap();
                }
                let mut out = Vec::new();
                for part in deflated.chunks(cut) {
                    inflater.inflate(part, &mut out, message.len()).unwrap();
                }
                inflater.finish(&mut out, message.len()).unwrap();
                prop_assert_eq!(&out, message);
            }
        }
    }
}
