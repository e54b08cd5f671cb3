//! Comparing the engine with the model, through what any caller can see.

use std::collections::BTreeSet;

use alluvium_engine::{Engine, ListRequest, LookupError, ReadError, StreamReader};
use alluvium_env::sim::Rng;
use alluvium_protocol::{Offset, OffsetQuery};

use crate::client::{bucket_id, content_type, lookup_refusal, stream_path};
use crate::cuts::compare_latest;
use crate::draw::{BUCKETS, PATHS};
use crate::model::{Answer, Message, Model, Refusal, Stream};
use crate::operation::{AppendAsk, Body, Kind, Stamp};
use crate::report::Violation;
use crate::world::World;

/// Read sizes that a full comparison goes through, so that plans end in many places.
const READ_SIZES: [u64; 3] = [1, PATIENT_BYTES_MAX, 1_000_000];
/// Reads of this size are those of a slow reader: nothing is held for it, and it gets this many bytes at a time.
const PATIENT_BYTES_MAX: u64 = 700;
const PATIENT_PIECE_BYTES: usize = 50;

/// Why a read isn't what it should be.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// The engine says that it can't read its bytes: allowed when the disk is at fault.
    Fault(String),
    /// The engine is wrong: never allowed.
    Wrong(String),
}

impl From<ReadError> for Trouble {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Fault(fault) => Self::Fault(fault.to_string()),
            other => Self::Wrong(other.to_string()),
        }
    }
}

impl World {
    /// Compares what is at a path, without renewing it.
    pub(crate) fn check_head(&mut self, path: &str) -> Result<(), Violation> {
        let engine = self.engine()?;
        let expected = self.model.find(path, self.now_ms()).cloned();
        compare_head(&engine, path, expected.as_ref().map_err(Clone::clone)).map_err(Violation::new)
    }

    /// Reads a stream from one of its boundaries to its end.
    pub(crate) fn check_read(
        &mut self,
        path: &str,
        boundary: usize,
        bytes_max: u64,
    ) -> Result<(), Violation> {
        let Some((reader, stream)) = self.open(path)? else { return Ok(()) };
        let nth = boundary % (stream.messages.len() + 1);
        let from = stream.boundaries().nth(nth).unwrap_or(Offset::ZERO);
        let reads_failed = self.disk.counts().reads_failed;
        self.counts.reads += 1;
        if from.position < stream.retained.floor().position {
            self.counts.retained += 1;
            let found = (reader.resolve(OffsetQuery::At(from)), reader.read(from, bytes_max));
            return match found {
                (Err(one @ ReadError::Retained { .. }), Err(other))
                    if one == retained(&stream) && one == other =>
                {
                    Ok(())
                }
                found => Err(Violation::new(format!("`{path}` at {from}, below its floor: {found:?}"))),
            };
        }
        self.judge(reads_failed, read_through(&reader, &stream, from, bytes_max))
    }

    /// A read may only fail when the disk has failed it.
    pub(crate) fn judge(&self, reads_failed: u64, checked: Result<(), Trouble>) -> Result<(), Violation> {
        match checked {
            Ok(()) => Ok(()),
            Err(Trouble::Fault(_)) if self.disk.counts().reads_failed > reads_failed => Ok(()),
            Err(Trouble::Fault(what) | Trouble::Wrong(what)) => Err(Violation::new(what)),
        }
    }

    /// An offset that names no boundary must be refused.
    pub(crate) fn check_unaligned(&mut self, path: &str, offset: Offset) -> Result<(), Violation> {
        let Some((reader, stream)) = self.open(path)? else { return Ok(()) };
        let known = stream.boundaries().any(|boundary| boundary == offset);
        let tail = stream.tail();
        let retained =
            offset.position < stream.retained.floor().position && offset.append_index <= tail.append_index;
        let reads_failed = self.disk.counts().reads_failed;
        match reader.resolve(OffsetQuery::At(offset)) {
            Err(ReadError::Retained { .. }) if retained => Ok(()),
            Ok(found) if known && found == offset && !retained => Ok(()),
            Err(ReadError::Beyond { .. } | ReadError::Unaligned) if !known && !retained => Ok(()),
            Err(ReadError::Fault(_)) if self.disk.counts().reads_failed > reads_failed => Ok(()),
            other => Err(Violation::new(format!("`{path}`: offset {offset} resolves to {other:?}"))),
        }
    }

