//! The page of log lines has each event that a server may write, as it is written, and no other.

use std::collections::BTreeSet;

use crate::tree::File;

const PAGE: &str = "docs/operating/log.md";
/// How an event begins.
const MACRO: &str = "tracing::";
const LEVELS: &[&str] = &["error", "warn", "info", "debug", "trace"];
/// What writes no log of a server.
const PASSED_OVER: &[&str] = &["jetstream-simulator"];
/// Where tests begin in a file.
const TESTS: &str = "#[cfg(test)]\nmod tests {";

/// Level, crate and message.
type Event = (String, String, String);

/// Events without a row, and rows without an event.
pub(crate) fn problems(files: &[File]) -> Vec<String> {
    let page = files.iter().find(|file| file.path == PAGE).and_then(|file| file.text.as_deref());
    let Some(page) = page else { return vec![format!("{PAGE}: is missing")] };
    let listed: BTreeSet<Event> = page.lines().filter_map(row).collect();
    let mut written = BTreeSet::new();
    for file in files {
        let (Some(package), Some(text)) = (package(&file.path), &file.text) else { continue };
        let text = text.split(TESTS).next().unwrap_or_default();
        written.extend(
            events(text).into_iter().map(|(level, message)| (level.to_owned(), package.to_owned(), message)),
        );
    }
    let show = |(level, package, message): &Event| format!("`{level} | {package} | {message}`");
    let missing = written.difference(&listed).map(|event| format!("{PAGE}: no row for {}", show(event)));
    let gone = listed.difference(&written).map(|event| format!("{PAGE}: {} is never written", show(event)));
    missing.chain(gone).collect()
}

/// The crate of a production file.
fn package(path: &str) -> Option<&str> {
    let (package, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    let is_code = rest.starts_with("src/")
        && path.rsplit_once('.').is_some_and(|(_, extension)| extension == "rs")
        && !rest.contains("/tests");
    (is_code && !PASSED_OVER.contains(&package)).then_some(package)
}

/// A row of a table of events; its message without quotes for code.
fn row(line: &str) -> Option<Event> {
    let mut cells = line.strip_prefix("| ")?.split(" | ");
    let level = cells.next().filter(|level| LEVELS.contains(level))?;
    let (package, message) = (cells.next()?, cells.next()?);
    Some((level.to_owned(), package.to_owned(), plain(message)))
}

fn plain(message: &str) -> String {
    message.replace('`', "")
}

/// The events of a source, by level and message.
fn events(text: &str) -> Vec<(&str, String)> {
    let begins = text.match_indices(MACRO).filter_map(|(at, found)| {
        let rest = &text[at + found.len()..];
        let (level, arguments) = rest.split_once("!(")?;
        Some((LEVELS.iter().copied().find(|known| *known == level)?, arguments))
    });
    begins.filter_map(|(level, arguments)| Some((level, plain(&message(arguments)?)))).collect()
}

/// The first string among the arguments that is no field's value.
fn message(arguments: &str) -> Option<String> {
    let (mut depth, mut is_value) = (0_u32, false);
    let mut chars = arguments.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                let mut text = String::new();
                while let Some(c) = chars.next().filter(|c| *c != '"') {
                    text.push(if c == '\\' { chars.next()? } else { c });
                }
                if depth == 0 && !is_value {
                    return Some(text);
                }
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.checked_sub(1)?,
            '=' => is_value = true,
            ',' if depth == 0 => is_value = false,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), bytes: 0, text: Some(text.to_owned()) }
    }

    const CODE: &str = r#"
        tracing::warn!(path = %path.display(), kind = "x", error = &e as &dyn Error, "not `here`");
        tracing::error!("the \"end\", at {x}");
        tracing::debug_span!("request");
        #[cfg(test)]
mod tests { fn t() { tracing::info!("only in a test"); } }
    "#;

    #[test]
    fn what_is_written_and_what_is_listed_must_be_the_same() {
        let page = "| warn | a | not `here` | meaning |\n| error | a | the \"end\", at {x} | meaning |\n";
        let found = |page: &str| problems(&[file(PAGE, page), file("crates/a/src/b.rs", CODE)]);
        assert_eq!(found(page), Vec::<String>::new());
        assert!(found("| warn | a | not `here` | meaning |\n")[0].contains("no row"));
        assert!(found(&format!("{page}| warn | a | gone | meaning |\n"))[0].contains("never written"));
        assert!(found(&page.replace("| warn | a", "| info | a")).len() == 2, "the level counts");
    }

    #[test]
    fn tests_and_other_folders_write_no_log() {
        for path in ["crates/a/tests/b.rs", "testing/a/src/b.rs", "crates/jetstream-simulator/src/b.rs"] {
            assert_eq!(package(path), None, "{path}");
        }
        assert_eq!(package("crates/a/src/b/c.rs"), Some("a"));
    }
}
