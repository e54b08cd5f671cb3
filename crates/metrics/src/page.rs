//! Samples of families, and their text: Prometheus' format 0.0.4, or `OpenMetrics` 1.0.

use std::fmt::Write as _;

use crate::family::{Family, Kind};
use crate::histogram::Observed;

/// How samples are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Format {
    /// Prometheus' own, which everything reads.
    Prometheus,
    /// `OpenMetrics` 1.0.
    OpenMetrics,
}

impl Format {
    /// What a reader's `Accept` asks for. Whoever names `OpenMetrics` gets it; nobody names it without reading it.
    pub fn negotiate(accept: Option<&str>) -> Self {
        let names = |accept: &str| accept.to_ascii_lowercase().contains("application/openmetrics-text");
        if accept.is_some_and(names) { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The media type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The value of one series.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of a counter or a gauge.
    Whole(u64),
    /// The same, where it has a fraction.
    Fraction(f64),
    /// Of a histogram.
    Observed(Observed),
}

/// One series and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The values of the family's labels, in their order.
    pub labels: Vec<String>,
    /// The value.
    pub value: Value,
}

/// All series of one family.
#[derive(Debug)]
pub struct Section {
    /// The family.
    pub family: &'static Family,
    /// Its series.
    pub samples: Vec<Sample>,
}

/// All samples of one moment, by family.
#[derive(Debug, Default)]
pub struct Page {
    sections: Vec<Section>,
}

impl Page {
    /// An empty page.
    pub const fn new() -> Self {
        Self { sections: Vec::new() }
    }

    /// The families that have samples, in the order in which they came.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// Adds a series of a counter or a gauge.
    pub fn whole(&mut self, family: &'static Family, labels: &[&str], value: u64) {
        self.add(family, labels, Value::Whole(value));
    }

    /// Adds a series whose value has a fraction.
    pub fn fraction(&mut self, family: &'static Family, labels: &[&str], value: f64) {
        self.add(family, labels, Value::Fraction(value));
    }

    /// Adds a series of a histogram.
    pub fn observed(&mut self, family: &'static Family, labels: &[&str], value: Observed) {
        self.add(family, labels, Value::Observed(value));
    }

    fn add(&mut self, family: &'static Family, labels: &[&str], value: Value) {
        debug_assert_eq!(labels.len(), family.labels.len(), "{}: one value for each label", family.name);
        debug_assert_eq!(
            matches!(value, Value::Observed(_)),
            family.kind == Kind::Histogram,
            "{}: a value of its kind",
            family.name
        );
        let sample = Sample { labels: labels.iter().map(|&label| label.to_owned()).collect(), value };
        match self.sections.iter_mut().rev().find(|section| std::ptr::eq(section.family, family)) {
            Some(section) => section.samples.push(sample),
            None => self.sections.push(Section { family, samples: vec![sample] }),
        }
    }

    /// The text.
    pub fn text(&self, format: Format) -> String {
        let mut text = String::new();
        for section in &self.sections {
            write_section(&mut text, section, format);
        }
        if format == Format::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }
}

fn write_section(text: &mut String, section: &Section, format: Format) {
    let Family { name, kind, help, labels } = *section.family;
    // In OpenMetrics the ending belongs to the sample and not to the family.
    let family = match format {
        Format::OpenMetrics if kind == Kind::Counter => name.strip_suffix("_total").unwrap_or(name),
        Format::OpenMetrics | Format::Prometheus => name,
    };
    text.extend(["# HELP ", family, " "]);
    escape(text, help, format == Format::OpenMetrics);
    text.extend(["\n# TYPE ", family, " ", kind.word(), "\n"]);
    for sample in &section.samples {
        let pairs = pairs(labels, &sample.labels);
        match &sample.value {
            Value::Whole(value) => line(text, name, "", &pairs, None, &value.to_string()),
            Value::Fraction(value) => line(text, name, "", &pairs, None, &number(*value)),
            Value::Observed(observed) => write_histogram(text, name, &pairs, observed),
        }
    }
}

fn write_histogram(text: &mut String, name: &str, pairs: &str, observed: &Observed) {
    let mut cumulative = 0;
    let bounds = observed.unit.bounds.iter().map(|bound| number(shown(*bound, observed)));
    for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(&observed.buckets) {
        cumulative += count;
        line(text, name, "_bucket", pairs, Some(&bound), &cumulative.to_string());
    }
    line(text, name, "_sum", pairs, None, &number(shown(observed.sum, observed)));
    line(text, name, "_count", pairs, None, &cumulative.to_string());
}

#[expect(clippy::cast_precision_loss, reason = "what is shown is a floating-point number by its format")]
fn shown(value: u64, observed: &Observed) -> f64 {
    value as f64 / observed.unit.per_shown as f64
}

/// A number with a point in it, as both formats read it.
fn number(value: f64) -> String {
    if value.is_finite() {
        format!("{value:?}")
    } else if value.is_nan() {
        "NaN".to_owned()
    } else if value > 0.0 {
        "+Inf".to_owned()
    } else {
        "-Inf".to_owned()
    }
}

fn pairs(names: &[&str], values: &[String]) -> String {
    let mut pairs = String::new();
    for (name, value) in names.iter().zip(values) {
        if !pairs.is_empty() {
            pairs.push(',');
        }
        pairs.extend([name, "=\""]);
        escape(&mut pairs, value, true);
        pairs.push('"');
    }
    pairs
}

fn escape(text: &mut String, value: &str, quotes: bool) {
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if quotes => text.push_str("\\\""),
            letter => text.push(letter),
        }
    }
}

fn line(text: &mut String, name: &str, ending: &str, pairs: &str, bound: Option<&str>, value: &str) {
    text.extend([name, ending]);
    if bound.is_some() || !pairs.is_empty() {
        text.extend(["{", pairs]);
        if let Some(bound) = bound {
            // Writing to a string does not fail.
            let _ = write!(text, "{}le=\"{bound}\"", if pairs.is_empty() { "" } else { "," });
        }
        text.push('}');
    }
    text.extend([" ", value, "\n"]);
}
