//! Bytes as a record. Whatever the bytes are, decoding ends with a record or an error and allocates no more than a
//! small multiple of their number.

use bytes::{Buf, Bytes};
use thiserror::Error;

use crate::codec::{Decoder, Malformed};
use crate::record::contract::{decode_claim, decode_fold_checkpoint};
use crate::record::encode::{
    APPEND_CLOSE, APPEND_ONE_MESSAGE, APPEND_PRODUCER, APPEND_RECEIPT, APPEND_RENEW, APPEND_SEQ,
    CREATE_ATTRIBUTES, CREATE_BODY, CREATE_BUCKET, CREATE_DEADLINE, CREATE_EXPIRES_AT, CREATE_FORK,
    CREATE_RETENTION, CREATE_TTL, KIND_APPEND, KIND_ATTRIBUTES, KIND_BODY, KIND_CLAIM, KIND_CREATE,
    KIND_DELETE, KIND_FOLD_CHECKPOINT, KIND_PUBLISH, KIND_RENEW, KIND_TRIM,
};
use crate::record::retention::{
    decode_attributes, decode_body, decode_publish, decode_retention, decode_trim,
};
use crate::record::{
    Append, Create, Fork, ForkRange, Mutation, Producer, RECORD_HEADER_BYTES, Record, StreamId,
};

/// Why bytes are not a record.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Error)]
pub enum InvalidRecord {
    /// The bytes end inside the record.
    #[error("the record ends early")]
    Short,
    /// Header and meta don't have their checksum.
    #[error("the checksum of a record's header doesn't match")]
    HeaderChecksum,
    /// The data doesn't have its checksum.
    #[error("the checksum of a record's data doesn't match")]
    DataChecksum,
    /// The checksums match, but it is of a kind that is not known.
    #[error("a record is of a kind that this version doesn't know")]
    UnknownKind,
    /// The checksums match, but this version can't have written it.
    #[error("a record's meta is malformed")]
    Malformed,
}

impl InvalidRecord {
    /// The reason as text that lives as long as the program.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Short => "a record ends early",
            Self::HeaderChecksum => "the checksum of a record's header doesn't match",
            Self::DataChecksum => "the checksum of a record's data doesn't match",
            Self::UnknownKind => "a record is of a kind that this version doesn't know",
            Self::Malformed => "a record's meta is malformed",
        }
    }
}

impl From<Malformed> for InvalidRecord {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// The fixed part in front of a record.
#[derive(Copy, Clone, Debug)]
pub(crate) struct RecordHeader {
    crc: u32,
    pub(crate) meta_len: u32,
    pub(crate) data_len: u32,
    pub(crate) data_crc: u32,
    stream: StreamId,
    kind: u8,
}

impl RecordHeader {
    pub(crate) fn decode(bytes: &[u8; RECORD_HEADER_BYTES]) -> Self {
        let mut bytes = &bytes[..];
        Self {
            crc: bytes.get_u32_le(),
            meta_len: bytes.get_u32_le(),
            data_len: bytes.get_u32_le(),
            data_crc: bytes.get_u32_le(),
            stream: StreamId(bytes.get_u64_le()),
            kind: bytes.get_u8(),
        }
    }

    /// The header at the start of `bytes`, not verified.
    pub(crate) fn peek(bytes: &[u8]) -> Result<Self, InvalidRecord> {
        bytes.first_chunk().map(Self::decode).ok_or(InvalidRecord::Short)
    }

    /// The position of the data from the start of the record, in bytes.
    pub(crate) fn data_offset(&self) -> usize {
        RECORD_HEADER_BYTES + self.meta_len as usize
    }

