//! Planning a download: which segments and blocks a client needs for what it wants.
//!
//! A plan looks at nothing but the metadata in memory. It may name blocks without a wanted row, and never leaves one out
//! that has some. The work of one answer is bounded: a plan that would take more ends early and says how far it came,
//! which a client takes as a page.

use alluvium_jss::SegmentIndex;
#[cfg(feature = "planted-bugs")]
use alluvium_jss::planted::{Bug, is_planted};

use crate::manifest::{Descriptor, Manifest};
use crate::select::Selection;

/// What is asked for: rows with numbers above `after_seq` and up to `before_seq`.
#[derive(Clone, Debug, Default)]
pub struct PlanRequest {
    /// Which rows.
    pub selection: Selection,
    /// Only rows after this one; 0 for all.
    pub after_seq: u64,
    /// Only rows up to this one.
    pub before_seq: Option<u64>,
}

/// Bounds of an answer.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct PlanLimits {
    /// Entries of a page: whole segments and ranges of blocks; 100,000. The first is always given. 0 is no bound.
    pub entries: usize,
    /// The share of a segment's blocks from which on it is named as a whole; 0.75.
    pub whole_segment: f64,
    /// Work for a page, in questions to filters and blocks looked at; 20 million, about a second. A segment that was begun
    /// is finished, so a page comes at least one segment further.
    pub work: u64,
}

impl Default for PlanLimits {
    fn default() -> Self {
        Self { entries: 100_000, whole_segment: 0.75, work: 20_000_000 }
    }
}

/// What to download.
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub struct Plan {
    /// Everything up to this row is planned: go on after it. Equal to `sealed_tip_seq` or above when nothing is left.
    pub planned_through_seq: u64,
    /// The last row of all sealed segments, or `before_seq` when that is lower; 0 for an empty archive.
    pub sealed_tip_seq: u64,
    /// The segments with something wanted, in order.
    pub segments: Vec<PlannedSegment>,
    /// What it took.
    pub stats: PlanStats,
}

/// A segment of a plan.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct PlannedSegment {
    /// Which one.
    pub index: SegmentIndex,
    /// Its version: the checksum of its header.
    pub checksum: u64,
    /// Its first row.
    pub min_seq: u64,
    /// Its last row.
    pub max_seq: u64,
    /// Ranges of blocks, first and last included; none stands for the whole file.
    pub ranges: Option<Vec<(u32, u32)>>,
}

/// What a plan took.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct PlanStats {
    /// Segments within the window that were looked at.
    pub segments_examined: u64,
    /// Segments with something wanted.
    pub segments_matched: u64,
    /// Blocks that are to be downloaded.
    pub blocks_matched: u64,
    /// Whole segments and ranges.
    pub entries: u64,
}

/// Plans a download from these segments.
pub fn plan(manifest: &Manifest, request: &PlanRequest, limits: PlanLimits) -> Plan {
    let tip = manifest.last_seq().min(request.before_seq.unwrap_or(u64::MAX));
    let mut planner =
        Planner { request, limits, work: 0, plan: Plan { sealed_tip_seq: tip, ..Plan::default() } };
    let in_window = |segment: &&std::sync::Arc<Descriptor>| {
        let header = segment.header();
        header.block_count > 0
            && header.event_count > 0
            && header.max_seq > request.after_seq
            && request.before_seq.is_none_or(|before| header.min_seq <= before)
    };
    let mut segments = manifest.segments.iter().filter(in_window).peekable();
    while let Some(segment) = segments.next() {
        if !planner.segment(segment) {
            return planner.plan;
        }
        if planner.work >= limits.work && segments.peek().is_some() {
            planner.plan.planned_through_seq = segment.header().max_seq;
            return planner.plan;
        }
    }
    planner.plan.planned_through_seq = tip;
    planner.plan
}

struct Planner<'a> {
    request: &'a PlanRequest,
    limits: PlanLimits,
    work: u64,
    plan: Plan,
}

impl Planner<'_> {
    /// Plans a segment; false when the page is full, and `planned_through_seq` says how far it came.
    fn segment(&mut self, segment: &Descriptor) -> bool {
        self.plan.stats.segments_examined += 1;
        let blocks = self.blocks(segment);
        if blocks.is_empty() {
            return true;
        }
        let header = segment.header();
        let mut planned = PlannedSegment {
            index: segment.index,
            checksum: header.checksum,
            min_seq: header.min_seq,
            max_seq: header.max_seq,
            ranges: None,
        };
        #[expect(clippy::cast_precision_loss, reason = "there are at most 2^20 blocks")]
        let share = blocks.len() as f64 / segment.metadata.blocks.len() as f64;
        if share >= self.limits.whole_segment {
            if self.is_full() {
                return false;
            }
            self.admit(header.max_seq, blocks.len());
            self.plan.stats.segments_matched += 1;
            self.plan.segments.push(planned);
            return true;
        }
        let mut ranges = Vec::new();
        let mut full = false;
        for (first, last) in coalesce(&blocks) {
            full = self.is_full();
            if full {
                break;
            }
            let through = segment.metadata.blocks[last as usize].max_seq;
            #[cfg(feature = "planted-bugs")]
            let through = if is_planted(Bug::CutSaysSegment) { header.max_seq } else { through };
            self.admit(through, (last - first + 1) as usize);
            ranges.push((first, last));
        }
        if !ranges.is_empty() {
            self.plan.stats.segments_matched += 1;
            planned.ranges = Some(ranges);
            self.plan.segments.push(planned);
        }
        !full
    }

    fn is_full(&self) -> bool {
        let entries = self.plan.stats.entries;
        #[cfg(feature = "planted-bugs")]
        if is_planted(Bug::EmptyPage) && self.limits.entries > 0 {
            return entries + 1 >= self.limits.entries as u64;
        }
        self.limits.entries > 0 && entries > 0 && entries >= self.limits.entries as u64
    }

    fn admit(&mut self, through: u64, blocks: usize) {
        self.plan.planned_through_seq = through;
        self.plan.stats.entries += 1;
        self.plan.stats.blocks_matched += blocks as u64;
    }

    /// The blocks of a segment that can have wanted rows.
    fn blocks(&mut self, segment: &Descriptor) -> Vec<u32> {
        let (request, metadata) = (self.request, &segment.metadata);
        self.work += 1 + request.selection.hashes().len() as u64;
        if !request.selection.admits_segment(metadata) {
            return Vec::new();
        }
        let numbers = request.selection.numbers(&metadata.collections);
        if numbers.as_ref().is_some_and(Vec::is_empty) {
            return Vec::new();
        }
        let per_block = 1 + numbers.as_ref().map_or(0, Vec::len) + request.selection.hashes().len();
        let mut selected = Vec::new();
        for (number, info) in (0..).zip(metadata.blocks.iter()) {
            let in_window = info.max_seq > request.after_seq
                && request.before_seq.is_none_or(|before| info.min_seq <= before);
            self.work += 1;
            if !in_window {
                continue;
            }
            self.work += per_block as u64;
            if request.selection.admits_block(metadata, number as usize, numbers.as_deref()) {
                selected.push(number);
            }
        }
        selected
    }
}

/// Consecutive numbers as ranges.
fn coalesce(numbers: &[u32]) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    ranges
}
