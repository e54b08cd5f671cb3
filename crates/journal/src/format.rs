//! The mark of a data directory: what wrote it, in which version, and how it is cut.
//!
//! The file `FORMAT` is text, for people who wonder what a directory is. It is written last when a directory is made,
//! so that a directory with the mark is whole. The bytes are drawn in `docs/formats/data-directory.md`.

use std::io;
use std::path::{Path, PathBuf};

use alluvium_env::{Disk, DiskLock, Env, OpenMode};
use thiserror::Error;

use crate::error::{Damage, IoFault, io_fault};
use crate::identity::DirectoryId;
use crate::layout::Layout;
use crate::names::shard_name;
use crate::replace::{read_file, replace_file};

/// The version of the formats that this code writes, and the only one that it reads.
pub const FORMAT_VERSION: u32 = 1;

/// The name of the mark.
pub const FORMAT_NAME: &str = "FORMAT";

/// The name of the lock file.
pub const LOCK_NAME: &str = "LOCK";

/// The folder that the shards are in.
pub const STREAMS_NAME: &str = "streams";

/// What can be in a directory that was never marked: traces of a start that was cut off.
const UNMARKED_NAMES: [&str; 3] = [LOCK_NAME, "FORMAT.tmp", STREAMS_NAME];

/// The folder of feeds, which is there alone while streams are kept elsewhere, and the file in it by which it is known:
/// anybody may call a folder so.
const FEEDS_NAMES: (&str, &str) = ("feeds", "lock");

const FIRST_LINE: &str = "alluvium data directory";

/// Why a directory can't be used.
#[derive(Debug, Error)]
pub enum FormatError {
    /// Another process has it open.
    #[error("`{}` is in use by another process", dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// There is something in it, but not the mark of a data directory.
    #[error("`{}` is not empty and not a data directory of Alluvium", dir.display())]
    Foreign {
        /// The directory.
        dir: PathBuf,
    },
    /// Another version wrote it.
    #[error("`{}` has format version {version}; this program knows version {FORMAT_VERSION}", dir.display())]
    Version {
        /// The directory.
        dir: PathBuf,
        /// The version it has.
        version: u32,
    },
    /// The file isn't what was written.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The system failed an operation.
    #[error(transparent)]
    Io(#[from] IoFault),
}

/// Why the bytes of a `FORMAT` file are none.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Error)]
pub enum InvalidFormat {
    /// Another version wrote it.
    #[error("the format version is {0}")]
    Version(u32),
    /// A check failed.
    #[error("{0}")]
    Damaged(&'static str),
}

/// What the file `FORMAT` says.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Format {
    /// A random number that names the directory.
    pub directory: u128,
    /// How many shards it has; never changes.
    pub shards: u16,
    /// The size of a segment in bytes; never changes.
    pub segment_bytes: u32,
}

impl Format {
    /// The content of the file.
    pub fn encode(&self) -> String {
        let Self { directory, shards, segment_bytes } = self;
        let facts = format!(
            "{FIRST_LINE}\nversion {FORMAT_VERSION}\ndirectory {directory:032x}\nshards {shards}\nsegment-bytes {segment_bytes}\n"
        );
        let crc = crc32c::crc32c(facts.as_bytes());
        format!("{facts}checksum {crc:08x}\n")
    }

    /// Writes the mark of `dir`, durably: from then on it counts.
    pub fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<(), IoFault> {
        replace_file(disk, dir, FORMAT_NAME, self.encode().as_bytes())
    }

    /// The folder of a shard of the data directory `dir`.
    pub fn shard_dir(dir: &Path, shard: u16) -> PathBuf {
        dir.join(STREAMS_NAME).join(shard_name(shard))
    }

    /// What the content of the file says.
    pub fn decode(bytes: &[u8]) -> Result<Self, InvalidFormat> {
        const MALFORMED: InvalidFormat = InvalidFormat::Damaged(
            "it is not the mark of a data directory, which begins with the line `alluvium data directory`",
        );
        let text = std::str::from_utf8(bytes).map_err(|_| MALFORMED)?;
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(MALFORMED);
        }
        let mut value = |key| lines.next()?.strip_prefix(key)?.strip_prefix(' ');
        let version = value("version").and_then(|text| text.parse().ok()).ok_or(MALFORMED)?;
        if version != FORMAT_VERSION {
            return Err(InvalidFormat::Version(version));
        }
        let format = Self {
            directory: value("directory")
                .and_then(|text| u128::from_str_radix(text, 16).ok())
                .ok_or(MALFORMED)?,
            shards: value("shards").and_then(|text| text.parse().ok()).ok_or(MALFORMED)?,
            segment_bytes: value("segment-bytes").and_then(|text| text.parse().ok()).ok_or(MALFORMED)?,
        };
        // There is one way to write it down, so this checks everything at once.
        if format.encode() == text {
            Ok(format)
        } else {
            Err(InvalidFormat::Damaged("its checksum doesn't match"))
        }
    }
}