    /// Opens a stream on both sides; `None` when neither has it.
    fn open(&mut self, path: &str) -> Result<Option<(StreamReader, Stream)>, Violation> {
        let now_ms = self.now_ms();
        let opened = self.engine()?.open_stream(&stream_path(path));
        match (opened, self.model.find(path, now_ms)) {
            (Ok(reader), Ok(stream)) => {
                let life = stream.life;
                let stream = stream.clone();
                if let Some(stream) = self.model.find_mut(path) {
                    stream.deadline.renew(life, now_ms, false);
                }
                Ok(Some((reader, stream)))
            }
            (Err(error), Err(refusal)) if refused(&refusal, &lookup_refusal(error)) => Ok(None),
            (opened, expected) => Err(Violation::new(format!(
                "opening `{path}`: expected {:?}, the engine says {:?}",
                expected.map(Stream::tail),
                opened.map(|reader| reader.head())
            ))),
        }
    }

    /// Has the engine say what is its own affair: see [`settle`].
    pub(crate) fn settle(&mut self) -> Result<(), Violation> {
        let engine = self.engine()?;
        let now_ms = self.now_ms();
        settle(&mut self.model, &engine, now_ms);
        Ok(())
    }

    /// Compares everything that can be seen with a candidate.
    pub(crate) fn compare(&mut self, candidate: &mut Model) -> Result<(), String> {
        let now_ms = self.now_ms();
        let engine = self.engine.clone().ok_or("the engine is not open")?;
        settle(candidate, &engine, now_ms);
        for path in PATHS {
            let expected = candidate.find(path, now_ms);
            compare_head(&engine, path, expected.clone())?;
            if let Ok(stream) = expected {
                compare_latest(&engine, stream)?;
            }
        }
        for name in BUCKETS {
            compare_bucket(&engine, name, candidate, now_ms)?;
        }
        for path in PATHS {
            let incarnation = engine.head(&stream_path(path)).ok().map(|head| head.incarnation);
            if let Some(stream) = candidate.find_mut(path)
                && !stream.deleted
            {
                stream.incarnation = stream.incarnation.or(incarnation);
            }
        }
        Ok(())
    }

    /// Compares everything that can be seen with the model: heads, every byte, every boundary.
    pub(crate) fn check_everything(&mut self) -> Result<(), Violation> {
        self.counts.comparisons += 1;
        for path in PATHS {
            self.check_head(path)?;
            let Some((reader, stream)) = self.open(path)? else { continue };
            let reads_failed = self.disk.counts().reads_failed;
            let checked = check_whole(&reader, &stream, &mut self.rng);
            self.judge(reads_failed, checked)?;
            self.check_snapshots(&stream)?;
        }
        let (engine, now_ms) = (self.engine()?, self.now_ms());
        let compared = BUCKETS.iter().try_for_each(|name| compare_bucket(&engine, name, &self.model, now_ms));
        compared.map_err(Violation::new)
    }

    /// Reads every stream whole and collects what the engine says it can't read. Wrong bytes are a violation.
    pub fn read_faults(&mut self) -> Result<Vec<String>, Violation> {
        let mut faults = Vec::new();
        for path in PATHS {
            let Some((reader, stream)) = self.open(path)? else { continue };
            match check_whole(&reader, &stream, &mut self.rng) {
                Ok(()) => {}
                Err(Trouble::Fault(what)) => faults.push(what),
                Err(Trouble::Wrong(what)) => return Err(Violation::new(what)),
            }
        }
        Ok(faults)
    }

    /// Requests whose answers show what the engine knows of every producer.
    pub(crate) fn probes(&mut self) -> Vec<AppendAsk> {
        let now_ms = self.now_ms();
        let mut probes = Vec::new();
        for stream in self.model.live(now_ms) {
            for (id, (epoch, seq)) in &stream.producers {
                let ask = |seq| AppendAsk {
                    path: stream.path.clone(),
                    kind: stream.kind,
                    body: match stream.kind {
                        Kind::Json => Body::Json(vec!["0".to_owned()]),
                        Kind::Binary | Kind::Text => Body::Bytes(b"0".to_vec()),
                    },
                    stamp: Some(Stamp { id: id.clone(), epoch: *epoch, seq }),
                    seq: None,
                    close: false,
                };
                probes.push(ask(*seq));
                probes.push(ask(seq + 2));
            }
        }
        probes
    }
}

