//! Patterns over the names of streams: `*` is one segment, `**` any number of them, also none (PROTOCOL §6.2).

use std::collections::HashMap;
use std::fmt;

use super::name::{key_below, parse_name, segments_of};
use crate::StreamPath;
use crate::limits::{PATTERN_BYTES_MAX, PATTERN_SEGMENTS_MAX};

/// A segment of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(Box<str>),
    One,
    Any,
}

/// A pattern. As text it has no slash at either end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    segments: Vec<Segment>,
}

/// Why a text is no pattern.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum InvalidPattern {
    /// Nothing, or nothing but slashes.
    #[error("pattern is empty")]
    Empty,
    /// More than [`PATTERN_BYTES_MAX`] bytes or [`PATTERN_SEGMENTS_MAX`] segments.
    #[error("pattern has more than {PATTERN_BYTES_MAX} bytes or {PATTERN_SEGMENTS_MAX} segments")]
    TooLong,
    /// A segment of a stream's name is never empty, so nothing would match.
    #[error("pattern has an empty segment")]
    EmptySegment,
    /// A star within a segment: it would look as if it matched a part of one.
    #[error("`*` and `**` stand for whole segments of a path")]
    PartialStar,
}

impl Pattern {
    /// Reads a pattern. Slashes before and after it are dropped.
    pub fn parse(text: &str) -> Result<Self, InvalidPattern> {
        let text = text.trim_matches('/');
        if text.is_empty() {
            return Err(InvalidPattern::Empty);
        }
        if text.len() > PATTERN_BYTES_MAX {
            return Err(InvalidPattern::TooLong);
        }
        let segment = |text: &str| match text {
            "" => Err(InvalidPattern::EmptySegment),
            "*" => Ok(Segment::One),
            "**" => Ok(Segment::Any),
            text if text.contains('*') => Err(InvalidPattern::PartialStar),
            text => Ok(Segment::Literal(text.into())),
        };
        let segments: Vec<Segment> = text.split('/').map(segment).collect::<Result<_, _>>()?;
        if segments.len() > PATTERN_SEGMENTS_MAX {
            return Err(InvalidPattern::TooLong);
        }
        Ok(Self { text: text.into(), segments })
    }

    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it means this name. Takes time for the product of both lengths at most, and no memory.
    pub fn matches(&self, name: &str) -> bool {
        self.matches_segments(name.split('/'))
    }

    /// Whether it means this stream, by its name.
    pub fn matches_path(&self, path: &StreamPath) -> bool {
        segments_of(path).is_some_and(|segments| self.matches_segments(segments))
    }

    /// The last `**` takes as few segments as will do, and one more whenever what follows it does not fit. Earlier ones
    /// need not be tried again: what they could take, the last one can.
    fn matches_segments<'a>(&self, name: impl Iterator<Item = &'a str> + Clone) -> bool {
        let (mut at, mut rest) = (0, name);
        let mut last_any = None;
        loop {
            let mut after = rest.clone();
            let fits = match (self.segments.get(at), after.next()) {
                (Some(Segment::Any), _) => {
                    at += 1;
                    last_any = Some((at, rest.clone()));
                    continue;
                }
                (None, None) => return true,
                (None, Some(_)) | (Some(_), None) => false,
                (Some(Segment::One), Some(_)) => true,
                (Some(Segment::Literal(text)), Some(segment)) => **text == *segment,
            };
            if fits {
                (at, rest) = (at + 1, after);
                continue;
            }
            let Some((behind_any, from)) = &mut last_any else { return false };
            if from.next().is_none() {
                return false;
            }
            (at, rest) = (*behind_any, from.clone());
        }
    }

    /// Where the streams that it means can be.
    pub fn reach(&self) -> Reach {
        let is_literal = |segment: &&Segment| matches!(segment, Segment::Literal(_));
        let literals = self.segments.iter().take_while(is_literal).count();
        let head = self.text.split('/').take(literals).collect::<Vec<_>>().join("/");
        let rest = &self.segments[literals..];
        // What follows may be nothing.
        let is_itself = !head.is_empty() && rest.iter().all(|segment| *segment == Segment::Any);
        let path = if is_itself { parse_name(&head).ok() } else { None };
        Reach { path, below: (!rest.is_empty()).then(|| key_below(&head)) }
    }
}

