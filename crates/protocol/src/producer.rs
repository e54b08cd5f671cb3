//! Idempotent producers: retries are recognised, gaps and stale epochs refused (PROTOCOL §5.2.1).

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::integer;
use crate::limits::PRODUCER_ID_BYTES_MAX;

/// Name a producer gave itself: 1 to [`PRODUCER_ID_BYTES_MAX`] bytes.
#[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct ProducerId(Arc<str>);

impl ProducerId {
    /// Checks the length of a name.
    pub fn parse(id: &str) -> Result<ProducerId, InvalidProducer> {
        match id.len() {
            0 => Err(InvalidProducer::EmptyId),
            1..=PRODUCER_ID_BYTES_MAX => Ok(ProducerId(Arc::from(id))),
            _ => Err(InvalidProducer::IdTooLong),
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for ProducerId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ProducerId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProducerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for ProducerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// What a producer writes on one append.
#[derive(Clone, Debug, Eq, PartialEq, Hash)]
pub struct ProducerStamp {
    /// Who appends.
    pub id: ProducerId,
    /// Which run of that producer, at most 2^53 - 1.
    pub epoch: u64,
    /// Number of the append within the epoch, from 0, at most 2^53 - 1.
    pub seq: u64,
}

impl ProducerStamp {
    /// Reads the values of `Producer-Id`, `Producer-Epoch` and `Producer-Seq`: all of them or none.
    pub fn parse(
        id: Option<&str>,
        epoch: Option<&str>,
        seq: Option<&str>,
    ) -> Result<Option<ProducerStamp>, InvalidProducer> {
        match (id, epoch, seq) {
            (None, None, None) => Ok(None),
            (Some(id), Some(epoch), Some(seq)) => {
                let epoch = integer::parse(epoch).ok_or(InvalidProducer::Epoch)?;
                let seq = integer::parse(seq).ok_or(InvalidProducer::Seq)?;
                Ok(Some(ProducerStamp { id: ProducerId::parse(id)?, epoch, seq }))
            }
            _ => Err(InvalidProducer::Incomplete),
        }
    }

    /// The state a stream holds once this append is accepted.
    pub fn state(&self) -> ProducerState {
        ProducerState { epoch: self.epoch, seq: self.seq }
    }
}

/// What a stream remembers of one producer.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub struct ProducerState {
    /// Current epoch.
    pub epoch: u64,
    /// Highest sequence number accepted in that epoch.
    pub seq: u64,
}

/// What becomes of an append that is not refused.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum ProducerVerdict {
    /// New: append it and remember this state with it.
    Accept(ProducerState),
    /// Seen before: nothing to do. Carries the state as it stands.
    Duplicate(ProducerState),
}

/// Why an append is refused.
#[derive(Copy, Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ProducerRejection {
    /// A newer run of the same producer has taken over.
    #[error("producer epoch is stale: the current epoch is {current_epoch}")]
    Fenced {
        /// The epoch that holds the stream now.
        current_epoch: u64,
    },
    /// The first append of a new epoch has a sequence number other than 0.
    #[error("a new producer epoch must start at sequence number 0")]
    EpochMustStartAtZero,
    /// An earlier append is missing.
    #[error("producer sequence has a gap: expected {expected}, received {received}")]
    Gap {
        /// The only number that would be new.
        expected: u64,
        /// The number that came.
        received: u64,
    },
}

/// Judges an append by what the stream remembers of its producer, `None` if it has never seen it.
pub fn evaluate(
    state: Option<ProducerState>,
    epoch: u64,
    seq: u64,
) -> Result<ProducerVerdict, ProducerRejection> {
    let accepted = ProducerVerdict::Accept(ProducerState { epoch, seq });
    let Some(state) = state else {
        return if seq == 0 {
            Ok(accepted)
        } else {
            Err(ProducerRejection::Gap { expected: 0, received: seq })
        };
    };
    if epoch < state.epoch {
        Err(ProducerRejection::Fenced { current_epoch: state.epoch })
    } else if epoch > state.epoch {
        if seq == 0 { Ok(accepted) } else { Err(ProducerRejection::EpochMustStartAtZero) }
    } else if seq <= state.seq {
        Ok(ProducerVerdict::Duplicate(state))
    } else if seq - state.seq == 1 {
        Ok(accepted)
    } else {
        Err(ProducerRejection::Gap { expected: state.seq + 1, received: seq })
    }
}

/// Why the producer headers are refused.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum InvalidProducer {
    /// One or two of the three headers are missing.
    #[error("`Producer-Id`, `Producer-Epoch` and `Producer-Seq` must be given together")]
    Incomplete,
    /// `Producer-Id` is empty.
    #[error("`Producer-Id` is empty")]
    EmptyId,
    /// `Producer-Id` is longer than [`PRODUCER_ID_BYTES_MAX`].
    #[error("`Producer-Id` is longer than {PRODUCER_ID_BYTES_MAX} bytes")]
    IdTooLong,
    /// `Producer-Epoch` is not a decimal integer up to 2^53 - 1.
    #[error("`Producer-Epoch` is not an integer from 0 to 2^53 - 1")]
    Epoch,
    /// `Producer-Seq` is not a decimal integer up to 2^53 - 1.
    #[error("`Producer-Seq` is not an integer from 0 to 2^53 - 1")]
    Seq,
}

#[cfg(test)]
mod tests;
