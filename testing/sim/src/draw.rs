//! Draws the next operation from the seed.
//!
//! Each seed weighs the kinds of operations in its own way and leaves some out, so that rare combinations get runs
//! in which they are common. Bodies carry the number of the draw: no two are the same.

use alluvium_engine::TrimTo;
use alluvium_env::sim::Rng;
use alluvium_protocol::Offset;

use crate::model::{Model, Stream};
use crate::operation::{
    AppendAsk, Body, CreateAsk, ForkAsk, Kind, Life, Operation, PublishAsk, RetainAsk, Stamp, TrimAsk,
};

/// The paths of all simulated streams: few, so that operations meet.
pub const PATHS: [&str; 13] = [
    "a",
    "b",
    "chat/1",
    "chat/2",
    "doc/x",
    "doc/y",
    "é",
    "log",
    "t/1/2/3",
    "z z",
    "/ds/red1/x",
    "/ds/red1/y",
    "/ds/blue/x",
];
/// The buckets of those that are in one.
pub const BUCKETS: [&str; 2] = ["red1", "blue"];
const PRODUCERS: [&str; 3] = ["p1", "p2", "a producer with a longer name"];
const TTL_SECONDS: [u64; 3] = [10, 100, 4000];

/// Kinds of operations, with their weight before a seed changes it.
const KINDS: [(Draw, u64); 25] = [
    (Draw::Create, 90),
    (Draw::Fork, 40),
    (Draw::Append, 450),
    (Draw::Close, 12),
    (Draw::Delete, 25),
    (Draw::Publish, 110),
    (Draw::CreateBucket, 15),
    (Draw::DeleteBucket, 5),
    (Draw::Cut, 30),
    (Draw::ReadCut, 12),
    (Draw::Head, 20),
    (Draw::Read, 60),
    (Draw::ReadUnaligned, 10),
    (Draw::Commit, 170),
    (Draw::Fold, 25),
    (Draw::Expire, 10),
    (Draw::Advance, 30),
    (Draw::Restart, 6),
    (Draw::Kill, 6),
    (Draw::Crash, 6),
    (Draw::CrashSoon, 12),
    (Draw::Fail, 6),
    (Draw::Squeeze, 3),
    (Draw::Relax, 10),
    (Draw::Retry, 20),
];

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
enum Draw {
    Create,
    Fork,
    Append,
    Close,
    Delete,
    Publish,
    CreateBucket,
    DeleteBucket,
    Cut,
    ReadCut,
    Head,
    Read,
    ReadUnaligned,
    Commit,
    Fold,
    Expire,
    Advance,
    Restart,
    Kill,
    Crash,
    CrashSoon,
    Fail,
    Squeeze,
    Relax,
    Retry,
}

/// What a run looks like, drawn once from its seed.
#[derive(Clone, Debug)]
pub struct Drawing {
    rng: Rng,
    weights: Vec<(Draw, u64)>,
    /// Draws rules of retention, apart from all else: runs without them stay what they were.
    retention: Option<Rng>,
    /// Draws what streams are to give up, likewise.
    trims: Option<Rng>,
    count: u64,
    shards: u16,
    body_bytes_max: u64,
}

impl Drawing {
    /// Draws the weights of a run with these many shards and bodies up to this size. A run without power losses is
    /// for the durability that doesn't promise to survive them.
    pub fn new(seed: u64, shards: u16, body_bytes_max: u64, power_losses: bool) -> Self {
        let mut rng = Rng::new(seed);
        let weigh = |(draw, weight): (Draw, u64)| {
            let factor = match draw {
                Draw::Append | Draw::Commit | Draw::Create | Draw::Relax => *rng.pick(&[1, 1, 3]),
                Draw::Crash | Draw::CrashSoon | Draw::Fail | Draw::Squeeze if !power_losses => 0,
                _ => *rng.pick(&[0, 1, 1, 1, 4]),
            };
            (draw, weight * factor)
        };
        let weights = KINDS.into_iter().map(weigh).collect();
        let retention = seed.is_multiple_of(2).then(|| Rng::new(seed ^ 0x4e7a_1400));
        let trims = (!seed.is_multiple_of(3)).then(|| Rng::new(seed ^ 0x7417_0000));
        Self { rng, weights, retention, trims, count: 0, shards, body_bytes_max }
    }

