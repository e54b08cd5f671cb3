//! The fixed parts of a table file as bytes, drawn in `docs/formats/table.md`.

use bytes::{Buf, BufMut};

use crate::format::FORMAT_VERSION;
use crate::identity::DirectoryId;
use crate::record::StreamId;
use crate::table::BlockEntry;

pub(super) const TABLE_HEADER_BYTES: usize = 32;
pub(super) const TABLE_FOOTER_BYTES: usize = 64;
pub(super) const BLOCK_ENTRY_BYTES: usize = 60;

const HEADER_MAGIC: [u8; 8] = *b"alvm-tbl";
const FOOTER_MAGIC: [u8; 8] = *b"alvm-tbe";

/// Length in bytes of magic and checksum, with which header and footer start.
const PREFIX_BYTES: usize = 12;

fn seal(bytes: &mut [u8], magic: [u8; 8]) {
    let crc = crc32c::crc32c(&bytes[PREFIX_BYTES..]);
    bytes[..8].copy_from_slice(&magic);
    bytes[8..PREFIX_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// What is behind magic and checksum, when both match.
fn unseal(bytes: &[u8], magic: [u8; 8]) -> Option<&[u8]> {
    let (prefix, rest) = bytes.split_at(PREFIX_BYTES);
    let matches = prefix[..8] == magic && prefix[8..] == crc32c::crc32c(rest).to_le_bytes();
    matches.then_some(rest)
}

pub(super) fn encode_header(number: u64, directory: Option<DirectoryId>) -> [u8; TABLE_HEADER_BYTES] {
    let mut bytes = [0; TABLE_HEADER_BYTES];
    let mut rest = &mut bytes[PREFIX_BYTES..];
    rest.put_u32_le(FORMAT_VERSION);
    rest.put_u64_le(number);
    rest.put_u64_le(DirectoryId::encode(directory));
    seal(&mut bytes, HEADER_MAGIC);
    bytes
}

/// The number of the table, and the directory that it is of.
pub(super) fn decode_header(
    bytes: &[u8; TABLE_HEADER_BYTES],
) -> Result<(u64, Option<DirectoryId>), &'static str> {
    let mut rest = unseal(bytes, HEADER_MAGIC).ok_or("the table's header is invalid")?;
    if rest.get_u32_le() != FORMAT_VERSION {
        return Err("the table has another format version than the directory");
    }
    Ok((rest.get_u64_le(), DirectoryId::decode(rest.get_u64_le())))
}

/// What the end of a table says of the rest.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(super) struct Footer {
    pub(super) number: u64,
    pub(super) index_at: u64,
    pub(super) block_count: u64,
    pub(super) data_bytes: u64,
    pub(super) index_crc: u32,
}

impl Footer {
    pub(super) fn encode(&self) -> [u8; TABLE_FOOTER_BYTES] {
        let mut bytes = [0; TABLE_FOOTER_BYTES];
        let mut rest = &mut bytes[PREFIX_BYTES..];
        rest.put_u32_le(self.index_crc);
        rest.put_u64_le(self.number);
        rest.put_u64_le(self.index_at);
        rest.put_u64_le(self.block_count);
        rest.put_u64_le(self.data_bytes);
        seal(&mut bytes, FOOTER_MAGIC);
        bytes
    }

    pub(super) fn decode(bytes: &[u8; TABLE_FOOTER_BYTES]) -> Option<Self> {
        let mut rest = unseal(bytes, FOOTER_MAGIC)?;
        let index_crc = rest.get_u32_le();
        Some(Self {
            number: rest.get_u64_le(),
            index_at: rest.get_u64_le(),
            block_count: rest.get_u64_le(),
            data_bytes: rest.get_u64_le(),
            index_crc,
        })
    }
}

impl BlockEntry {
    pub(super) fn encode(&self) -> [u8; BLOCK_ENTRY_BYTES] {
        let mut bytes = [0; BLOCK_ENTRY_BYTES];
        let mut rest = &mut bytes[..];
        rest.put_u64_le(self.stream.0);
        rest.put_u64_le(self.start.0);
        rest.put_u64_le(self.start.1);
        rest.put_u64_le(self.data_at);
        rest.put_u64_le(self.boundaries_at);
        rest.put_u32_le(self.data_len);
        rest.put_u32_le(self.data_crc);
        rest.put_u32_le(self.boundaries_len);
        rest.put_u32_le(self.boundaries_crc);
        rest.put_u32_le(self.message_count);
        bytes
    }

    pub(super) fn decode(bytes: &[u8; BLOCK_ENTRY_BYTES]) -> Self {
        let mut rest = &bytes[..];
        let stream = StreamId(rest.get_u64_le());
        let start = (rest.get_u64_le(), rest.get_u64_le());
        let (data_at, boundaries_at) = (rest.get_u64_le(), rest.get_u64_le());
        Self {
            stream,
            start,
            data_at,
            boundaries_at,
            data_len: rest.get_u32_le(),
            data_crc: rest.get_u32_le(),
            boundaries_len: rest.get_u32_le(),
            boundaries_crc: rest.get_u32_le(),
            message_count: rest.get_u32_le(),
        }
    }
}
