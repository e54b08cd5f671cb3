//! What `deploy/` gives operators: units that allow what the servers do, and proxies that pass on what clients need.

mod calls;
mod proxies;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::check::Report;

/// Runs all checks.
pub(crate) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    calls::run(binary, report)?;
    proxies::run(binary, report)
}

/// A file of `deploy/`.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

/// What is in it.
fn text(name: &str) -> Result<String> {
    let path = path(name);
    fs::read_to_string(&path).with_context(|| format!("read `{}`", path.display()))
}
