//! What a folder is, and what lies in it that nobody can be meant to read.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use alluvium_env::{Disk, Finding};
use alluvium_journal::format::{FORMAT_NAME, LOCK_NAME, STREAMS_NAME};

use super::{FEEDS, JETSTREAM, KeepFault, MANIFEST_NAME};

/// How deep folders of a data directory lie at most. Links may lead in circles.
const DEPTH_MAX: u32 = 8;

/// What a folder is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Folder {
    /// The data directory of a server. Without streams, if they are kept elsewhere.
    Server { has_streams: bool, has_feeds: bool },
    /// That of a Jetstream.
    Jetstream,
    /// A backup.
    Backup,
}

impl Folder {
    /// What `dir` is, by what is in it.
    pub(super) fn of(disk: &dyn Disk, dir: &Path) -> Result<Self, KeepFault> {
        let has = |name: &str| {
            let path = dir.join(name);
            disk.exists(&path).map_err(KeepFault::disk(&path))
        };
        if has(MANIFEST_NAME)? {
            return Ok(Self::Backup);
        }
        let has_feeds = alluvium_feeds::keep::is_of_spaces(disk, &dir.join(FEEDS))?;
        // Where only the version is missing there are streams all the same, and whoever looks at them will miss it.
        let has_streams = has(FORMAT_NAME)? || has(STREAMS_NAME)?;
        if has_streams || has_feeds {
            return Ok(Self::Server { has_streams, has_feeds });
        }
        if has(JETSTREAM.0)? && has(JETSTREAM.1)? {
            return Ok(Self::Jetstream);
        }
        Err(KeepFault::Foreign(dir.to_owned()))
    }
}

/// Tells of everything below a folder that is neither a file nor a folder: nothing of ours is that, and nothing of ours
/// opens it.
pub(super) fn tell_of_special(dir: &Path, report: &mut dyn FnMut(Finding)) {
    let mut next = vec![(dir.to_owned(), 0)];
    while let Some((folder, depth)) = next.pop() {
        // What cannot be listed is told of by whoever reads what is in it.
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            // Links count as what they lead to; one that leads nowhere is a file that is missing.
            let Ok(metadata) = fs::metadata(&path) else { continue };
            let kind = metadata.file_type();
            if kind.is_dir() && depth < DEPTH_MAX {
                next.push((path, depth + 1));
            } else if !kind.is_dir() && !kind.is_file() {
                report(Finding::fault(&path, None, format!("it is no regular file but {}", special(kind))));
            }
        }
    }
}

fn special(kind: fs::FileType) -> &'static str {
    match () {
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }
}

/// Tells of what lies in the data directory of a Jetstream beside what is ours.
pub(super) fn tell_of_strays_of_jetstream(
    disk: &dyn Disk,
    dir: &Path,
    report: &mut dyn FnMut(Finding),
) -> Result<(), KeepFault> {
    for name in disk.list(dir).map_err(KeepFault::disk(dir))? {
        if ![JETSTREAM.0, JETSTREAM.1].contains(&name.as_str()) {
            report(Finding::stray(&dir.join(&name)));
        }
    }
    Ok(())
}

/// Tells of what lies in the data directory of a server beside what is ours. `store` may lie there as well.
pub(super) fn tell_of_strays(
    disk: &dyn Disk,
    dir: &Path,
    store: Option<&Path>,
    report: &mut dyn FnMut(Finding),
) -> Result<(), KeepFault> {
    let store = store.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    let is_of_store = |name: &str| store.as_ref().is_some_and(|store| name.starts_with(store.as_str()));
    for name in disk.list(dir).map_err(KeepFault::disk(dir))? {
        if name.strip_suffix(".tmp") == Some(FORMAT_NAME) {
            report(Finding::of_a_crash(&dir.join(&name), None, "nothing refers to it"));
        } else if ![FORMAT_NAME, LOCK_NAME, STREAMS_NAME, FEEDS].contains(&name.as_str())
            && !is_of_store(&name)
        {
            report(Finding::stray(&dir.join(&name)));
        }
    }
    Ok(())
}

/// Refuses two folders of which one lies in the other, wherever links lead: what is copied would be copied into itself.
pub(super) fn refuse_overlap(source: &Path, target: &Path) -> Result<(), KeepFault> {
    let (from, to) = (real(source)?, real(target)?);
    if to.starts_with(&from) {
        return Err(KeepFault::Inside { inner: target.to_owned(), outer: source.to_owned() });
    }
    if from.starts_with(&to) {
        return Err(KeepFault::Inside { inner: source.to_owned(), outer: target.to_owned() });
    }
    Ok(())
}

/// Where a path leads, links followed, as far as it is there; what is not there yet can be no link.
pub(super) fn real(path: &Path) -> Result<PathBuf, KeepFault> {
    let path = std::path::absolute(path).map_err(KeepFault::disk(path))?;
    let mut missing = Vec::new();
    let mut there = path.as_path();
    loop {
        match there.canonicalize() {
            Ok(mut real) => {
                for part in missing.iter().rev() {
                    match part {
                        std::path::Component::ParentDir => drop(real.pop()),
                        other => real.push(other),
                    }
                }
                return Ok(real);
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let mut parts = there.components();
                match parts.next_back() {
                    Some(part) => missing.push(part),
                    None => return Ok(path),
                }
                there = parts.as_path();
            }
            Err(error) => return Err(KeepFault::disk(there)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_folder_is_copied_into_itself_whatever_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::create_dir_all(place("data/streams")).unwrap();
        std::os::unix::fs::symlink(place("data"), place("link")).unwrap();
        std::os::unix::fs::symlink(place("data/streams"), place("deep")).unwrap();
        for (source, target) in [
            ("data", "data"),
            ("data", "data/b"),
            ("data", "data/x/y/b"),
            ("data", "link/b"),
            ("link", "data/b"),
            ("data", "deep/b"),
            ("data/streams", "data"),
            ("deep", "link"),
            ("data", "other/../data/b"),
        ] {
            let refused = refuse_overlap(&place(source), &place(target));
            assert!(matches!(refused, Err(KeepFault::Inside { .. })), "{source} {target}: {refused:?}");
        }
        for (source, target) in
            [("data", "data2"), ("data", "b"), ("data", "data.partial/b"), ("data/streams", "data/feeds")]
        {
            assert!(refuse_overlap(&place(source), &place(target)).is_ok(), "{source} {target}");
        }
    }
}
