//! The guard: a small file beside a space's database that tells when the database was set back.
//!
//! A database that is restored from an older copy, or whose last commits were lost by its disk, gives positions a second
//! time. So the highest position that was acknowledged is also noted outside the database, every few seconds and on
//! closing. If the database is behind its note when it is opened, the space gets a new token, and with it every client
//! knows at once that its positions are void.
//!
//! What happened within the last seconds before a loss, or to database and guard together, the checks of the protocol
//! find.

use std::io;
use std::path::{Path, PathBuf};

use alluvium_env::{Disk, OpenMode};
use alluvium_feed_protocol::Token;
use serde::{Deserialize, Serialize};

/// Longest guard that is read.
const GUARD_BYTES_MAX: u64 = 4096;

/// The guard, in a space's folder.
pub(crate) const FILE: &str = "guard";

/// What is noted.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Note {
    /// The identity of the history.
    pub(crate) token: Token,
    /// How often that identity was made anew.
    pub(crate) epoch: u64,
    /// The highest position acknowledged.
    pub(crate) position: u64,
}

/// The file.
#[derive(Debug)]
pub(crate) struct Guard {
    path: PathBuf,
    /// What the file says, and since when.
    written: Option<(Note, u64)>,
}

impl Guard {
    /// Reads the guard of a space's folder. One that can't be read counts as missing.
    pub(crate) fn read(disk: &dyn Disk, folder: &Path) -> io::Result<Self> {
        let path = folder.join(FILE);
        let mut written = None;
        if disk.exists(&path)? {
            let file = disk.open(&path, OpenMode::Read)?;
            let length = file.len()?.min(GUARD_BYTES_MAX);
            let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
            file.read_exact_at(&mut bytes, 0)?;
            written = serde_json::from_slice(&bytes).ok().map(|note| (note, 0));
        }
        Ok(Self { path, written })
    }

    /// Whether a database in this state was set back, or comes from elsewhere.
    pub(crate) fn was_set_back(&self, token: &Token, epoch: u64, position: u64) -> bool {
        match &self.written {
            Some((note, _)) => note.token != *token || note.epoch != epoch || note.position > position,
            None => position > 0,
        }
    }

    /// Whether there is no note.
    pub(crate) fn is_missing(&self) -> bool {
        self.written.is_none()
    }

    /// Writes the note if it is older than `interval_ms` and says something else.
    pub(crate) fn refresh(
        &mut self,
        disk: &dyn Disk,
        note: Note,
        now_ms: u64,
        interval_ms: u64,
    ) -> io::Result<()> {
        let is_due = match &self.written {
            Some((written, at_ms)) => *written != note && now_ms.abs_diff(*at_ms) >= interval_ms,
            None => true,
        };
        if !is_due {
            return Ok(());
        }
        let fresh = self.path.with_extension("new");
        if disk.exists(&fresh)? {
            disk.remove(&fresh)?;
        }
        let bytes = serde_json::to_vec(&note).map_err(io::Error::other)?;
        let file = disk.open(&fresh, OpenMode::CreateNew)?;
        file.write_all_at(&[&bytes], 0)?;
        file.sync_all()?;
        disk.rename(&fresh, &self.path)?;
        disk.sync_dir(self.path.parent().unwrap_or(Path::new("")))?;
        self.written = Some((note, now_ms));
        Ok(())
    }
}
