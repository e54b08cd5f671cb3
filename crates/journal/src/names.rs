//! The names of the files of a shard.

use crate::manifest::MANIFEST_NAME;
use crate::record::StreamId;

/// The folder of a shard, below `streams/`.
pub fn shard_name(shard: u16) -> String {
    format!("shard-{shard:02}")
}

/// The number of the shard whose folder is called so.
pub(crate) fn shard_number(name: &str) -> Option<u16> {
    let number = name.strip_prefix("shard-")?.parse().ok()?;
    (shard_name(number) == name).then_some(number)
}

/// The file of a journal segment.
pub fn segment_name(number: u64) -> String {
    format!("journal-{number:016x}.seg")
}

/// A file of the size of a segment that waits to become one.
pub(crate) fn spare_name(number: u64) -> String {
    format!("spare-{number:016x}.seg")
}

/// The numbers of tables that have this bit are those of bodies, each written by an upload; the others are given one
/// after another by folds.
const BODY_TABLE: u64 = 1 << 63;

/// The number of the table that an upload writes the body of a snapshot to.
pub fn body_table(body: StreamId) -> u64 {
    BODY_TABLE | body.counter()
}

/// Whether the table with this number is that of a body.
pub fn table_is_of_body(number: u64) -> bool {
    number & BODY_TABLE != 0
}

/// The file of a table.
pub fn table_name(number: u64) -> String {
    if number & BODY_TABLE == 0 {
        format!("table-{number:016x}.tbl")
    } else {
        format!("body-{:016x}.tbl", number & !BODY_TABLE)
    }
}

/// The number of the table in a file that an upload has written, or `None` for any other file.
pub fn body_table_number(name: &str) -> Option<u64> {
    number_between(name, "body-", ".tbl")
        .filter(|number| number & BODY_TABLE == 0)
        .map(|number| number | BODY_TABLE)
}

/// The file of a checkpoint.
pub fn checkpoint_name(number: u64) -> String {
    format!("checkpoint-{number:016x}.ckp")
}

/// The number in the name of a segment, or `None` for any other file.
pub fn segment_number(name: &str) -> Option<u64> {
    number_between(name, "journal-", ".seg")
}

/// The number in the name of a spare, or `None` for any other file.
pub fn spare_number(name: &str) -> Option<u64> {
    number_between(name, "spare-", ".seg")
}

/// What a file of a shard is, by its name. Whatever is called otherwise is none of a shard's: nothing opens, copies or
/// removes it.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum ShardFile {
    /// The manifest.
    Manifest,
    /// A segment of the journal.
    Segment,
    /// A file that waits to become one.
    Spare,
    /// A table or a checkpoint that a fold has written. Never changes.
    Folded,
    /// The table of a body. Never changes.
    Body,
}

impl ShardFile {
    /// What the file of this name is; `None` if it is none of a shard's.
    pub fn of(name: &str) -> Option<Self> {
        match () {
            () if name == MANIFEST_NAME => Some(Self::Manifest),
            () if segment_number(name).is_some() => Some(Self::Segment),
            () if spare_number(name).is_some() => Some(Self::Spare),
            () if body_table_number(name).is_some() => Some(Self::Body),
            () if is_folded(name) => Some(Self::Folded),
            () => None,
        }
    }
}

/// Whether this is the name of a table, whoever has written it, or of a checkpoint.
pub(crate) fn is_folded(name: &str) -> bool {
    let folded = number_between(name, "table-", ".tbl").or(number_between(name, "checkpoint-", ".ckp"));
    folded.or(body_table_number(name)).is_some()
}

fn number_between(name: &str, prefix: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
    let plain = digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if plain { u64::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::ShardFile::{Body, Folded, Manifest, Segment, Spare};
    use super::*;

    #[test]
    fn numbers_come_back_out_of_names() {
        for number in [0, 1, 0xabc, u64::MAX] {
            assert_eq!(segment_number(&segment_name(number)), Some(number));
            assert_eq!(spare_number(&spare_name(number)), Some(number));
        }
    }

    #[test]
    fn a_table_of_a_body_is_told_from_those_of_folds() {
        let number = body_table(StreamId::new(0xabc, 3));
        assert_eq!(table_name(number), "body-0000000000000abc.tbl");
        assert_eq!(body_table_number("body-0000000000000abc.tbl"), Some(number));
        assert!(is_folded("body-0000000000000abc.tbl") && is_folded("table-0000000000000abc.tbl"));
        for other in ["table-0000000000000abc.tbl", "body-8000000000000abc.tbl", "body-0000000000000abc.ckp"]
        {
            assert_eq!(body_table_number(other), None, "{other}");
        }
    }

    #[test]
    fn a_file_is_one_of_a_shard_by_its_whole_name() {
        let body = table_name(body_table(StreamId::new(7, 1)));
        let names = [
            MANIFEST_NAME.to_owned(),
            segment_name(7),
            spare_name(7),
            table_name(7),
            checkpoint_name(7),
            body,
        ];
        let kinds = names.each_ref().map(|name| ShardFile::of(name));
        assert_eq!(kinds, [Manifest, Segment, Spare, Folded, Folded, Body].map(Some));
        for name in names {
            for other in
                [format!("{name}.bak"), format!("{name}~"), format!(" {name}"), name.to_lowercase() + "x"]
            {
                assert_eq!(ShardFile::of(&other), None, "{other}");
            }
        }
        assert_eq!(ShardFile::of("table-notes.txt"), None);
    }

    #[test]
    fn other_names_have_no_number() {
        for name in
            ["journal-.seg", "journal-0000000000000001.tbl", "journal-+000000000000001.seg", "MANIFEST"]
        {
            assert_eq!(segment_number(name), None, "{name}");
        }
        assert_eq!(segment_number("journal-000000000000000A.seg"), None);
    }
}