fn refused(expected: &Refusal, actual: &Refusal) -> bool {
    Answer::Refused(expected.clone()).agrees(&Answer::Refused(actual.clone()))
}

/// Takes in what only the engine knows: whether a stream with an uncertain deadline still lives, and whether the
/// end of an expired one is on record, so that what it held can be forgotten.
fn settle(model: &mut Model, engine: &Engine, now_ms: u64) {
    let known: Vec<&str> = PATHS.into_iter().filter(|path| !model.is_left_over(path)).collect();
    for path in &known {
        let Some(stream) = model.find_mut(path) else { continue };
        if !stream.deleted && stream.deadline.uncertain(now_ms) {
            stream.deadline.observed(now_ms, engine.head(&stream_path(path)).is_ok());
        }
    }
    // Only now, since what a source was kept for may be a fork whose end was uncertain.
    for path in &known {
        let Some(stream) = model.find_mut(path) else { continue };
        let (id, deleted, expired) = (stream.id, stream.deleted, stream.deadline.expired(now_ms));
        match engine.head(&stream_path(path)) {
            Err(LookupError::Deleted) if !deleted && expired => {
                model.end(id);
                model.end_batch();
            }
            Err(LookupError::NotFound) if deleted => model.forks_have_ended(id, now_ms),
            _ => {}
        }
    }
}

/// Whether a bucket is there, and what is listed in it.
fn compare_bucket(engine: &Engine, name: &str, model: &Model, now_ms: u64) -> Result<(), String> {
    let request = ListRequest { limit: 10, ..ListRequest::default() };
    let listed = engine.list_streams(&bucket_id(name), request).ok().map(|page| {
        let ids = page.items.into_iter().map(|item| item.stream_id);
        ids.collect::<Vec<String>>()
    });
    let expected = model.has_bucket(name).then(|| model.listed(name, now_ms));
    let count = engine.bucket(&bucket_id(name)).ok().map(|bucket| bucket.streams);
    let same_count = count == expected.as_ref().map(|expected| expected.len() as u64);
    if listed == expected && same_count {
        Ok(())
    } else {
        Err(format!("bucket `{name}`: expected {expected:?}, found {listed:?} and a count of {count:?}"))
    }
}

fn compare_head(engine: &Engine, path: &str, expected: Result<&Stream, Refusal>) -> Result<(), String> {
    match (engine.head(&stream_path(path)), expected) {
        (Ok(head), Ok(stream)) => {
            let same = head.tail == stream.tail()
                && head.closed == stream.closed
                && head.content_type == content_type(stream.kind)
                && stream.incarnation.is_none_or(|incarnation| incarnation == head.incarnation);
            let found = head.snapshot.as_ref().map(|snapshot| (snapshot.offset, snapshot.length));
            let latest = stream.retained.latest.as_ref();
            let expected = latest.map(|latest| (latest.offset, latest.body.len() as u64));
            let floor = stream.retained.floor();
            if !stream.retained.holds(head.tail) || head.floor != floor || found != expected {
                let what = format!("expected floor {floor} and snapshot {expected:?}, found {head:?}");
                return Err(format!("`{path}`: {what}"));
            }
            if same {
                Ok(())
            } else {
                let (tail, closed, known) = (stream.tail(), stream.closed, stream.incarnation);
                Err(format!("`{path}`: expected tail {tail} closed {closed} {known:?}, found {head:?}"))
            }
        }
        (Err(error), Err(refusal)) if refused(&refusal, &lookup_refusal(error)) => Ok(()),
        (found, expected) => Err(format!(
            "`{path}`: expected {:?}, found {:?}",
            expected.map(Stream::tail),
            found.map(|head| head.tail)
        )),
    }
}

/// The refusal of a read from below the floor.
fn retained(stream: &Stream) -> ReadError {
    let snapshot = stream.retained.latest.as_ref().map(|latest| latest.offset);
    ReadError::Retained { floor: stream.retained.floor(), snapshot }
}

