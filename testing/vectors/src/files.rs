//! The files, and what tests take out of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The vectors.
#[derive(Debug)]
pub struct Files {
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

    /// A file. Panics if it is missing or another one than it should be.
    pub fn bytes(&self, path: &str) -> Vec<u8> {
        let bytes = fs::read(self.folder.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let sum = to_hex(&Sha256::digest(&bytes));
        assert_eq!(self.sums.get(path), Some(&sum), "{path} is not the file that SHA256SUMS names");
        bytes
    }

    /// A file without its zstd compression.
    pub fn decompressed(&self, path: &str) -> Vec<u8> {
        let compressed = self.bytes(path);
        let mut bytes = Vec::new();
        let mut frame = ruzstd::decoding::StreamingDecoder::new(compressed.as_slice()).expect("a zstd frame");
        frame.read_to_end(&mut bytes).expect("a whole zstd frame");
        bytes
    }

    /// A file as text.
    pub fn text(&self, path: &str) -> String {
        String::from_utf8(self.bytes(path)).expect("UTF-8")
    }

    /// The lines of a file, without comments and empty ones.
    pub fn lines(&self, path: &str) -> Vec<String> {
        let text = self.text(path);
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    }

    /// The lines of a table that begin with a digit, which leaves out its head and comments, cut at the tabs.
    pub fn table(&self, path: &str) -> Vec<Vec<String>> {
        let text = self.text(path);
        let lines = text.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit()));
        lines.map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    }

    /// The elements of a JSON array, of which there is at least one.
    pub fn cases(&self, path: &str) -> Vec<Value> {
        let cases: Value = serde_json::from_slice(&self.bytes(path)).expect("JSON");
        cases.as_array().filter(|cases| !cases.is_empty()).expect("an array of cases").clone()
    }
}

/// A text of a case.
pub fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().unwrap_or_else(|| panic!("no text `{field}` in {case}"))
}

/// Bytes from base64, with padding or without.
pub fn base64(text: &str) -> Vec<u8> {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(&STANDARD, config).decode(text).expect("base64")
}

/// Bytes from hexadecimal digits.
pub fn hex(text: &str) -> Vec<u8> {
    let digits = |pair: &[u8]| std::str::from_utf8(pair).expect("ASCII").to_owned();
    let byte = |pair: &[u8]| u8::from_str_radix(&digits(pair), 16).expect("hexadecimal digits");
    text.as_bytes().chunks(2).map(byte).collect()
}

/// Hexadecimal digits from bytes.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}
