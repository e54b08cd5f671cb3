//! Which requirement has which test: every check names the ids it covers, and an id without a check is a failure.
//!
//! The ids: two letters and a number for the requirements of the extension, in the groups identifiers (ID), buckets
//! (BK), listing (LS), snapshots (SN), reading them (RD), bootstrap (BS), server-sent events (SSE), errors (X); `#`
//! and a number for the 51 behaviours; `+` and a word for what goes beyond the extension. Where the extension's text
//! leaves a choice, `docs/extensions.md` says which is ours, and the check says `(our choice: …)`.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::check::Report;

/// The groups and how many requirements each has.
const GROUPS: &[(&str, u32)] = &[
    ("ID-", 10),
    ("BK-", 11),
    ("LS-", 13),
    ("SN-", 20),
    ("RD-", 12),
    ("BS-", 16),
    ("SSE-", 2),
    ("X-", 2),
    ("#", 51),
];
/// Requirements that the extension leaves open or contradicts itself on: what is checked is our documented choice.
const CHOICES: &[(&str, std::ops::RangeInclusive<u32>)] = &[
    ("ID-", 5..=10),
    ("BK-", 8..=11),
    ("LS-", 8..=13),
    ("SN-", 13..=20),
    ("RD-", 3..=3),
    ("RD-", 5..=5),
    ("RD-", 10..=12),
    ("BS-", 10..=16),
    ("SSE-", 2..=2),
    ("X-", 1..=2),
    ("#", 23..=23),
    ("#", 46..=46),
];
/// What goes beyond the extension.
const BEYOND: &[&str] = &["+batch", "+match", "+max-bytes", "+attrs", "+retain"];

/// The report, with the ids that were covered.
#[derive(Debug)]
pub(super) struct Suite<'a> {
    report: &'a mut Report,
    covered: BTreeSet<String>,
}

fn is_choice(id: &str) -> bool {
    CHOICES.iter().any(|(group, numbers)| {
        id.strip_prefix(group)
            .and_then(|number| number.parse().ok())
            .is_some_and(|number| numbers.contains(&number))
    })
}

impl<'a> Suite<'a> {
    pub(super) fn new(report: &'a mut Report) -> Self {
        Self { report, covered: BTreeSet::new() }
    }

    /// Runs one check, which covers the ids in `ids`, separated by space.
    pub(super) fn check(&mut self, ids: &str, name: &str, body: impl FnOnce() -> Result<()>) {
        self.covered.extend(ids.split(' ').map(str::to_owned));
        let choices: Vec<&str> = ids.split(' ').filter(|id| is_choice(id)).collect();
        let label =
            if choices.is_empty() { String::new() } else { format!(" (our choice: {})", choices.join(", ")) };
        self.report.check(&format!("[{ids}] {name}{label}"), body);
    }

    /// The last check: nothing is left without one.
    pub(super) fn finish(self) {
        let Self { report, covered } = self;
        report.check("every requirement has a check", || {
            let wanted: BTreeSet<String> = GROUPS
                .iter()
                .flat_map(|(group, count)| (1..=*count).map(move |number| format!("{group}{number}")))
                .chain(BEYOND.iter().map(ToString::to_string))
                .collect();
            let missing: Vec<&String> = wanted.difference(&covered).collect();
            let unknown: Vec<&String> = covered.difference(&wanted).collect();
            ensure!(missing.is_empty() && unknown.is_empty(), "missing {missing:?}, unknown {unknown:?}");
            Ok(())
        });
    }
}