/// A directory without a mark holds only what this program makes before it sets one, or without ever setting one.
fn check_not_foreign(disk: &dyn Disk, dir: &Path) -> Result<(), FormatError> {
    let names = disk.list(dir).map_err(io_fault("list", dir))?;
    let (feeds, mark) = FEEDS_NAMES;
    let has_mark = disk.exists(&dir.join(feeds).join(mark)).map_err(io_fault("look into", dir))?;
    let is_ours = |name: &String| UNMARKED_NAMES.contains(&name.as_str()) || (has_mark && name == feeds);
    if names.iter().any(|name| name == FORMAT_NAME) || names.iter().all(is_ours) {
        Ok(())
    } else {
        Err(FormatError::Foreign { dir: dir.to_owned() })
    }
}

pub(crate) fn refusal(dir: &Path, invalid: InvalidFormat) -> FormatError {
    match invalid {
        InvalidFormat::Version(version) => FormatError::Version { dir: dir.to_owned(), version },
        InvalidFormat::Damaged(reason) => Damage { file: dir.join(FORMAT_NAME), at: 0, reason }.into(),
    }
}

fn is_unwritable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}

/// A data directory, locked for this process until it is dropped.
#[derive(Debug)]
pub struct DataDirectory {
    env: Env,
    dir: PathBuf,
    format: Option<Format>,
    /// What its number will be if it has no mark yet: its files say whose they are before that is written.
    drawn: u128,
    _lock: Option<Box<dyn DiskLock>>,
}

impl DataDirectory {
    /// Locks `dir`, creating it when missing, and reads its format.
    ///
    /// When there is none yet, [`DataDirectory::format`] is `None`: create the shards, then call
    /// [`DataDirectory::mark`], which makes the directory count. A crash before that leaves a directory that is
    /// still unmarked.
    pub fn open(env: &Env, dir: &Path) -> Result<Self, FormatError> {
        let disk = env.disk.as_ref();
        disk.create_dir_all(dir).map_err(io_fault("create", dir))?;
        // Looked at before the lock too, so that not even its file is left among somebody else's.
        check_not_foreign(disk, dir)?;
        let lock_path = dir.join(LOCK_NAME);
        let lock = disk.lock(&lock_path).map_err(io_fault("lock", &lock_path))?;
        let lock = lock.ok_or_else(|| FormatError::Locked { dir: dir.to_owned() })?;
        let mut directory =
            Self { env: env.clone(), dir: dir.to_owned(), format: None, drawn: 0, _lock: Some(lock) };
        if let Some(bytes) = read_file(disk, dir, FORMAT_NAME)? {
            let format = Format::decode(&bytes).map_err(|invalid| refusal(dir, invalid))?;
            // A process may have died before the name was durable; without it, all data would look foreign.
            // Synced in place, not written again: a full disk must still start.
            directory.settle()?;
            directory.format = Some(format);
        } else {
            check_not_foreign(disk, dir)?;
            directory.drawn = env.random.next_u128();
        }
        Ok(directory)
    }

    /// Locks `dir` to look at it, and finds out how it is cut; nothing is changed. Where there is no lock file, or none
    /// can be made, as on a disk that takes no writes, nobody can have it open either.
    ///
    /// A mark that is missing or damaged is told in [`Layout::format`], and the rest is then what segments say.
    ///
    /// [`FormatError::Foreign`] when there is neither a mark nor data.
    pub fn look(env: &Env, dir: &Path) -> Result<(Self, Layout), FormatError> {
        let disk = env.disk.as_ref();
        let lock_path = dir.join(LOCK_NAME);
        let lock = if disk.exists(&lock_path).map_err(io_fault("look for", &lock_path))? {
            match disk.lock(&lock_path) {
                Ok(None) => return Err(FormatError::Locked { dir: dir.to_owned() }),
                Ok(lock) => lock,
                Err(error) if is_unwritable(&error) => None,
                Err(error) => return Err(io_fault("lock", &lock_path)(error).into()),
            }
        } else {
            None
        };
        let layout = Layout::of(disk, dir)?;
        let format = layout.format.as_ref().ok().copied();
        let directory = Self { env: env.clone(), dir: dir.to_owned(), format, drawn: 0, _lock: lock };
        Ok((directory, layout))
    }

    /// The format, once there is one.
    pub fn format(&self) -> Option<&Format> {
        self.format.as_ref()
    }

