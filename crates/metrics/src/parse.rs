//! Reads the text of either format, strictly: what a lenient reader would pass over is an error here.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::family::Kind;

/// Most bytes of a text that is read.
const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What is wrong with a text.
#[derive(Clone, Debug, Eq, PartialEq, Error)]
#[error("line {line}: {reason}")]
pub struct ParseError {
    /// The line, from 1; 0 for the text as a whole.
    pub line: usize,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedSample {
    /// The name on its line: the family's, perhaps with an ending.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

/// One family with all its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedFamily {
    /// The name that its kind was told of. In `OpenMetrics` that of a counter has no `_total`.
    pub name: String,
    /// What kind of values it has.
    pub kind: Kind,
    /// What it means.
    pub help: String,
    /// The samples, in their order.
    pub samples: Vec<ParsedSample>,
}

/// A text that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exposition {
    /// The families, in their order.
    pub families: Vec<ParsedFamily>,
}

impl Exposition {
    /// The value of the series with this name and all of these labels, and no others.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.samples(name)
            .find(|sample| {
                sample.labels.len() == labels.len()
                    && labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|v| v == value))
            })
            .map(|sample| sample.value)
    }

    /// The sum of all series with this name and, among others, these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |sample: &&ParsedSample| {
            labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|v| v == value))
        };
        self.samples(name).filter(has).map(|sample| sample.value).sum()
    }

    /// All samples with this name.
    pub fn samples<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a ParsedSample> {
        self.families.iter().flat_map(|family| &family.samples).filter(move |sample| sample.name == name)
    }
}

/// Reads a text of either format.
///
/// Each family has its help and its kind before its samples, which stand together; no series comes twice; buckets of
/// histograms are complete and grow; counters are not negative. Time stamps and exemplars are not understood.
pub fn parse(text: &str) -> Result<Exposition, ParseError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(ParseError { line: 0, reason: "the text is too long" });
    }
    let mut reader = Reader::default();
    let mut ended = false;
    for (index, line) in text.split_terminator('\n').enumerate() {
        let fail = |reason| ParseError { line: index + 1, reason };
        if ended {
            return Err(fail("something follows the end"));
        }
        match line.strip_prefix("# ") {
            Some("EOF") => ended = true,
            Some(about) => reader.about(about).map_err(fail)?,
            None => reader.sample(line).map_err(fail)?,
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        return Err(ParseError { line: 0, reason: "the last line has no end" });
    }
    reader.close().map_err(|reason| ParseError { line: 0, reason })?;
    Ok(Exposition { families: reader.families })
}

#[derive(Debug, Default)]
struct Reader {
    families: Vec<ParsedFamily>,
    names: BTreeSet<String>,
    /// The help of the family that begins.
    help: Option<(String, String)>,
    series: BTreeSet<(String, BTreeMap<String, String>)>,
}

type Check<T> = Result<T, &'static str>;

impl Reader {
    fn about(&mut self, about: &str) -> Check<()> {
        let (what, rest) = about.split_once(' ').ok_or("a comment that is none of the format's")?;
        let (name, rest) = rest.split_once(' ').ok_or("a name and what is said of it are missing")?;
        if !is_name(name, true) {
            return Err("a family has a name that is none");
        }
        match what {
            "HELP" if self.help.is_some() => Err("two helps in a row"),
            "HELP" => {
                self.help = Some((name.to_owned(), unescape(rest)?));
                Ok(())
            }
            "TYPE" => self.begin(name, rest),
            _ => Err("a comment that is none of the format's"),
        }
    }

    fn begin(&mut self, name: &str, kind: &str) -> Check<()> {
        let kind = match kind {
            "counter" => Kind::Counter,
            "gauge" => Kind::Gauge,
            "histogram" => Kind::Histogram,
            _ => return Err("a kind that is not known here"),
        };
        let help = self.help.take().filter(|(of, _)| of == name).ok_or("a family without help")?.1;
        self.close()?;
        if !self.names.insert(name.to_owned()) {
            return Err("a family comes twice");
        }
        self.families.push(ParsedFamily { name: name.to_owned(), kind, help, samples: Vec::new() });
        Ok(())
    }