/// A reader that wants everything begins where it can, unless a snapshot stands for what it would miss.
fn check_start(reader: &StreamReader, stream: &Stream) -> Result<(), Trouble> {
    let floor = stream.retained.floor();
    let is_refused = stream.retained.latest.is_some() && floor > Offset::ZERO;
    let expected = if is_refused { Err(retained(stream)) } else { Ok(floor) };
    let found = reader.resolve(OffsetQuery::Start);
    if found == expected {
        return Ok(());
    }
    Err(Trouble::Wrong(format!("`{}` starts at {found:?} and not at {expected:?}", stream.path)))
}

/// Every boundary resolves, nothing beside them does, and every byte is read in several ways.
fn check_whole(reader: &StreamReader, stream: &Stream, rng: &mut Rng) -> Result<(), Trouble> {
    let path = &stream.path;
    let floor = stream.retained.floor();
    check_start(reader, stream)?;
    let boundaries: BTreeSet<Offset> =
        stream.boundaries().filter(|boundary| boundary.position >= floor.position).collect();
    for &boundary in &boundaries {
        if reader.resolve(OffsetQuery::At(boundary))? != boundary {
            return Err(Trouble::Wrong(format!("`{path}`: boundary {boundary} resolves to another offset")));
        }
        let beside = Offset::new(boundary.append_index, boundary.position + 1);
        match reader.resolve(OffsetQuery::At(beside)) {
            Ok(_) if !boundaries.contains(&beside) => {
                return Err(Trouble::Wrong(format!("`{path}`: {beside} is no boundary and resolves")));
            }
            Err(ReadError::Fault(fault)) => return Err(Trouble::Fault(fault.to_string())),
            Ok(_) | Err(_) => {}
        }
    }
    for bytes_max in READ_SIZES {
        read_through(reader, stream, floor, bytes_max)?;
    }
    let nth = rng.index(boundaries.len());
    let from = boundaries.into_iter().nth(nth).unwrap_or(floor);
    read_through(reader, stream, from, *rng.pick(&READ_SIZES))
}

/// Reads from `from` to the end, a plan at a time, and compares bytes and boundaries.
fn read_through(reader: &StreamReader, stream: &Stream, from: Offset, bytes_max: u64) -> Result<(), Trouble> {
    let path = &stream.path;
    let wrong = |what: String| Err(Trouble::Wrong(format!("`{path}` from {from} by {bytes_max}: {what}")));
    let mut here = from;
    loop {
        let mut plan = reader.read(here, bytes_max)?;
        if bytes_max == PATIENT_BYTES_MAX {
            plan = plan.patient();
            plan.set_piece_bytes(PATIENT_PIECE_BYTES);
        }
        let mut found = Vec::new();
        while let Some(pieces) = plan.fetch() {
            let pieces = pieces.map_err(|fault| Trouble::Fault(fault.to_string()))?;
            for piece in pieces {
                found.extend_from_slice(&piece);
            }
        }
        let Some(expected) = between(stream, here, plan.end) else {
            return wrong(format!("{here} to {} is not between boundaries", plan.end));
        };
        let expected: Vec<u8> = expected.iter().flat_map(|message| message.bytes.iter().copied()).collect();
        if found != expected {
            return wrong(format!("{here} to {} has other bytes than were appended", plan.end));
        }
        let at_tail = plan.end == stream.tail();
        if plan.at_tail != at_tail || plan.closed != (at_tail && stream.closed) {
            let (end, tail) = (plan.end, stream.tail());
            return wrong(format!("at {end} of {tail}: at tail {} closed {}", plan.at_tail, plan.closed));
        }
        if at_tail {
            return Ok(());
        }
        if plan.end == here {
            return wrong(format!("no progress at {here}"));
        }
        here = plan.end;
    }
}

/// The messages between two boundaries.
pub(crate) fn between(stream: &Stream, start: Offset, end: Offset) -> Option<&[Message]> {
    let (from_start, from_end) = (stream.from(start)?, stream.from(end)?);
    from_start.get(..from_start.len().checked_sub(from_end.len())?)
}
