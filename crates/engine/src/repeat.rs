//! Appends by the rules of the store contract: claims, and repetitions that are compared with their first attempt.
//!
//! They hold for appends that ask for them, for those with retry metadata, and for every append to a claimed stream. The
//! rest goes by the base protocol, which keeps no receipts.

use std::sync::Arc;

use alluvium_protocol::claim::ProducerDecision;
use alluvium_protocol::error::Conflict;
use alluvium_protocol::store::{Admitted, AppendFacts, AppendOptions, Receipt, Repeats, StreamFacts, admit};
use alluvium_protocol::{AppendRejection, Offset, StreamError};
use bytes::Bytes;

use crate::append::Verdict;
use crate::blocking::off_reactor;
use crate::command::AppendItem;
use crate::engine::Inner;
use crate::error::AppendError;
use crate::request::{Appended, Terms};
use crate::stream::{State, Stream};

/// The answer to an append, before a repetition has been compared.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) appended: Appended,
    /// Whether the bytes must be those that are stored in front of the tail in the answer.
    pub(crate) compares: bool,
}

impl Inner {
    /// The answer, if a repetition with these bytes, as they would be stored, is one.
    pub(crate) async fn compared(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        answered: Answered,
        data: &Bytes,
    ) -> Result<Appended, AppendError> {
        let Answered { appended, compares } = answered;
        if compares && !data.is_empty() {
            let (inner, stream, end, data) = (self.clone(), stream.clone(), appended.tail, data.clone());
            off_reactor(move || inner.compare(&stream, end, &data)).await?;
        }
        Ok(appended)
    }

    /// Whether the bytes in front of `end` are these. Reads the disk.
    fn compare(self: &Arc<Self>, stream: &Stream, end: Offset, data: &Bytes) -> Result<(), AppendError> {
        let length = data.len() as u64;
        let start = Offset::new(end.append_index.saturating_sub(1), end.position.saturating_sub(length));
        let same = self.bytes_of(stream, start, length).map(|stored| stored == data);
        // A snapshot may stand for what was there.
        if start.position < stream.shared.lock().floor().position {
            return Err(StreamError::from(Conflict::ReceiptGone).into());
        }
        if same? { Ok(()) } else { Err(StreamError::from(Conflict::RetryDiffers).into()) }
    }
}

impl AppendItem {
    /// Whether the store contract judges the append.
    pub(crate) fn by_contract(&self, state: &State) -> bool {
        let is_claimed = state.contract.as_ref().is_some_and(|contract| contract.claim.is_some());
        is_claimed || self.terms != Terms::Protocol || self.retry_metadata.is_some()
    }
}

/// Decides over an append to a stream that is there.
pub(crate) fn decide(
    inner: &Inner,
    stream: &Stream,
    state: &State,
    item: &AppendItem,
) -> Result<Verdict, AppendError> {
    if item.terms == Terms::Protocol && item.has_data && item.content_type.is_none() {
        return Err(AppendRejection::ContentTypeMissing.into());
    }
    let stamp = item.producer.as_ref();
    let lane = stamp.and_then(|stamp| state.producers.get(&stamp.id).copied());
    let path = stream.path.as_ref().ok_or(crate::error::LookupError::NotFound)?;
    let facts = StreamFacts {
        path,
        content_type: &stream.content_type,
        tail: state.tail,
        closed: state.closed,
        last_seq: state.last_seq.as_deref(),
        claim: state.contract.as_ref().and_then(|contract| contract.claim.as_ref()),
        lane,
        claims_required: item.terms == Terms::Claimed,
    };
    let options = AppendOptions {
        expected_incarnation: None,
        content_type: item.content_type.clone(),
        seq: item.seq.clone(),
        producer: item.producer.clone(),
        retry_metadata: item.retry_metadata.clone(),
        close: item.close,
        // What is compared is decided by who asks.
        repeats: Repeats::Compared,
    };
    let length = item.payload.data.len() as u64;
    let bytes_max = inner.options.limits.append_bytes_max.into();
    let prepare = || match &item.refused {
        Some(refused) => Err((**refused).clone()),
        None => Ok((AppendFacts { length, bytes_max }, ())),
    };
    let (admitted, ()) = admit(&facts, item.has_data, &options, prepare)?;
    match admitted {
        Admitted::Write { producer, .. } => write(inner, state, item, &producer),
        Admitted::AlreadyClosed => Ok(Verdict::Same { tail: state.tail, producer: None, compares: false }),
        Admitted::Compare { state: producer } => {
            let receipt = receipt(state, item)?;
            Ok(Verdict::Same { tail: receipt.end, producer: Some(producer), compares: true })
        }
    }
}

fn write(
    inner: &Inner,
    state: &State,
    item: &AppendItem,
    decision: &ProducerDecision,
) -> Result<Verdict, AppendError> {
    if item.expected_tail.is_some_and(|expected| expected != state.tail) {
        return Err(AppendRejection::TailMismatch { tail: state.tail }.into());
    }
    let producer = match decision {
        ProducerDecision::Plain => None,
        ProducerDecision::Lane(lane) | ProducerDecision::Duplicate(lane) => Some(*lane),
        ProducerDecision::Claimed(claim) => Some(claim.state()),
    };
    let max = inner.options.limits.producers_per_stream_max;
    let is_new = item.producer.as_ref().is_some_and(|stamp| !state.producers.contains_key(&stamp.id));
    if matches!(decision, ProducerDecision::Lane(_)) && is_new && state.producers.len() >= max {
        return Err(AppendError::TooManyProducers { max });
    }
    let metadata = item.retry_metadata.as_ref().map_or_else(String::new, |kept| kept.as_str().to_owned());
    Ok(Verdict::Write { producer, receipt: item.producer.is_some().then_some(metadata) })
}

/// The receipt of a repetition, once all but the bytes has been compared.
fn receipt<'s>(state: &'s State, item: &AppendItem) -> Result<&'s Receipt, StreamError> {
    let contract = state.contract.as_ref();
    let kept = item.producer.as_ref().and_then(|stamp| contract?.receipt(stamp));
    let receipt = kept.ok_or(Conflict::ReceiptGone)?;
    receipt.compare(item.payload.data.len() as u64, item.close, item.retry_metadata.as_ref())?;
    Ok(receipt)
}
