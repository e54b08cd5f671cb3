//! Documentation that cannot rot: links lead somewhere, every crate is on the map, and the box that follows one
//! append through the code names files and symbols that exist.

use std::collections::BTreeSet;

use crate::metadata::Package;
use crate::tree::{File, root};

const MAP: &str = "docs/ARCHITECTURE.md";
/// The box: a table between two comments, with a path in the first column and symbols of that file in the second.
const BOX_START: &str = "<!-- follow an append -->";
const BOX_END: &str = "<!-- end of the box -->";
/// The page of error codes, and the code that answers with them.
const ERRORS: &str = "docs/errors.md";
const ERRORS_SOURCES: &[&str] = &["crates/streams/src/http/error.rs", "crates/http/src/reactor.rs"];
/// Words before a symbol where it is defined.
const DEFINITIONS: &[&str] = &["fn ", "struct ", "enum ", "trait ", "const ", "type "];

/// Broken links, missing crates, stale boxes.
pub(crate) fn problems(packages: &[Package], files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.is_markdown()) {
        for (number, line) in file.lines() {
            problems.extend(
                line_problems(file, line).into_iter().map(|what| format!("{}:{number}: {what}", file.path)),
            );
        }
    }
    for wanted in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", ERRORS, MAP] {
        if !files.iter().any(|file| file.path == wanted) {
            problems.push(format!("{wanted}: is missing"));
        }
    }
    let map =
        files.iter().find(|file| file.path == MAP).and_then(|file| file.text.as_deref()).unwrap_or_default();
    for member in packages.iter().filter(|package| package.is_member) {
        let folder = member.dir.strip_prefix(root()).unwrap_or(&member.dir).display().to_string();
        if !map.contains(&format!("`{folder}`")) {
            problems.push(format!("{MAP}: `{folder}` is not on the map"));
        }
    }
    problems.extend(append_box(map, files));
    problems.extend(error_codes(files));
    problems
}

/// Codes that are answered but not listed, or listed but never answered.
fn error_codes(files: &[File]) -> Vec<String> {
    let text = |path: &str| files.iter().find(|file| file.path == path).and_then(|file| file.text.as_deref());
    let listed: BTreeSet<&str> = text(ERRORS)
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(code, _)| code))
        .collect();
    let answered: BTreeSet<&str> = ERRORS_SOURCES
        .iter()
        .flat_map(|path| text(path).unwrap_or_default().lines())
        .filter(|line| line.contains("StatusCode::") || line.contains("error_body("))
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    let mut problems = Vec::new();
    problems.extend(answered.difference(&listed).map(|code| format!("{ERRORS}: no line for `{code}`")));
    problems.extend(listed.difference(&answered).map(|code| format!("{ERRORS}: `{code}` is never answered")));
    problems
}

/// Links and folder names that lead nowhere.
fn line_problems(file: &File, line: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        let target = link.split('#').next().unwrap_or_default();
        if !target.is_empty() && !target.contains("://") && !root().join(folder).join(target).exists() {
            problems.push(format!("link to `{target}`, which is not there"));
        }
    }
    for quoted in line.split('`').skip(1).step_by(2) {
        let is_path =
            quoted.starts_with("crates/") || quoted.starts_with("testing/") || quoted.starts_with("docs/");
        let is_plain = !quoted.contains(['*', '<', ' ', '{', '…', '$']);
        if is_path && is_plain && !root().join(quoted.trim_end_matches('/')).exists() {
            problems.push(format!("`{quoted}` is not there"));
        }
    }
    problems
}

/// Rows of the box whose path or symbol is not there.
fn append_box(map: &str, files: &[File]) -> Vec<String> {
    let Some((_, rest)) = map.split_once(BOX_START) else {
        return vec![format!("{MAP}: the box `{BOX_START}` is missing")];
    };
    let table = rest.split(BOX_END).next().unwrap_or_default();
    let mut problems = Vec::new();
    let mut rows = 0;
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        rows += 1;
        let mut cells = row.trim_matches('|').split('|');
        let quoted = |cell: Option<&str>| -> Vec<String> {
            cell.unwrap_or_default().split('`').skip(1).step_by(2).map(ToOwned::to_owned).collect()
        };
        let (paths, symbols) = (quoted(cells.next()), quoted(cells.next()));
        let path = paths.first().cloned().unwrap_or_default();
        let Some(text) = files.iter().find(|file| file.path == path).and_then(|file| file.text.as_deref())
        else {
            problems.push(format!("{MAP}: the box names `{path}`, which is not there"));
            continue;
        };
        for symbol in symbols {
            let name = symbol.rsplit("::").next().unwrap_or_default();
            if !DEFINITIONS.iter().any(|word| defines(text, word, name)) {
                problems.push(format!("{MAP}: the box names `{symbol}`, which `{path}` does not define"));
            }
        }
    }
    if rows < 5 {
        problems.push(format!("{MAP}: the box has {rows} rows; an append takes more steps than that"));
    }
    problems
}

fn defines(text: &str, word: &str, name: &str) -> bool {
    text.match_indices(&format!("{word}{name}"))
        .any(|(at, found)| !text[at + found.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}
