//! Where the vectors are, and whether they are what they should be.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

pub(crate) struct Files {
    folder: PathBuf,
    /// Digest in hexadecimal digits by path.
    sums: BTreeMap<String, String>,
}

impl Files {
    /// The vectors, or where they are not.
    pub(crate) fn find() -> Result<Self, String> {
        let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors");
        let folder =
            std::env::var_os("ALLUVIUM_VECTORS").map_or_else(beside, PathBuf::from).join("jetstream");
        let list = folder.join("SHA256SUMS");
        let sums = fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
        let sums = sums.lines().filter_map(|line| line.split_once("  ./"));
        Ok(Self { folder, sums: sums.map(|(sum, path)| (path.to_owned(), sum.to_owned())).collect() })
    }

    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        let bytes = fs::read(self.folder.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(self.sums.get(path), Some(&hex(&Sha256::digest(&bytes))), "{path} is not what it was");
        bytes
    }

    /// The lines of a table, without its head and comments, cut at the tabs.
    pub(crate) fn table(&self, path: &str) -> Vec<Vec<String>> {
        let text = String::from_utf8(self.bytes(path)).expect("UTF-8");
        let lines = text.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
        lines.map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}
