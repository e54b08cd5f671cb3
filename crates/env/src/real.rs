//! The operating system's file system behind the [`Disk`] seam.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, IoSlice};
use std::os::unix::fs::{DirBuilderExt as _, FileExt, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

pub use self::map::FileMap;
use crate::disk::{Disk, DiskFile, DiskLock, OpenMode, Space};

/// Zeros are written in pieces of this size.
const ZERO_PIECE_BYTES: usize = 1024 * 1024;

/// What folders allow: their owner everything and nobody else anything, whatever the mask is. What is in them are people's
/// messages, and keys that sign.
const FOLDER_MODE: u32 = 0o700;

/// Buffers handed to the kernel in one vectored write; Linux takes no more than this (`IOV_MAX`).
const VECTORED_BUFFERS_MAX: usize = 1024;

/// The operating system's file system.
#[derive(Copy, Clone, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        if dir.as_os_str().is_empty() || dir.is_dir() {
            return Ok(());
        }
        let parent = dir.parent().unwrap_or(Path::new(""));
        self.create_dir_all(parent)?;
        match DirBuilder::new().mode(FOLDER_MODE).create(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            other => other?,
        }
        self.sync_dir(parent)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = match mode {
            OpenMode::Read => open_regular(path, OpenOptions::new().read(true))?,
            OpenMode::ReadWrite => open_regular(path, OpenOptions::new().read(true).write(true))?,
            OpenMode::CreateNew => OpenOptions::new().read(true).write(true).create_new(true).open(path)?,
        };
        Ok(Arc::new(RealFile(file)))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = fs::read_dir(dir)?
            .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort_unstable();
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        #[expect(clippy::disallowed_methods, reason = "this is the seam that everyone else goes through")]
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        #[expect(clippy::disallowed_methods, reason = "this is the seam that everyone else goes through")]
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        // The parent of a relative name of one part is the empty path; it means the current directory.
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        OpenOptions::new().read(true).open(dir)?.sync_all()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        let mut options = OpenOptions::new();
        let file = open_regular(path, options.read(true).write(true).create(true).truncate(false))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(RealLock { _file: file }))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn space(&self, path: &Path) -> io::Result<Option<Space>> {
        let disk = rustix::fs::statvfs(path)?;
        // Some file systems have no size.
        Ok((disk.f_blocks > 0).then(|| Space {
            total: disk.f_blocks.saturating_mul(disk.f_frsize),
            free: disk.f_bavail.saturating_mul(disk.f_frsize),
        }))
    }
}

/// Opens a regular file, and never what is none: to open a FIFO waits for its other end, and to open a device may do
/// something. It is looked at before, and again when it is open; what takes the name in between is opened without waiting.
fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return Err(no_regular_file()),
        Ok(_) => {}
        // It may be made now.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = options.custom_flags(nonblocking).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(no_regular_file()) }
}

fn no_regular_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")
}

/// Closing the file releases the lock.
#[derive(Debug)]
struct RealLock {
    _file: File,
}

impl DiskLock for RealLock {}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, at)
    }

    #[cfg(target_os = "linux")]
    fn read_cached_at(&self, buf: &mut [u8], at: u64) -> io::Result<bool> {
        use rustix::io::{Errno, ReadWriteFlags, preadv2};
        let wanted = buf.len();
        match preadv2(&self.0, &mut [io::IoSliceMut::new(buf)], at, ReadWriteFlags::NOWAIT) {
            // A short read means that the rest is not in the page cache, or not in the file; the blocking read tells.
            Ok(count) => Ok(count == wanted),
            Err(Errno::AGAIN | Errno::INTR | Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    #[cfg(target_os = "linux")]
    fn map(&self) -> io::Result<Option<FileMap>> {
        FileMap::new(&self.0).map(Some)
    }

    fn write_all_at(&self, bufs: &[&[u8]], at: u64) -> io::Result<()> {
        if let [single] = bufs {
            return self.0.write_all_at(single, at);
        }
        let mut at = at;
        for group in bufs.chunks(VECTORED_BUFFERS_MAX) {
            let mut slices: Vec<IoSlice<'_>> = group.iter().map(|buf| IoSlice::new(buf)).collect();
            at += write_group_at(&self.0, &mut slices, at)?;
        }
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn write_back(&self, at: u64, len: u64) -> io::Result<()> {
        pace::write_back(&self.0, at, len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn modified_s(&self) -> io::Result<Option<u64>> {
        let modified = self.0.metadata()?.modified()?;
        Ok(modified.duration_since(std::time::UNIX_EPOCH).ok().map(|since| since.as_secs()))
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        if self.len()? > len { self.0.set_len(len) } else { Ok(()) }
    }

    fn fill_zero(&self, len: u64) -> io::Result<()> {
        let zeros = vec![0u8; ZERO_PIECE_BYTES];
        let mut at = 0;
        while at < len {
            let piece = (len - at).min(zeros.len() as u64);
            #[expect(clippy::cast_possible_truncation, reason = "a piece is no longer than the buffer")]
            self.0.write_all_at(&zeros[..piece as usize], at)?;
            // One piece after the other: syncs of other files do not wait behind all of it.
            self.write_back(at, piece)?;
            at += piece;
        }
        // Not promised by the seam, but done here so that the first sync of an append doesn't pay for the fill.
        self.0.sync_all()
    }
}

/// Writes all of `slices` from position `at`, going on after short writes; returns how many bytes that were.
fn write_group_at(file: &File, slices: &mut [IoSlice<'_>], at: u64) -> io::Result<u64> {
    let total: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
    let mut rest = slices;
    let mut written = 0;
    while written < total {
        match rustix::io::pwritev(file, rest, at + written) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                written += count as u64;
                IoSlice::advance_slices(&mut rest, count);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(total)
}

mod map;
#[cfg(target_os = "linux")]
mod pace;
#[cfg(test)]
mod tests;
