//! Opening the last segment of an archive after whatever ended the process before.
//!
//! A segment is active until its header is filled in. What may lie behind its complete frames: the torn end of a block
//! whose flush was interrupted, zeros where a file system had grown the file and not written it, a footer whose seal was
//! interrupted. All of these are cut. A block that was flushed is never cut: it is a complete frame and decodes, or the
//! file is damaged and opening it fails.
//!
//! A caller that knows up to which row flushes were acknowledged says so. Then the rule is exact: those rows must be
//! there, and whatever behind them does not make sense was never acknowledged. Without that knowledge only what is
//! certainly the trace of an interruption is cut.

use std::path::Path;
use std::sync::Arc;

use alluvium_env::{Disk, DiskFile, OpenMode};

use crate::block::Block;
use crate::error::{Damage, Error, io};
use crate::frame;
use crate::header::{self, HEADER_BYTES, State};
use crate::index::{self, BlockInfo, PREFIX_BYTES, PREFIX_LEN};
use crate::metadata::{Metadata, ReadLimits, Summary, read_header};
#[cfg(feature = "planted-bugs")]
use crate::planted::{Bug, is_planted};
use crate::write::{WriteLimits, Writer};

/// A segment that was opened.
#[derive(Debug)]
pub enum Opened {
    /// It is active: rows can be added.
    Active(Box<Writer>, Recovery),
    /// It is sealed and as it should be.
    Sealed(Arc<Metadata>),
}

/// What opening an active segment found.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct Recovery {
    /// Rows of complete blocks.
    pub rows: u64,
    /// Bytes that were cut.
    pub cut_bytes: u64,
    /// What they were.
    pub tail: Tail,
}

/// What lay behind the last complete block.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub enum Tail {
    /// Nothing.
    #[default]
    None,
    /// The file itself was not finished: its creation was interrupted.
    Creation,
    /// A block of which the end is missing.
    Torn,
    /// Zeros.
    Zeros,
    /// A footer, or a part of one.
    Seal,
    /// Something else behind the last row that was acknowledged: an interrupted write of which some parts are missing.
    Unacknowledged,
}

/// Opens the last segment of an archive, finishing or undoing what was interrupted; what is cut is gone durably when this
/// returns. `acknowledged` is the last row of which a flush was acknowledged, if that is known (0 for no row).
pub fn open(
    disk: &dyn Disk,
    path: &Path,
    limits: WriteLimits,
    acknowledged: Option<u64>,
) -> Result<Opened, Error> {
    let file = disk.open(path, OpenMode::ReadWrite).map_err(io("opening a segment"))?;
    let len = file.len().map_err(io("asking for the length of a segment"))?;
    if len <= HEADER_BYTES as u64 && is_unfinished_creation(&*file, len)? {
        return finish_creation(disk, path, file, limits, acknowledged);
    }
    let header = read_header(&*file, len)?;
    match State::parse(&header) {
        Ok(State::Active) => {}
        other => {
            let error = match Metadata::read(&*file, ReadLimits::default()) {
                Ok(metadata) => return sealed(&*file, metadata, acknowledged),
                Err(error @ Error::Io { .. }) => return Err(error),
                Err(error) => error,
            };
            if matches!(other, Err(Damage::Magic)) || !undo_torn_header(&file, &header, len)? {
                return Err(error);
            }
        }
    }
    let mut writer = Writer::empty(path, file, limits)?;
    let recovery = recover(&mut writer, len, acknowledged)?;
    Ok(Opened::Active(Box::new(writer), recovery))
}

fn sealed(file: &dyn DiskFile, metadata: Metadata, acknowledged: Option<u64>) -> Result<Opened, Error> {
    // The header may live in a page cache only, and the next segment is about to be built on it.
    file.sync_data().map_err(io("syncing a segment"))?;
    match acknowledged {
        Some(acknowledged) if metadata.header.max_seq < acknowledged => {
            Err(Error::damaged(34, Damage::Lost { acknowledged, found: metadata.header.max_seq }))
        }
        _ => Ok(Opened::Sealed(Arc::new(metadata))),
    }
}

/// A file that is no longer than a header, and has nothing but a part of a fresh one and zeros, never held a row: the
/// first block is written only when the whole header is durable.
fn is_unfinished_creation(file: &dyn DiskFile, len: u64) -> Result<bool, Error> {
    let fresh = header::active();
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(HEADER_BYTES)];
    file.read_exact_at(&mut bytes, 0).map_err(io("reading the header of a segment"))?;
    let begun = bytes.iter().zip(fresh).take_while(|(found, expected)| **found == *expected).count();
    Ok(bytes != fresh && bytes[begun..].iter().all(|byte| *byte == 0))
}

