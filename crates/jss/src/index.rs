//! The block index: where each block lies, and which rows it has or had.

use bytes::BufMut;

use crate::block::Block;
use crate::codec::Input;
use crate::error::Damage;
use crate::header::HEADER_BYTES;

/// The length of an entry.
pub const ENTRY_BYTES: usize = 52;
/// The number in front of each frame.
pub const PREFIX_BYTES: u64 = PREFIX_LEN as u64;
pub(crate) const PREFIX_LEN: usize = 8;

/// A block of a segment.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct BlockInfo {
    /// Where the length in front of its frame lies.
    pub offset: u64,
    /// The length of its frame, without that number.
    pub compressed_size: u32,
    /// The length of its body.
    pub uncompressed_size: u32,
    /// Rows that are there now.
    pub event_count: u32,
    /// The lowest sequence number that it ever had.
    pub min_seq: u64,
    /// The highest sequence number that it ever had.
    pub max_seq: u64,
    /// The earliest time that a row was seen, in microseconds since the Unix epoch.
    pub min_witnessed_at: i64,
    /// The latest time that a row was seen, in microseconds since the Unix epoch.
    pub max_witnessed_at: i64,
}

fn count(block: &Block) -> u32 {
    #[cfg(feature = "planted-bugs")]
    if crate::planted::is_planted(crate::planted::Bug::RowUncounted) {
        return u32::try_from(block.len()).unwrap_or(u32::MAX).saturating_sub(1);
    }
    u32::try_from(block.len()).unwrap_or(u32::MAX)
}

impl BlockInfo {
    /// What is to be said of a block that was just written. An empty one has no bounds: all are 0.
    pub(crate) fn of(block: &Block, offset: u64, compressed_size: u32) -> Self {
        let witnessed = || (0..block.len()).map(|row| block.witnessed_at(row));
        let seqs = || (0..block.len()).map(|row| block.seq(row));
        Self {
            offset,
            compressed_size,
            uncompressed_size: u32::try_from(block.body_bytes()).unwrap_or(u32::MAX),
            event_count: count(block),
            min_seq: seqs().min().unwrap_or_default(),
            max_seq: seqs().max().unwrap_or_default(),
            min_witnessed_at: witnessed().min().unwrap_or_default(),
            max_witnessed_at: witnessed().max().unwrap_or_default(),
        }
    }

    /// Where its frame begins.
    pub const fn frame_offset(&self) -> u64 {
        self.offset + PREFIX_BYTES
    }

    /// Where the next block begins, if nothing lies between.
    pub const fn end(&self) -> u64 {
        self.offset + PREFIX_BYTES + self.compressed_size as u64
    }

    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        out.put_u64_le(self.offset);
        out.put_u32_le(self.compressed_size);
        out.put_u32_le(self.uncompressed_size);
        out.put_u32_le(self.event_count);
        out.put_u64_le(self.min_seq);
        out.put_u64_le(self.max_seq);
        out.put_i64_le(self.min_witnessed_at);
        out.put_i64_le(self.max_witnessed_at);
    }

    fn parse(input: &mut Input<'_>) -> Result<Self, Damage> {
        Ok(Self {
            offset: input.u64()?,
            compressed_size: input.u32()?,
            uncompressed_size: input.u32()?,
            event_count: input.u32()?,
            min_seq: input.u64()?,
            max_seq: input.u64()?,
            min_witnessed_at: input.i64()?,
            max_witnessed_at: input.i64()?,
        })
    }
}

/// Reads a block index and checks it: blocks lie one after another before the footer, and the numbers of those that
/// have rows ascend. An empty block keeps the bounds of the rows that it had; they promise nothing any more.
pub(crate) fn parse(bytes: &[u8], footer_offset: u64) -> Result<Vec<BlockInfo>, Damage> {
    let mut input = Input::new(bytes, "the block index");
    let mut infos: Vec<BlockInfo> = Vec::with_capacity(bytes.len() / ENTRY_BYTES);
    let mut end = HEADER_BYTES as u64;
    let mut last_seq = 0;
    while input.len() > 0 {
        let info = BlockInfo::parse(&mut input)?;
        let broken =
            |what| Err(Damage::BlockIndex { block: u32::try_from(infos.len()).unwrap_or(u32::MAX), what });
        if info.offset >= footer_offset {
            return broken("it begins in the footer");
        }
        if info.offset < end {
            return broken("it begins before the end of the one before");
        }
        if info.end() > footer_offset {
            return broken("it ends in the footer");
        }
        if info.max_seq < info.min_seq || info.max_witnessed_at < info.min_witnessed_at {
            return broken("its bounds are reversed");
        }
        if info.event_count > 0 {
            if info.min_seq <= last_seq {
                return broken("its rows are not after those of the one before");
            }
            last_seq = info.max_seq;
        }
        end = info.end();
        infos.push(info);
    }
    Ok(infos)
}

pub(crate) fn encode(infos: &[BlockInfo]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(infos.len() * ENTRY_BYTES);
    for info in infos {
        info.encode_into(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(offset: u64, rows: u32, seqs: (u64, u64)) -> BlockInfo {
        BlockInfo {
            offset,
            compressed_size: 20,
            uncompressed_size: 100,
            event_count: rows,
            min_seq: seqs.0,
            max_seq: seqs.1,
            min_witnessed_at: -5,
            max_witnessed_at: 5,
        }
    }

    fn parsed(infos: &[BlockInfo]) -> Result<Vec<BlockInfo>, Damage> {
        parse(&encode(infos), 1000)
    }

    #[test]
    fn entries_come_back() {
        // The second block is empty, and keeps bounds that reach beyond those of the next.
        let infos = [info(256, 3, (1, 3)), info(284, 0, (4, 90)), info(330, 1, (50, 50))];
        assert_eq!(encode(&infos).len(), 3 * ENTRY_BYTES);
        assert_eq!(parsed(&infos).unwrap(), infos);
        assert!(parse(&encode(&infos)[..60], 1000).is_err());
    }

    #[test]
    fn entries_that_contradict_are_refused() {
        let good = info(256, 3, (1, 3));
        for bad in [
            vec![info(255, 3, (1, 3))],
            vec![info(1000, 3, (1, 3))],
            vec![info(u64::MAX, 3, (1, 3))],
            vec![info(973, 3, (1, 3))],
            vec![info(256, 3, (3, 1))],
            vec![info(256, 3, (0, 1))],
            vec![good, info(283, 3, (4, 6))],
            vec![good, info(284, 3, (3, 6))],
            vec![BlockInfo { max_witnessed_at: -6, ..good }],
        ] {
            assert!(matches!(parsed(&bad), Err(Damage::BlockIndex { .. })), "{bad:?}");
        }
        assert!(parsed(&[info(972, 3, (1, 3))]).is_ok(), "a block that ends where the footer begins");
    }
}
