//! Copies and checks of a folder of spaces.
//!
//! A copy has no guards, and its spaces have no tokens: whoever opens it gives them new ones, so that clients notice that
//! positions may mean other blocks than before, and heal.

use std::io;
use std::path::{Path, PathBuf};

use alluvium_env::{Disk, DiskLock, Finding, FindingKind, OpenMode};
use alluvium_feed_store::keep::{self, LogEnd, beside, log_end};
use alluvium_feed_store::{StoreError, spaces};

use crate::ground::{DATABASE, is_folder_name, name_of_folder};
use crate::guard::{self, Guard};
use crate::identity;

/// The lock of a folder of spaces.
pub(crate) const LOCK: &str = "lock";
/// What SQLite may keep beside a database.
const COMPANIONS: [&str; 2] = ["-wal", "-shm"];

/// Why a folder was not copied, or not looked at.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// Another process has it open.
    #[error("another process uses the folder of feeds `{}`", _0.display())]
    Locked(PathBuf),
    /// The disk.
    #[error("cannot use `{}`: {source}", path.display())]
    Disk {
        /// The file or folder.
        path: PathBuf,
        /// What the disk says.
        source: io::Error,
    },
    /// A database.
    #[error("`{}`: {source}", path.display())]
    Store {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        source: StoreError,
    },
}

/// How much a check has looked at.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Checked {
    /// Spaces.
    pub spaces: u64,
    /// Feeds.
    pub feeds: u64,
    /// Blocks.
    pub blocks: u64,
    /// Bytes of their data.
    pub data_bytes: u64,
}

fn disk_error(path: &Path) -> impl FnOnce(io::Error) -> KeepError {
    let path = path.to_owned();
    move |source| KeepError::Disk { path, source }
}

fn unread(file: &Path, error: &io::Error) -> Finding {
    Finding::new(file, None, format!("can't read it: {error}"), FindingKind::Unread)
}

/// Locks a folder that is there, without making anything: one without a lock file nobody has open.
fn lock(disk: &dyn Disk, folder: &Path) -> Result<Option<Box<dyn DiskLock>>, KeepError> {
    let path = folder.join(LOCK);
    if !disk.exists(&path).map_err(disk_error(&path))? {
        return Ok(None);
    }
    match disk.lock(&path) {
        Ok(None) => Err(KeepError::Locked(folder.to_owned())),
        Ok(lock) => Ok(lock),
        // Nobody can have it open on a disk that takes no writes.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(disk_error(&path)(error)),
    }
}

/// The folders of spaces.
fn space_folders(disk: &dyn Disk, folder: &Path) -> Result<Vec<PathBuf>, KeepError> {
    let names = disk.list(folder).map_err(disk_error(folder))?;
    Ok(names.into_iter().filter(|name| is_folder_name(name)).map(|name| folder.join(name)).collect())
}

/// Whether a folder is one of spaces: by its lock, or where that is gone by what else is in it.
pub fn is_of_spaces(disk: &dyn Disk, folder: &Path) -> Result<bool, KeepError> {
    if !disk.exists(folder).map_err(disk_error(folder))? {
        return Ok(false);
    }
    let names = disk.list(folder).map_err(disk_error(folder))?;
    Ok(names.iter().any(|name| name == LOCK || name == identity::FILE || is_folder_name(name)))
}

/// Copies every space of a folder that nobody has open into `target`, which is made, as [`copy`] does.
pub fn copy_closed(disk: &dyn Disk, folder: &Path, target: &Path) -> Result<u64, KeepError> {
    let _lock = lock(disk, folder)?;
    copy(disk, folder, target)
}

/// As [`copy_closed`], but a space that can't be copied is told to `report` and left out.
pub fn copy_whole(
    disk: &dyn Disk,
    folder: &Path,
    target: &Path,
    report: &mut dyn FnMut(Finding),
) -> Result<u64, KeepError> {
    let _lock = lock(disk, folder)?;
    copy_spaces(disk, folder, target, &mut |space, error| {
        report(Finding::fault(space, None, format!("it can't be copied: {error}")));
        Ok(())
    })
}

