//! Claims: one writer for a whole stream, fenced by an epoch that the store gives out (extension).
//!
//! Without a claim a stream takes appends from anybody, and each producer has a *lane* of its own, judged by
//! [`producer::evaluate`]. Acquiring a claim ends that: from then on only the claim's producer writes, with the
//! claim's epoch, in order. Acquiring again, even by the same producer, gives a new epoch and fences the old one.
//! A claim lies with the stream and ends with its incarnation; nothing releases it.

use std::collections::BTreeMap;

use crate::limits::INTEGER_MAX;
use crate::producer::{self, ProducerId, ProducerRejection, ProducerStamp, ProducerState, ProducerVerdict};

/// The right to write a stream, as the stream holds it.
#[derive(Clone, Debug, Eq, PartialEq, Hash)]
pub struct Claim {
    /// Who writes.
    pub id: ProducerId,
    /// Counts the acquisitions of the stream, from 1.
    pub epoch: u64,
    /// Sequence number of the next append.
    pub next_seq: u64,
}

impl Claim {
    /// The claim after an acquisition by `id`; `None` once 2^53 - 1 of them have happened.
    pub fn acquire(current: Option<&Claim>, id: ProducerId) -> Option<Claim> {
        let epoch = current.map_or(0, |claim| claim.epoch) + 1;
        (epoch <= INTEGER_MAX).then_some(Claim { id, epoch, next_seq: 0 })
    }

    /// What an answer tells about the producer: the number of its last append, 0 before the first.
    pub fn state(&self) -> ProducerState {
        ProducerState { epoch: self.epoch, seq: self.next_seq.saturating_sub(1) }
    }
}

/// What a stream remembers of the producers that write it without a claim.
pub type ProducerStateMap = BTreeMap<ProducerId, ProducerState>;

/// Remembers an accepted append in its producer's lane.
pub fn commit(lanes: &mut ProducerStateMap, id: &ProducerId, state: ProducerState) {
    lanes.insert(id.clone(), state);
}

/// What the producer headers of an append come to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ProducerDecision {
    /// No headers, and none needed.
    Plain,
    /// New; remember this state in the producer's lane.
    Lane(ProducerState),
    /// New; the claim is this from now on.
    Claimed(Claim),
    /// Seen before. Carries the producer's state as it stands.
    Duplicate(ProducerState),
}

/// Why an append is refused for who sent it.
#[derive(Copy, Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ProducerRefusal {
    /// The stream is claimed, or must be, and the append names no producer.
    #[error("the stream takes appends only from a producer that has acquired it")]
    ClaimRequired,
    /// The append names a producer that has not acquired the stream.
    #[error("the stream is claimed, and not by this producer; acquire it to write")]
    NotOwner,
    /// Epoch or sequence number are out of line.
    #[error(transparent)]
    Rejected(#[from] ProducerRejection),
}

/// Judges an append by the stream's claim, or without one by the lane of its producer.
///
/// `lane` is what the stream remembers of the producer that `stamp` names; it counts only without a claim.
/// `claims_required` is whether a stream without a claim takes no appends at all.
pub fn evaluate(
    claim: Option<&Claim>,
    lane: Option<ProducerState>,
    stamp: Option<&ProducerStamp>,
    claims_required: bool,
) -> Result<ProducerDecision, ProducerRefusal> {
    match (claim, stamp) {
        (Some(claim), Some(stamp)) => evaluate_claim(claim, stamp),
        (Some(_), None) => Err(ProducerRefusal::ClaimRequired),
        (None, None) if claims_required => Err(ProducerRefusal::ClaimRequired),
        (None, Some(_)) if claims_required => Err(ProducerRefusal::NotOwner),
        (None, None) => Ok(ProducerDecision::Plain),
        (None, Some(stamp)) => Ok(match producer::evaluate(lane, stamp.epoch, stamp.seq)? {
            ProducerVerdict::Accept(state) => ProducerDecision::Lane(state),
            ProducerVerdict::Duplicate(state) => ProducerDecision::Duplicate(state),
        }),
    }
}

fn evaluate_claim(claim: &Claim, stamp: &ProducerStamp) -> Result<ProducerDecision, ProducerRefusal> {
    if stamp.id != claim.id {
        return Err(ProducerRefusal::NotOwner);
    }
    // A claim's epoch is given, not chosen: a higher one is as wrong as a lower one.
    if stamp.epoch != claim.epoch {
        return Err(ProducerRejection::Fenced { current_epoch: claim.epoch }.into());
    }
    if stamp.seq < claim.next_seq {
        return Ok(ProducerDecision::Duplicate(claim.state()));
    }
    if stamp.seq > claim.next_seq {
        return Err(ProducerRejection::Gap { expected: claim.next_seq, received: stamp.seq }.into());
    }
    Ok(ProducerDecision::Claimed(Claim { next_seq: claim.next_seq + 1, ..claim.clone() }))
}

#[cfg(test)]
mod tests;
