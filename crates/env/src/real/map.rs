//! A file seen as memory, for sending and for nothing else.
//!
//! Reading mapped memory can kill the process: a page that the device cannot deliver is a `SIGBUS`. Not so for the
//! kernel: a system call that is given such a page fails with an error. So a map is only ever handed to the
//! socket, after its bytes were checked once by an ordinary read.
#![expect(unsafe_code, reason = "mapping a file and asking what of it is in memory have no safe interface")]

use std::fs::File;
use std::io;
use std::ops::Range;

use bytes::Bytes;
use memmap2::{Advice, Mmap};

/// A whole file as shared memory.
///
/// Its bytes must not be looked at by this process: hand slices of them to a socket.
#[derive(Clone, Debug)]
pub struct FileMap {
    bytes: Bytes,
    map: std::sync::Arc<Mmap>,
}

/// Keeps the map for as long as slices of it exist.
struct Owner(std::sync::Arc<Mmap>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl FileMap {
    /// Maps `file`, which must never change again.
    pub(super) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the slice must not change under a reader. Only finished, immutable files are mapped, the data
        // directory is locked against other processes of ours, and nobody in this process reads the slice.
        let map = std::sync::Arc::new(unsafe { Mmap::map(file)? });
        Ok(Self { bytes: Bytes::from_owner(Owner(map.clone())), map })
    }

    /// The bytes in `range`, to be sent. Panics when the range is not within the file.
    pub fn slice(&self, range: Range<usize>) -> Bytes {
        self.bytes.slice(range)
    }

    /// Whether all of `range` is in the page cache, so that sending it waits for no device.
    pub fn is_resident(&self, range: Range<usize>) -> bool {
        let page = rustix::param::page_size();
        let start = range.start / page * page;
        let Some(part) = self.map.get(start..range.end) else { return false };
        let mut pages = vec![0u8; part.len().div_ceil(page)];
        // SAFETY: the address is page-aligned (a map starts on a page, and `start` is a multiple of its size), the
        // length lies within the map, and the vector has a byte for each page of it.
        let outcome =
            unsafe { libc::mincore(part.as_ptr().cast_mut().cast(), part.len(), pages.as_mut_ptr()) };
        outcome == 0 && pages.iter().all(|state| state & 1 == 1)
    }

    /// Brings `range` into memory. Waits for the device, and reports what it cannot deliver.
    pub fn populate(&self, range: Range<usize>) -> io::Result<()> {
        self.map.advise_range(Advice::PopulateRead, range.start, range.len())
    }
}