/// Copies every space of a folder into `target`, which is made, while its authority goes on: each as of one moment
/// between beginning and end of this. Not durable yet; how many there are.
pub fn copy(disk: &dyn Disk, folder: &Path, target: &Path) -> Result<u64, KeepError> {
    copy_spaces(disk, folder, target, &mut |_, error| Err(error))
}

/// Copies spaces; `failed` decides whether it goes on without one.
fn copy_spaces(
    disk: &dyn Disk,
    folder: &Path,
    target: &Path,
    failed: &mut dyn FnMut(&Path, KeepError) -> Result<(), KeepError>,
) -> Result<u64, KeepError> {
    disk.create_dir_all(target).map_err(disk_error(target))?;
    let mut copied = 0;
    for space in space_folders(disk, folder)? {
        match copy_space(disk, &space, &target.join(space.file_name().unwrap_or_default())) {
            Ok(is_there) => copied += u64::from(is_there),
            Err(error) => failed(&space, error)?,
        }
    }
    // By this a folder is known as one of feeds.
    let mark = target.join(LOCK);
    disk.open(&mark, OpenMode::CreateNew).map_err(disk_error(&mark))?;
    Ok(copied)
}

/// Copies one space; whether there was anything to copy.
fn copy_space(disk: &dyn Disk, space: &Path, target: &Path) -> Result<bool, KeepError> {
    let (from, to) = (space.join(DATABASE), target.join(DATABASE));
    if !disk.exists(&from).map_err(disk_error(&from))? {
        return Ok(false);
    }
    disk.create_dir_all(target).map_err(disk_error(target))?;
    keep::copy(&from, &to).map_err(|source| {
        // What there is of it is no copy. What can't be removed is found by whoever checks the copy.
        drop(disk.remove(&to));
        KeepError::Store { path: from, source }
    })
}

/// Checks a folder of spaces that nobody has open. Nothing is changed.
pub fn check(disk: &dyn Disk, folder: &Path, report: &mut dyn FnMut(Finding)) -> Result<Checked, KeepError> {
    let _lock = lock(disk, folder)?;
    let mut checked = Checked::default();
    let name = folder.join(identity::FILE);
    match identity::is_damaged(folder, disk) {
        Ok(false) => {}
        Ok(true) => report(Finding::fault(&name, None, "no name of a server is in it")),
        Err(error) => report(unread(&name, &error)),
    }
    for name in disk.list(folder).map_err(disk_error(folder))? {
        if name == identity::FRESH {
            report(Finding::of_a_crash(&folder.join(name), None, "nothing refers to it"));
        } else if ![LOCK, identity::FILE].contains(&name.as_str()) && !is_folder_name(&name) {
            report(Finding::stray(&folder.join(name)));
        }
    }
    let mut older = Older::default();
    for space in space_folders(disk, folder)? {
        check_space(disk, &space, (&mut checked, &mut older), report)?;
    }
    older.tell(folder, report);
    Ok(checked)
}

/// Spaces of older schema versions that a check came by.
#[derive(Debug, Default)]
struct Older {
    spaces: u64,
    /// The oldest version.
    version: i64,
}

impl Older {
    fn note(&mut self, version: i64) {
        self.version = if self.spaces == 0 { version } else { self.version.min(version) };
        self.spaces += 1;
    }

    /// Tells of them once, however many they are.
    fn tell(&self, folder: &Path, report: &mut dyn FnMut(Finding)) {
        let Self { spaces, version } = self;
        if *spaces > 0 {
            let known = alluvium_feed_store::known_version();
            let what = format!(
                "the databases of {spaces} spaces have an older schema, the oldest version {version}; this program \
                 writes version {known}. What the older ones do not have, as checks of single rows, was not compared"
            );
            report(Finding::of_a_crash(folder, None, what));
        }
    }
}