    /// The next operation, given what the model knows.
    pub fn next(&mut self, model: &Model, now_ms: u64) -> Operation {
        self.count += 1;
        if let Some(ask) = self.retain() {
            return Operation::Retain(ask);
        }
        if let Some(ask) = self.trim(model, now_ms) {
            return Operation::Trim(ask);
        }
        let total = self.weights.iter().map(|(_, weight)| weight).sum();
        let mut at = self.rng.below(total);
        let mut drawn = Draw::Commit;
        for (draw, weight) in &self.weights {
            if at < *weight {
                drawn = *draw;
                break;
            }
            at -= weight;
        }
        self.operation(drawn, model, now_ms)
    }

    /// Now and then, in every other run, a rule of retention.
    fn retain(&mut self) -> Option<RetainAsk> {
        let rng = self.retention.as_mut()?;
        if !rng.percent(3) {
            return None;
        }
        let prefix =
            *rng.pick(&["", "/", "/ds/", "/ds/red1/", "/v1/stream/", "/v1/stream/chat/", "/v1/stream/a"]);
        let ages = [0, 1000, 20_000, 400_000];
        Some(RetainAsk {
            prefix: prefix.to_owned(),
            idle_ms_max: rng.percent(30).then(|| *rng.pick(&ages[1..])),
            closed_ms_max: rng.percent(30).then(|| *rng.pick(&ages)),
            bytes_max: rng.percent(60).then(|| *rng.pick(&[500, 5000, 50_000])),
        })
    }

    /// Now and then, in two runs of three, the beginning of a stream or of some.
    fn trim(&mut self, model: &Model, now_ms: u64) -> Option<TrimAsk> {
        let rng = self.trims.as_mut()?;
        if !rng.percent(5) {
            return None;
        }
        if rng.percent(40) {
            let prefix = *rng.pick(&["", "/ds/", "/ds/red1/", "/v1/stream/", "/v1/stream/chat/"]);
            let bytes_max = rng.percent(50).then(|| *rng.pick(&[1, 300, 3000, 20_000]));
            let age_ms_max =
                (bytes_max.is_none() || rng.percent(50)).then(|| *rng.pick(&[0, 160, 20_000, 400_000]));
            return Some(TrimAsk::Rule { prefix: prefix.to_owned(), bytes_max, age_ms_max });
        }
        let path = (*rng.pick(&PATHS)).to_owned();
        let to = match (rng.below(10), model.find(&path, now_ms)) {
            (0..2, _) | (_, Err(_)) => TrimTo::Bytes(*rng.pick(&[0, 1, 300, 3000])),
            (2, _) => TrimTo::Age(*rng.pick(&[0, 1000, 20_000])),
            (3, _) => TrimTo::Offset(Offset::new(rng.below(5), rng.below(300))),
            (_, Ok(stream)) => {
                let nth = rng.index(stream.messages.len() + 1);
                TrimTo::Offset(stream.boundaries().nth(nth).unwrap_or(Offset::ZERO))
            }
        };
        Some(TrimAsk::One { path, to })
    }

