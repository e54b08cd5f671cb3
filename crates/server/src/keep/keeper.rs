//! Backups of a running server, one at a time, in one folder.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alluvium_env::{DiskLock, Env};
use alluvium_jetstream_archive::Archive;
use alluvium_streams::Backend;
use parking_lot::Mutex;

use super::backup::{Taken, assemble, copy_store, prepare};
use super::check::read_manifest;
use super::manifest::{Kind, MANIFEST_NAME};
use super::{DATA, FEEDS, KeepFault, jetstream};
use crate::causes::Causes;

/// Longest name of a backup.
const NAME_BYTES_MAX: usize = 64;
/// Held while a backup is taken, so that two servers do not use one folder at once. No backup is called so.
const LOCK: &str = ".lock";

/// What was counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counted {
    /// Backups that were taken.
    pub(crate) taken: u64,
    /// Backups that failed.
    pub(crate) failed: u64,
    /// When the last one was finished, in milliseconds since the Unix epoch; 0 before the first of this process.
    pub(crate) last_ms: u64,
    /// How long it took, in milliseconds.
    pub(crate) last_took_ms: u64,
    /// Its bytes.
    pub(crate) last_bytes: u64,
}

#[derive(Debug, Default)]
struct Counters {
    taken: AtomicU64,
    failed: AtomicU64,
    last_ms: AtomicU64,
    last_took_ms: AtomicU64,
    last_bytes: AtomicU64,
}

/// Takes backups of a running server.
#[derive(Debug)]
pub(crate) struct Keeper {
    env: Env,
    folder: PathBuf,
    source: Source,
    turn: Mutex<()>,
    counters: Counters,
}

/// What is copied.
#[derive(Debug)]
enum Source {
    Server {
        backend: Backend,
        /// The file of a SQLite store.
        store: Option<PathBuf>,
        /// The folder of feeds.
        feeds: PathBuf,
        /// Whether this server serves them. If not, there may be some all the same.
        serves_feeds: bool,
    },
    Jetstream(Archive),
}

impl Keeper {
    /// Backups go to `folder`.
    pub(crate) fn new(
        env: Env,
        folder: PathBuf,
        backend: Backend,
        store: Option<PathBuf>,
        data_dir: &Path,
        serves_feeds: bool,
    ) -> Self {
        let feeds = data_dir.join(FEEDS);
        Self::of(env, folder, Source::Server { backend, store, feeds, serves_feeds })
    }

    /// Backups of the archive of a Jetstream go to `folder`.
    pub(crate) fn of_archive(folder: PathBuf, archive: Archive) -> Self {
        Self::of(archive.env().clone(), folder, Source::Jetstream(archive))
    }

    fn of(env: Env, folder: PathBuf, source: Source) -> Self {
        Self { env, folder, source, turn: Mutex::default(), counters: Counters::default() }
    }

    /// Takes a backup; blocks until it is durable.
    pub(crate) fn take(&self, name: &str) -> Result<(Taken, Duration), KeepFault> {
        if !is_name(name) {
            return Err(KeepFault::Name);
        }
        let _turn = self.turn.try_lock().ok_or(KeepFault::Busy)?;
        let began_us = self.env.clock.now_us();
        let taken = self.locked().and_then(|_lock| self.assemble(name));
        let took = Duration::from_micros(self.env.clock.now_us().saturating_sub(began_us));
        match taken {
            Ok(taken) => {
                tracing::info!(name, files = taken.files, bytes = taken.bytes, ?took, "a backup was taken");
                self.counters.taken.fetch_add(1, Ordering::Relaxed);
                self.counters.last_ms.store(taken.taken_ms, Ordering::Relaxed);
                let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
                self.counters.last_took_ms.store(took_ms, Ordering::Relaxed);
                self.counters.last_bytes.store(taken.bytes, Ordering::Relaxed);
                Ok((taken, took))
            }
            Err(error) => {
                // One that is refused for its name has not failed.
                if !matches!(error, KeepFault::Exists(_) | KeepFault::Busy) {
                    tracing::error!(name, error = %Causes(&error), "a backup failed");
                    self.counters.failed.fetch_add(1, Ordering::Relaxed);
                }
                Err(error)
            }
        }
    }

    fn locked(&self) -> Result<Box<dyn DiskLock>, KeepFault> {
        let path = self.folder.join(LOCK);
        prepare(self.env.disk.as_ref(), &path)?;
        self.env.disk.lock(&path).map_err(KeepFault::disk(&path))?.ok_or(KeepFault::Busy)
    }

    fn assemble(&self, name: &str) -> Result<Taken, KeepFault> {
        let disk = self.env.disk.as_ref();
        let kind = match &self.source {
            Source::Server { .. } => Kind::Server,
            Source::Jetstream(_) => Kind::Jetstream,
        };
        assemble(&self.env, &self.folder.join(name), kind, |partial| {
            let data = partial.join(DATA);
            disk.create_dir_all(&data).map_err(KeepFault::disk(&data))?;
            let (backend, store, feeds, serves_feeds) = match &self.source {
                Source::Server { backend, store, feeds, serves_feeds } => {
                    (backend, store, feeds, *serves_feeds)
                }
                Source::Jetstream(archive) => return jetstream::copy_open(archive, &data),
            };
            let mut linked = 0;
            if let Backend::Engine(engine) = backend {
                linked = engine.backup(&data)?.linked_bytes;
            }
            if let Some(store) = store {
                copy_store(store, partial)?;
            }
            let target = data.join(FEEDS);
            if serves_feeds {
                alluvium_feeds::keep::copy(disk, feeds, &target)?;
            } else if alluvium_feeds::keep::is_of_spaces(disk, feeds)? {
                alluvium_feeds::keep::copy_closed(disk, feeds, &target)?;
            }
            Ok(linked)
        })
    }

    /// The whole backups, by name, and when each was finished.
    pub(crate) fn list(&self) -> Result<Vec<(String, u64)>, KeepFault> {
        let disk = self.env.disk.as_ref();
        if !disk.exists(&self.folder).map_err(KeepFault::disk(&self.folder))? {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for name in disk.list(&self.folder).map_err(KeepFault::disk(&self.folder))? {
            let dir = self.folder.join(&name);
            let manifest = dir.join(MANIFEST_NAME);
            if is_name(&name) && disk.exists(&manifest).unwrap_or(false) {
                let taken_ms = match read_manifest(&self.env, &dir) {
                    Ok(manifest) => manifest.taken_ms,
                    // What is not whole is none.
                    Err(KeepFault::NotWhole { .. }) => continue,
                    Err(error) => return Err(error),
                };
                found.push((name, taken_ms));
            }
        }
        Ok(found)
    }

    pub(crate) fn counted(&self) -> Counted {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counted {
            taken: of(&self.counters.taken),
            failed: of(&self.counters.failed),
            last_ms: of(&self.counters.last_ms),
            last_took_ms: of(&self.counters.last_took_ms),
            last_bytes: of(&self.counters.last_bytes),
        }
    }
}

/// Whether a backup may be called so: by what is a name of a folder everywhere, and leads nowhere else.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_plain)
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && !name.ends_with(".partial")
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn a_name_leads_to_a_folder_of_backups_and_nowhere_else() {
        for good in ["a", "2026-11-30", "daily_1.2", &"x".repeat(64)] {
            assert!(is_name(good), "{good}");
        }
        for bad in
            ["", ".", "..", ".lock", "a/b", "../a", "a\\b", "a b", "-a", "ä", "a.partial", &"x".repeat(65)]
        {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
