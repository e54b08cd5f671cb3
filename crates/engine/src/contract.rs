//! What the store contract keeps of a stream: who may write it, receipts of appends, and a reader's fold checkpoint.
//!
//! Streams that are only used by the base protocol have none of it.

use std::collections::{HashMap, VecDeque};

use alluvium_journal as journal;
use alluvium_protocol::limits::RECEIPTS_PER_PRODUCER;
use alluvium_protocol::store::{Receipt, RetryMetadata};
use alluvium_protocol::{Claim, Offset, ProducerId, ProducerStamp};

use crate::body::StoredBody;
use crate::stream::{offset_of, pair_of};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Contract {
    pub(crate) claim: Option<Claim>,
    /// Of each producer those of its last appends, oldest first. How many producers a stream has is limited.
    receipts: HashMap<ProducerId, VecDeque<Kept>>,
    pub(crate) checkpoint: Option<Checkpoint<StoredBody>>,
}

/// A receipt, and the stamp of its append.
type Kept = (ProducerStamp, Receipt);

/// A reader's fold checkpoint, whose text is a body of type `B`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checkpoint<B> {
    pub(crate) offset: Offset,
    pub(crate) format_version: u32,
    pub(crate) body: B,
}

impl Contract {
    /// The receipt of the append with this stamp.
    pub(crate) fn receipt(&self, stamp: &ProducerStamp) -> Option<&Receipt> {
        // A repetition is most often of a recent append.
        let kept = self.receipts.get(&stamp.id)?;
        kept.iter().rev().find(|(kept, _)| kept == stamp).map(|(_, receipt)| receipt)
    }

    pub(crate) fn keep(&mut self, stamp: ProducerStamp, receipt: Receipt) {
        let kept = self.receipts.entry(stamp.id.clone()).or_default();
        if kept.back().is_some_and(|(last, _)| last.epoch != stamp.epoch) {
            // What an earlier epoch appended is fenced, not compared.
            kept.clear();
        }
        if kept.len() >= RECEIPTS_PER_PRODUCER {
            kept.pop_front();
        }
        kept.push_back((stamp, receipt));
    }

    /// All receipts in the order of their appends, the same whenever it is asked for.
    fn in_order(&self) -> impl Iterator<Item = &Kept> {
        let mut all: Vec<&Kept> = self.receipts.values().flatten().collect();
        all.sort_by_key(|(stamp, receipt)| (receipt.end, receipt.closed, stamp.seq));
        all.into_iter()
    }

    /// Takes in a claim. What earlier writers have left cannot be repeated any more.
    pub(crate) fn claim(&mut self, claim: Claim) {
        self.claim = Some(claim);
        self.receipts = HashMap::new();
    }

    /// What a checkpoint of the directory keeps; `None` when it is nothing.
    pub(crate) fn to_record(&self) -> Option<journal::Contract> {
        let is_empty = self.claim.is_none() && self.receipts.is_empty() && self.checkpoint.is_none();
        (!is_empty).then(|| journal::Contract {
            claim: self.claim.as_ref().map(|claim| journal::Producer {
                id: claim.id.as_str().to_owned(),
                epoch: claim.epoch,
                seq: claim.next_seq,
            }),
            receipts: self.in_order().map(|(stamp, receipt)| receipt_record(stamp, receipt)).collect(),
            fold_checkpoint: self.checkpoint.map(checkpoint_record),
        })
    }

    /// `None` if an id or a metadata is none: it could never have been stored.
    pub(crate) fn from_record(stored: journal::Contract) -> Option<Self> {
        let claim = match stored.claim {
            Some(claim) => {
                let id = ProducerId::parse(&claim.id).ok()?;
                Some(Claim { id, epoch: claim.epoch, next_seq: claim.seq })
            }
            None => None,
        };
        let checkpoint = stored.fold_checkpoint.as_ref().map(checkpoint_of);
        let mut contract = Self { claim, receipts: HashMap::new(), checkpoint };
        for stored in stored.receipts {
            let stamp = crate::stream::stamp_of(&stored.producer)?;
            let metadata = metadata_of(&stored.metadata)?;
            let (start, end) = (offset_of(stored.start), offset_of(stored.end));
            contract.keep(stamp, Receipt { start, end, closed: stored.closed, metadata });
        }
        Some(contract)
    }
}

fn receipt_record(stamp: &ProducerStamp, receipt: &Receipt) -> journal::Receipt {
    journal::Receipt {
        producer: crate::stream::producer_of(stamp),
        start: pair_of(receipt.start),
        end: pair_of(receipt.end),
        closed: receipt.closed,
        metadata: receipt.metadata.as_ref().map_or_else(String::new, |kept| kept.as_str().to_owned()),
    }
}

/// The retry metadata as it is stored: empty for none. The outer `None` is for text that is none.
#[expect(clippy::option_option, reason = "text that is no metadata is another thing than none")]
pub(crate) fn metadata_of(stored: &str) -> Option<Option<RetryMetadata>> {
    if stored.is_empty() { Some(None) } else { RetryMetadata::parse(stored).ok().map(Some) }
}

pub(crate) fn checkpoint_record(checkpoint: Checkpoint<StoredBody>) -> journal::FoldCheckpoint {
    journal::FoldCheckpoint {
        offset: pair_of(checkpoint.offset),
        format_version: checkpoint.format_version,
        body: checkpoint.body.stream,
        length: checkpoint.body.length,
    }
}

pub(crate) fn checkpoint_of(stored: &journal::FoldCheckpoint) -> Checkpoint<StoredBody> {
    let body = StoredBody { stream: stored.body, length: stored.length };
    Checkpoint { offset: offset_of(stored.offset), format_version: stored.format_version, body }
}