    /// The length of the whole record in bytes.
    pub(crate) fn record_len(&self) -> u64 {
        RECORD_HEADER_BYTES as u64 + u64::from(self.meta_len) + u64::from(self.data_len)
    }
}

/// Verifies lengths and checksums of the record at the start of `bytes`. What passes is what was written, though not
/// necessarily by a version that this one understands.
pub(crate) fn verify_record(bytes: &[u8]) -> Result<RecordHeader, InvalidRecord> {
    let header = RecordHeader::peek(bytes)?;
    if header.record_len() > bytes.len() as u64 {
        return Err(InvalidRecord::Short);
    }
    let (start, data_on) = bytes.split_at(header.data_offset());
    if crc32c::crc32c(&start[4..]) != header.crc {
        return Err(InvalidRecord::HeaderChecksum);
    }
    if crc32c::crc32c(&data_on[..header.data_len as usize]) != header.data_crc {
        return Err(InvalidRecord::DataChecksum);
    }
    Ok(header)
}

/// Decodes the record at the start of `bytes`, which passed [`verify_record`]. Its data shares memory with `bytes`.
pub(crate) fn decode_verified(header: &RecordHeader, bytes: &Bytes) -> Result<Record, InvalidRecord> {
    let data_at = header.data_offset();
    let data = bytes.slice(data_at..data_at + header.data_len as usize);
    decode_meta(header, &bytes[RECORD_HEADER_BYTES..data_at], data)
}

/// Verifies and decodes the record at the start of `bytes`; the record and its length in bytes. Its data shares
/// memory with `bytes`.
pub fn decode_record(bytes: &Bytes) -> Result<(Record, u64), InvalidRecord> {
    let header = verify_record(bytes)?;
    Ok((decode_verified(&header, bytes)?, header.record_len()))
}

fn decode_meta(header: &RecordHeader, meta: &[u8], data: Bytes) -> Result<Record, InvalidRecord> {
    let mut meta = Decoder::new(meta);
    let time_ms = meta.varint()?;
    let has_data = !data.is_empty();
    let mutation = match header.kind {
        KIND_CREATE => Mutation::Create(decode_create(&mut meta, data)?),
        KIND_APPEND => Mutation::Append(decode_append(&mut meta, data)?),
        KIND_DELETE if !has_data => Mutation::Delete { expired: decode_bool(&mut meta)? },
        KIND_RENEW if !has_data => Mutation::Renew { deadline_ms: meta.varint()? },
        KIND_PUBLISH if !has_data => Mutation::Publish(decode_publish(&mut meta)?),
        KIND_ATTRIBUTES if !has_data => Mutation::Attributes(decode_attributes(&mut meta)?),
        KIND_CLAIM if !has_data => Mutation::Claim(decode_claim(&mut meta)?),
        KIND_FOLD_CHECKPOINT if !has_data => Mutation::FoldCheckpoint(decode_fold_checkpoint(&mut meta)?),
        KIND_BODY if !has_data => Mutation::Body(decode_body(&mut meta)?),
        KIND_TRIM if !has_data => Mutation::Trim(decode_trim(&mut meta)?),
        kind if !(KIND_CREATE..=KIND_TRIM).contains(&kind) => {
            return Err(InvalidRecord::UnknownKind);
        }
        _ => return Err(InvalidRecord::Malformed),
    };
    meta.finish()?;
    Ok(Record { stream: header.stream, time_ms, mutation })
}

fn decode_bool(meta: &mut Decoder<'_>) -> Result<bool, Malformed> {
    match meta.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed),
    }
}

pub(super) fn decode_flags(meta: &mut Decoder<'_>, known: u8) -> Result<u8, Malformed> {
    let flags = meta.u8()?;
    if flags & !known == 0 { Ok(flags) } else { Err(Malformed) }
}