/// Where the streams that a pattern means are, of all there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// This one, it may be.
    pub path: Option<StreamPath>,
    /// And some of those whose keys ([`StreamPath::as_str`]) begin so.
    pub below: Option<String>,
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// Many patterns, each with a number: finds all that mean a name without looking at each of them.
#[derive(Clone, Debug)]
pub struct PatternSet {
    nodes: Vec<Node>,
    live: usize,
}

/// What patterns that begin alike have in common up to here.
#[derive(Clone, Debug, Default)]
struct Node {
    literals: HashMap<Box<str>, usize>,
    one: Option<usize>,
    any: Option<usize>,
    /// Reached by `**`: stays reached whatever follows.
    repeats: bool,
    /// Patterns that end here.
    ends: Vec<u32>,
}

impl Default for PatternSet {
    fn default() -> Self {
        Self { nodes: vec![Node::default()], live: 0 }
    }
}

impl PatternSet {
    /// Adds a pattern under a number.
    pub fn insert(&mut self, pattern: &Pattern, number: u32) {
        let mut at = 0;
        for segment in &pattern.segments {
            let found = match segment {
                Segment::Literal(text) => self.nodes[at].literals.get(text).copied(),
                Segment::One => self.nodes[at].one,
                Segment::Any => self.nodes[at].any,
            };
            at = found.unwrap_or_else(|| self.grow(at, segment));
        }
        self.nodes[at].ends.push(number);
        self.live += 1;
    }

    fn grow(&mut self, at: usize, segment: &Segment) -> usize {
        let new = self.nodes.len();
        self.nodes.push(Node { repeats: *segment == Segment::Any, ..Node::default() });
        let node = &mut self.nodes[at];
        match segment {
            Segment::Literal(text) => drop(node.literals.insert(text.clone(), new)),
            Segment::One => node.one = Some(new),
            Segment::Any => node.any = Some(new),
        }
        new
    }

    /// Takes a pattern out again. What it had for itself stays, empty, until the set has none.
    pub fn remove(&mut self, pattern: &Pattern, number: u32) {
        let mut at = 0;
        for segment in &pattern.segments {
            let found = match segment {
                Segment::Literal(text) => self.nodes[at].literals.get(text).copied(),
                Segment::One => self.nodes[at].one,
                Segment::Any => self.nodes[at].any,
            };
            let Some(found) = found else { return };
            at = found;
        }
        let before = self.nodes[at].ends.len();
        self.nodes[at].ends.retain(|held| *held != number);
        self.live -= before - self.nodes[at].ends.len();
        if self.live == 0 {
            *self = Self::default();
        }
    }

    /// The numbers of all patterns that mean this name, in no order.
    pub fn matches(&self, name: &str) -> Vec<u32> {
        if self.live == 0 {
            return Vec::new();
        }
        let (mut reached, mut next) = (Vec::new(), Vec::new());
        self.reach(0, &mut reached);
        for segment in name.split('/') {
            for at in reached.drain(..) {
                let node: &Node = &self.nodes[at];
                if node.repeats {
                    self.reach(at, &mut next);
                }
                for found in [node.literals.get(segment).copied(), node.one].into_iter().flatten() {
                    self.reach(found, &mut next);
                }
            }
            std::mem::swap(&mut reached, &mut next);
        }
        reached.iter().flat_map(|at| self.nodes[*at].ends.iter().copied()).collect()
    }

    /// Notes that a node is reached, and with it what `**` reaches without a segment.
    fn reach(&self, at: usize, reached: &mut Vec<usize>) {
        if reached.contains(&at) {
            return;
        }
        reached.push(at);
        if let Some(any) = self.nodes[at].any {
            self.reach(any, reached);
        }
    }
}
