//! Read buffers that are used again: fresh memory would be zeroed and faulted in for every read.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::read::READ_BYTES_MAX;

/// Bytes of a pooled buffer: a stored unit that is read whole may be larger than what is read at a time.
const BUFFER_BYTES: usize = 2 * READ_BYTES_MAX;
/// Buffers up to this size are made anew: a slow reader of a little should not hold a large one.
const SMALL_BYTES_MAX: usize = 64 * 1024;
/// Buffers kept while nobody reads.
const IDLE_BUFFERS_MAX: usize = 16;

/// A pool of buffers of [`BUFFER_BYTES`]. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffers {
    idle: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// A buffer on loan. It goes back when its last slice is dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    used: usize,
    home: Buffers,
}

impl Buffers {
    /// A buffer of `len` bytes with arbitrary content.
    pub(crate) fn take(&self, len: usize) -> Buffer {
        let bytes = match len {
            SMALL_BYTES_MAX..=BUFFER_BYTES => self.idle.lock().pop().unwrap_or_else(|| vec![0; BUFFER_BYTES]),
            _ => vec![0; len],
        };
        Buffer { bytes, used: len, home: self.clone() }
    }
}

impl Buffer {
    /// The buffer as shared bytes.
    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.used]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut idle = self.home.idle.lock();
        if self.bytes.len() == BUFFER_BYTES && idle.len() < IDLE_BUFFERS_MAX {
            idle.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_last_slice_goes() {
        let buffers = Buffers::default();
        let mut buffer = buffers.take(SMALL_BYTES_MAX);
        buffer.as_mut()[..10].copy_from_slice(b"0123456789");
        let bytes = buffer.freeze();
        let slice = bytes.slice(3..5);
        drop(bytes);
        assert_eq!(buffers.idle.lock().len(), 0);
        assert_eq!(&slice[..], b"34");
        drop(slice);
        assert_eq!(buffers.idle.lock().len(), 1);
        assert_eq!(buffers.take(BUFFER_BYTES).freeze().len(), BUFFER_BYTES);
    }

    #[test]
    fn only_so_many_buffers_are_kept_and_no_large_ones() {
        let buffers = Buffers::default();
        let on_loan: Vec<Buffer> = (0..IDLE_BUFFERS_MAX + 5).map(|_| buffers.take(BUFFER_BYTES)).collect();
        drop(on_loan);
        drop(buffers.take(BUFFER_BYTES + 1));
        drop(buffers.take(1));
        assert_eq!(buffers.idle.lock().len(), IDLE_BUFFERS_MAX);
    }
}