fn finish_creation(
    disk: &dyn Disk,
    path: &Path,
    file: Arc<dyn DiskFile>,
    limits: WriteLimits,
    acknowledged: Option<u64>,
) -> Result<Opened, Error> {
    check_acknowledged(HEADER_BYTES as u64, acknowledged, 0)?;
    file.write_all_at(&[&header::active()], 0).map_err(io("writing the header of a segment"))?;
    file.sync_all().map_err(io("syncing a new segment"))?;
    disk.sync_dir(path.parent().unwrap_or(Path::new("")))
        .map_err(io("syncing the directory of a new segment"))?;
    let writer = Writer::empty(path, file, limits)?;
    Ok(Opened::Active(Box::new(writer), Recovery { tail: Tail::Creation, ..Recovery::default() }))
}

/// Makes a header active again that sealing has written in part: a beginning of the header that belongs to the footer,
/// and zeros. False when it is anything else.
fn undo_torn_header(file: &Arc<dyn DiskFile>, header: &[u8; HEADER_BYTES], len: u64) -> Result<bool, Error> {
    let mut writer = Writer::empty(Path::new(""), Arc::clone(file), WriteLimits::default())?;
    let mut summary = Summary::new();
    let at = whole_blocks(&**file, len, |info, block| summary.add(info, block))?;
    let sealing = summary.finish(at, &mut writer.encoder)?;
    let begun =
        header.iter().zip(sealing.header).take_while(|(found, expected)| **found == *expected).count();
    let mut footer = vec![0; usize::try_from(len - at).unwrap_or_default()];
    file.read_exact_at(&mut footer, at).map_err(io("reading the footer of a segment"))?;
    if header[begun..].iter().any(|byte| *byte != 0) || footer != sealing.footer {
        return Ok(false);
    }
    file.write_all_at(&[&header::active()], 0).map_err(io("writing the header of a segment"))?;
    file.sync_data().map_err(io("syncing the header"))?;
    Ok(true)
}

/// Walks the whole blocks of a file from its beginning; returns where they end.
pub(crate) fn whole_blocks(
    file: &dyn DiskFile,
    len: u64,
    mut found: impl FnMut(BlockInfo, &Block),
) -> Result<u64, Error> {
    let mut at = HEADER_BYTES as u64;
    while let Some(info) = walk(file, at, len, &mut found)? {
        at = info.end();
    }
    Ok(at)
}

/// The block at this place, if a whole one that decodes is there.
fn walk(
    file: &dyn DiskFile,
    at: u64,
    len: u64,
    found: impl FnOnce(BlockInfo, &Block),
) -> Result<Option<BlockInfo>, Error> {
    let Some(size) = complete(file, at, len)? else { return Ok(None) };
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(&mut bytes, at + PREFIX_BYTES).map_err(io("reading a block"))?;
    let Ok(block) = decode(&bytes) else { return Ok(None) };
    let info = BlockInfo::of(&block, at, size);
    found(info, &block);
    Ok(Some(info))
}

/// The length of the frame at this place, if what is there looks like a whole one: long enough, within the file, and with
/// zstd's magic number.
fn complete(file: &dyn DiskFile, at: u64, len: u64) -> Result<Option<u32>, Error> {
    if len - at < PREFIX_BYTES + frame::BYTES_MIN {
        return Ok(None);
    }
    let mut head = [0; 12];
    file.read_exact_at(&mut head, at).map_err(io("reading a block"))?;
    let (prefix, magic) = head.split_at(PREFIX_LEN);
    let size = prefix.first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk));
    let fits = (frame::BYTES_MIN..=len - at - PREFIX_BYTES).contains(&size) && magic == frame::MAGIC;
    Ok(u32::try_from(size).ok().filter(|_| fits))
}

fn decode(frame: &[u8]) -> Result<Block, Damage> {
    let block = crate::read::decode_frame(frame, ReadLimits::default())?;
    block.check_order()?;
    if block.is_empty() { Err(Damage::Short { what: "a block of an active segment" }) } else { Ok(block) }
}

