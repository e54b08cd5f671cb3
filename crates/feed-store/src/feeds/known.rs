//! What names the feeds of a space have, kept in memory.
//!
//! That a feed isn't there cannot be learned from the index over names alone: a lost entry looks the same. The rows
//! themselves tell, and to look at all of them for every name that somebody waits for would make each of their pages as
//! expensive as the space is large. So they are looked at once, and what is added to them is added here.

use std::collections::HashSet;

use alluvium_feed_protocol::Id;
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

/// The names of the feeds of one open space, 8 bytes each and as many as it has feeds.
///
/// A name more than there are costs a look at all rows when it is asked for, and nothing else: two names of one hash, and one
/// whose feed was not made in the end.
#[derive(Debug, Default)]
pub struct KnownNames {
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    hashes: HashSet<u64>,
    /// Whether it has those of all rows.
    has_all: bool,
}

impl KnownNames {
    /// Takes note of a feed that is being made. Before its commit: whoever sees the feed has to find it here.
    pub fn add(&self, name: &Id) {
        self.names.lock().hashes.insert(hash(name.as_str()));
    }

    /// Whether no feed has one of these names.
    pub(super) fn lack<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> bool {
        let known = self.names.lock();
        known.has_all && !names.any(|name| known.hashes.contains(&hash(name)))
    }

    /// Takes over the names of all rows, as hashes.
    pub(super) fn complete(&self, hashes: Vec<u64>) {
        let mut known = self.names.lock();
        known.hashes.extend(hashes);
        known.has_all = true;
    }
}

pub(super) fn hash(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_missing_before_all_rows_were_seen() {
        let (known, late) = (KnownNames::default(), Id::parse("late").unwrap());
        assert!(!known.lack(["nowhere"].into_iter()));
        // While the rows are looked at that were there before.
        known.add(&late);
        assert!(!known.lack(["nowhere"].into_iter()));
        known.complete(vec![hash("early")]);
        assert!(known.lack(["nowhere", "neither"].into_iter()));
        for there in ["early", "late"] {
            assert!(!known.lack(["nowhere", there].into_iter()), "{there}");
        }
    }
}
