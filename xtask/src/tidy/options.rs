//! Every option of the server is there for something: its value is read where the server is put together, not only
//! where options are declared, and its name stands in a test or on a page that a person wrote.

use crate::docs::written;
use crate::tree::File;

/// Where options are declared, one a line: `"name" => field: type = default;`.
const TABLE: &str = "crates/server/src/config/options.rs";
/// Reading an option here makes no difference to a server.
const CONFIG: &[&str] = &["crates/server/src/config/", "crates/server/src/config.rs"];
/// Where a server is put together from its options.
const READERS: &[&str] = &["crates/server/src/", "crates/cli/src/"];

/// One declared option.
#[derive(Debug, PartialEq, Eq)]
struct Declared<'a> {
    name: &'a str,
    field: &'a str,
}

/// Options without an effect, and options that nothing names.
pub(crate) fn problems(files: &[File]) -> Vec<String> {
    let table = files.iter().find(|file| file.path == TABLE).and_then(|file| file.text.as_deref());
    let declared: Vec<Declared<'_>> = table.unwrap_or_default().lines().filter_map(declaration).collect();
    if declared.is_empty() {
        return vec![format!("{TABLE}: no option is declared as `\"name\" => field: type = default;`")];
    }
    let mut problems = Vec::new();
    for option in &declared {
        if !files.iter().any(|file| reads(file, option.field)) {
            problems.push(format!("{TABLE}: nothing reads `{}`; remove `{}`", option.field, option.name));
        }
        if !files.iter().any(|file| names(file, option.name)) {
            problems.push(format!(
                "{TABLE}: `{}` is in no test (as `--{}` or its variable) and on no page",
                option.name, option.name
            ));
        }
    }
    problems
}

fn declaration(line: &str) -> Option<Declared<'_>> {
    let (name, rest) = line.trim().strip_prefix('"')?.split_once("\" => ")?;
    let (field, _) = rest.split_once(": ")?;
    Some(Declared { name, field })
}

/// Whether the file takes the option's value out of a configuration, to do something with it.
fn reads(file: &File, field: &str) -> bool {
    let text = file.text.as_deref().unwrap_or_default();
    let is_reader = READERS.iter().any(|folder| file.path.starts_with(folder))
        && !CONFIG.iter().any(|place| file.path.starts_with(place))
        && !file.is_test();
    is_reader && has_word(text, &format!("config.{field}"))
}

/// Whether the file is a test that sets the option, or a page that speaks of it.
fn names(file: &File, name: &str) -> bool {
    let text = file.text.as_deref().unwrap_or_default();
    if file.is_markdown() {
        return written(text).contains(&format!("`{name}`"))
            || has_word(&written(text), &format!("--{name}"));
    }
    let is_test = file.is_test() || file.path.starts_with("testing/");
    let variable = format!("ALLUVIUM_{}", name.replace('-', "_").to_ascii_uppercase());
    is_test && (has_word(text, &format!("--{name}")) || has_word(text, &variable))
}

/// Whether the word is there, and not only as the beginning of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let next = text[at + word.len()..].chars().next();
        !next.is_some_and(|next| next.is_alphanumeric() || next == '_' || next == '-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), bytes: text.len() as u64, text: Some(text.to_owned()) }
    }

    fn complaints(others: &[(&str, &str)]) -> Vec<String> {
        let table =
            "options! {\n    /// Where.\n    \"data-dir\" => data_dir: PathBuf = PathBuf::new();\n}\n";
        let mut files = vec![file(TABLE, table)];
        files.extend(others.iter().map(|(path, text)| file(path, text)));
        problems(&files)
    }

    const READ: (&str, &str) = ("crates/server/src/serve.rs", "open(&config.data_dir)");
    const TESTED: (&str, &str) = ("crates/cli/tests/it/a.rs", "Cli::new(\"serve --data-dir\")");

    #[test]
    fn an_option_that_is_read_and_tested_is_fine() {
        assert_eq!(complaints(&[READ, TESTED]), Vec::<String>::new());
        assert_eq!(complaints(&[READ, ("testing/a/src/b.rs", "ALLUVIUM_DATA_DIR")]), Vec::<String>::new());
        assert_eq!(complaints(&[READ, ("README.md", "see `data-dir`")]), Vec::<String>::new());
    }

    #[test]
    fn an_option_that_only_the_configuration_itself_reads_does_nothing() {
        for path in
            ["crates/server/src/config.rs", "crates/server/src/config/load.rs", "crates/engine/src/a.rs"]
        {
            let found = complaints(&[(path, READ.1), TESTED]);
            assert!(found.len() == 1 && found[0].contains("nothing reads `data_dir`"), "{path}: {found:?}");
        }
        let longer = complaints(&[(READ.0, "config.data_directory"), TESTED]);
        assert!(longer[0].contains("nothing reads"), "{longer:?}");
    }

    #[test]
    fn an_option_that_only_generated_text_names_is_not_shown_to_work() {
        let generated =
            "<!-- generated by `alluvium config docs` -->\n`data-dir`\n<!-- end of generated part -->\n";
        for (path, text) in [
            ("docs/configuration.md", generated),
            ("crates/server/src/serve.rs", "config.data_dir // --data-dir"),
            ("crates/cli/tests/it/a.rs", "--data-dir-other"),
        ] {
            let found = complaints(&[READ, (path, text)]);
            assert!(found.len() == 1 && found[0].contains("is in no test"), "{path}: {found:?}");
        }
    }

    #[test]
    fn a_table_that_is_not_where_it_is_looked_for_is_noticed() {
        assert!(problems(&[file(TABLE, "\n")])[0].contains("no option is declared"));
    }
}
