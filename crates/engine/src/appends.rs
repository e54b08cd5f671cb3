//! Where appends end: found from where they lie, for no index of them is kept.

use std::sync::Arc;

use alluvium_protocol::error::Conflict;
use alluvium_protocol::store::{StoreError, StoreResult};
use alluvium_protocol::{Incarnation, Offset, StreamError, StreamPath};
use bytes::{Bytes, BytesMut};

use crate::boundary::Message;
use crate::engine::Inner;
use crate::error::{ReadFault, path_refusal};
use crate::stream::Stream;

impl Stream {
    /// Where the last extent starts that starts before append number `index` is complete: the one in which that ends.
    fn start_before(&self, index: u64) -> Option<u64> {
        let inherited = self.fork.as_ref().filter(|fork| index <= fork.at.append_index);
        let shared = match inherited {
            Some(fork) => {
                let count = fork.inherited.partition_point(|range| range.start.append_index < index);
                &fork.inherited.get(count.checked_sub(1)?)?.stream.shared
            }
            None => &self.shared,
        };
        shared.lock().extents.start_before(index)
    }
}

impl Inner {
    /// The live stream at `path`, if it is the one that is meant.
    pub(crate) fn find_expected(
        &self,
        path: &StreamPath,
        expected: Option<Incarnation>,
        now_ms: u64,
    ) -> StoreResult<Arc<Stream>> {
        let found = self.find(self.shard_of(path), path, now_ms);
        let stream = found.map_err(|error| path_refusal(path, error))?;
        check_incarnation(&stream, expected)?;
        Ok(stream)
    }

    /// The live stream at `path`.
    pub(crate) fn find_at(&self, path: &StreamPath) -> Option<Arc<Stream>> {
        self.find(self.shard_of(path), path, self.now_ms()).ok()
    }

    /// Where append number `index` of a stream ends: the beginning for 0, `None` past the last one and for one that is
    /// not retained. May read the disk.
    pub(crate) fn append_end(&self, stream: &Stream, index: u64) -> Result<Option<Offset>, ReadFault> {
        if index == 0 {
            return Ok(Some(Offset::ZERO));
        }
        if index > stream.end().0.append_index {
            return Ok(None);
        }
        let Some(position) = stream.start_before(index) else { return Ok(None) };
        let messages = self.messages_at(stream, position)?.unwrap_or_default();
        let last = messages.iter().find(|message| message.ends_append && message.end().append_index == index);
        Ok(last.map(Message::end))
    }

    /// `length` bytes of a stream from a position on, which must be there. Reads the disk.
    pub(crate) fn bytes_of(
        self: &Arc<Self>,
        stream: &Stream,
        from: Offset,
        length: u64,
    ) -> Result<Bytes, ReadFault> {
        let to = Offset::new(from.append_index, from.position + length);
        let mut bytes = BytesMut::with_capacity(usize::try_from(length).unwrap_or(0));
        let mut next = from;
        while next.position < to.position {
            let mut plan = self.plan(stream, next, to, u64::MAX, false)?;
            next = plan.end;
            while let Some(pieces) = plan.fetch() {
                pieces?.iter().for_each(|piece| bytes.extend_from_slice(piece));
            }
        }
        Ok(bytes.freeze())
    }
}

pub(crate) fn check_incarnation(stream: &Stream, expected: Option<Incarnation>) -> Result<(), StoreError> {
    if expected.is_some_and(|expected| expected != stream.incarnation) {
        return Err(StoreError::Refused(StreamError::Conflict(Conflict::Incarnation)));
    }
    Ok(())
}
