//! What a stream of the model retains, and publishing.

use std::sync::Arc;

use alluvium_protocol::Offset;

use crate::model::{Answer, Command, Id, Model, Refusal, Stream};
use crate::operation::PublishAsk;

/// A published snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// It stands for everything before this offset.
    pub offset: Offset,
    /// Its body.
    pub body: Arc<[u8]>,
}

/// What a stream retains.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Retained {
    /// The earliest offset that can be read; nothing for the beginning.
    pub floor: Option<Offset>,
    /// The latest snapshot.
    pub latest: Option<Snapshot>,
    /// The snapshot at the floor, when the latest one has kept what is between.
    pub base: Option<Snapshot>,
}

impl Retained {
    /// The earliest offset that can be read.
    pub fn floor(&self) -> Offset {
        self.floor.unwrap_or(Offset::ZERO)
    }

    /// The floor lies at or before the latest snapshot, if there is one, and that at or before the tail.
    pub fn holds(&self, tail: Offset) -> bool {
        match &self.latest {
            None => self.floor() <= tail,
            Some(latest) => self.floor() <= latest.offset && latest.offset <= tail,
        }
    }

    fn publish(&mut self, snapshot: Snapshot, retain_all: bool) {
        if retain_all {
            let covers = |latest: &Snapshot| {
                Some(latest.offset) == self.floor
                    && latest.offset != Offset::ZERO
                    && latest.offset != snapshot.offset
            };
            if self.latest.as_ref().is_some_and(covers) {
                self.base = self.latest.take();
            }
        } else {
            self.floor = Some(snapshot.offset);
            self.base = None;
        }
        self.latest = Some(snapshot);
    }

    /// Gives up what is before an offset that is later than the floor.
    pub(super) fn trim(&mut self, floor: Offset) {
        (self.floor, self.base) = (Some(floor), None);
    }

    /// What a fork takes over that parts at `at`, which is at or above the floor.
    pub(super) fn inherit(&self, at: Offset) -> Self {
        let reaches = |snapshot: &&Snapshot| snapshot.offset.position <= at.position;
        let latest = self.latest.as_ref().filter(reaches);
        let base = if latest.is_some() { self.base.clone() } else { None };
        let latest = latest.or(self.base.as_ref()).cloned();
        Self { floor: self.floor, latest, base }
    }
}

impl Stream {
    /// Why nothing can be published at an offset.
    fn check_publish(&self, offset: Offset) -> Result<(), Refusal> {
        let (tail, retained) = (self.tail(), &self.retained);
        if offset.position > tail.position || offset.append_index > tail.append_index {
            Err(Refusal::Beyond)
        } else if offset.position < retained.floor().position {
            Err(Refusal::Retained)
        } else if retained.latest.as_ref().is_some_and(|latest| offset.position < latest.offset.position) {
            Err(Refusal::Older)
        } else if !self.boundaries().any(|boundary| boundary == offset) {
            Err(Refusal::Unaligned)
        } else {
            Ok(())
        }
    }
}

impl Model {
    /// Starts to publish.
    pub fn submit_publish(&self, ask: &PublishAsk, now_ms: u64) -> Result<Command, Answer> {
        let stream = self.find(&ask.path, now_ms).map_err(Answer::Refused)?;
        stream.check_publish(ask.offset).map_err(Answer::Refused)?;
        Ok(Command::Publish { id: stream.id, ask: ask.clone() })
    }

    pub(super) fn admit_publish(&mut self, id: Id, ask: &PublishAsk, now_ms: u64) -> Answer {
        if self.gone(id, now_ms).is_some() {
            return Answer::Refused(Refusal::GoneOrReplaced);
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return Answer::Refused(Refusal::GoneOrReplaced);
        };
        if let Err(refusal) = stream.check_publish(ask.offset) {
            return Answer::Refused(refusal);
        }
        stream.deadline.renew(stream.life, now_ms, true);
        let snapshot = Snapshot { offset: ask.offset, body: ask.body.as_slice().into() };
        stream.retained.publish(snapshot, ask.retain_all);
        Answer::Published { floor: stream.retained.floor(), tail: stream.tail() }
    }
}
