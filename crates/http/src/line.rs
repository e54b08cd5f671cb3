//! The short way to the readers of live bodies.
//!
//! A piece that goes to a thousand subscribers costs each of them a wake-up, a poll of its connection through all its
//! layers, and what all that touches of memory: more than the system call that sends the piece. A [`Line`] is a way past
//! the connection's task. Who has the lines of many bodies that stand at the same place frames a piece once and sends it
//! to each socket in turn.
//!
//! That goes well only for a socket that has taken all it was given before, and takes the piece at once. Any other is
//! left to its own task, with what it has not taken.

use std::sync::Arc;

use bytes::Bytes;

use crate::{responses::Outbox, wire::Wire};

/// A way to send pieces of one live body past its connection's task. Only while the body's producer waits.
#[derive(Clone, Debug)]
pub struct Line {
    wire: Arc<Wire>,
    outbox: Arc<Outbox>,
}

/// What became of a piece.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sent {
    /// The socket has taken it.
    Whole,
    /// The body has given it, and the socket not taken all of it. The task of the producer is to be woken.
    Part,
    /// It was not sent: the socket is full, or has failed. The producer has to go its own way.
    Not,
}

/// A piece of a live body as it is written to a socket: one chunk of HTTP/1.1 (RFC 9112 §7.1).
#[derive(Clone, Debug)]
pub struct Framed(Bytes);

impl Framed {
    /// `None` for an empty piece: it would be the last chunk.
    pub fn new(piece: &[u8]) -> Option<Self> {
        if piece.is_empty() {
            return None;
        }
        let size = ChunkSize::new(piece.len());
        Some(Self([size.as_ref(), piece, b"\r\n"].concat().into()))
    }
}

/// The line before a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkSize {
    line: [u8; Self::BYTES_MAX],
    from: usize,
}

impl ChunkSize {
    /// A length in hexadecimal and a line end.
    const BYTES_MAX: usize = 2 * size_of::<usize>() + 2;

    pub(crate) fn new(mut bytes: usize) -> Self {
        let mut line = [0; Self::BYTES_MAX];
        let mut from = Self::BYTES_MAX - 2;
        line[from..].copy_from_slice(b"\r\n");
        loop {
            from -= 1;
            line[from] = b"0123456789ABCDEF"[bytes % 16];
            bytes /= 16;
            if bytes == 0 {
                return Self { line, from };
            }
        }
    }
}

impl AsRef<[u8]> for ChunkSize {
    fn as_ref(&self) -> &[u8] {
        &self.line[self.from..]
    }
}

impl Line {
    pub(crate) const fn new(wire: Arc<Wire>, outbox: Arc<Outbox>) -> Self {
        Self { wire, outbox }
    }

    /// Sends a piece, if the socket has taken everything before it.
    pub fn send(&self, piece: &Framed) -> Sent {
        if !self.outbox.is_empty() {
            return Sent::Not;
        }
        match self.wire.send(&piece.0) {
            Some(0) => Sent::Whole,
            Some(left) => {
                self.outbox.give(left);
                self.outbox.socket_is_full();
                Sent::Part
            }
            None => Sent::Not,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_one_chunk_and_never_the_last() {
        let framed = Framed::new(&[b'x'; 26]).expect("not empty");
        assert_eq!(&framed.0[..], b"1A\r\nxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n");
        assert!(Framed::new(b"").is_none());
        for (bytes, line) in
            [(0, "0\r\n"), (15, "F\r\n"), (16, "10\r\n"), (usize::MAX, "FFFFFFFFFFFFFFFF\r\n")]
        {
            assert_eq!(ChunkSize::new(bytes).as_ref(), line.as_bytes());
        }
    }
}
