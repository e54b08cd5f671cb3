//! The names of the files of a shard.

/// The folder of a shard, below `streams/`.
pub fn shard_name(shard: u16) -> String {
    format!("shard-{shard:02}")
}

/// The file of a journal segment.
pub fn segment_name(number: u64) -> String {
    format!("journal-{number:016x}.seg")
}

/// A file of the size of a segment that waits to become one.
pub(crate) fn spare_name(number: u64) -> String {
    format!("spare-{number:016x}.seg")
}

/// The file of a table.
pub fn table_name(number: u64) -> String {
    format!("table-{number:016x}.tbl")
}

/// The file of a checkpoint.
pub fn checkpoint_name(number: u64) -> String {
    format!("checkpoint-{number:016x}.ckp")
}

/// The number in the name of a segment, or `None` for any other file.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    number_between(name, "journal-", ".seg")
}

/// The number in the name of a spare, or `None` for any other file.
pub(crate) fn spare_number(name: &str) -> Option<u64> {
    number_between(name, "spare-", ".seg")
}

/// Whether this is the name of a table or a checkpoint.
pub(crate) fn is_folded(name: &str) -> bool {
    number_between(name, "table-", ".tbl").or(number_between(name, "checkpoint-", ".ckp")).is_some()
}

fn number_between(name: &str, prefix: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
    let plain = digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if plain { u64::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_out_of_names() {
        for number in [0, 1, 0xabc, u64::MAX] {
            assert_eq!(segment_number(&segment_name(number)), Some(number));
            assert_eq!(spare_number(&spare_name(number)), Some(number));
        }
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
