//! A disk that can be made to stand still: whoever syncs waits.

use std::io;
use std::path::Path;
use std::sync::Arc;

use alluvium_env::sim::SimDisk;
use alluvium_env::{Disk, DiskFile, DiskLock, OpenMode};
use parking_lot::{Condvar, Mutex};

/// Whether it stands.
#[derive(Debug, Default)]
pub struct Stall {
    stands: Mutex<bool>,
    changed: Condvar,
}

impl Stall {
    /// Lets it stand still, or go on.
    pub fn set(&self, stands: bool) {
        *self.stands.lock() = stands;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut stands = self.stands.lock();
        while *stands {
            self.changed.wait(&mut stands);
        }
    }
}

/// The disk.
#[derive(Debug, Clone)]
pub(crate) struct Stalling {
    pub(crate) disk: SimDisk,
    pub(crate) stall: Arc<Stall>,
}

impl Disk for Stalling {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(StallingFile { file: self.disk.open(path, mode)?, stall: self.stall.clone() }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.stall.wait();
        self.disk.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.disk.lock(path)
    }
}

/// A file of it.
#[derive(Debug)]
struct StallingFile {
    file: Arc<dyn DiskFile>,
    stall: Arc<Stall>,
}

impl DiskFile for StallingFile {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, at)
    }

    fn write_all_at(&self, bufs: &[&[u8]], at: u64) -> io::Result<()> {
        self.file.write_all_at(bufs, at)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.stall.wait();
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.stall.wait();
        self.file.sync_all()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }

    fn fill_zero(&self, len: u64) -> io::Result<()> {
        self.file.fill_zero(len)
    }
}
