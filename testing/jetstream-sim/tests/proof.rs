//! The page that names a test for each rule names tests that there are.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// All names of functions in the sources below a folder.
fn functions(dir: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") && !path.ends_with("node_modules") {
            functions(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source");
            let found = text.lines().filter_map(|line| line.trim_start().split_once("fn "));
            let name = |rest: &str| rest.split(['(', '<']).next().unwrap_or_default().to_owned();
            names.extend(found.map(|(_, rest)| name(rest)));
        }
    }
}

#[test]
fn every_test_that_the_page_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut names = BTreeSet::new();
    for folder in ["crates", "testing"] {
        functions(&root.join(folder), &mut names);
    }
    let page = fs::read_to_string(root.join("docs/jetstream-proof.md")).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| rule"));
    let (mut rules, mut missing) = (0, Vec::new());
    for row in rows {
        let (_, tests) = row.trim_end_matches(" |").rsplit_once("| ").expect("two columns");
        let tests: Vec<&str> = tests.split(", ").map(|name| name.trim_matches('`')).collect();
        rules += 1;
        missing.extend(tests.into_iter().filter(|name| !names.contains(*name)));
    }
    assert!(rules > 40, "{rules} rules");
    assert!(missing.is_empty(), "no such tests: {missing:?}");
}
