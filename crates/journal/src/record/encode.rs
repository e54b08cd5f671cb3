//! A record as bytes: header, meta, and then the data as it is.

use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::{len_u32, put_pair, put_string, put_varint};
use crate::record::contract::{encode_claim, encode_fold_checkpoint};
use crate::record::retention::{
    encode_attributes, encode_body, encode_publish, encode_retention, encode_trim,
};
use crate::record::{Append, Create, Fork, Mutation, Producer, RECORD_HEADER_BYTES, Record};

pub(super) const KIND_CREATE: u8 = 1;
pub(super) const KIND_APPEND: u8 = 2;
pub(super) const KIND_DELETE: u8 = 3;
pub(super) const KIND_RENEW: u8 = 4;
pub(super) const KIND_PUBLISH: u8 = 5;
pub(super) const KIND_ATTRIBUTES: u8 = 6;
pub(super) const KIND_CLAIM: u8 = 7;
pub(super) const KIND_FOLD_CHECKPOINT: u8 = 8;
pub(super) const KIND_BODY: u8 = 9;
pub(super) const KIND_TRIM: u8 = 10;

pub(super) const APPEND_PRODUCER: u8 = 1;
pub(super) const APPEND_SEQ: u8 = 1 << 1;
pub(super) const APPEND_CLOSE: u8 = 1 << 2;
pub(super) const APPEND_RENEW: u8 = 1 << 3;
/// One message, as long as the data: the most common append stores no lengths.
pub(super) const APPEND_ONE_MESSAGE: u8 = 1 << 4;
pub(super) const APPEND_RECEIPT: u8 = 1 << 5;

pub(super) const CREATE_TTL: u8 = 1;
pub(super) const CREATE_EXPIRES_AT: u8 = 1 << 1;
pub(super) const CREATE_DEADLINE: u8 = 1 << 2;
pub(super) const CREATE_FORK: u8 = 1 << 3;
pub(super) const CREATE_BODY: u8 = 1 << 4;
pub(super) const CREATE_BUCKET: u8 = 1 << 5;
pub(super) const CREATE_RETENTION: u8 = 1 << 6;
pub(super) const CREATE_ATTRIBUTES: u8 = 1 << 7;

/// The bytes that follow the meta of `record` in the file.
pub(crate) fn data_of(record: &Record) -> Option<&Bytes> {
    match &record.mutation {
        Mutation::Append(append) => Some(&append.data),
        Mutation::Create(create) => create.body.as_ref().map(|body| &body.data),
        Mutation::Delete { .. }
        | Mutation::Renew { .. }
        | Mutation::Publish(_)
        | Mutation::Attributes(_)
        | Mutation::Claim(_)
        | Mutation::FoldCheckpoint(_)
        | Mutation::Body(_)
        | Mutation::Trim(_) => None,
    }
}

/// No less than the bytes that `record` takes, found without encoding it.
pub(crate) fn record_len_max(record: &Record) -> u64 {
    /// More than the numbers of a record take, each as the longest varint.
    const NUMBERS_BYTES_MAX: usize = 200;
    const RANGE_BYTES_MAX: usize = 50;
    const LENGTH_BYTES_MAX: usize = 5;
    const SNAPSHOT_BYTES_MAX: usize = 50;
    const MARK_BYTES_MAX: usize = 30;
    let append_len = |append: &Append| {
        LENGTH_BYTES_MAX * append.lengths.len()
            + append.data.len()
            + append.producer.as_ref().map_or(0, |producer| producer.id.len())
            + append.seq.as_ref().map_or(0, String::len)
            + append.receipt.as_ref().map_or(0, String::len)
    };
    let fork_len = |fork: &Fork| fork.source_path.len() + RANGE_BYTES_MAX * fork.ranges.len();
    let variable = match &record.mutation {
        Mutation::Create(create) => {
            create.path.len()
                + create.content_type.len()
                + create.fork.as_ref().map_or(0, fork_len)
                + create.body.as_ref().map_or(0, append_len)
                + create.retention.as_ref().map_or(0, |retention| {
                    SNAPSHOT_BYTES_MAX * (retention.superseded.len() + 2)
                        + MARK_BYTES_MAX * retention.marks.len()
                })
                + create.attributes.as_ref().map_or(0, String::len)
        }
        Mutation::Append(append) => append_len(append),
        Mutation::Attributes(attributes) => attributes.text.len(),
        Mutation::Claim(claim) => claim.id.len(),
        Mutation::Body(body) => body.content_type.len(),
        Mutation::Delete { .. }
        | Mutation::Renew { .. }
        | Mutation::Publish(_)
        | Mutation::FoldCheckpoint(_)
        | Mutation::Trim(_) => 0,
    };
    (RECORD_HEADER_BYTES + NUMBERS_BYTES_MAX + variable) as u64
}