    /// What its files say of it; `None` as in [`DirectoryId::of`].
    pub fn id(&self) -> Option<DirectoryId> {
        DirectoryId::of(self.format.map_or(self.drawn, |format| format.directory))
    }

    /// The folder of a shard. The caller creates it.
    pub fn shard_dir(&self, shard: u16) -> PathBuf {
        Format::shard_dir(&self.dir, shard)
    }

    /// Writes the format, durably.
    pub fn mark(&mut self, shards: u16, segment_bytes: u32) -> Result<Format, FormatError> {
        self.write(Format { directory: self.drawn, shards, segment_bytes })
    }

    /// Makes the file that is there durable, name and content.
    fn settle(&self) -> Result<(), FormatError> {
        let (disk, path) = (self.env.disk.as_ref(), self.dir.join(FORMAT_NAME));
        let file = disk.open(&path, OpenMode::ReadWrite).map_err(io_fault("open", &path))?;
        file.sync_all().map_err(io_fault("sync", &path))?;
        disk.sync_dir(&self.dir).map_err(io_fault("sync", &self.dir))?;
        Ok(())
    }

    fn write(&mut self, format: Format) -> Result<Format, FormatError> {
        format.write(self.env.disk.as_ref(), &self.dir)?;
        self.format = Some(format);
        Ok(format)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use alluvium_env::sim::{ManualClock, SeededRandom, SimDisk};

    use super::*;

    fn sim_env() -> Env {
        Env {
            clock: Arc::new(ManualClock::new(0)),
            random: Arc::new(SeededRandom::new(1)),
            disk: Arc::new(SimDisk::new(1)),
        }
    }

    #[test]
    fn a_marked_directory_keeps_its_format() {
        let env = sim_env();
        let dir = Path::new("/data");
        let mut directory = DataDirectory::open(&env, dir).expect("a new directory");
        assert_eq!(directory.format(), None);
        let format = directory.mark(4, 1 << 20).expect("a mark");
        drop(directory);
        let directory = DataDirectory::open(&env, dir).expect("a marked directory");
        assert_eq!(directory.format(), Some(&format));
    }

    #[test]
    fn two_processes_cannot_share_a_directory() {
        let env = sim_env();
        let _first = DataDirectory::open(&env, Path::new("/data")).expect("a new directory");
        let second = DataDirectory::open(&env, Path::new("/data"));
        assert!(matches!(second, Err(FormatError::Locked { .. })), "{second:?}");
    }

    #[test]
    fn a_directory_with_other_files_is_left_alone() {
        let env = sim_env();
        let dir = Path::new("/home");
        env.disk.create_dir_all(dir).expect("a directory");
        env.disk.open(&dir.join("thesis.tex"), OpenMode::CreateNew).expect("a file");
        let opened = DataDirectory::open(&env, dir);
        assert!(matches!(opened, Err(FormatError::Foreign { .. })), "{opened:?}");
    }

    #[test]
    fn a_directory_that_had_only_feeds_becomes_a_data_directory_and_a_folder_of_that_name_does_not() {
        let env = sim_env();
        let (ours, theirs) = (Path::new("/data"), Path::new("/home"));
        for dir in [ours, theirs] {
            env.disk.create_dir_all(&dir.join("feeds")).expect("a directory");
        }
        env.disk.open(&ours.join("feeds/lock"), OpenMode::CreateNew).expect("a file");
        env.disk.open(&theirs.join("feeds/rss.xml"), OpenMode::CreateNew).expect("a file");
        let mut directory = DataDirectory::open(&env, ours).expect("a data directory");
        directory.mark(2, 1 << 20).expect("a mark");
        let opened = DataDirectory::open(&env, theirs);
        assert!(matches!(opened, Err(FormatError::Foreign { .. })), "{opened:?}");
        env.disk.open(&ours.join("thesis.tex"), OpenMode::CreateNew).expect("a file");
        drop(directory);
        assert!(DataDirectory::open(&env, ours).is_ok(), "what is marked may have other files");
    }

    #[test]
    fn a_newer_version_is_told_from_damage() {
        let format = Format { directory: 7, shards: 2, segment_bytes: 1 << 26 };
        let newer = format.encode().replace("version 1\n", "version 2\nsomething new\n");
        assert_eq!(Format::decode(newer.as_bytes()), Err(InvalidFormat::Version(2)));
        let bytes = format.encode().into_bytes();
        for len in 0..bytes.len() {
            assert!(Format::decode(&bytes[..len]).is_err(), "cut to {len}");
        }
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Format::decode(&flipped).is_err(), "bit {bit}");
        }
    }
}
