//! What a disk has after the power was lost: what a process did to its files, done again to a disk that forgets what was
//! not synced.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use alluvium_env::sim::SimDisk;
use alluvium_env::{Disk as _, DiskFile, OpenMode};
use anyhow::{Context as _, Result, ensure};

use super::trace::Op;

/// Zeros that are not copied, in pieces of this size: files are longer than what is in them.
const PIECE_BYTES: usize = 64 * 1024;

/// A disk, and the files that the process has open on it.
pub(super) struct Replay {
    pub(super) disk: SimDisk,
    files: HashMap<i32, Open>,
    /// Syncs of paths with this are left out, to see that it is noticed.
    unsynced: Option<&'static str>,
}

struct Open {
    file: Arc<dyn DiskFile>,
    appends: bool,
    /// Where the next write goes that says no place, as long as that is known: reads move it, too.
    at: Option<u64>,
}

impl Replay {
    /// An empty disk, but for a directory. What survives follows from the seed.
    pub(super) fn new(parent: &Path, seed: u64, unsynced: Option<&'static str>) -> Result<Self> {
        let disk = SimDisk::new(seed);
        disk.create_dir_all(parent)?;
        Ok(Self { disk, files: HashMap::new(), unsynced })
    }

    /// The process has ended, and the machine has not.
    pub(super) fn end(&mut self) {
        self.files.clear();
        self.disk.kill();
    }

    /// The power goes while this is done.
    pub(super) fn lose_power(&mut self, op: &Op) {
        self.disk.crash_at(self.disk.operations());
        // It fails, unless nothing on the disk changes by it.
        drop(self.apply(op));
        self.files.clear();
        self.disk.restart();
    }

    pub(super) fn apply(&mut self, op: &Op) -> Result<()> {
        self.attempt(op).with_context(|| format!("{} {:?} again", op.name(), op.path()))
    }

    fn attempt(&mut self, op: &Op) -> Result<()> {
        match op {
            Op::MakeDir(path) => self.disk.create_dir_all(path)?,
            Op::Open { file, path, appends, empties } => {
                let open = match self.disk.open(path, OpenMode::ReadWrite) {
                    Err(error) if error.kind() == io::ErrorKind::IsADirectory => return Ok(()),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        self.disk.open(path, OpenMode::CreateNew)?
                    }
                    open => open?,
                };
                if *empties {
                    open.truncate(0)?;
                }
                let at = open.is_empty()?.then_some(0);
                self.files.insert(*file, Open { file: open, appends: *appends, at });
            }
            Op::Write { file, at, data, .. } => {
                let open = self.files.get_mut(file).context("an open file")?;
                let place = match at {
                    Some(at) => *at,
                    None if open.appends => open.file.len()?,
                    None => open.at.context("a known place")?,
                };
                open.file.write_all_at(&[data], place)?;
                if at.is_none() {
                    open.at = Some(place + data.len() as u64);
                }
            }
            Op::Resize { file, len, .. } => {
                let open = &self.files.get(file).context("an open file")?.file;
                if *len > open.len()? {
                    open.write_all_at(&[&[0]], len - 1)?;
                } else {
                    open.truncate(*len)?;
                }
            }
            Op::Seek { file, at } => {
                // Of directories there is nothing to know.
                if let Some(open) = self.files.get_mut(file) {
                    open.at = Some(*at);
                }
            }
            Op::Sync { path, .. }
                if self.unsynced.is_some_and(|part| path.display().to_string().contains(part)) => {}
            Op::Sync { file, path } => {
                if self.disk.list(path).is_ok() {
                    self.disk.sync_dir(path)?;
                } else {
                    self.files.get(file).context("an open file")?.file.sync_all()?;
                }
            }
            Op::Rename { from, to } => self.disk.rename(from, to)?,
            Op::Remove(path) => self.disk.remove(path)?,
        }
        Ok(())
    }

    /// Puts a file on the disk, durably.
    pub(super) fn import(&self, path: &Path) -> Result<()> {
        let file = self.disk.open(path, OpenMode::CreateNew)?;
        file.write_all_at(&[&fs::read(path)?], 0)?;
        file.sync_all()?;
        Ok(self.disk.sync_dir(path.parent().context("a directory")?)?)
    }

    /// Copies what is below a directory of the disk into a new directory of the machine.
    pub(super) fn export(&self, from: &Path, to: &Path) -> Result<()> {
        if !self.disk.exists(from)? {
            return Ok(());
        }
        fs::create_dir_all(to)?;
        for name in self.disk.list(from)? {
            let (from, to) = (from.join(&name), to.join(&name));
            match self.disk.open(&from, OpenMode::Read) {
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => self.export(&from, &to)?,
                file => copy(&*file?, &to)?,
            }
        }
        Ok(())
    }
}

fn copy(from: &dyn DiskFile, to: &Path) -> Result<()> {
    let (to, len) = (File::create_new(to)?, from.len()?);
    to.set_len(len)?;
    let mut bytes = vec![0; usize::try_from(len)?];
    from.read_exact_at(&mut bytes, 0)?;
    let zeros = vec![0; PIECE_BYTES];
    for (number, piece) in
        bytes.chunks(PIECE_BYTES).enumerate().filter(|(_, piece)| **piece != zeros[..piece.len()])
    {
        to.write_all_at(piece, (number * PIECE_BYTES) as u64)?;
    }
    ensure!(to.metadata()?.len() == len, "a file of {len} bytes");
    Ok(())
}
