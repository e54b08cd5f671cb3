//! What is known of a metric apart from its values.

use std::fmt::Write as _;

/// What kind of values a family has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Something that only grows until the process ends. The name ends in `_total`.
    Counter,
    /// Something that goes up and down.
    Gauge,
    /// How many things were how large, or took how long.
    Histogram,
}

impl Kind {
    /// The word of the text format.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric with all its series. Declared once; nothing is shown that is not declared, and what is declared is
/// documented.
#[derive(Debug)]
pub struct Family {
    /// The name as it is shown, unit and `_total` included.
    pub name: &'static str,
    /// What kind of values it has.
    pub kind: Kind,
    /// What it means, in one sentence or more.
    pub help: &'static str,
    /// The names of its labels. Each has few values: never a name that a client chose.
    pub labels: &'static [&'static str],
}

impl Family {
    /// A counter. `name` ends in `_total`.
    pub const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, kind: Kind::Counter, help, labels }
    }

    /// A gauge.
    pub const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, kind: Kind::Gauge, help, labels }
    }

    /// A histogram.
    pub const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, kind: Kind::Histogram, help, labels }
    }
}

/// A table of families in Markdown.
pub fn families_markdown(families: &[&Family]) -> String {
    let mut page = String::from("| metric | kind | labels | meaning |\n|---|---|---|---|\n");
    for family in families {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        // Writing to a string does not fail.
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} |",
            family.name,
            family.kind.word(),
            labels.join(", "),
            family.help
        );
    }
    page
}
