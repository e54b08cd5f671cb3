//! The manifest of a backup: every file with its length and checksum.
//!
//! Text, every line ended by a line feed, and one way to write it down; everything else is refused:
//!
//! ```text
//! alluvium backup
//! version 1
//! kind server
//! taken 1790000000000
//! file 67108864 <SHA-256 in hexadecimal> data/streams/shard-00/journal-0000000000000001.seg
//! checksum 01234567
//! ```
//!
//! `taken` is in milliseconds since the Unix epoch. The files are in the order of their names. `checksum` is the CRC-32C
//! of all lines above it.

use std::fmt::Write as _;

/// The name of the file.
pub const MANIFEST_NAME: &str = "BACKUP";
/// Longest manifest that is read, in bytes.
pub(super) const MANIFEST_BYTES_MAX: u64 = 256 * 1024 * 1024;

const FIRST_LINE: &str = "alluvium backup";
const VERSION: u32 = 1;

/// What a backup is of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// `alluvium serve`.
    Server,
    /// `alluvium jetstream serve`.
    Jetstream,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Jetstream => "jetstream",
        }
    }
}

/// A file of a backup.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Its name in the backup, with `/` between the folders.
    pub path: String,
    /// Its length in bytes.
    pub len: u64,
    /// The SHA-256 of its content.
    pub sha256: [u8; 32],
}

/// What a manifest says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Manifest {
    /// What it is of.
    pub kind: Kind,
    /// When it was finished, in milliseconds since the Unix epoch.
    pub taken_ms: u64,
    /// Its files, ascending by name.
    pub files: Vec<Entry>,
}

impl Manifest {
    /// The content of the file.
    pub fn encode(&self) -> String {
        let (kind, taken) = (self.kind.name(), self.taken_ms);
        let mut text = format!("{FIRST_LINE}\nversion {VERSION}\nkind {kind}\ntaken {taken}\n");
        for Entry { path, len, sha256 } in &self.files {
            // Writing to a string does not fail.
            let _ = write!(text, "file {len} ");
            for byte in sha256 {
                let _ = write!(text, "{byte:02x}");
            }
            let _ = writeln!(text, " {path}");
        }
        let crc = alluvium_journal::checksum(text.as_bytes());
        let _ = writeln!(text, "checksum {crc:08x}");
        text
    }

    /// What the content of the file says. The error says why it is no manifest.
    pub fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        const MALFORMED: &str = "it is not the manifest of a backup";
        let text = std::str::from_utf8(bytes).map_err(|_| MALFORMED)?;
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(MALFORMED);
        }
        let version: u32 = value(lines.next(), "version")?.parse().map_err(|_| MALFORMED)?;
        if version != VERSION {
            return Err("its version is another than this program knows");
        }
        let kind = match value(lines.next(), "kind")? {
            "server" => Kind::Server,
            "jetstream" => Kind::Jetstream,
            _ => return Err(MALFORMED),
        };
        let taken_ms = value(lines.next(), "taken")?.parse().map_err(|_| MALFORMED)?;
        let mut files: Vec<Entry> = Vec::new();
        for line in lines {
            let Some(rest) = line.strip_prefix("file ") else { break };
            let entry = entry(rest).ok_or(MALFORMED)?;
            if files.last().is_some_and(|last| last.path >= entry.path) {
                return Err("its files are not in their order");
            }
            files.push(entry);
        }
        let manifest = Self { kind, taken_ms, files };
        // There is one way to write it down, so this checks everything at once.
        if manifest.encode() == text { Ok(manifest) } else { Err("its checksum does not match") }
    }
}

fn value<'a>(line: Option<&'a str>, key: &str) -> Result<&'a str, &'static str> {
    let rest = line.and_then(|line| line.strip_prefix(key)?.strip_prefix(' '));
    rest.ok_or("it is not the manifest of a backup")
}

fn entry(line: &str) -> Option<Entry> {
    let mut parts = line.splitn(3, ' ');
    let (len, digits, path) = (parts.next()?, parts.next()?, parts.next()?);
    if digits.len() != 64 || !is_path(path) {
        return None;
    }
    let mut sha256 = [0; 32];
    for (byte, pair) in sha256.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(Entry { path: path.to_owned(), len: len.parse().ok()?, sha256 })
}

/// Whether a name leads to a file below the backup, by characters that mean nothing to anybody.
pub(super) fn is_path(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    path.split('/').all(|part| !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_plain))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn manifest() -> Manifest {
        let file = |path: &str, len| Entry { path: path.to_owned(), len, sha256: [0xa5; 32] };
        let files = vec![file("data/FORMAT", 140), file("data/streams/shard-00/MANIFEST", 40)];
        Manifest { kind: Kind::Server, taken_ms: 1_790_000_000_000, files }
    }

    #[test]
    fn a_manifest_says_what_was_written() {
        let text = manifest().encode();
        assert_eq!(Manifest::decode(text.as_bytes()), Ok(manifest()));
        let jetstream = Manifest { kind: Kind::Jetstream, files: Vec::new(), ..manifest() };
        assert_eq!(Manifest::decode(jetstream.encode().as_bytes()), Ok(jetstream));
    }

    #[test]
    fn no_changed_bit_and_no_cut_goes_unnoticed() {
        let bytes = manifest().encode().into_bytes();
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::decode(&flipped).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..len]).is_err(), "cut to {len}");
        }
    }

    #[test]
    fn no_file_of_a_manifest_is_outside_of_its_backup() {
        for path in ["", "/etc/passwd", "../x", "a/../x", "a//b", "a/", "./a", "a b", "a\\b", "ä"] {
            let file = Entry { path: path.to_owned(), len: 1, sha256: [0; 32] };
            let text = Manifest { files: vec![file], ..manifest() }.encode();
            assert!(Manifest::decode(text.as_bytes()).is_err(), "{path:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_manifest_that_is_written_so_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(manifest) = Manifest::decode(&bytes) {
                prop_assert_eq!(manifest.encode().into_bytes(), bytes);
            }
        }
    }
}
