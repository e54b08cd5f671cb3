//! The blocks of a planned segment, one after another.
//!
//! Of a whole segment header and footer come first: what they say of the blocks is compared with what then comes, and
//! blocks that the reader is past are left out. Everything is of the version that was planned.

use std::ops::Range;

use alluvium_jss::header::{HEADER_BYTES, State};
use alluvium_jss::read::{decode, decode_frame};
use alluvium_jss::{Block, BlockInfo, Damage, Metadata, ReadLimits};
use bytes::Bytes;

use crate::config::Limits;
use crate::error::Error;
use crate::http::{Fetched, Http, Part, Wanted};
use crate::plan::Entry;

/// A block as it was downloaded.
#[derive(Debug)]
pub(crate) struct Piece {
    segment: String,
    block: u32,
    /// What the footer says of it, where that was read.
    info: Option<BlockInfo>,
    frame: Bytes,
}

impl Piece {
    /// The block, compared with all that is known of it.
    pub(crate) fn decode(&self, limits: &Limits) -> Result<Block, Error> {
        let limits = read_limits(limits);
        let decoded = match &self.info {
            Some(info) => decode(&self.frame, info, limits),
            None => decode_frame(&self.frame, limits).and_then(ordered),
        };
        decoded.map_err(|damage| self.damaged(damage))
    }

    /// Bytes as downloaded.
    pub(crate) fn bytes(&self) -> usize {
        self.frame.len()
    }

    fn damaged(&self, damage: Damage) -> Error {
        Error::Block { segment: self.segment.clone(), block: self.block, damage }
    }
}

/// What the footer would say too: numbers ascend.
fn ordered(block: Block) -> Result<Block, Damage> {
    for row in 1..block.len() {
        let (last, seq) = (block.seq(row - 1), block.seq(row));
        if seq <= last {
            return Err(Damage::Order { seq, last });
        }
    }
    Ok(block)
}

const fn read_limits(limits: &Limits) -> ReadLimits {
    ReadLimits { block_bytes: limits.block_bytes_max, footer_bytes: limits.footer_bytes_max }
}

/// Downloads what was planned, without what is not behind `after`, and hands it over until nobody takes it.
pub(crate) fn download(
    http: &Http,
    limits: &Limits,
    entry: &Entry,
    after: u64,
    give: &mut dyn FnMut(Piece) -> bool,
) -> Result<(), Error> {
    let source = Source { http, limits, name: entry.index.file_name(), checksum: &entry.checksum };
    match &entry.ranges {
        None => source.whole(after, give),
        Some(ranges) => source.blocks(ranges, give),
    }
}

struct Source<'a> {
    http: &'a Http,
    limits: &'a Limits,
    name: String,
    checksum: &'a str,
}

