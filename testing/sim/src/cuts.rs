//! Snapshots and cuts: what the engine keeps readable, compared with what the model says was there.

use alluvium_engine::{
    Bootstrap, BootstrapLimits, Engine, ReadError, Snapshot as Published, SnapshotError, StreamReader,
};
use alluvium_protocol::Offset;

use crate::check::{Trouble, between};
use crate::client::{lookup_refusal, stream_path};
use crate::model::{Answer, Id, Message, Snapshot, Stream};
use crate::operation::Kind;
use crate::report::Violation;
use crate::world::World;

/// Cuts held at a time.
const CUTS_MAX: usize = 4;

/// A cut that is held while other things happen, and what must be in it.
pub(crate) struct HeldCut {
    cut: Bootstrap,
    id: Id,
    kind: Kind,
    snapshot: Option<Snapshot>,
    messages: Vec<Message>,
}

impl World {
    /// Cuts a stream and holds the cut.
    pub(crate) fn cut(&mut self, path: &str) -> Result<(), Violation> {
        if self.cuts.len() >= CUTS_MAX {
            self.read_cut()?;
        }
        let now_ms = self.now_ms();
        let limits = if self.rng.percent(70) {
            BootstrapLimits::NONE
        } else {
            BootstrapLimits { bytes_max: 2000, message_bytes: 30 }
        };
        let reads_failed = self.disk.counts().reads_failed;
        let cut = self.engine()?.bootstrap(&stream_path(path), limits);
        let (cut, stream) = match (cut, self.model.find(path, now_ms)) {
            (Ok(cut), Ok(stream)) => (cut, stream.clone()),
            (Err(ReadError::Fault(_)), Ok(_)) if self.disk.counts().reads_failed > reads_failed => {
                return Ok(());
            }
            (Err(ReadError::Lookup(error)), Err(refusal))
                if Answer::Refused(refusal.clone()).agrees(&Answer::Refused(lookup_refusal(error))) =>
            {
                return Ok(());
            }
            (cut, stream) => {
                let stream = stream.map(Stream::tail);
                let what = format!("a cut of `{path}`: expected {stream:?}, the engine says {cut:?}");
                return Err(Violation::new(what));
            }
        };
        if let Some(stream) = self.model.find_mut(path) {
            stream.deadline.renew(stream.life, now_ms, false);
        }
        let held = HeldCut::new(cut, &stream)
            .ok_or_else(|| Violation::new(format!("a cut of `{path}` is not between boundaries")))?;
        self.cuts.push_back(held);
        Ok(())
    }

    /// Reads the oldest cut through.
    pub(crate) fn read_cut(&mut self) -> Result<(), Violation> {
        let Some(mut held) = self.cuts.pop_front() else { return Ok(()) };
        self.counts.cuts += 1;
        let reads_failed = self.disk.counts().reads_failed;
        match held.compare() {
            Err(Trouble::Fault(_)) if !self.model.lives(held.id, self.now_ms()) => Ok(()),
            checked => self.judge(reads_failed, checked),
        }
    }

    /// Reads the snapshots of a stream that must be there, and a fresh cut.
    pub(crate) fn check_snapshots(&mut self, stream: &Stream) -> Result<(), Violation> {
        let (engine, path) = (self.engine()?, stream_path(&stream.path));
        let kept = stream.retained.latest.iter().chain(&stream.retained.base);
        for snapshot in kept {
            let reads_failed = self.disk.counts().reads_failed;
            let found = match engine.open_snapshot(&path, snapshot.offset) {
                Ok(found) => found,
                Err(SnapshotError::NotFound | SnapshotError::Lookup(_)) => {
                    let (path, offset) = (&stream.path, snapshot.offset);
                    return Err(Violation::new(format!("`{path}` has no snapshot at {offset}")));
                }
            };
            self.counts.snapshots += 1;
            self.judge(reads_failed, compare_body(&found, snapshot))?;
        }
        let reads_failed = self.disk.counts().reads_failed;
        let cut = engine
            .bootstrap(&path, BootstrapLimits::NONE)
            .map_err(|error| Violation::new(error.to_string()))?;
        let checked = HeldCut::new(cut, stream)
            .ok_or_else(|| Trouble::Wrong(format!("a cut of `{}` is not between boundaries", stream.path)))
            .and_then(|mut held| held.compare());
        self.judge(reads_failed, checked)
    }
}

