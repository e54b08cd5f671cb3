//! What a stream retains, and the records that change it: snapshots and attributes.

use bytes::{BufMut, BytesMut};

use crate::codec::{Decoder, Malformed, put_pair, put_string, put_varint};
use crate::record::decode::decode_flags;
use crate::record::{RawOffset, StreamId};

const RETENTION_LATEST: u8 = 1;
const RETENTION_BASE: u8 = 1 << 1;
const RETENTION_MARKS: u8 = 1 << 2;

const PUBLISH_RETAIN_ALL: u8 = 1;
const PUBLISH_RENEW: u8 = 1 << 1;

const ATTRIBUTES_RENEW: u8 = 1;

const TRIM_FLOOR: u8 = 1;
const TRIM_MARK: u8 = 1 << 1;

/// Four numbers and a time, a byte for each of the five.
const SUPERSEDED_BYTES_MIN: usize = 5;

/// A time and an offset, a byte for each of the three numbers.
const MARK_BYTES_MIN: usize = 3;

/// A published snapshot.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Snapshot {
    /// It stands for everything before this offset.
    pub offset: RawOffset,
    /// The stream without a path that holds its body.
    pub body: StreamId,
    /// The length of the body in bytes.
    pub length: u64,
}

/// What a stream retains. It differs from what a stream starts with, or it isn't stored.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Retention {
    /// The earliest offset that can be read.
    pub floor: RawOffset,
    /// The latest snapshot.
    pub latest: Option<Snapshot>,
    /// The snapshot at the floor, when that isn't the latest.
    pub base: Option<Snapshot>,
    /// Replaced snapshots, oldest first, each with the time up to which it is readable, in milliseconds of Unix time.
    pub superseded: Vec<(Snapshot, u64)>,
    /// How old what is kept is, oldest first.
    pub marks: Vec<Mark>,
}

/// Nothing before the offset was appended later than this.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Mark {
    /// In milliseconds of Unix time.
    pub time_ms: u64,
    /// Where what is newer may begin.
    pub offset: RawOffset,
}

/// The beginning of a stream is given up, or it is noted how old it is, or both: at least one of them.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Trim {
    /// The earliest offset that can be read from now on.
    pub floor: Option<RawOffset>,
    /// How old the stream's data is.
    pub mark: Option<Mark>,
}

/// A snapshot becomes the latest.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Publish {
    /// The snapshot. Its body is whole in the records before this one, or in the table that one of them names.
    pub snapshot: Snapshot,
    /// Whether the floor stays; otherwise it moves to the snapshot.
    pub retain_all: bool,
    /// How long the one that it replaces stays readable, in milliseconds of Unix time.
    pub superseded_until_ms: u64,
    /// The stream's new deadline in milliseconds of Unix time, when it moved.
    pub renew_deadline_ms: Option<u64>,
}

/// The body of a snapshot comes into being. Its bytes are the table that [`body_table`](crate::body_table) names, and
/// nothing else is in that.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Body {
    /// The type of the snapshot.
    pub content_type: String,
    /// Where the body ends.
    pub end: RawOffset,
}

/// A stream's attributes are replaced.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct SetAttributes {
    /// Their JSON text; empty for none.
    pub text: String,
    /// The stream's new deadline in milliseconds of Unix time, when it moved.
    pub renew_deadline_ms: Option<u64>,
}

fn encode_snapshot(out: &mut BytesMut, snapshot: &Snapshot) {
    put_pair(out, snapshot.offset);
    put_varint(out, snapshot.body.0);
    put_varint(out, snapshot.length);
}

fn decode_snapshot(meta: &mut Decoder<'_>) -> Result<Snapshot, Malformed> {
    Ok(Snapshot { offset: meta.pair()?, body: StreamId(meta.varint()?), length: meta.varint()? })
}

pub(crate) fn encode_retention(out: &mut BytesMut, retention: &Retention) {
    let latest = if retention.latest.is_some() { RETENTION_LATEST } else { 0 };
    let base = if retention.base.is_some() { RETENTION_BASE } else { 0 };
    let marks = if retention.marks.is_empty() { 0 } else { RETENTION_MARKS };
    out.put_u8(latest | base | marks);
    put_pair(out, retention.floor);
    for snapshot in retention.latest.iter().chain(&retention.base) {
        encode_snapshot(out, snapshot);
    }
    put_varint(out, retention.superseded.len() as u64);
    for (snapshot, until_ms) in &retention.superseded {
        encode_snapshot(out, snapshot);
        put_varint(out, *until_ms);
    }
    if !retention.marks.is_empty() {
        put_varint(out, retention.marks.len() as u64);
        retention.marks.iter().for_each(|mark| encode_mark(out, mark));
    }
}