impl Source<'_> {
    fn blocks(&self, ranges: &[(u32, u32)], give: &mut dyn FnMut(Piece) -> bool) -> Result<(), Error> {
        for block in ranges.iter().flat_map(|(first, last)| *first..=*last) {
            let part = self.fetch(&Wanted {
                target: &format!("getBlock?segment={}&blockIndex={block}", self.name),
                etag: &format!("\"{}:{block}\"", self.checksum),
                range: None,
                bytes_max: self.limits.block_bytes_max as u64,
            })?;
            if !give(Piece { segment: self.name.clone(), block, info: None, frame: part.bytes }) {
                break;
            }
        }
        Ok(())
    }

    fn whole(&self, after: u64, give: &mut dyn FnMut(Piece) -> bool) -> Result<(), Error> {
        let metadata = self.metadata()?;
        for group in groups(&metadata.blocks, after, self.limits.part_bytes) {
            let infos = &metadata.blocks[group.clone()];
            let (Some(first), Some(last)) = (infos.first(), infos.last()) else { continue };
            let bytes_max = self.limits.part_bytes.max(self.limits.block_bytes_max as u64);
            let part = self.range(first.offset, last.end(), bytes_max)?;
            for (block, info) in group.zip(infos) {
                let block = u32::try_from(block).unwrap_or(u32::MAX);
                let at = usize::try_from(info.offset - first.offset).unwrap_or(usize::MAX);
                let frame =
                    self.framed(block, info, part.bytes.get(at..).unwrap_or_default(), &part.bytes)?;
                if !give(Piece { segment: self.name.clone(), block, info: Some(*info), frame }) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The frame that begins here with its length in front of it.
    fn framed(&self, block: u32, info: &BlockInfo, here: &[u8], part: &Bytes) -> Result<Bytes, Error> {
        let damaged = |damage| Error::Block { segment: self.name.clone(), block, damage };
        let expected = u64::from(info.compressed_size);
        let (length, rest) =
            here.split_first_chunk().ok_or_else(|| damaged(Damage::Short { what: "a block" }))?;
        let found = u64::from_le_bytes(*length);
        if found != expected {
            return Err(damaged(Damage::Mismatch { what: "the length of a frame", found, expected }));
        }
        let frame = rest.get(..info.compressed_size as usize);
        frame.map(|frame| part.slice_ref(frame)).ok_or_else(|| damaged(Damage::Short { what: "a block" }))
    }

    fn metadata(&self) -> Result<Metadata, Error> {
        let damaged = |damage| Error::Segment { segment: self.name.clone(), damage };
        let part = self.range(0, HEADER_BYTES as u64, HEADER_BYTES as u64)?;
        let header: &[u8; HEADER_BYTES] =
            part.bytes.first_chunk().ok_or_else(|| damaged(Damage::Short { what: "the header" }))?;
        let sealed = match State::parse(header).map_err(damaged)? {
            State::Sealed(sealed) => sealed,
            State::Active => return Err(damaged(Damage::Active)),
        };
        let offset = sealed.footer_offset;
        if offset < HEADER_BYTES as u64 || offset >= part.total {
            return Err(damaged(Damage::Offset { what: "the footer", offset }));
        }
        let limits = read_limits(self.limits);
        let footer = self.range(offset, part.total, limits.footer_bytes as u64)?;
        Metadata::parse(header, &footer.bytes, limits).map_err(|(_, damage)| damaged(damage))
    }

    fn range(&self, begin: u64, end: u64, bytes_max: u64) -> Result<Part, Error> {
        self.fetch(&Wanted {
            target: &format!("getSegment?name={}", self.name),
            etag: &format!("\"{}\"", self.checksum),
            range: Some((begin, end)),
            bytes_max,
        })
    }

    fn fetch(&self, wanted: &Wanted<'_>) -> Result<Part, Error> {
        match self.http.fetch(wanted)? {
            Fetched::Part(part) => Ok(part),
            Fetched::Replaced => Err(Error::Replaced { segment: self.name.clone() }),
        }
    }
}

/// Blocks that lie one behind the other and together have no more than `bytes_max`, or are one; without those that have
/// nothing behind `after`.
fn groups(blocks: &[BlockInfo], after: u64, bytes_max: u64) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    for (number, info) in blocks.iter().enumerate() {
        if info.event_count == 0 || info.max_seq <= after {
            continue;
        }
        if let Some(group) = groups.last_mut()
            && group.end == number
            && blocks[number - 1].end() == info.offset
            && info.end() - blocks[group.start].offset <= bytes_max
        {
            group.end += 1;
        } else {
            groups.push(number..number + 1);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use alluvium_jss::index::PREFIX_BYTES;

    use super::*;

    fn info(offset: u64, size: u32, seq: u64, events: u32) -> BlockInfo {
        BlockInfo {
            offset,
            compressed_size: size,
            uncompressed_size: size,
            event_count: events,
            min_seq: seq,
            max_seq: seq + 9,
            min_witnessed_at: 0,
            max_witnessed_at: 0,
        }
    }

    #[test]
    fn blocks_are_downloaded_together_within_bounds_and_only_if_needed() {
        let at = |number: u64| 256 + number * (100 + PREFIX_BYTES);
        let blocks: Vec<BlockInfo> =
            (0..6).map(|number| info(at(number), 100, 1 + number * 10, u32::from(number != 3))).collect();
        assert_eq!(groups(&blocks, 0, 250), [0..2, 2..3, 4..6]);
        assert_eq!(groups(&blocks, 0, 10_000), [0..3, 4..6]);
        assert_eq!(groups(&blocks, 0, 1), [0..1, 1..2, 2..3, 4..5, 5..6]);
        assert_eq!(groups(&blocks, 10, 10_000), [1..3, 4..6]);
        assert_eq!(groups(&blocks, 59, 10_000), groups(&blocks, 58, 10_000)[..]);
        assert_eq!(groups(&blocks, 58, 1), groups(&blocks, 0, 1)[4..]);
        assert_eq!(groups(&blocks, 60, 10_000), []);
    }
}
