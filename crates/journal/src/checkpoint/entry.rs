//! An entry of a checkpoint as bytes.

use bytes::{BufMut, Bytes, BytesMut};

use crate::checkpoint::{CheckpointEntry, TableExtent};
use crate::codec::{Decoder, Malformed, put_pair, put_string, put_varint};
use crate::record::{
    StreamId, decode_contract, decode_create, decode_producer, decode_retention, encode_contract,
    encode_create, encode_producer, encode_retention,
};

const DEADLINE: u8 = 1;
const CLOSED: u8 = 1 << 1;
const CLOSED_BY: u8 = 1 << 2;
const LAST_SEQ: u8 = 1 << 3;
const DELETED: u8 = 1 << 4;
const RETENTION: u8 = 1 << 5;
const CONTRACT: u8 = 1 << 6;
const ALL_FLAGS: u8 = DEADLINE | CLOSED | CLOSED_BY | LAST_SEQ | DELETED | RETENTION | CONTRACT;

/// A producer's name and two numbers, a byte for each of the three.
const PRODUCER_BYTES_MIN: usize = 3;

/// Three numbers and two offsets, a byte for each of the seven.
const EXTENT_BYTES_MIN: usize = 7;

pub(super) fn encode_entry(out: &mut BytesMut, entry: &CheckpointEntry) {
    let facts = [
        (DEADLINE, entry.deadline_ms.is_some()),
        (CLOSED, entry.closed),
        (CLOSED_BY, entry.closed_by.is_some()),
        (LAST_SEQ, entry.last_seq.is_some()),
        (DELETED, entry.deleted),
        (RETENTION, entry.retention.is_some()),
        (CONTRACT, entry.contract.is_some()),
    ];
    out.put_u64_le(entry.stream.0);
    out.put_u8(facts.into_iter().fold(0, |flags, (flag, holds)| if holds { flags | flag } else { flags }));
    encode_create(out, &entry.create);
    put_varint(out, entry.created_ms);
    put_varint(out, entry.last_write_ms);
    put_pair(out, entry.tail);
    if let Some(deadline_ms) = entry.deadline_ms {
        put_varint(out, deadline_ms);
    }
    if let Some(producer) = &entry.closed_by {
        encode_producer(out, producer);
    }
    if let Some(seq) = &entry.last_seq {
        put_string(out, seq);
    }
    if let Some(retention) = &entry.retention {
        encode_retention(out, retention);
    }
    if let Some(contract) = &entry.contract {
        encode_contract(out, contract);
    }
    put_varint(out, entry.producers.len() as u64);
    for producer in &entry.producers {
        encode_producer(out, producer);
    }
    put_varint(out, entry.extents.len() as u64);
    for extent in &entry.extents {
        put_varint(out, extent.table);
        put_varint(out, u64::from(extent.first_block));
        put_varint(out, u64::from(extent.block_count));
        put_pair(out, extent.start);
        put_pair(out, extent.end);
    }
}

pub(super) fn decode_entry(bytes: &[u8]) -> Result<CheckpointEntry, Malformed> {
    let mut decoder = Decoder::new(bytes);
    let entry = decode_fields(&mut decoder)?;
    decoder.finish()?;
    Ok(entry)
}

fn decode_fields(decoder: &mut Decoder<'_>) -> Result<CheckpointEntry, Malformed> {
    let stream = StreamId(decoder.u64()?);
    let flags = decoder.u8()?;
    if flags & !ALL_FLAGS != 0 {
        return Err(Malformed);
    }
    let create = decode_create(decoder, Bytes::new())?;
    if create.body.is_some() || create.retention.is_some() {
        return Err(Malformed);
    }
    let created_ms = decoder.varint()?;
    let last_write_ms = decoder.varint()?;
    let tail = decoder.pair()?;
    let deadline_ms = if flags & DEADLINE == 0 { None } else { Some(decoder.varint()?) };
    let closed_by = if flags & CLOSED_BY == 0 { None } else { Some(decode_producer(decoder)?) };
    let last_seq = if flags & LAST_SEQ == 0 { None } else { Some(decoder.string()?) };
    let retention = if flags & RETENTION == 0 { None } else { Some(decode_retention(decoder)?) };
    let contract = if flags & CONTRACT == 0 { None } else { Some(decode_contract(decoder)?) };
    let mut producers = Vec::new();
    for _ in 0..decoder.count(PRODUCER_BYTES_MIN)? {
        producers.push(decode_producer(decoder)?);
    }
    let mut extents = Vec::new();
    for _ in 0..decoder.count(EXTENT_BYTES_MIN)? {
        extents.push(TableExtent {
            table: decoder.varint()?,
            first_block: decoder.varint_u32()?,
            block_count: decoder.varint_u32()?,
            start: decoder.pair()?,
            end: decoder.pair()?,
        });
    }
    Ok(CheckpointEntry {
        stream,
        create,
        created_ms,
        last_write_ms,
        tail,
        deadline_ms,
        closed: flags & CLOSED != 0,
        closed_by,
        last_seq,
        producers,
        deleted: flags & DELETED != 0,
        retention,
        contract,
        extents,
    })
}