    fn operation(&mut self, drawn: Draw, model: &Model, now_ms: u64) -> Operation {
        let shard = u16::try_from(self.rng.below(self.shards.into())).unwrap_or(0);
        match drawn {
            Draw::Create => Operation::Create(self.create(now_ms)),
            Draw::Fork => Operation::Create(self.fork(model, now_ms)),
            Draw::Append => Operation::Append(self.append(model, now_ms)),
            Draw::Close => {
                let mut ask = self.append(model, now_ms);
                ask.close = true;
                if self.rng.percent(50) {
                    ask.body = Body::EMPTY;
                }
                Operation::Append(ask)
            }
            Draw::Delete => Operation::Delete(self.path()),
            Draw::Publish => Operation::Publish(self.publish(model, now_ms)),
            Draw::CreateBucket => Operation::CreateBucket((*self.rng.pick(&BUCKETS)).to_owned()),
            Draw::DeleteBucket => Operation::DeleteBucket((*self.rng.pick(&BUCKETS)).to_owned()),
            Draw::Cut => Operation::Cut(self.live_path(model, now_ms)),
            Draw::ReadCut => Operation::ReadCut,
            Draw::Head => Operation::Head(self.path()),
            Draw::Read => Operation::Read {
                path: self.path(),
                boundary: self.rng.index(1000),
                bytes_max: *self.rng.pick(&[1, 100, 3000, 1_000_000]),
            },
            Draw::ReadUnaligned => {
                let offset = Offset::new(self.rng.below(8), self.rng.below(2000));
                Operation::ReadUnaligned { path: self.path(), offset }
            }
            Draw::Commit => Operation::Commit(shard),
            Draw::Fold => Operation::Fold(shard),
            Draw::Expire => Operation::Expire,
            Draw::Advance => {
                let most = *self.rng.pick(&[10, 1000, 20_000, 500_000]);
                Operation::Advance(self.rng.within(1..most))
            }
            Draw::Restart => Operation::Restart,
            Draw::Kill => Operation::Kill,
            Draw::Crash => Operation::Crash,
            Draw::CrashSoon => Operation::CrashSoon(self.rng.below(40)),
            Draw::Fail => {
                let skip = self.rng.below(6);
                match self.rng.below(3) {
                    0 => Operation::FailSync(skip),
                    1 => Operation::FailWrite(skip),
                    _ => Operation::FailRead(skip),
                }
            }
            Draw::Squeeze => Operation::Squeeze(self.rng.below(40_000)),
            Draw::Relax => Operation::Relax,
            Draw::Retry => Operation::Retry,
        }
    }

    fn path(&mut self) -> String {
        (*self.rng.pick(&PATHS)).to_owned()
    }

    /// Mostly the path of a stream that lives.
    fn live_path(&mut self, model: &Model, now_ms: u64) -> String {
        let live: Vec<&Stream> = model.live(now_ms).collect();
        if live.is_empty() || self.rng.percent(10) {
            return self.path();
        }
        self.rng.pick(&live).path.clone()
    }

    fn kind(&mut self) -> Kind {
        *self.rng.pick(&[Kind::Binary, Kind::Json, Kind::Text])
    }

    fn life(&mut self, now_ms: u64) -> Life {
        match self.rng.below(6) {
            0 => Life::Ttl(*self.rng.pick(&TTL_SECONDS)),
            1 => Life::Until(now_ms + self.rng.within(1000..2_000_000)),
            _ => Life::Forever,
        }
    }

    fn create(&mut self, now_ms: u64) -> CreateAsk {
        let kind = self.kind();
        let body = if self.rng.percent(30) { self.body(kind) } else { Body::EMPTY };
        CreateAsk {
            path: self.path(),
            kind: (kind != Kind::Binary || self.rng.percent(50)).then_some(kind),
            life: self.life(now_ms),
            closed: self.rng.percent(5),
            body,
            fork: None,
        }
    }