pub(crate) fn decode_create(meta: &mut Decoder<'_>, data: Bytes) -> Result<Create, Malformed> {
    // Every flag is known.
    let flags = meta.u8()?;
    let incarnation = meta.u128()?;
    let path = meta.string()?;
    let content_type = meta.string()?;
    let mut number = |flag| if flags & flag == 0 { Ok(None) } else { meta.varint().map(Some) };
    let ttl_s = number(CREATE_TTL)?;
    let expires_at_ms = number(CREATE_EXPIRES_AT)?;
    let deadline_ms = number(CREATE_DEADLINE)?;
    let fork = if flags & CREATE_FORK == 0 { None } else { Some(decode_fork(meta)?) };
    let bucket = if flags & CREATE_BUCKET == 0 { None } else { Some(StreamId(meta.varint()?)) };
    let retention = if flags & CREATE_RETENTION == 0 { None } else { Some(decode_retention(meta)?) };
    let attributes = if flags & CREATE_ATTRIBUTES == 0 { None } else { Some(meta.string()?) };
    let body = match flags & CREATE_BODY {
        0 if data.is_empty() => None,
        0 => return Err(Malformed),
        _ => Some(decode_append(meta, data)?),
    };
    Ok(Create {
        path,
        incarnation,
        content_type,
        ttl_s,
        expires_at_ms,
        deadline_ms,
        fork,
        body,
        bucket,
        retention,
        attributes,
    })
}

fn decode_fork(meta: &mut Decoder<'_>) -> Result<Fork, Malformed> {
    /// A stream number and two offsets, a byte for each of the five numbers.
    const RANGE_BYTES_MIN: usize = 5;
    let source = StreamId(meta.varint()?);
    let source_path = meta.string()?;
    let source_offset = if decode_bool(meta)? { Some(meta.pair()?) } else { None };
    let sub_offset = meta.varint()?;
    let at = meta.pair()?;
    let count = meta.count(RANGE_BYTES_MIN)?;
    let mut ranges = Vec::with_capacity(count);
    for _ in 0..count {
        ranges.push(ForkRange { stream: StreamId(meta.varint()?), start: meta.pair()?, end: meta.pair()? });
    }
    Ok(Fork { source, source_path, source_offset, sub_offset, at, ranges })
}

fn decode_append(meta: &mut Decoder<'_>, data: Bytes) -> Result<Append, Malformed> {
    const KNOWN: u8 =
        APPEND_PRODUCER | APPEND_SEQ | APPEND_CLOSE | APPEND_RENEW | APPEND_ONE_MESSAGE | APPEND_RECEIPT;
    let flags = decode_flags(meta, KNOWN)?;
    let start = meta.pair()?;
    let lengths = if flags & APPEND_ONE_MESSAGE == 0 {
        decode_lengths(meta, data.len())?
    } else {
        vec![u32::try_from(data.len()).map_err(|_| Malformed)?]
    };
    let producer = if flags & APPEND_PRODUCER == 0 { None } else { Some(decode_producer(meta)?) };
    let seq = if flags & APPEND_SEQ == 0 { None } else { Some(meta.string()?) };
    let renew_deadline_ms = if flags & APPEND_RENEW == 0 { None } else { Some(meta.varint()?) };
    let receipt = if flags & APPEND_RECEIPT == 0 { None } else { Some(meta.string()?) };
    let close = flags & APPEND_CLOSE != 0;
    Ok(Append { start, lengths, data, producer, seq, close, renew_deadline_ms, receipt })
}

fn decode_lengths(meta: &mut Decoder<'_>, data_len: usize) -> Result<Vec<u32>, Malformed> {
    let count = meta.count(1)?;
    if count == 1 {
        return Err(Malformed);
    }
    let mut lengths = Vec::with_capacity(count);
    let mut sum = 0u64;
    for _ in 0..count {
        let length = meta.varint_u32()?;
        sum += u64::from(length);
        lengths.push(length);
    }
    if sum == data_len as u64 { Ok(lengths) } else { Err(Malformed) }
}

pub(crate) fn decode_producer(meta: &mut Decoder<'_>) -> Result<Producer, Malformed> {
    Ok(Producer { id: meta.string()?, epoch: meta.varint()?, seq: meta.varint()? })
}
