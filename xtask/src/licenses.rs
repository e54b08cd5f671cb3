//! The licences of everything that is linked in or used to test, against the list of those this project accepts.
//!
//! Works offline, from `cargo metadata`. Known vulnerabilities are another matter: they need the advisory database,
//! see `deny.toml`.

use anyhow::Result;

use crate::metadata::{Package, packages};

/// Licences a dependency may have. Keep `deny.toml` the same.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    // Certificates as data, not code: `webpki-roots`.
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MPL-2.0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];
/// The licence of this project.
const OURS: &str = "MIT OR Apache-2.0";

/// Every package whose licence is not acceptable.
pub(crate) fn problems() -> Result<Vec<String>> {
    let packages = packages()?;
    println!("licences of {} packages", packages.len());
    Ok(packages.iter().filter_map(problem).collect())
}

fn problem(package: &Package) -> Option<String> {
    let name = format!("{} {}", package.name, package.version);
    match &package.license {
        Some(license) if package.is_member && license == OURS => None,
        Some(license) if package.is_member => Some(format!("{name}: licence `{license}` is not `{OURS}`")),
        Some(license) if is_allowed(license) => None,
        Some(license) => Some(format!("{name}: licence `{license}` is not on the list")),
        None => Some(format!("{name}: names no licence")),
    }
}

/// Whether an SPDX expression can be satisfied with allowed licences.
fn is_allowed(expression: &str) -> bool {
    // Old manifests write `MIT/Apache-2.0` for a choice.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let allowed = any(&mut words);
    allowed && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(words: &mut Words<'_>) -> bool {
    let mut allowed = all(words);
    while words.next_if_eq(&"OR").is_some() {
        allowed |= all(words);
    }
    allowed
}

fn all(words: &mut Words<'_>) -> bool {
    let mut allowed = one(words);
    while words.next_if_eq(&"AND").is_some() {
        allowed &= one(words);
    }
    allowed
}

fn one(words: &mut Words<'_>) -> bool {
    match words.next() {
        Some("(") => {
            let allowed = any(words);
            words.next_if_eq(&")").is_some() && allowed
        }
        Some(license) => {
            let exception = words.next_if_eq(&"WITH").and_then(|_| words.next());
            match exception {
                Some(exception) => ALLOWED.contains(&format!("{license} WITH {exception}").as_str()),
                None => ALLOWED.contains(&license),
            }
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_needs_one_allowed_licence_and_a_conjunction_all() {
        for good in ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR GPL-2.0) AND Unicode-3.0"] {
            assert!(is_allowed(good), "{good}");
        }
        for bad in
            ["GPL-3.0", "MIT AND GPL-3.0", "(MIT AND GPL-2.0) OR LGPL-3.0", "MIT WITH oddity", "", "MIT )"]
        {
            assert!(!is_allowed(bad), "{bad}");
        }
    }
}
