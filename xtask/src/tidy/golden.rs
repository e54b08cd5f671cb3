//! Golden files of released formats stay as they are, for ever: the list of their checksums may only grow.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::tree::{File, files, root};

/// Where the list is: one line per file, checksum (CRC-32C), length, path.
const LIST: &str = "xtask/golden.txt";
/// What marks a golden file.
const FOLDER: &str = "/golden/v";

/// Golden files that changed, vanished or are not on the list.
pub(crate) fn problems(files: &[File]) -> Result<Vec<String>> {
    let (listed, present) = (listed()?, present(files)?);
    let mut problems = Vec::new();
    for (path, facts) in &listed {
        match present.get(path) {
            None => problems.push(format!("{path}: a golden file is gone")),
            Some(found) if found != facts => problems.push(format!("{path}: a golden file has changed")),
            Some(_) => {}
        }
    }
    for path in present.keys().filter(|path| !listed.contains_key(*path)) {
        problems.push(format!("{path}: is not in {LIST}; run `cargo xtask tidy --accept-golden`"));
    }
    Ok(problems)
}

/// Adds new golden files to the list; refuses if a listed one changed.
pub(crate) fn accept() -> Result<()> {
    let (mut all, present) = (listed()?, present(&files()?)?);
    for (path, facts) in present {
        match all.get(&path) {
            Some(known) if *known != facts => {
                bail!("`{path}` has changed; a released format's file never does")
            }
            Some(_) => {}
            None => {
                println!("accepted {path}");
                all.insert(path, facts);
            }
        }
    }
    let mut list = String::new();
    for (path, facts) in all {
        writeln!(list, "{facts} {path}")?;
    }
    fs::write(root().join(LIST), list).with_context(|| format!("write `{LIST}`"))
}

/// Checksum and length by path, as listed.
fn listed() -> Result<BTreeMap<String, String>> {
    let list = root().join(LIST);
    if !list.exists() {
        return Ok(BTreeMap::new());
    }
    let text = fs::read_to_string(list)?;
    let entries = text.lines().map(|line| {
        let (facts, path) = line.rsplit_once(' ').with_context(|| format!("{LIST}: `{line}`"))?;
        Ok((path.to_owned(), facts.to_owned()))
    });
    entries.collect()
}

/// Checksum and length by path, as they are.
fn present(files: &[File]) -> Result<BTreeMap<String, String>> {
    let golden =
        files.iter().filter(|file| file.path.contains(FOLDER) && !file.path.ends_with(".gitattributes"));
    golden
        .map(|file| {
            let content = fs::read(root().join(&file.path))?;
            Ok((file.path.clone(), format!("{:08x} {}", crc32c::crc32c(&content), content.len())))
        })
        .collect()
}
