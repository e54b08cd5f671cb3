//! The fuzz targets are a workspace of their own, which the tests don't build: they include its sources, and it includes some of
//! the crates'. So what those use has to be in its manifest, or it no longer builds and nobody notices.

use std::collections::BTreeSet;

use crate::metadata::Package;
use crate::tree::File;

const MANIFEST: &str = "fuzz/Cargo.toml";
const SOURCES: &str = "fuzz/src/";

/// Crates that sources of the fuzz targets use and their manifest doesn't have.
pub(crate) fn problems(packages: &[Package], files: &[File]) -> Vec<String> {
    let text = |path: &str| {
        files.iter().find(|file| file.path == path).and_then(|file| file.text.as_deref()).unwrap_or_default()
    };
    let crates: BTreeSet<String> = packages
        .iter()
        .flat_map(|package| package.dependencies.iter().chain([&package.name]))
        .map(|name| name.replace('-', "_"))
        .collect();
    let declared = declared(text(MANIFEST));
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.path.starts_with(SOURCES) && file.is_rust()) {
        let own = file.text.as_deref().unwrap_or_default();
        let included = included(own).map(|path| format!("fuzz/src/{path}"));
        let included: Vec<String> = included.map(|path| path.replace("fuzz/src/../../", "")).collect();
        for (path, source) in included.iter().map(|path| (path, text(path))).chain([(&file.path, own)]) {
            let missing = used(source).filter(|name| crates.contains(*name) && !declared.contains(*name));
            problems
                .extend(missing.map(|name| format!("{path}: uses `{name}`, which {MANIFEST} does not have")));
        }
    }
    problems.sort();
    problems.dedup();
    problems
}

/// The dependencies of a manifest, as they are called in sources.
fn declared(manifest: &str) -> BTreeSet<String> {
    let section = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let names = section.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once(" = "));
    names.map(|(name, _)| name.replace('-', "_")).collect()
}

/// The files that are modules of a source by their path.
fn included(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]"))
}

/// The first names of the paths that a source takes names from.
fn used(source: &str) -> impl Iterator<Item = &str> {
    let imports = source.lines().filter_map(|line| {
        let line = line.trim();
        line.strip_prefix("pub(crate) use ").or_else(|| line.strip_prefix("use "))
    });
    imports.filter_map(|path| path.split([':', ';', ' ']).next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), bytes: text.len() as u64, text: Some(text.to_owned()) }
    }

    #[test]
    fn a_crate_that_an_included_source_uses_is_missed_in_the_manifest() {
        let package = |name: &str, dependencies: &[&str]| Package {
            name: name.to_owned(),
            dependencies: dependencies.iter().map(|name| (*name).to_owned()).collect(),
            ..Package::default()
        };
        let packages = [package("alluvium", &["this-error", "bytes"]), package("alluvium-sse", &[])];
        let mut files = vec![
            file(MANIFEST, "[dependencies]\nbytes = \"1\"\n\n[profile.release]\nthis-error = 1\n"),
            file(
                "fuzz/src/sse.rs",
                "#[path = \"../../crates/cli/src/sse.rs\"]\nmod sse;\nuse bytes::Bytes;\n",
            ),
            file(
                "crates/cli/src/sse.rs",
                "use std::fmt;\nuse this_error::Error;\n    use alluvium_sse as sse;\n",
            ),
        ];
        let missing = |name| format!("crates/cli/src/sse.rs: uses `{name}`, which {MANIFEST} does not have");
        assert_eq!(problems(&packages, &files), [missing("alluvium_sse"), missing("this_error")]);
        files[0] = file(
            MANIFEST,
            "[dependencies]\nbytes = \"1\"\nthis-error = \"2\"\nalluvium-sse = { path = \"x\" }\n",
        );
        assert!(problems(&packages, &files).is_empty());
    }
}
