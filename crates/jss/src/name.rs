//! Names of segment files: `seg_`, ten base-36 digits, `.jss`. They sort as their numbers do.

use std::fmt;

const PREFIX: &str = "seg_";
const SUFFIX: &str = ".jss";
const DIGITS: usize = 10;
const BASE: u64 = 36;

/// The number of a segment, in the order of creation.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Default)]
pub struct SegmentIndex(u64);

impl SegmentIndex {
    /// The first segment.
    pub const FIRST: Self = Self(0);
    /// The last that a name can hold, 36^10 − 1.
    pub const LAST: Self = Self(BASE.pow(10) - 1);

    /// The segment with this number; none beyond [`SegmentIndex::LAST`].
    pub const fn new(number: u64) -> Option<Self> {
        if number <= Self::LAST.0 { Some(Self(number)) } else { None }
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The segment after it.
    pub const fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }

    /// The segment that a file of this name is. Other files, upper case and other lengths included, are none.
    pub fn from_file_name(name: &str) -> Option<Self> {
        let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        let all_digits = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'z'));
        if digits.len() != DIGITS || !all_digits {
            return None;
        }
        u64::from_str_radix(digits, 36).ok().map(Self)
    }

    /// The name of its file.
    pub fn file_name(self) -> String {
        let mut digits = [b'0'; DIGITS];
        let mut rest = self.0;
        for digit in digits.iter_mut().rev() {
            let value = (rest % BASE) as u8;
            *digit = if value < 10 { b'0' + value } else { b'a' + value - 10 };
            rest /= BASE;
        }
        let digits: String = digits.into_iter().map(char::from).collect();
        format!("{PREFIX}{digits}{SUFFIX}")
    }
}

impl fmt::Display for SegmentIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file_name())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_what_they_are() {
        assert_eq!(SegmentIndex::FIRST.file_name(), "seg_0000000000.jss");
        assert_eq!(SegmentIndex::from_file_name("seg_00000000zz.jss"), SegmentIndex::new(35 * 36 + 35));
        assert_eq!(SegmentIndex::LAST.file_name(), "seg_zzzzzzzzzz.jss");
        assert_eq!(SegmentIndex::LAST.next(), None);
    }

    #[test]
    fn other_files_are_no_segments() {
        for name in [
            "seg_00000000ZZ.jss",
            "seg_00000000001.jss",
            "seg_000000001.jss",
            "seg_0000000001.jss.tmp",
            "seg_+000000001.jss",
            "seg_0000000001",
            "0000000001.jss",
            "seg_00000000é1.jss",
            "",
        ] {
            assert_eq!(SegmentIndex::from_file_name(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn names_sort_and_come_back(a in 0..=SegmentIndex::LAST.0, b in 0..=SegmentIndex::LAST.0) {
            let (first, second) = (SegmentIndex(a), SegmentIndex(b));
            prop_assert_eq!(SegmentIndex::from_file_name(&first.file_name()), Some(first));
            prop_assert_eq!(first.file_name().cmp(&second.file_name()), a.cmp(&b));
        }
    }
}