fn encode_mark(out: &mut BytesMut, mark: &Mark) {
    put_varint(out, mark.time_ms);
    put_pair(out, mark.offset);
}

fn decode_mark(meta: &mut Decoder<'_>) -> Result<Mark, Malformed> {
    Ok(Mark { time_ms: meta.varint()?, offset: meta.pair()? })
}

pub(crate) fn decode_retention(meta: &mut Decoder<'_>) -> Result<Retention, Malformed> {
    let flags = decode_flags(meta, RETENTION_LATEST | RETENTION_BASE | RETENTION_MARKS)?;
    let floor = meta.pair()?;
    let mut snapshot = |flag| if flags & flag == 0 { Ok(None) } else { decode_snapshot(meta).map(Some) };
    let (latest, base) = (snapshot(RETENTION_LATEST)?, snapshot(RETENTION_BASE)?);
    let mut superseded = Vec::new();
    for _ in 0..meta.count(SUPERSEDED_BYTES_MIN)? {
        superseded.push((decode_snapshot(meta)?, meta.varint()?));
    }
    let mut marks = Vec::new();
    if flags & RETENTION_MARKS != 0 {
        for _ in 0..meta.count(MARK_BYTES_MIN)? {
            marks.push(decode_mark(meta)?);
        }
        // There is one way to say that there are none.
        if marks.is_empty() {
            return Err(Malformed);
        }
    }
    Ok(Retention { floor, latest, base, superseded, marks })
}

pub(super) fn encode_trim(out: &mut BytesMut, trim: &Trim) {
    let floor = if trim.floor.is_some() { TRIM_FLOOR } else { 0 };
    let mark = if trim.mark.is_some() { TRIM_MARK } else { 0 };
    out.put_u8(floor | mark);
    if let Some(floor) = trim.floor {
        put_pair(out, floor);
    }
    if let Some(mark) = &trim.mark {
        encode_mark(out, mark);
    }
}

pub(super) fn decode_trim(meta: &mut Decoder<'_>) -> Result<Trim, Malformed> {
    let flags = decode_flags(meta, TRIM_FLOOR | TRIM_MARK)?;
    if flags == 0 {
        return Err(Malformed);
    }
    let floor = if flags & TRIM_FLOOR == 0 { None } else { Some(meta.pair()?) };
    let mark = if flags & TRIM_MARK == 0 { None } else { Some(decode_mark(meta)?) };
    Ok(Trim { floor, mark })
}

pub(super) fn encode_publish(out: &mut BytesMut, publish: &Publish) {
    let retain_all = if publish.retain_all { PUBLISH_RETAIN_ALL } else { 0 };
    let renew = if publish.renew_deadline_ms.is_some() { PUBLISH_RENEW } else { 0 };
    out.put_u8(retain_all | renew);
    encode_snapshot(out, &publish.snapshot);
    put_varint(out, publish.superseded_until_ms);
    if let Some(deadline_ms) = publish.renew_deadline_ms {
        put_varint(out, deadline_ms);
    }
}

pub(super) fn decode_publish(meta: &mut Decoder<'_>) -> Result<Publish, Malformed> {
    let flags = decode_flags(meta, PUBLISH_RETAIN_ALL | PUBLISH_RENEW)?;
    Ok(Publish {
        snapshot: decode_snapshot(meta)?,
        retain_all: flags & PUBLISH_RETAIN_ALL != 0,
        superseded_until_ms: meta.varint()?,
        renew_deadline_ms: if flags & PUBLISH_RENEW == 0 { None } else { Some(meta.varint()?) },
    })
}

pub(super) fn encode_attributes(out: &mut BytesMut, attributes: &SetAttributes) {
    out.put_u8(if attributes.renew_deadline_ms.is_some() { ATTRIBUTES_RENEW } else { 0 });
    put_string(out, &attributes.text);
    if let Some(deadline_ms) = attributes.renew_deadline_ms {
        put_varint(out, deadline_ms);
    }
}

pub(super) fn decode_attributes(meta: &mut Decoder<'_>) -> Result<SetAttributes, Malformed> {
    let flags = decode_flags(meta, ATTRIBUTES_RENEW)?;
    let text = meta.string()?;
    let renew_deadline_ms = if flags & ATTRIBUTES_RENEW == 0 { None } else { Some(meta.varint()?) };
    Ok(SetAttributes { text, renew_deadline_ms })
}

pub(super) fn encode_body(out: &mut BytesMut, body: &Body) {
    put_string(out, &body.content_type);
    put_pair(out, body.end);
}

pub(super) fn decode_body(meta: &mut Decoder<'_>) -> Result<Body, Malformed> {
    Ok(Body { content_type: meta.string()?, end: meta.pair()? })
}
