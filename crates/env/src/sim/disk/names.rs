//! The names of a simulated disk: what lookups see, what is durable, and the steps between.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::sim::disk::content::Keep;
use crate::sim::disk::fault::FaultCounts;
use crate::sim::random::Rng;

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) enum Entry {
    Directory,
    /// The inode number of a file.
    File(u64),
}

#[derive(Debug)]
enum Step {
    Put { name: PathBuf, entry: Entry },
    Remove { name: PathBuf },
    Rename { from: PathBuf, to: PathBuf, inode: u64 },
}

type Map = BTreeMap<PathBuf, Entry>;

#[derive(Debug)]
pub(super) struct Names {
    live: Map,
    durable: Map,
    /// Steps not yet made durable, oldest first, each with its directory.
    pending: Vec<(PathBuf, Step)>,
}

impl Names {
    pub(super) fn new() -> Self {
        let root = Map::from([(PathBuf::from("/"), Entry::Directory)]);
        Self { live: root.clone(), durable: root, pending: Vec::new() }
    }

    pub(super) fn get(&self, path: &Path) -> Option<Entry> {
        self.live.get(path).copied()
    }

    pub(super) fn is_directory(&self, path: &Path) -> bool {
        self.get(path) == Some(Entry::Directory)
    }

    pub(super) fn files(&self) -> Vec<PathBuf> {
        let is_file = |(path, entry): (&PathBuf, &Entry)| match entry {
            Entry::File(_) => Some(path.clone()),
            Entry::Directory => None,
        };
        self.live.iter().filter_map(is_file).collect()
    }

    /// Inodes that have a name now.
    pub(super) fn inodes(&self) -> BTreeSet<u64> {
        let inode = |entry: &Entry| match entry {
            Entry::File(inode) => Some(*inode),
            Entry::Directory => None,
        };
        self.live.values().filter_map(inode).collect()
    }

    pub(super) fn list(&self, dir: &Path) -> Vec<String> {
        let in_dir = self.live.keys().filter(|path| path.parent() == Some(dir));
        in_dir.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect()
    }

    pub(super) fn put(&mut self, path: &Path, entry: Entry) {
        self.step(path, Step::Put { name: path.to_owned(), entry });
    }

    pub(super) fn remove(&mut self, path: &Path) {
        self.step(path, Step::Remove { name: path.to_owned() });
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path, inode: u64) {
        self.step(to, Step::Rename { from: from.to_owned(), to: to.to_owned(), inode });
    }

    fn step(&mut self, path: &Path, step: Step) {
        apply(&mut self.live, &step);
        self.pending.push((path.parent().unwrap_or(path).to_owned(), step));
    }

    pub(super) fn sync(&mut self, dir: &Path) {
        for (_, step) in self.pending.extract_if(.., |(of, _)| of == dir) {
            apply(&mut self.durable, &step);
        }
    }

    /// A failed sync of a directory: some steps became durable, the others never will.
    pub(super) fn sync_fails(&mut self, dir: &Path, rng: &mut Rng) {
        for (_, step) in self.pending.extract_if(.., |(of, _)| of == dir) {
            if rng.percent(50) {
                apply(&mut self.durable, &step);
            }
        }
    }

    pub(super) fn crash(&mut self, rng: &mut Rng, keep: Keep, counts: &mut FaultCounts) {
        let cut = rng.below(self.pending.len() as u64 + 1);
        for (nth, (_, step)) in self.pending.drain(..).enumerate() {
            let kept = match keep {
                Keep::Everything => true,
                Keep::Nothing => false,
                Keep::Percent(percent) => rng.percent(percent),
                Keep::Prefix => (nth as u64) < cut,
            };
            if kept {
                apply(&mut self.durable, &step);
            } else {
                counts.names_lost += 1;
            }
        }
        // A directory that was lost takes its content with it. Parents sort before what they hold.
        let mut found = Map::new();
        for (path, entry) in std::mem::take(&mut self.durable) {
            let rooted = path.parent().is_none_or(|parent| found.get(parent) == Some(&Entry::Directory));
            if rooted {
                found.insert(path, entry);
            }
        }
        self.durable = found;
        self.live.clone_from(&self.durable);
    }
}

fn apply(map: &mut Map, step: &Step) {
    match step {
        Step::Put { name, entry } => {
            map.insert(name.clone(), *entry);
        }
        Step::Remove { name } => {
            map.remove(name);
        }
        Step::Rename { from, to, inode } => {
            // The old name goes only if it still is this file: an earlier step may not have survived.
            if map.get(from) == Some(&Entry::File(*inode)) {
                map.remove(from);
            }
            map.insert(to.clone(), Entry::File(*inode));
        }
    }
}