    fn fork(&mut self, model: &Model, now_ms: u64) -> CreateAsk {
        let source = self.live_path(model, now_ms);
        let found = model.find(&source, now_ms).ok();
        let kind = found.map_or(Kind::Binary, |source| source.kind);
        let offset = match found {
            Some(source) if self.rng.percent(75) => Some(self.boundary(source)),
            _ if self.rng.percent(10) => Some(Offset::new(self.rng.below(5), self.rng.below(300))),
            _ => None,
        };
        let sub_offset = match self.rng.below(4) {
            0 => self.rng.within(1..5),
            1 if kind != Kind::Json => self.rng.within(1..400),
            _ => 0,
        };
        let body = if self.rng.percent(20) { self.body(kind) } else { Body::EMPTY };
        CreateAsk {
            path: self.path(),
            kind: self.rng.percent(20).then_some(kind),
            life: if self.rng.percent(70) { Life::Forever } else { self.life(now_ms) },
            closed: self.rng.percent(5),
            body,
            fork: Some(ForkAsk { source, offset, sub_offset }),
        }
    }

    fn publish(&mut self, model: &Model, now_ms: u64) -> PublishAsk {
        let path = self.live_path(model, now_ms);
        let offset = match model.find(&path, now_ms) {
            Ok(stream) if self.rng.percent(20) => stream.tail(),
            Ok(stream) if self.rng.percent(90) => self.boundary(stream),
            _ => Offset::new(self.rng.below(5), self.rng.below(300)),
        };
        let len = if self.rng.percent(10) { 5 * self.body_bytes_max } else { self.body_len() };
        let len = if self.rng.percent(10) { 0 } else { len };
        PublishAsk { path, offset, body: tagged(self.count, len), retain_all: self.rng.percent(30) }
    }

    fn boundary(&mut self, stream: &Stream) -> Offset {
        let nth = self.rng.index(stream.messages.len() + 1);
        stream.boundaries().nth(nth).unwrap_or(Offset::ZERO)
    }

    fn append(&mut self, model: &Model, now_ms: u64) -> AppendAsk {
        let path = self.path();
        let found = model.find(&path, now_ms).ok();
        let kind = match found {
            Some(stream) if !self.rng.percent(2) => stream.kind,
            _ => self.kind(),
        };
        let stamp = self.rng.percent(50).then(|| self.stamp(model, &path));
        let seq =
            self.rng.percent(10).then(|| format!("{:06}", self.count - self.rng.below(3).min(self.count)));
        AppendAsk { body: self.body(kind), path, kind, stamp, seq, close: self.rng.percent(1) }
    }

    /// Mostly the next sequence number, assuming that nothing is under way; else a repetition, a gap, a stale or a
    /// new epoch.
    fn stamp(&mut self, model: &Model, path: &str) -> Stamp {
        let id = (*self.rng.pick(&PRODUCERS)).to_owned();
        let (epoch, next) = match model.producer(path, &id) {
            Some((epoch, seq)) => (epoch, seq + 1),
            None => (0, 0),
        };
        let (epoch, seq) = match self.rng.below(20) {
            0 => (epoch, next.saturating_sub(1 + self.rng.below(3))),
            1 => (epoch, next + 1 + self.rng.below(3)),
            2 => (epoch + 1, self.rng.below(2)),
            3 => (epoch.saturating_sub(1), next),
            4 | 5 => (epoch, next + 1),
            _ => (epoch, next),
        };
        Stamp { id, epoch, seq }
    }

    fn body(&mut self, kind: Kind) -> Body {
        if kind != Kind::Json {
            let len = self.body_len();
            return Body::Bytes(tagged(self.count, len));
        }
        let count = if self.rng.percent(60) { 1 } else { self.rng.within(1..12) };
        let each = self.body_len() / count;
        let text = |nth| format!("{{\"n\":{}.{nth},\"s\":\"{}\"}}", self.count, "x".repeat(usize_of(each)));
        Body::Json((0..count).map(text).collect())
    }

    fn body_len(&mut self) -> u64 {
        let most = match self.rng.below(20) {
            0 => self.body_bytes_max,
            1..=3 => self.body_bytes_max / 4,
            _ => 200,
        };
        self.rng.within(1..most)
    }
}

fn tagged(count: u64, len: u64) -> Vec<u8> {
    format!("<{count}>").into_bytes().into_iter().cycle().take(usize_of(len)).collect()
}

fn usize_of(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}
