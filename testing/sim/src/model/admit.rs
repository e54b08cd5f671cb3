//! What becomes of a command of the model when its turn comes.

use std::collections::BTreeMap;

use crate::model::lifetime::Deadline;
use crate::model::stream::Stream;
use crate::model::{Answer, Id, Inheritance, Model, Refusal, same_stamp};
use crate::operation::{AppendAsk, CreateAsk, Kind, Life, Stamp};

impl Model {
    /// Makes a stream at a free path.
    pub(super) fn make(
        &mut self,
        ask: &CreateAsk,
        fork: Option<&Inheritance>,
        (submitted_ms, now_ms): (u64, u64),
    ) -> Answer {
        let kind = fork.map_or(ask.kind.unwrap_or(Kind::Binary), |fork| fork.kind);
        let life = match fork {
            Some(fork) if ask.life == Life::Forever => fork.life,
            _ => ask.life,
        };
        let id = self.next;
        self.next += 1;
        let mut stream = Stream {
            id,
            path: ask.path.clone(),
            kind,
            life,
            deadline: Deadline::new(life, submitted_ms),
            incarnation: None,
            messages: fork.map(|fork| fork.messages.clone()).unwrap_or_default(),
            retained: fork.map(|fork| fork.retained.clone()).unwrap_or_default(),
            bucket: self.bucket_life(&ask.path).unwrap_or_default(),
            own_from: fork.and_then(|fork| fork.messages.last()).map_or(0, |last| last.end.position),
            last_write_ms: now_ms,
            closed: ask.closed,
            closed_by: None,
            last_seq: None,
            producers: BTreeMap::new(),
            deleted: false,
            source: fork.map(|fork| fork.source),
            origin: fork
                .zip(ask.fork.as_ref())
                .map(|(fork, ask)| (ask.source.clone(), fork.anchor, ask.sub_offset)),
            holds: 0,
        };
        stream.push(&ask.body.stored(), now_ms);
        let answer =
            Answer::Created { fresh: true, tail: stream.tail(), closed: ask.closed, incarnation: None };
        self.names.insert(ask.path.clone(), id);
        self.streams.insert(id, stream);
        answer
    }

    /// The answer to a create whose path isn't free; the fork it prepared is given up. A stream whose time is over
    /// makes room.
    pub(super) fn taken(
        &mut self,
        ask: &CreateAsk,
        fork: Option<&Inheritance>,
        actual: Option<&Answer>,
        now_ms: u64,
    ) -> Option<Answer> {
        let id = *self.names.get(&ask.path)?;
        // What an earlier bucket of the same name has left is in nobody's way.
        let is_left_over = self.streams.get(&id)?.bucket != self.bucket_life(&ask.path).unwrap_or_default();
        if self.streams.get(&id)?.deadline.expired(now_ms) || is_left_over {
            self.end(id);
        }
        if is_left_over {
            return None;
        }
        let stream = self.streams.get(&id)?;
        let made = matches!(actual, Some(Answer::Created { fresh: true, .. }));
        let answer = if !stream.deleted {
            stream.confirm(ask)
        } else if stream.holds > 0 && !(made && self.may_be_unneeded(id, now_ms)) {
            Answer::Refused(Refusal::Conflict)
        } else {
            return None;
        };
        if let Some(fork) = fork {
            self.release(fork.source);
        }
        Some(answer)
    }

    pub(super) fn admit_append(&mut self, id: Id, ask: &AppendAsk, now_ms: u64) -> Answer {
        if let Some(refusal) = self.gone(id, now_ms) {
            return Answer::Refused(refusal);
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return Answer::Refused(Refusal::NotFound);
        };
        let decision = decide(stream, ask);
        let duplicate = match decision {
            Ok(duplicate) => duplicate,
            Err(refusal) => return Answer::Refused(refusal),
        };
        stream.deadline.renew(stream.life, now_ms, !duplicate);
        if !duplicate {
            stream.last_write_ms = now_ms;
            stream.push(&ask.body.stored(), now_ms);
            if let Some(stamp) = &ask.stamp {
                stream.producers.insert(stamp.id.clone(), (stamp.epoch, stamp.seq));
            }
            if ask.seq.is_some() {
                stream.last_seq.clone_from(&ask.seq);
            }
            if ask.close {
                stream.closed = true;
                stream.closed_by.clone_from(&ask.stamp);
            }
        }
        let producer = ask.stamp.as_ref().and_then(|stamp| stream.producers.get(&stamp.id).copied());
        Answer::Appended {
            tail: stream.tail(),
            closed: stream.closed,
            duplicate,
            producer,
            incarnation: stream.incarnation,
        }
    }

    pub(super) fn admit_delete(&mut self, id: Id, now_ms: u64) -> Answer {
        let refusal = self.gone(id, now_ms);
        self.end(id);
        refusal.map_or(Answer::Deleted, Answer::Refused)
    }

    /// Why a stream found earlier can't be used any more.
    pub(super) fn gone(&self, id: Id, now_ms: u64) -> Option<Refusal> {
        let Some(stream) = self.streams.get(&id) else {
            return Some(Refusal::NotFound);
        };
        if stream.deleted {
            Some(match stream.holds {
                0 => Refusal::NotFound,
                _ if self.may_be_unneeded(id, now_ms) => Refusal::NotFoundOrGone,
                _ => Refusal::Gone,
            })
        } else if stream.deadline.expired(now_ms) {
            Some(if stream.holds > 0 { Refusal::NotFoundOrGone } else { Refusal::NotFound })
        } else {
            None
        }
    }
}

/// Whether an append is one seen before (`true`) or new (`false`).
fn decide(stream: &Stream, ask: &AppendAsk) -> Result<bool, Refusal> {
    let has_data = !ask.body.is_empty();
    if stream.closed {
        let repeated = same_stamp(ask.stamp.as_ref(), stream.closed_by.as_ref());
        let bare_close = ask.stamp.is_none() && !has_data && ask.close;
        return if repeated || bare_close { Ok(true) } else { Err(Refusal::Closed(stream.tail())) };
    }
    if has_data && ask.kind != stream.kind {
        return Err(Refusal::ContentType);
    }
    if let Some(stamp) = &ask.stamp
        && evaluate(stream.producers.get(&stamp.id).copied(), stamp)?
    {
        return Ok(true);
    }
    match (&stream.last_seq, &ask.seq) {
        (Some(last), Some(seq)) if seq <= last => Err(Refusal::Seq),
        _ => Ok(false),
    }
}

/// Whether a producer's request is a repetition.
fn evaluate(known: Option<(u64, u64)>, stamp: &Stamp) -> Result<bool, Refusal> {
    match known {
        None if stamp.seq == 0 => Ok(false),
        None => Err(Refusal::Gap(0)),
        Some((epoch, _)) if stamp.epoch < epoch => Err(Refusal::Fenced(epoch)),
        Some((epoch, _)) if stamp.epoch > epoch && stamp.seq == 0 => Ok(false),
        Some((epoch, _)) if stamp.epoch > epoch => Err(Refusal::EpochStart),
        Some((_, seq)) if stamp.seq <= seq => Ok(true),
        Some((_, seq)) if stamp.seq == seq + 1 => Ok(false),
        Some((_, seq)) => Err(Refusal::Gap(seq + 1)),
    }
}