/// Appends everything of `record` but its data, which has the given length and checksum and must follow.
pub(crate) fn encode_record_start(out: &mut BytesMut, record: &Record, data_len: u32, data_crc: u32) {
    let header_at = out.len();
    out.put_bytes(0, RECORD_HEADER_BYTES);
    put_varint(out, record.time_ms);
    let kind = match &record.mutation {
        Mutation::Create(create) => {
            encode_create(out, create);
            KIND_CREATE
        }
        Mutation::Append(append) => {
            encode_append(out, append);
            KIND_APPEND
        }
        Mutation::Delete { expired } => {
            out.put_u8(u8::from(*expired));
            KIND_DELETE
        }
        Mutation::Renew { deadline_ms } => {
            put_varint(out, *deadline_ms);
            KIND_RENEW
        }
        Mutation::Publish(publish) => {
            encode_publish(out, publish);
            KIND_PUBLISH
        }
        Mutation::Attributes(attributes) => {
            encode_attributes(out, attributes);
            KIND_ATTRIBUTES
        }
        Mutation::Claim(claim) => {
            encode_claim(out, claim);
            KIND_CLAIM
        }
        Mutation::FoldCheckpoint(checkpoint) => {
            encode_fold_checkpoint(out, checkpoint);
            KIND_FOLD_CHECKPOINT
        }
        Mutation::Body(body) => {
            encode_body(out, body);
            KIND_BODY
        }
        Mutation::Trim(trim) => {
            encode_trim(out, trim);
            KIND_TRIM
        }
    };
    let meta_len = len_u32(out.len() - header_at - RECORD_HEADER_BYTES);
    let mut header = &mut out[header_at + 4..header_at + RECORD_HEADER_BYTES];
    header.put_u32_le(meta_len);
    header.put_u32_le(data_len);
    header.put_u32_le(data_crc);
    header.put_u64_le(record.stream.0);
    header.put_u8(kind);
    let crc = crc32c::crc32c(&out[header_at + 4..]);
    out[header_at..header_at + 4].copy_from_slice(&crc.to_le_bytes());
}

pub(crate) fn encode_create(out: &mut BytesMut, create: &Create) {
    let numbers = [
        (CREATE_TTL, create.ttl_s),
        (CREATE_EXPIRES_AT, create.expires_at_ms),
        (CREATE_DEADLINE, create.deadline_ms),
    ];
    let mut flags = 0;
    for (flag, number) in numbers {
        flags |= if number.is_some() { flag } else { 0 };
    }
    flags |= if create.fork.is_some() { CREATE_FORK } else { 0 };
    flags |= if create.body.is_some() { CREATE_BODY } else { 0 };
    flags |= if create.bucket.is_some() { CREATE_BUCKET } else { 0 };
    flags |= if create.retention.is_some() { CREATE_RETENTION } else { 0 };
    flags |= if create.attributes.is_some() { CREATE_ATTRIBUTES } else { 0 };
    out.put_u8(flags);
    out.put_u128_le(create.incarnation);
    put_string(out, &create.path);
    put_string(out, &create.content_type);
    for number in numbers.into_iter().filter_map(|(_, number)| number) {
        put_varint(out, number);
    }
    if let Some(fork) = &create.fork {
        encode_fork(out, fork);
    }
    if let Some(bucket) = create.bucket {
        put_varint(out, bucket.0);
    }
    if let Some(retention) = &create.retention {
        encode_retention(out, retention);
    }
    if let Some(attributes) = &create.attributes {
        put_string(out, attributes);
    }
    if let Some(body) = &create.body {
        encode_append(out, body);
    }
}

fn encode_fork(out: &mut BytesMut, fork: &Fork) {
    put_varint(out, fork.source.0);
    put_string(out, &fork.source_path);
    out.put_u8(u8::from(fork.source_offset.is_some()));
    if let Some(offset) = fork.source_offset {
        put_pair(out, offset);
    }
    put_varint(out, fork.sub_offset);
    put_pair(out, fork.at);
    put_varint(out, fork.ranges.len() as u64);
    for range in &fork.ranges {
        put_varint(out, range.stream.0);
        put_pair(out, range.start);
        put_pair(out, range.end);
    }
}

fn encode_append(out: &mut BytesMut, append: &Append) {
    let one_message = append.lengths.len() == 1;
    let facts = [
        (APPEND_PRODUCER, append.producer.is_some()),
        (APPEND_SEQ, append.seq.is_some()),
        (APPEND_CLOSE, append.close),
        (APPEND_RENEW, append.renew_deadline_ms.is_some()),
        (APPEND_ONE_MESSAGE, one_message),
        (APPEND_RECEIPT, append.receipt.is_some()),
    ];
    out.put_u8(facts.into_iter().fold(0, |flags, (flag, holds)| if holds { flags | flag } else { flags }));
    put_pair(out, append.start);
    if !one_message {
        put_varint(out, append.lengths.len() as u64);
        for &length in &append.lengths {
            put_varint(out, u64::from(length));
        }
    }
    if let Some(producer) = &append.producer {
        encode_producer(out, producer);
    }
    if let Some(seq) = &append.seq {
        put_string(out, seq);
    }
    if let Some(deadline_ms) = append.renew_deadline_ms {
        put_varint(out, deadline_ms);
    }
    if let Some(metadata) = &append.receipt {
        put_string(out, metadata);
    }
}

pub(crate) fn encode_producer(out: &mut BytesMut, producer: &Producer) {
    put_string(out, &producer.id);
    put_varint(out, producer.epoch);
    put_varint(out, producer.seq);
}