impl HeldCut {
    /// `None` when the cut is not what the stream is.
    fn new(cut: Bootstrap, stream: &Stream) -> Option<Self> {
        let snapshot = stream.retained.latest.clone();
        let from = snapshot.as_ref().map_or(stream.retained.floor(), |snapshot| snapshot.offset);
        let messages = between(stream, from, cut.end)?.to_vec();
        let is_same = cut.from == from
            && cut.head.tail == stream.tail()
            && cut.at_tail == (cut.end == stream.tail())
            && cut.closed == (cut.at_tail && stream.closed)
            && cut.snapshot.is_some() == snapshot.is_some();
        is_same.then(|| Self { cut, id: stream.id, kind: stream.kind, snapshot, messages })
    }

    fn compare(&mut self) -> Result<(), Trouble> {
        if let (Some(found), Some(expected)) = (&self.cut.snapshot, &self.snapshot) {
            compare_body(found, expected)?;
        }
        let mut expected = self.messages.iter();
        while let Some(messages) = self.cut.next_messages() {
            for message in messages.map_err(|fault| Trouble::Fault(fault.to_string()))? {
                let next = expected.next().ok_or_else(|| Trouble::Wrong("a cut has too much".to_owned()))?;
                let stored = match self.kind {
                    Kind::Json => &next.bytes[..next.bytes.len() - 1],
                    Kind::Binary | Kind::Text => &next.bytes[..],
                };
                let body = message.body.whole().map_err(|fault| Trouble::Fault(fault.to_string()))?;
                if message.next != next.end || body != stored {
                    let what = format!("a cut has another message before {} than {}", message.next, next.end);
                    return Err(Trouble::Wrong(what));
                }
            }
        }
        match expected.next() {
            None => Ok(()),
            Some(missing) => Err(Trouble::Wrong(format!("a cut lacks the message before {}", missing.end))),
        }
    }
}

/// Tells two snapshots at the same offset apart by their bodies. Says nothing when the disk does not give them.
pub(crate) fn compare_latest(engine: &Engine, stream: &Stream) -> Result<(), String> {
    let Some(latest) = &stream.retained.latest else { return Ok(()) };
    match engine.open_snapshot(&stream_path(&stream.path), latest.offset) {
        Err(error) => Err(format!("the snapshot of `{}`: {error}", stream.path)),
        Ok(found) => match compare_body(&found, latest) {
            Err(Trouble::Wrong(what)) => Err(what),
            Ok(()) | Err(Trouble::Fault(_)) => Ok(()),
        },
    }
}

fn compare_body(found: &Published, expected: &Snapshot) -> Result<(), Trouble> {
    let offset = expected.offset;
    if found.head.offset != offset || found.head.length != expected.body.len() as u64 {
        return Err(Trouble::Wrong(format!("the snapshot at {offset} has the wrong offset or length")));
    }
    if read_whole(&found.body)? == *expected.body {
        Ok(())
    } else {
        Err(Trouble::Wrong(format!("the snapshot at {offset} has another body")))
    }
}

fn read_whole(reader: &StreamReader) -> Result<Vec<u8>, Trouble> {
    let end = reader.end().map_err(|error| Trouble::Wrong(error.to_string()))?;
    let (mut bytes, mut from) = (Vec::new(), Offset::ZERO);
    loop {
        let mut plan = reader.read_to(from, end, 3000)?;
        while let Some(pieces) = plan.fetch() {
            let pieces = pieces.map_err(|fault| Trouble::Fault(fault.to_string()))?;
            for piece in pieces {
                bytes.extend_from_slice(&piece);
            }
        }
        from = plan.end;
        if plan.at_tail {
            return Ok(bytes);
        }
    }
}
