//! The public vectors, for the tests of every crate that has some: where they are, whether they are what they should be,
//! and a harness that says so when they are missing.
//!
//! The vectors are not part of the project. They are looked for where `ALLUVIUM_VECTORS` points, else in
//! `../shared/vectors` beside the checkout. Without them a harness says so, and passes nothing: that is why it prints its
//! results itself. Each file is checked against `SHA256SUMS` before it is used.
#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::panic,
    reason = "it is a harness of tests, and fails as they do"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A test under its name.
pub type Test = (&'static str, fn(&Files));

/// Runs these tests, or of them those whose names contain an argument of the program, and prints what became of them.
pub fn run(tests: &[Test]) -> ExitCode {
    let filters: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted =
        |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()));
    let tests: Vec<&Test> = tests.iter().filter(|(name, _)| is_wanted(name)).collect();
    let files = match Files::find() {
        Ok(files) => files,
        Err(missing) => {
            let count = tests.len();
            println!("NOT TESTED: the public vectors are missing ({missing}); {count} tests did not run");
            return ExitCode::SUCCESS;
        }
    };
    let mut failed = 0;
    for (name, test) in &tests {
        let result = catch_unwind(AssertUnwindSafe(|| test(&files)));
        println!("test {name} ... {}", if result.is_ok() { "ok" } else { "FAILED" });
        failed += usize::from(result.is_err());
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {} passed; {failed} failed; 0 ignored", tests.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The vectors.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    /// Digest in hexadecimal digits by path.
    sums: BTreeMap<String, String>,
}

impl Files {
    /// The vectors, or where they are not.
    fn find() -> Result<Self, String> {
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
