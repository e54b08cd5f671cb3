//! Which data directory a file is of.
//!
//! Shards and numbers are the same in all directories, so a file can lie in another one under a name that belongs there,
//! with every checksum in order. Each file therefore says whose it is, in a field that the first programs left zero.

use std::num::NonZeroU64;

/// What a file that is refused for it is called.
pub(crate) const OF_ANOTHER_DIRECTORY: &str = "the file is one of another data directory";

/// What the files of one data directory have in common: the upper half of the number in its
/// [`Format`](crate::Format). Copies of a directory, and what is restored of a backup, have it as well.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct DirectoryId(NonZeroU64);

impl DirectoryId {
    /// That of the directory with this number; `None` for one in 2⁶⁴ numbers, whose files can't be told from others.
    pub fn of(directory: u128) -> Option<Self> {
        NonZeroU64::new(u64::try_from(directory >> 64).unwrap_or_default()).map(Self)
    }

    /// As a field of a file; zero for none.
    pub(crate) fn encode(id: Option<Self>) -> u64 {
        id.map_or(0, |id| id.0.get())
    }

    /// What such a field says.
    pub(crate) fn decode(field: u64) -> Option<Self> {
        NonZeroU64::new(field).map(Self)
    }

    /// Refuses a file that says that it is of another directory. One that says nothing, as those of the first programs,
    /// is taken, and so is every one where nobody knows which directory this is.
    pub(crate) fn check(found: Option<Self>, expected: Option<Self>) -> Result<(), &'static str> {
        match (found, expected) {
            (Some(found), Some(expected)) if found != expected => Err(OF_ANOTHER_DIRECTORY),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_says_otherwise_is_refused() {
        let [one, other] = [1u128 << 64, (2 << 64) | 7].map(DirectoryId::of);
        assert!(one.is_some() && one != other);
        assert_eq!(DirectoryId::of(7), None, "the lower half tells nothing");
        for id in [None, one, other] {
            assert_eq!(DirectoryId::decode(DirectoryId::encode(id)), id);
            assert!(DirectoryId::check(None, id).is_ok() && DirectoryId::check(id, None).is_ok());
            assert_eq!(DirectoryId::check(id, one).is_ok(), id != other);
        }
    }
}
