//! The files of the repository, as git knows them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// One file that is, or would be, under version control.
#[derive(Debug)]
pub(crate) struct File {
    /// Path from the root of the repository, with forward slashes.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    /// The content, if it is text.
    pub(crate) text: Option<String>,
}

impl File {
    /// Whether it is Rust source.
    pub(crate) fn is_rust(&self) -> bool {
        self.has_extension("rs")
    }

    /// Whether it is a Markdown page.
    pub(crate) fn is_markdown(&self) -> bool {
        self.has_extension("md")
    }

    fn has_extension(&self, wanted: &str) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, extension)| extension == wanted)
    }

    /// Whether all of it is test code.
    pub(crate) fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name == "tests.rs" || name.ends_with("_tests.rs") || self.path.split('/').any(|part| part == "tests")
    }

    /// Lines with their numbers, from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.as_deref().unwrap_or_default().lines().zip(1..).map(|(line, number)| (number, line))
    }
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, PathBuf::from)
}

/// All files that are committed, or new and not ignored.
pub(crate) fn files() -> Result<Vec<File>> {
    let root = root();
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(&root)
        .output()
        .context("run git ls-files")?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let listing = String::from_utf8(output.stdout).context("a path is not UTF-8")?;
    let mut paths: Vec<&str> = listing.split_terminator('\0').collect();
    paths.sort_unstable();
    paths.dedup();
    // A file that is deleted but not yet committed as such is not there to check.
    let present = paths.into_iter().filter(|path| root.join(path).is_file());
    present
        .map(|path| {
            let content = fs::read(root.join(path)).with_context(|| format!("read `{path}`"))?;
            let bytes = content.len() as u64;
            let text = if content.contains(&0) { None } else { String::from_utf8(content).ok() };
            Ok(File { path: path.to_owned(), bytes, text })
        })
        .collect()
}
