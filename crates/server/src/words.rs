//! Numbers with the words for what they count.

/// A number of things, as it is said: `1 shard`, `2 shards`, `1 byte of messages`. `things` is the word for several, in
/// which an `s` at the end, or before ` of `, is what makes them so.
pub fn counted(number: u64, things: &str) -> String {
    let (several, of_what) = match things.find(" of ") {
        Some(at) => things.split_at(at),
        None => (things, ""),
    };
    let name = if number == 1 { several.strip_suffix('s').unwrap_or(several) } else { several };
    format!("{number} {name}{of_what}")
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_thing_is_said_as_one() {
        for (number, things, said) in [
            (0, "shards", "0 shards"),
            (1, "shards", "1 shard"),
            (2, "shards", "2 shards"),
            (1, "journal segments", "1 journal segment"),
            (1, "bytes of messages", "1 byte of messages"),
            (3, "bytes of messages", "3 bytes of messages"),
            (11, "rows of bytes", "11 rows of bytes"),
            (1, "sheep", "1 sheep"),
        ] {
            assert_eq!(counted(number, things), said);
        }
    }
}
