//! The decision over one append: what a stream's state makes of a request (PROTOCOL §5.2, §5.2.1, §5.3).
//!
//! The checks run in a fixed order, so a request with several faults always gets the same answer:
//!
//! 1. malformed whatever the state: nothing to do, or data without a content type;
//! 2. the stream is closed;
//! 3. another content type;
//! 4. the producer's epoch and sequence number;
//! 5. `Stream-Seq`;
//! 6. the tail that the request expects.
//!
//! The producer comes before `Stream-Seq` and the expected tail because a retry repeats them all: it must be
//! recognised as a duplicate, not refused for what its own first attempt has used.

use crate::content_type::ContentType;
use crate::offset::Offset;
use crate::producer::{self, ProducerRejection, ProducerStamp, ProducerState, ProducerVerdict};

/// What the decision needs to know of a stream.
#[derive(Copy, Clone, Debug)]
pub struct StreamView<'a> {
    /// Whether the stream takes no more appends.
    pub closed: bool,
    /// The stamp on the request that closed it, if that had one.
    pub closed_by: Option<&'a ProducerStamp>,
    /// The stream's content type.
    pub content_type: &'a ContentType,
    /// `Stream-Seq` of the last append that had one.
    pub last_seq: Option<&'a str>,
    /// End of the stream.
    pub tail: Offset,
    /// What the stream remembers of the producer named in the request, if of any.
    pub producer: Option<ProducerState>,
}

/// What a request wants.
#[derive(Copy, Clone, Debug)]
pub struct AppendIntent<'a> {
    /// Type of the data.
    pub content_type: Option<&'a ContentType>,
    /// Whether there are bytes to append.
    pub has_data: bool,
    /// Whether the stream is to be closed, after the data if there is any.
    pub close: bool,
    /// `Stream-Seq`.
    pub seq: Option<&'a str>,
    /// Producer headers.
    pub producer: Option<&'a ProducerStamp>,
    /// Where the stream must end for the request to be taken, if it says so: an optimistic append.
    pub expected_tail: Option<Offset>,
}

/// What to do with a request that is not refused.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Admission {
    /// Append the data, and close the stream if the request says so.
    Append {
        /// State to remember for the request's producer.
        producer: Option<ProducerState>,
    },
    /// Close the stream; there is no data.
    Close {
        /// State to remember for the request's producer.
        producer: Option<ProducerState>,
    },
    /// Nothing: the stream is closed already, and closing it was all that was asked.
    AlreadyClosed,
    /// Nothing: this is a retry of an append that was accepted.
    Duplicate {
        /// What the stream remembers of the producer.
        state: ProducerState,
        /// Whether the stream is closed.
        closed: bool,
    },
}

/// Why a request is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AppendRejection {
    /// The stream is closed.
    #[error("stream is closed")]
    Closed {
        /// Its final offset.
        tail: Offset,
    },
    /// The data has another media type than the stream.
    #[error("content type is `{received}`, but the stream's is `{expected}`")]
    ContentTypeMismatch {
        /// The stream's type.
        expected: ContentType,
        /// The request's type.
        received: ContentType,
    },
    /// Data without a content type.
    #[error("content type is missing")]
    ContentTypeMissing,
    /// `Stream-Seq` is not greater than the last one.
    #[error("`Stream-Seq` `{received}` does not follow `{last}`")]
    SeqRegression {
        /// The last one accepted.
        last: String,
        /// The one that came.
        received: String,
    },
    /// The producer's epoch or sequence number is out of line.
    #[error(transparent)]
    Producer(#[from] ProducerRejection),
    /// The stream ends elsewhere than the request expects.
    #[error("the stream ends at {tail}, not where the request expects")]
    TailMismatch {
        /// Where it ends.
        tail: Offset,
    },
    /// Neither data nor a wish to close.
    #[error("body is empty")]
    Empty,
}

/// Decides over one append.
pub fn admit(view: &StreamView<'_>, intent: &AppendIntent<'_>) -> Result<Admission, AppendRejection> {
    if !intent.has_data && !intent.close {
        return Err(AppendRejection::Empty);
    }
    // A body-less request is never judged by its content type (PROTOCOL §5.2).
    let content_type = match intent.content_type {
        _ if !intent.has_data => None,
        Some(content_type) => Some(content_type),
        None => return Err(AppendRejection::ContentTypeMissing),
    };
    if view.closed {
        return admit_closed(view, intent);
    }
    if let Some(received) = content_type
        && !received.same_media_type(view.content_type)
    {
        let (expected, received) = (view.content_type.clone(), received.clone());
        return Err(AppendRejection::ContentTypeMismatch { expected, received });
    }
    let producer = match intent.producer {
        None => None,
        Some(stamp) => match producer::evaluate(view.producer, stamp.epoch, stamp.seq)? {
            ProducerVerdict::Accept(state) => Some(state),
            ProducerVerdict::Duplicate(state) => {
                return Ok(Admission::Duplicate { state, closed: false });
            }
        },
    };
    if let (Some(last), Some(received)) = (view.last_seq, intent.seq)
        && received <= last
    {
        return Err(AppendRejection::SeqRegression { last: last.to_owned(), received: received.to_owned() });
    }
    if intent.expected_tail.is_some_and(|expected| expected != view.tail) {
        return Err(AppendRejection::TailMismatch { tail: view.tail });
    }
    Ok(if intent.has_data { Admission::Append { producer } } else { Admission::Close { producer } })
}

/// A closed stream takes a retry of the request that closed it, or a plain wish to close it; nothing else.
fn admit_closed(view: &StreamView<'_>, intent: &AppendIntent<'_>) -> Result<Admission, AppendRejection> {
    match intent.producer {
        Some(stamp) if view.closed_by == Some(stamp) => {
            Ok(Admission::Duplicate { state: stamp.state(), closed: true })
        }
        None if !intent.has_data => Ok(Admission::AlreadyClosed),
        _ => Err(AppendRejection::Closed { tail: view.tail }),
    }
}

#[cfg(test)]
mod tests;
