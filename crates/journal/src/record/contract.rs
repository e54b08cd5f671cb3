//! What the store contract keeps of a stream, and the records that change it: claims, receipts, fold checkpoints.

use bytes::{BufMut, BytesMut};

use crate::codec::{Decoder, Malformed, put_pair, put_string, put_varint};
use crate::record::decode::{decode_flags, decode_producer};
use crate::record::encode::encode_producer;
use crate::record::{Producer, RawOffset, StreamId};

const CONTRACT_CLAIM: u8 = 1;
const CONTRACT_FOLD_CHECKPOINT: u8 = 1 << 1;

const RECEIPT_CLOSED: u8 = 1;

/// A flag byte, a producer of three, two offsets and a text, a byte for each number.
const RECEIPT_BYTES_MIN: usize = 9;

/// A producer becomes the only writer of a stream. Lanes and receipts of before are void.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Claim {
    /// The producer's name.
    pub id: String,
    /// The epoch that it was given.
    pub epoch: u64,
}

/// What a reader has made of a stream up to an offset.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct FoldCheckpoint {
    /// The end of the last append that went into it.
    pub offset: RawOffset,
    /// The reader's own version of the text.
    pub format_version: u32,
    /// The stream without a path that holds the text.
    pub body: StreamId,
    /// The length of the text in bytes.
    pub length: u64,
}

/// What is kept of an append so that a repetition can be compared with it.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Receipt {
    /// The append's stamp.
    pub producer: Producer,
    /// Where it begins.
    pub start: RawOffset,
    /// Where it ends.
    pub end: RawOffset,
    /// Whether it closed the stream.
    pub closed: bool,
    /// What the producer kept with it; empty for nothing.
    pub metadata: String,
}

/// What the store contract keeps of a stream. It is something, or it isn't stored.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Contract {
    /// Who may write, with the number of its next append.
    pub claim: Option<Producer>,
    /// The receipts, oldest first.
    pub receipts: Vec<Receipt>,
    /// What a reader has made of the stream.
    pub fold_checkpoint: Option<FoldCheckpoint>,
}

pub(super) fn encode_claim(out: &mut BytesMut, claim: &Claim) {
    put_string(out, &claim.id);
    put_varint(out, claim.epoch);
}

pub(super) fn decode_claim(meta: &mut Decoder<'_>) -> Result<Claim, Malformed> {
    Ok(Claim { id: meta.string()?, epoch: meta.varint()? })
}

pub(super) fn encode_fold_checkpoint(out: &mut BytesMut, checkpoint: &FoldCheckpoint) {
    put_pair(out, checkpoint.offset);
    put_varint(out, u64::from(checkpoint.format_version));
    put_varint(out, checkpoint.body.0);
    put_varint(out, checkpoint.length);
}

pub(super) fn decode_fold_checkpoint(meta: &mut Decoder<'_>) -> Result<FoldCheckpoint, Malformed> {
    Ok(FoldCheckpoint {
        offset: meta.pair()?,
        format_version: meta.varint_u32()?,
        body: StreamId(meta.varint()?),
        length: meta.varint()?,
    })
}

pub(crate) fn encode_contract(out: &mut BytesMut, contract: &Contract) {
    let claim = if contract.claim.is_some() { CONTRACT_CLAIM } else { 0 };
    let checkpoint = if contract.fold_checkpoint.is_some() { CONTRACT_FOLD_CHECKPOINT } else { 0 };
    out.put_u8(claim | checkpoint);
    if let Some(claim) = &contract.claim {
        encode_producer(out, claim);
    }
    put_varint(out, contract.receipts.len() as u64);
    for receipt in &contract.receipts {
        out.put_u8(if receipt.closed { RECEIPT_CLOSED } else { 0 });
        encode_producer(out, &receipt.producer);
        put_pair(out, receipt.start);
        put_pair(out, receipt.end);
        put_string(out, &receipt.metadata);
    }
    if let Some(checkpoint) = &contract.fold_checkpoint {
        encode_fold_checkpoint(out, checkpoint);
    }
}

pub(crate) fn decode_contract(meta: &mut Decoder<'_>) -> Result<Contract, Malformed> {
    let flags = decode_flags(meta, CONTRACT_CLAIM | CONTRACT_FOLD_CHECKPOINT)?;
    let claim = if flags & CONTRACT_CLAIM == 0 { None } else { Some(decode_producer(meta)?) };
    let mut receipts = Vec::new();
    for _ in 0..meta.count(RECEIPT_BYTES_MIN)? {
        let closed = decode_flags(meta, RECEIPT_CLOSED)? != 0;
        let producer = decode_producer(meta)?;
        let (start, end) = (meta.pair()?, meta.pair()?);
        receipts.push(Receipt { producer, start, end, closed, metadata: meta.string()? });
    }
    let has_checkpoint = flags & CONTRACT_FOLD_CHECKPOINT != 0;
    let fold_checkpoint = if has_checkpoint { Some(decode_fold_checkpoint(meta)?) } else { None };
    Ok(Contract { claim, receipts, fold_checkpoint })
}
