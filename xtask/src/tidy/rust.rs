//! Rules for Rust files: length, first line, attributes, and the names of tests.

use crate::tree::File;

/// Lines of production code from which a file needs a reason, and at which it is too long whatever the reason.
const LINES_WANTED_MAX: usize = 500;
const LINES_MAX: usize = 800;
/// A `lib.rs` holds documentation, modules and re-exports.
const LIB_LINES_MAX: usize = 150;
/// Files that may be longer than wanted: path, how long at most, why. A number here may only become smaller.
const LONG_FILES: &[(&str, usize, &str)] = &[];
/// A test's name is a sentence; with fewer words than this it is hardly one.
const TEST_NAME_WORDS_MIN: usize = 3;

/// What breaks the rules.
pub(crate) fn problems(files: &[File]) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        problems.extend(whole_file(file));
        problems.extend(attributes(file));
        problems.extend(test_names(file));
    }
    for (path, _, _) in LONG_FILES {
        if !files.iter().any(|file| file.path == *path) {
            problems.push(format!("xtask/src/tidy/rust.rs: `{path}` is gone; remove its exception"));
        }
    }
    problems
}

fn whole_file(file: &File) -> Vec<String> {
    let mut problems = Vec::new();
    let path = &file.path;
    let name = path.rsplit('/').next().unwrap_or_default();
    if name == "mod.rs" {
        problems.push(format!("{path}: call it by its module's name, beside the folder"));
    }
    // `tests.rs` belongs to the module beside it, a fuzz target is one call.
    let is_part = name == "tests.rs" || path.starts_with("fuzz/fuzz_targets/");
    if !is_part && !file.lines().next().is_some_and(|(_, line)| line.starts_with("//! ")) {
        problems.push(format!("{path}:1: begins without a `//!` paragraph"));
    }
    let lines = production_lines(file);
    if name == "lib.rs" && lines > LIB_LINES_MAX {
        problems.push(format!("{path}: {lines} lines, at most {LIB_LINES_MAX} for a lib.rs"));
    }
    let exception = LONG_FILES.iter().find(|(long, _, _)| long == path);
    match exception {
        _ if file.is_test() => {}
        _ if lines > LINES_MAX => {
            problems.push(format!("{path}: {lines} lines of production code, at most {LINES_MAX}"));
        }
        None if lines > LINES_WANTED_MAX => {
            problems.push(format!(
                "{path}: {lines} lines of production code; over {LINES_WANTED_MAX} needs a reason"
            ));
        }
        Some((_, allowed, _)) if lines > *allowed => {
            problems.push(format!("{path}: {lines} lines, has grown over its exception of {allowed}"));
        }
        Some((_, allowed, _)) if lines < *allowed => {
            problems.push(format!("{path}: {lines} lines; lower its exception of {allowed}, or remove it"));
        }
        _ => {}
    }
    problems
}

/// Lines before the inline test module.
fn production_lines(file: &File) -> usize {
    let text = file.text.as_deref().unwrap_or_default();
    let mut lines = text.lines().peekable();
    let mut count = 0;
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]"
            && lines.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'))
        {
            break;
        }
        count += 1;
    }
    count
}

/// Exceptions to lints expire by themselves and say why; tests run; nothing is left open.
fn attributes(file: &File) -> Vec<String> {
    let mut problems = Vec::new();
    let mut expectation: Option<(usize, String)> = None;
    for (number, line) in file.lines() {
        let code = line.trim_start();
        let at = |what: &str| format!("{}:{number}: {what}", file.path);
        // Halves, so that this file does not find itself.
        if code.starts_with("#[allow(") || code.starts_with("#![allow(") {
            problems.push(at("use `expect` with a reason, which fails once it is not needed"));
        }
        if code.starts_with("#[ignore") {
            problems.push(at("a test that does not run proves nothing"));
        }
        for left_open in [concat!("to", "do!("), concat!("unimple", "mented!(")] {
            if code.contains(left_open) && !code.starts_with("//") {
                problems.push(at("left open"));
            }
        }
        if code.starts_with("#[expect(") || code.starts_with("#![expect(") {
            expectation = Some((number, String::new()));
        }
        if let Some((start, text)) = &mut expectation {
            text.push_str(code);
            if code.ends_with(")]") {
                if !text.contains("reason = \"") {
                    problems.push(format!("{}:{start}: `expect` without a reason", file.path));
                }
                expectation = None;
            }
        }
    }
    problems
}

/// A test is named by the sentence that it proves.
fn test_names(file: &File) -> Vec<String> {
    let mut problems = Vec::new();
    let mut is_test = false;
    for (number, line) in file.lines() {
        let code = line.trim_start();
        if code == "#[test]" || code.starts_with("#[tokio::test") {
            is_test = true;
            continue;
        }
        let declaration = code.strip_prefix("async ").unwrap_or(code);
        let Some(rest) = declaration.strip_prefix("fn ").filter(|_| is_test) else { continue };
        is_test = false;
        let name = rest.split('(').next().unwrap_or_default();
        if name.starts_with("test_") || name.split('_').count() < TEST_NAME_WORDS_MIN {
            problems.push(format!("{}:{number}: `{name}` is not a sentence about behaviour", file.path));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), bytes: text.len() as u64, text: Some(text.to_owned()) }
    }

    fn complaints(path: &str, text: &str) -> String {
        let problems = problems(&[file(path, text)]);
        problems.into_iter().filter(|problem| problem.starts_with("crates/")).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn each_norm_of_a_source_file_is_noticed() {
        let cases = [
            ("crates/a/src/b.rs", "fn main() {}\n", "`//!`"),
            ("crates/a/src/b/mod.rs", "//! Text.\n", "beside the folder"),
            ("crates/a/src/b.rs", "//! Text.\n#[allow(dead_code, reason = \"x\")]\n", "use `expect`"),
            ("crates/a/src/b.rs", "//! Text.\n#[expect(\n    dead_code\n)]\n", "without a reason"),
            ("crates/a/src/b.rs", "//! Text.\n#[test]\nfn test_one_thing_well() {}\n", "not a sentence"),
            ("crates/a/src/b.rs", "//! Text.\n#[test]\nfn appends() {}\n", "not a sentence"),
            ("crates/a/src/b.rs", concat!("//! Text.\n#[ig", "nore]\n"), "does not run"),
            ("crates/a/src/b.rs", concat!("//! Text.\nfn a() { to", "do!() }\n"), "left open"),
        ];
        for (path, text, complaint) in cases {
            assert!(complaints(path, text).contains(complaint), "{text}");
        }
        let good = "//! Text.\n#[expect(dead_code, reason = \"x\")]\n#[test]\nfn a_thing_is_so() {}\n";
        assert_eq!(complaints("crates/a/src/b.rs", good), "");
    }

    #[test]
    fn only_production_lines_count_towards_the_length_of_a_file() {
        let production = format!("//! Text.\n{}", "\n".repeat(LINES_WANTED_MAX - 1));
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(100));
        assert_eq!(complaints("crates/a/src/b.rs", &format!("{production}{tests}")), "");
        assert!(
            complaints("crates/a/src/b.rs", &format!("{production}\n{tests}")).contains("needs a reason")
        );
    }
}