/// Walks the frames of an active file, and cuts what lies behind them.
fn recover(writer: &mut Writer, len: u64, acknowledged: Option<u64>) -> Result<Recovery, Error> {
    let mut rows = 0;
    let mut broken = None;
    while let Some(size) = complete(&*writer.file, writer.end, len)? {
        let mut bytes = vec![0; size as usize];
        writer.file.read_exact_at(&mut bytes, writer.end + PREFIX_BYTES).map_err(io("reading a block"))?;
        let block = decode(&bytes).and_then(|block| match block.seq(0) {
            seq if seq <= writer.last_seq => Err(Damage::Order { seq, last: writer.last_seq }),
            _ => Ok(block),
        });
        match block {
            Ok(block) => {
                let info = BlockInfo::of(&block, writer.end, size);
                writer.summary.add(info, &block);
                writer.end = info.end();
                writer.last_seq = info.max_seq;
                rows += u64::from(info.event_count);
            }
            Err(damage) => {
                broken = Some(damage);
                break;
            }
        }
    }
    let tail = match broken {
        _ if writer.end == len => Tail::None,
        None => tail(writer, len)?.map_or_else(|| unacknowledged(writer, acknowledged, Damage::Tail), Ok)?,
        Some(damage) => unacknowledged(writer, acknowledged, damage)?,
    };
    check_acknowledged(writer.end, acknowledged, writer.last_seq)?;
    if tail != Tail::None {
        writer.file.truncate(writer.end).map_err(io("cutting the end of a segment"))?;
    }
    // What was believed is synced before anything is built on it: it may have lived in a page cache only.
    writer.file.sync_data().map_err(io("syncing a segment"))?;
    Ok(Recovery { rows, cut_bytes: len - writer.end, tail })
}

/// What does not make sense can be cut only when all that was acknowledged lies before it.
fn unacknowledged(writer: &Writer, acknowledged: Option<u64>, damage: Damage) -> Result<Tail, Error> {
    match acknowledged {
        Some(acknowledged) if acknowledged <= writer.last_seq => Ok(Tail::Unacknowledged),
        _ => Err(Error::damaged(writer.end, damage)),
    }
}

fn check_acknowledged(at: u64, acknowledged: Option<u64>, found: u64) -> Result<(), Error> {
    match acknowledged {
        Some(acknowledged) if found < acknowledged => {
            Err(Error::damaged(at, Damage::Lost { acknowledged, found }))
        }
        _ => Ok(()),
    }
}

/// What certainly is the trace of an interruption; none when it is something else.
fn tail(writer: &Writer, len: u64) -> Result<Option<Tail>, Error> {
    let mut rest = vec![0; usize::try_from(len - writer.end).unwrap_or_default()];
    writer.file.read_exact_at(&mut rest, writer.end).map_err(io("reading the end of a segment"))?;
    #[cfg(feature = "planted-bugs")]
    let rest = if is_planted(Bug::ZerosUnrecognised) && rest.iter().all(|byte| *byte == 0) {
        vec![1; 64]
    } else {
        rest
    };
    if rest.iter().all(|byte| *byte == 0) {
        return Ok(Some(Tail::Zeros));
    }
    // No whole frame has room here.
    if (rest.len() as u64) < PREFIX_BYTES + frame::BYTES_MIN {
        return Ok(Some(Tail::Torn));
    }
    // An entry of the index has its first frame's length where a frame has its magic number: no frame looks like it.
    let index = index::encode(writer.blocks());
    let begins = rest.iter().zip(&index).all(|(found, expected)| found == expected);
    #[cfg(feature = "planted-bugs")]
    let begins = begins && !is_planted(Bug::FooterUnrecognised);
    if begins && !index.is_empty() {
        return Ok(Some(Tail::Seal));
    }
    if index.is_empty() && is_footer_without_blocks(&rest) {
        return Ok(Some(Tail::Seal));
    }
    let (prefix, frame) = rest.split_at(PREFIX_LEN);
    let size = prefix.first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk));
    // A whole frame behind a length that leads beyond the end is a flushed block whose length is damaged.
    let torn =
        size > frame.len() as u64 && frame.starts_with(&frame::MAGIC) && frame::extent(frame).is_none();
    Ok(torn.then_some(Tail::Torn))
}

/// Whether a segment without rows was being sealed: the filter of no DIDs comes first.
fn is_footer_without_blocks(rest: &[u8]) -> bool {
    let filter = crate::gloom::FilterBuilder::new(0).finish();
    rest.iter().zip(&filter).all(|(found, expected)| found == expected)
}
