//! Documentation that cannot rot: links lead somewhere, every crate is on the map, and the box that follows one
//! append through the code names files and symbols that exist.

use std::collections::BTreeSet;

use crate::metadata::Package;
use crate::tree::{File, root};

const MAP: &str = "docs/ARCHITECTURE.md";
/// The box: a table between two comments, with a path in the first column and symbols of that file in the second,
/// methods as `Type::method`.
const BOX_START: &str = "<!-- follow an append -->";
const BOX_END: &str = "<!-- end of the box -->";
/// The page of error codes, and the code that answers with them.
const ERRORS: &str = "docs/errors.md";
const ERRORS_SOURCES: &[&str] = &[
    "crates/streams/src/http/error.rs",
    "crates/streams/src/http/error/contract.rs",
    "crates/streams/src/http/error/floor.rs",
    "crates/access/src/refusal.rs",
    "crates/http/src/admission.rs",
    "crates/http/src/reactor.rs",
    "crates/http/src/http1.rs",
    "crates/http/src/http2.rs",
    "crates/server/src/keep/http.rs",
    "crates/server/src/sight/answer.rs",
    "crates/server/src/sight/operated.rs",
    "crates/server/src/admin/refusal.rs",
];
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
        if symbols.is_empty() {
            problems.push(format!("{MAP}: the box names nothing in `{path}`"));
        }
        for symbol in symbols.iter().filter(|symbol| !has_symbol(text, symbol)) {
            problems.push(format!("{MAP}: the box names `{symbol}`, which `{path}` does not define"));
        }
    }
    if rows < 5 {
        problems.push(format!("{MAP}: the box has {rows} rows; an append takes more steps than that"));
    }
    problems
}

/// Whether the file defines `name`, or `Type::name` within an `impl` of the type.
fn has_symbol(text: &str, symbol: &str) -> bool {
    let Some((owner, name)) = symbol.split_once("::") else {
        return DEFINITIONS.iter().any(|word| defines(text, word, symbol));
    };
    // An `impl` block ends at the first line that closes in the first column.
    let blocks = text.split("\nimpl").skip(1).map(|block| block.split("\n}").next().unwrap_or_default());
    let mut of_owner = blocks.filter(|block| block.lines().next().is_some_and(|head| has_word(head, owner)));
    of_owner.any(|block| defines(block, "fn ", name))
}

fn defines(text: &str, word: &str, name: &str) -> bool {
    text.match_indices(&format!("{word}{name}"))
        .any(|(at, found)| !text[at + found.len()..].starts_with(is_of_a_name))
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c| !is_of_a_name(c)).any(|part| part == word)
}

fn is_of_a_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "//! Text.\n\npub fn handle() {}\n\nstruct Queue;\n\nimpl<T> Queue<T> {\n    fn push(&self) {\n    }\n}\n\n\
        impl Other {\n    fn take(&self) {}\n}\n";

    #[test]
    fn a_symbol_is_looked_for_where_it_says_it_is() {
        for there in ["handle", "Queue", "push", "Queue::push", "Other::take"] {
            assert!(has_symbol(CODE, there), "{there}");
        }
        for gone in ["hand", "handles", "Queue::take", "Other::push", "Queue::pus", "Que::push", "Gone::take"]
        {
            assert!(!has_symbol(CODE, gone), "{gone}");
        }
    }

    #[test]
    fn a_row_of_the_box_that_leads_nowhere_is_noticed() {
        let file = File { path: "crates/a.rs".to_owned(), bytes: 0, text: Some(CODE.to_owned()) };
        let row = |path: &str, symbols: &str| format!("| `{path}` | {symbols} | what |\n");
        let good = row("crates/a.rs", "`handle`, `Queue::push`").repeat(5);
        let complaints = |more: &str| {
            append_box(&format!("{BOX_START}\n{good}{more}{BOX_END}"), std::slice::from_ref(&file))
        };
        assert_eq!(complaints(""), Vec::<String>::new());
        assert!(complaints(&row("crates/a.rs", "`Queue::take`"))[0].contains("does not define"));
        assert!(complaints(&row("crates/b.rs", "`handle`"))[0].contains("not there"));
        assert!(complaints(&row("crates/a.rs", "handle"))[0].contains("names nothing"));
        assert!(append_box(BOX_START, &[])[0].contains("0 rows"));
    }
}