    fn sample(&mut self, line: &str) -> Check<()> {
        if self.help.is_some() {
            return Err("a help without a kind");
        }
        let end = line.find(['{', ' ']).ok_or("a sample without a value")?;
        let (name, rest) = line.split_at(end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (BTreeMap::new(), rest),
        };
        let value = value(rest.strip_prefix(' ').ok_or("no space before the value")?)?;
        let family = self.families.last_mut().ok_or("a sample without a family")?;
        let ending = name.strip_prefix(family.name.as_str()).ok_or("a sample outside its family")?;
        let fits = match family.kind {
            Kind::Gauge => ending.is_empty(),
            Kind::Counter => ending == "_total" || (ending.is_empty() && name.ends_with("_total")),
            Kind::Histogram => matches!(ending, "_bucket" | "_sum" | "_count"),
        };
        if !fits || labels.contains_key("le") != (ending == "_bucket") {
            return Err("a sample that is not of its family's kind");
        }
        if family.kind != Kind::Gauge && (value.is_nan() || value < 0.0) {
            return Err("a count that is negative");
        }
        if !self.series.insert((name.to_owned(), labels.clone())) {
            return Err("a series comes twice");
        }
        family.samples.push(ParsedSample { name: name.to_owned(), labels, value });
        Ok(())
    }

    /// Checks what can only be told at the end of a family.
    fn close(&self) -> Check<()> {
        if self.help.is_some() {
            return Err("a help without a kind");
        }
        match self.families.last() {
            Some(family) if family.kind == Kind::Histogram => check_histogram(family),
            _ => Ok(()),
        }
    }
}

fn check_histogram(family: &ParsedFamily) -> Check<()> {
    let mut buckets: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
    let (mut counts, mut sums) = (BTreeMap::new(), BTreeSet::new());
    for sample in &family.samples {
        let mut labels = sample.labels.clone();
        match labels.remove("le") {
            Some(bound) => buckets.entry(labels).or_default().push((value(&bound)?, sample.value)),
            None if sample.name.ends_with("_sum") => drop(sums.insert(labels)),
            None => drop(counts.insert(labels, sample.value)),
        }
    }
    if !buckets.keys().eq(counts.keys()) || !buckets.keys().eq(sums.iter()) {
        return Err("a histogram without buckets, sum or count");
    }
    for (labels, buckets) in &buckets {
        let grows = buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let last = buckets.last().ok_or("a histogram without buckets")?;
        #[expect(clippy::float_cmp, reason = "both were read from whole numbers")]
        let is_whole = last.0 == f64::INFINITY && counts.get(labels).is_some_and(|count| *count == last.1);
        if !grows || !is_whole {
            return Err("a histogram whose buckets do not add up");
        }
    }
    Ok(())
}

/// The labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Check<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        let (name, after) = rest.split_once("=\"").ok_or("a label without a value")?;
        if !is_name(name, false) {
            return Err("a label has a name that is none");
        }
        let end = closing_quote(after).ok_or("a label's value has no end")?;
        let value = unescape(&after[..end])?;
        if labels.insert(name.to_owned(), value).is_some() {
            return Err("a label comes twice");
        }
        rest = &after[end + 1..];
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((labels, after));
        }
        rest = rest.strip_prefix(',').ok_or("labels without a comma between them")?;
    }
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

fn unescape(text: &str) -> Check<String> {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        plain.push(match letter {
            '\\' => match letters.next() {
                Some('n') => '\n',
                Some(letter @ ('\\' | '"')) => letter,
                _ => return Err("an escape that is none"),
            },
            letter => letter,
        });
    }
    Ok(plain)
}

fn is_name(name: &str, colons: bool) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || (colons && byte == b':');
    name.bytes().next().is_some_and(is_letter)
        && name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

fn value(text: &str) -> Check<f64> {
    match text {
        "+Inf" => Ok(f64::INFINITY),
        "-Inf" => Ok(f64::NEG_INFINITY),
        "NaN" => Ok(f64::NAN),
        text => {
            let is_plain = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e'));
            text.parse().ok().filter(|_| is_plain).ok_or("a value that is no number")
        }
    }
}
