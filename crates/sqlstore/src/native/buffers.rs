//! Buffers of windows that are used again: fresh memory would be faulted in page by page for every read.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Buffers up to this size are made anew: somebody who keeps a short window should not keep a large buffer with it.
const SMALL_BYTES_MAX: usize = 64 * 1024;

/// A pool of buffers. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Buffers {
    idle: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Buffers kept while nobody reads.
    idle_max: usize,
    /// Bytes of a buffer that is kept.
    bytes_max: usize,
}

impl Buffers {
    /// A pool that keeps up to `idle_max` buffers of up to `bytes_max` bytes.
    pub(crate) fn new(idle_max: usize, bytes_max: usize) -> Self {
        Self { idle: Arc::default(), idle_max, bytes_max }
    }

    /// An empty buffer with room for `capacity` bytes.
    pub(crate) fn take(&self, capacity: usize) -> Vec<u8> {
        let idle = if capacity > SMALL_BYTES_MAX { self.idle.lock().pop() } else { None };
        let mut buffer = idle.unwrap_or_default();
        buffer.reserve_exact(capacity);
        buffer
    }

    /// The buffer as shared bytes. It comes back when the last of them is dropped.
    pub(crate) fn share(&self, bytes: Vec<u8>) -> Bytes {
        if (SMALL_BYTES_MAX..=self.bytes_max).contains(&bytes.capacity()) {
            Bytes::from_owner(Lent { bytes, home: self.clone() })
        } else {
            Bytes::from(bytes)
        }
    }
}

/// A buffer on loan.
struct Lent {
    bytes: Vec<u8>,
    home: Buffers,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut idle = self.home.idle.lock();
        if idle.len() < self.home.idle_max {
            self.bytes.clear();
            idle.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(buffers: &Buffers, length: usize) -> Bytes {
        let mut buffer = buffers.take(length);
        assert!(buffer.is_empty() && buffer.capacity() >= length);
        buffer.resize(length, 7);
        buffers.share(buffer)
    }

    #[test]
    fn a_large_buffer_comes_back_with_its_last_slice() {
        let buffers = Buffers::new(1, 1 << 20);
        let bytes = filled(&buffers, 100_000);
        let slice = bytes.slice(10..20);
        drop(bytes);
        assert_eq!(buffers.idle.lock().len(), 0);
        assert_eq!(slice, [7; 10][..]);
        drop(slice);
        assert_eq!(buffers.idle.lock().len(), 1);
        let (one, other) = (filled(&buffers, 100_000), filled(&buffers, 200_000));
        assert_eq!(buffers.idle.lock().len(), 0);
        drop((one, other));
        assert_eq!(buffers.idle.lock().len(), 1, "no more than it may keep");
    }

    #[test]
    fn what_is_small_or_very_large_is_not_kept() {
        let buffers = Buffers::new(4, 1 << 20);
        for length in [0, 1, 60_000, (1 << 20) + 1] {
            drop(filled(&buffers, length));
            assert_eq!(buffers.idle.lock().len(), 0, "{length}");
        }
    }
}
