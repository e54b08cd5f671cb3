//! Writing to the device in steps, so that a long file does not stand in the way of a short sync.
#![expect(unsafe_code, reason = "starting and awaiting the write-back of a range has no safe interface")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Writes the dirty pages of a range and waits for them; metadata and the device's cache are left alone.
pub(super) fn write_back(file: &File, at: u64, len: u64) -> io::Result<()> {
    let too_far = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let (at, len) = (i64::try_from(at).map_err(too_far)?, i64::try_from(len).map_err(too_far)?);
    let flags =
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    loop {
        // SAFETY: the descriptor is open for as long as `file` is borrowed, and no memory is handed over.
        let outcome = unsafe { libc::sync_file_range(file.as_raw_fd(), at, len, flags) };
        if outcome == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            // A file system without it: the sync that follows does all of the work.
            Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::ESPIPE) => return Ok(()),
            _ => return Err(error),
        }
    }
}