fn check_space(
    disk: &dyn Disk,
    folder: &Path,
    (checked, older): (&mut Checked, &mut Older),
    report: &mut dyn FnMut(Finding),
) -> Result<(), KeepError> {
    let file = folder.join(DATABASE);
    let names = match disk.list(folder) {
        Ok(names) => names,
        Err(error) => {
            report(unread(folder, &error));
            return Ok(());
        }
    };
    for name in &names {
        let is_companion = COMPANIONS.iter().any(|suffix| name.strip_suffix(suffix) == Some(DATABASE));
        if name != DATABASE && name != guard::FILE && !is_companion {
            report(Finding::stray(&folder.join(name)));
        }
    }
    if !names.iter().any(|name| name == DATABASE) {
        if names.iter().any(|name| name == guard::FILE) {
            report(Finding::fault(&file, None, "the database is missing, and its guard is there"));
        }
        return Ok(());
    }
    check_log(disk, &file, report)?;
    let mut tell = |what: String| {
        // What was cut off before anything was acknowledged.
        let is_fault = what != keep::NO_TABLES || names.iter().any(|name| name == guard::FILE);
        report(if is_fault {
            Finding::fault(&file, None, what)
        } else {
            Finding::of_a_crash(&file, None, what)
        });
    };
    let found = keep::check(&file, &mut tell);
    let found = found.map_err(|source| KeepError::Store { path: file.clone(), source })?;
    if let Some(version) = found.older {
        older.note(version);
    }
    checked.spaces += 1;
    checked.feeds += found.feeds;
    checked.blocks += found.blocks;
    checked.data_bytes += found.data_bytes;
    if let [space] = &found.spaces[..] {
        check_guard(disk, folder, space, report)?;
    } else if !found.spaces.is_empty() {
        report(Finding::fault(&file, None, "it has more than one space"));
    }
    Ok(())
}

/// Checks the write-ahead log of a database, if there is one.
pub fn check_log(disk: &dyn Disk, file: &Path, report: &mut dyn FnMut(Finding)) -> Result<(), KeepError> {
    let log = beside(file, "-wal");
    if !disk.exists(&log).map_err(disk_error(&log))? {
        return Ok(());
    }
    let end = disk.open(&log, OpenMode::Read).and_then(|open| log_end(open.as_ref()));
    let end = match end {
        Ok(end) => end,
        Err(error) => {
            report(unread(&log, &error));
            return Ok(());
        }
    };
    match end {
        LogEnd::Whole => {}
        LogEnd::Torn(at) => {
            report(Finding::of_a_crash(&log, Some(at), "the log ends in an interrupted write"));
        }
        LogEnd::Damaged(at) => {
            let what = "the log is damaged, and there are whole transactions behind it";
            report(Finding::fault(&log, Some(at), what));
        }
    }
    Ok(())
}

/// Compares a space with the name of its folder and with its guard.
fn check_guard(
    disk: &dyn Disk,
    folder: &Path,
    space: &spaces::Space,
    report: &mut dyn FnMut(Finding),
) -> Result<(), KeepError> {
    let name = name_of_folder(&space.id);
    if folder.file_name().is_none_or(|found| found != name.as_str()) {
        let what = format!("the space in it is `{}`, whose folder is called `{name}`", space.id);
        report(Finding::fault(&folder.join(DATABASE), None, what));
    }
    let file = folder.join(guard::FILE);
    if !disk.exists(&file).map_err(disk_error(&file))? {
        // As in a copy: the space gets a new token when it is opened.
        return Ok(());
    }
    let guard = match Guard::read(disk, folder) {
        Ok(guard) => guard,
        Err(error) => {
            report(unread(&file, &error));
            return Ok(());
        }
    };
    let is_behind = match &space.token {
        Some(token) => guard.was_set_back(token, space.epoch, space.max_position()),
        None => false,
    };
    let what = if guard.is_missing() {
        "the guard does not read"
    } else if is_behind {
        "the database was set back: its guard knows of a later position, or of another token"
    } else {
        return Ok(());
    };
    report(Finding::fault(&file, None, what));
    Ok(())
}
