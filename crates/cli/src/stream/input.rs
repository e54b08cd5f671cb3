//! Standard input, cut into the appends that `alluvium stream append` sends.
//!
//! A thread of its own reads, so that what a slow producer has written so far is sent without waiting for
//! more, while a fast producer's output gathers into large appends during each round trip. What is read
//! ahead is bounded; then the pipe fills and the producer waits.

mod framing;

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

pub(crate) use framing::Framing;
use framing::{Framer, FramingError, Message};

use super::failure::Failure;

/// One read from standard input.
const PIECE_BYTES: usize = 64 * 1024;
/// Pieces read ahead while an append is on its way.
const PIECES_AHEAD_MAX: usize = 16;
/// An append carries no more than this, unless a single message is larger.
pub(crate) const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// The body of one append.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) body: Vec<u8>,
    /// Whether nothing can follow. May be false for the last batch, when the end was not seen yet.
    pub(crate) last: bool,
    /// How much of the input this and all earlier batches are: bytes, lines or messages, see [`Batches::unit`].
    pub(crate) through: u64,
}

/// The appends that the input amounts to, in order.
#[derive(Debug)]
pub(crate) struct Batches {
    pieces: Receiver<io::Result<Vec<u8>>>,
    framer: Framer,
    ready: VecDeque<Message>,
    ready_bytes: usize,
    ended: bool,
    failed: Option<Failure>,
}

impl Batches {
    /// Starts reading.
    pub(crate) fn new(input: impl Read + Send + 'static, framing: Framing) -> Self {
        let (sender, pieces) = sync_channel(PIECES_AHEAD_MAX);
        // Ends with the input, or with the process: a blocked read cannot be called back.
        std::thread::spawn(move || read_pieces(input, &sender));
        Self {
            pieces,
            framer: Framer::new(framing),
            ready: VecDeque::new(),
            ready_bytes: 0,
            ended: false,
            failed: None,
        }
    }

    /// What [`Batch::through`] counts.
    pub(crate) fn unit(&self) -> &'static str {
        match self.framer.framing() {
            Framing::Bytes => "bytes",
            Framing::Lines | Framing::JsonLines => "lines",
            Framing::Json => "messages",
        }
    }

    /// Waits for input and takes what there is, up to [`BATCH_BYTES_MAX`]; `None` at the end. Bad input
    /// fails after everything before it was given out.
    pub(crate) fn next(&mut self) -> Result<Option<Batch>, Failure> {
        while self.ready_bytes < BATCH_BYTES_MAX && !self.ended {
            let piece = if self.ready.is_empty() {
                self.pieces.recv().ok()
            } else {
                match self.pieces.try_recv() {
                    Ok(piece) => Some(piece),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => None,
                }
            };
            self.take(piece);
        }
        match self.assemble() {
            Some(Message { bytes: body, through }) => {
                let last = self.ended && self.failed.is_none() && self.ready.is_empty();
                Ok(Some(Batch { body, last, through }))
            }
            None => self.failed.take().map_or(Ok(None), Err),
        }
    }

    fn take(&mut self, piece: Option<io::Result<Vec<u8>>>) {
        let (ready, ready_bytes) = (&mut self.ready, &mut self.ready_bytes);
        let mut keep = |message: Message| {
            *ready_bytes += message.bytes.len();
            ready.push_back(message);
        };
        let outcome = match piece {
            Some(Ok(bytes)) => self.framer.push(bytes, &mut keep),
            Some(Err(error)) => {
                self.failed = Some(Failure::input(&error));
                self.ended = true;
                return;
            }
            None => {
                self.ended = true;
                self.framer.finish(&mut keep)
            }
        };
        if let Err(error) = outcome {
            self.failed = Some(describe(&error));
            self.ended = true;
        }
    }

    fn assemble(&mut self) -> Option<Message> {
        let framing = self.framer.framing();
        let Message { bytes: mut body, mut through } = self.ready.pop_front()?;
        self.ready_bytes -= body.len();
        if framing.is_json() {
            body.insert(0, b'[');
        }
        while framing.joins()
            && let Some(next) = self.ready.front()
            && body.len() + next.bytes.len() < BATCH_BYTES_MAX
        {
            if framing.is_json() {
                body.push(b',');
            }
            body.extend_from_slice(&next.bytes);
            through = next.through;
            self.ready_bytes -= next.bytes.len();
            self.ready.pop_front();
        }
        if framing.is_json() {
            body.push(b']');
        }
        Some(Message { bytes: body, through })
    }
}

fn describe(error: &FramingError) -> Failure {
    Failure::Other(format!("standard input: {error}; everything before it was appended"))
}

fn read_pieces(mut input: impl Read, sender: &std::sync::mpsc::SyncSender<io::Result<Vec<u8>>>) {
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let piece = match input.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => Ok(buffer[..count].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let failed = piece.is_err();
        if sender.send(piece).is_err() || failed {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
