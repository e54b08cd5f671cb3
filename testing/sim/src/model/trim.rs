//! Where a stream of the model begins once something of it is given up.

use alluvium_engine::TrimTo;
use alluvium_protocol::Offset;

use crate::model::retention::is_at;
use crate::model::{Answer, Id, Model, Refusal, Stream};

impl Stream {
    /// What can be read, in bytes.
    pub fn readable(&self) -> u64 {
        self.tail().position - self.retained.floor().position
    }

    /// How far it can be trimmed: what follows a snapshot stays.
    pub fn trim_max(&self) -> Offset {
        self.retained.latest.as_ref().map_or(self.tail(), |latest| latest.offset)
    }

    /// Where it begins that keeps so much; `None` where only the engine knows how old something is.
    pub fn trimmed(&self, to: TrimTo) -> Option<Result<Offset, Refusal>> {
        let (floor, tail) = (self.retained.floor(), self.tail());
        let wanted = match to {
            TrimTo::Age(_) => return None,
            TrimTo::Bytes(0) => tail,
            TrimTo::Bytes(bytes) => {
                let from = tail.position.saturating_sub(bytes);
                // The last message stays, whatever its size.
                let last = self.boundaries().filter(|at| at.position < tail.position).last();
                self.boundaries().find(|at| at.position >= from).min(last).unwrap_or(tail)
            }
            TrimTo::Offset(at) if at.position > tail.position || at.append_index > tail.append_index => {
                return Some(Err(Refusal::Beyond));
            }
            TrimTo::Offset(at) if at.position < floor.position => floor,
            TrimTo::Offset(at) if self.boundaries().any(|known| known == at) => at,
            TrimTo::Offset(_) => return Some(Err(Refusal::Unaligned)),
        };
        Some(Ok(self.within(wanted)))
    }

    /// An offset, no earlier than the floor and no later than what must stay.
    fn within(&self, wanted: Offset) -> Offset {
        let (floor, max) = (self.retained.floor(), self.trim_max());
        if wanted.position > max.position {
            max
        } else if wanted.position < floor.position {
            floor
        } else {
            wanted
        }
    }

    /// Why it must not begin here when what is younger than this stays.
    pub fn trimmed_wrongly(&self, to: Offset, after_ms: u64) -> Option<String> {
        let floor = self.retained.floor();
        if to.position < floor.position || to.position > self.trim_max().position {
            return Some(format!("{to} is not between {floor} and {}", self.trim_max()));
        }
        if !self.boundaries().any(|known| known == to) && to != floor {
            return Some(format!("{to} is no boundary"));
        }
        let gone = self.messages.iter().filter(|message| message.end.position <= to.position);
        let gone = gone.filter(|message| message.end.position > floor.position);
        let young = gone.filter(|message| message.at_ms > after_ms).count();
        if young > 0 {
            return Some(format!("{young} messages before {to} are not that old"));
        }
        let is_old =
            self.last_write_ms <= after_ms && self.messages.last().is_none_or(|last| last.at_ms <= after_ms);
        (is_old && to.position != self.trim_max().position)
            .then(|| format!("all is older, and {to} is not the end"))
    }
}

impl Model {
    /// The streams that hold more than they may, of those under a prefix: their paths.
    pub fn too_long(&self, prefix: &str, bytes_max: u64, now_ms: u64) -> Vec<String> {
        let is_over = |stream: &&Stream| {
            let can_go = stream.trim_max().position > stream.retained.floor().position;
            is_at(&stream.url(), prefix) && can_go && stream.readable() > bytes_max
        };
        self.live(now_ms).filter(is_over).map(|stream| stream.path.clone()).collect()
    }

    /// Gives up the beginning of a stream, if it is there. Of one whose time is over only the engine knows whether its
    /// end is on record.
    pub(super) fn admit_trim(
        &mut self,
        id: Id,
        to: Option<Offset>,
        actual: Option<&Answer>,
        now_ms: u64,
    ) -> Answer {
        let kept = Answer::Refused(Refusal::Kept);
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.deleted) else { return kept };
        let may_be_over = stream.deadline.expired(now_ms) || stream.deadline.uncertain(now_ms);
        if may_be_over && actual == Some(&kept) {
            return kept;
        }
        let before = stream.retained.floor();
        let floor = to.map_or(before, |to| stream.within(to));
        if floor.position == before.position {
            return kept;
        }
        stream.retained.trim(floor);
        Answer::Trimmed { floor, bytes: floor.position - before.position }
    }
}
