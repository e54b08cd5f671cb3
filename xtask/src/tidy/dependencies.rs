//! Every dependency has one line in `docs/dependencies.md` that says why it is there, and every line a dependency.

use std::collections::BTreeSet;

use crate::metadata::Package;
use crate::tree::File;

const PAGE: &str = "docs/dependencies.md";

/// Dependencies without a line, lines without a dependency, entries of the workspace that nobody uses.
pub(crate) fn problems(packages: &[Package], files: &[File]) -> Vec<String> {
    let members: BTreeSet<&str> =
        packages.iter().filter(|package| package.is_member).map(|package| package.name.as_str()).collect();
    let used: BTreeSet<&str> = packages
        .iter()
        .filter(|package| package.is_member)
        .flat_map(|package| package.dependencies.iter().map(String::as_str))
        .filter(|name| !members.contains(name))
        .collect();
    let page =
        files.iter().find(|file| file.path == PAGE).and_then(|file| file.text.as_deref()).unwrap_or_default();
    let rows: Vec<&str> = rows(page).collect();
    let explained: BTreeSet<&str> = rows.iter().copied().collect();
    let manifest = files.iter().find(|file| file.path == "Cargo.toml").and_then(|file| file.text.as_deref());
    let declared: BTreeSet<&str> = manifest
        .unwrap_or_default()
        .lines()
        .skip_while(|line| *line != "[workspace.dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once(" = ").map(|(name, _)| name))
        .filter(|name| !members.contains(name))
        .collect();
    let mut problems = doubled(&rows);
    problems.extend(used.difference(&explained).map(|name| format!("{PAGE}: no line for `{name}`")));
    problems.extend(explained.difference(&used).map(|name| format!("{PAGE}: `{name}` is not a dependency")));
    problems.extend(declared.difference(&used).map(|name| format!("Cargo.toml: no crate uses `{name}`")));
    problems
        .extend(used.difference(&declared).map(|name| {
            format!("Cargo.toml: `{name}` is used but not declared in [workspace.dependencies]")
        }));
    problems
}

/// What the lines of the table explain, in their order.
fn rows(page: &str) -> impl Iterator<Item = &str> {
    page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name))
}

/// Lines that are there twice, as merges leave them.
fn doubled(rows: &[&str]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let again = rows.iter().filter(|name| !seen.insert(**name));
    again.map(|name| format!("{PAGE}: more than one line for `{name}`")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_there_twice_is_found_wherever_it_stands() {
        let page =
            "| crate | used by | why |\n|---|---|---|\n| `b` | x | y |\n| `a` | x | y |\n| `b` | z | y |\n";
        assert_eq!(doubled(&rows(page).collect::<Vec<_>>()), [format!("{PAGE}: more than one line for `b`")]);
        assert!(doubled(&["a", "b"]).is_empty());
    }
}
