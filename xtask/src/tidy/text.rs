//! Rules for every text file: size, white space, words, and what lock files may say.

use crate::tree::File;

/// The largest file.
const FILE_BYTES_MAX: u64 = 512 * 1024;

/// Words that have no place here, with the reason. Written in halves, so that this list does not find itself.
const WORDS: &[(&str, &str, &str)] = &[
    ("/wo", "rk/", "a path of somebody's machine"),
    ("/ro", "ot/", "a path of somebody's machine"),
    ("/ho", "me/", "a path of somebody's machine"),
    ("/tmp/pl", "an", "a path of somebody's machine"),
    ("bash_", "jobs", "a path of somebody's machine"),
    ("sub", "agent", "the project speaks of itself, not of who wrote it"),
    ("sub-", "agent", "the project speaks of itself, not of who wrote it"),
    ("co-autho", "red-by", "the project speaks of itself, not of who wrote it"),
    ("farm-", "bench", "a tool that readers do not have"),
    ("farm-", "studio", "a tool that readers do not have"),
    ("aesthetics", ".md", "a page that readers do not have"),
    ("peers", ".md", "a page that readers do not have"),
    ("contract", ".md", "a page that readers do not have"),
    ("/design", ".md", "a page that readers do not have"),
    ("fix", "me", "finish it or file an issue"),
    ("to", "do:", "finish it or file an issue"),
    ("blazing", "ly", "a claim without a measurement"),
    ("blazing", " fast", "a claim without a measurement"),
];

/// Where `Cargo.lock` may take packages from.
const CRATES_IO: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

/// Lines and files that break the rules.
pub(crate) fn problems(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files {
        if file.bytes > FILE_BYTES_MAX {
            problems.push(format!("{}: {} bytes, at most {FILE_BYTES_MAX}", file.path, file.bytes));
        }
        let Some(text) = &file.text else { continue };
        // Inputs of fuzzing and golden files are bytes to read, whatever they look like.
        if file.path.starts_with("fuzz/seeds/") || file.path.contains("/golden/v") {
            continue;
        }
        if !text.is_empty() && !text.ends_with('\n') {
            problems.push(format!("{}: no line break at the end", file.path));
        }
        for (number, line) in file.lines() {
            if let Some(what) = problem(file, line) {
                problems.push(format!("{}:{number}: {what}", file.path));
            }
        }
    }
    problems
}

fn problem(file: &File, line: &str) -> Option<String> {
    if line.ends_with([' ', '\t', '\r']) {
        return Some("white space at the end".to_owned());
    }
    let lower = line.to_ascii_lowercase();
    if let Some((a, b, why)) = WORDS.iter().find(|(a, b, _)| lower.contains(&format!("{a}{b}"))) {
        return Some(format!("`{a}{b}`: {why}"));
    }
    let trimmed = line.trim_start();
    match file.path.rsplit('/').next()? {
        "package-lock.json" if trimmed.starts_with("\"resolved\"") => {
            Some("names a registry; `.npmrc` beside it should prevent that".to_owned())
        }
        "requirements.txt" if line.contains("://") || trimmed.starts_with("--index") => {
            Some("names a registry".to_owned())
        }
        "Cargo.lock" if line.starts_with("source = ") && line != CRATES_IO => {
            Some("comes from elsewhere than crates.io".to_owned())
        }
        _ => None,
    }
}
