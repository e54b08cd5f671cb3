//! The task behind a reader: from the archive to the live feed, and back if it must.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_jetstream_wire::dictionary::id_of;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::archive::{self, Span, Taker, blocking};
use crate::config::{Cursor, Mode};
use crate::error::Error;
use crate::event::{Event, Heard};
use crate::events::{Counters, Handed, Notice, Shared};
use crate::live::{Dictionary, Feed, Opened, open};
use crate::patience::Patience;
use crate::plan;

/// Dictionaries that are tried before messages come uncompressed.
const DICTIONARIES_MAX: u32 = 2;

/// Where the task is.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Phase {
    Archive,
    Live,
    Done,
}

/// Why a phase broke off.
enum Stop {
    /// Nobody takes events any more.
    Gone,
    Error(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The task.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    out: mpsc::Sender<Handed>,
    /// Everything up to here was handed over.
    position: Cursor,
    mode: Mode,
    phase: Phase,
    /// The last event of the archive as of the first plan of this download.
    pin: Option<u64>,
    /// Where the live feed last was too young.
    too_old: Option<Cursor>,
    dictionary: Option<Dictionary>,
    dictionaries: u32,
    patience: Patience,
}

impl Driver {
    pub(crate) fn new(
        shared: Arc<Shared>,
        counters: Arc<Counters>,
        out: mpsc::Sender<Handed>,
        from: Cursor,
        mode: Mode,
    ) -> Self {
        let phase = match (mode, from) {
            (Mode::Live, Cursor::After(_)) | (_, Cursor::Now) => Phase::Live,
            // A live feed would begin later without a word if the time is too long ago for it.
            _ => Phase::Archive,
        };
        let config = &shared.config;
        let dictionary = if config.compress { Dictionary::known(config.form) } else { None };
        Self {
            shared,
            counters,
            out,
            position: from,
            mode,
            phase,
            pin: None,
            too_old: None,
            dictionary,
            dictionaries: 0,
            patience: Patience::default(),
        }
    }

    /// Reads until the end, or until nobody takes what is read.
    pub(crate) async fn run(mut self) -> Result<(), Error> {
        loop {
            let before = self.position;
            let ended = match self.phase {
                Phase::Archive => self.archive().await,
                Phase::Live => self.live().await,
                Phase::Done => return Ok(()),
            };
            self.counters.is_live.store(false, Ordering::Relaxed);
            if self.position != before {
                self.patience.moved();
            }
            match ended {
                Ok(next) => self.phase = next,
                Err(Stop::Error(error)) if error.is_passing() => {
                    if self.pause(error).await? == Taker::Gone {
                        return Ok(());
                    }
                }
                Err(Stop::Error(error)) => return Err(error),
                Err(Stop::Gone) => return Ok(()),
            }
        }
    }

    /// Waits before another attempt, or gives up.
    async fn pause(&mut self, error: Error) -> Result<Taker, Error> {
        let drawn = (self.shared.env.random.next_u64() >> 32) as u32;
        let Some(pause) = self.patience.pause(&error, &self.shared.config.limits, drawn) else {
            return Err(error);
        };
        if self.tell(Notice::Again { reason: error.to_string(), pause }).await.is_err() {
            return Ok(Taker::Gone);
        }
        sleep(pause).await;
        Ok(Taker::There)
    }

    async fn tell(&self, notice: Notice) -> Result<(), Stop> {
        self.out.send(Handed::Notice(notice)).await.map_err(|_| Stop::Gone)
    }

    /// Downloads the archive from the position to its end.
    async fn archive(&mut self) -> Result<Phase, Stop> {
        let next = if self.mode == Mode::Archive { Phase::Done } else { Phase::Live };
        let mut span = match self.position {
            Cursor::After(after) => Span { after, tip: u64::MAX, gate: None },
            Cursor::Time(time) => {
                let shared = Arc::clone(&self.shared);
                let Some(first) = blocking(move || plan::first_at(&shared.http, time)).await?? else {
                    self.tell(Notice::Empty).await?;
                    return Ok(next);
                };
                Span { after: first.saturating_sub(1), tip: u64::MAX, gate: Some(time) }
            }
            Cursor::Now => return Ok(next),
        };
        loop {
            if self.pin.is_some_and(|pin| pin <= span.after) {
                break;
            }
            let (shared, after, pin) = (Arc::clone(&self.shared), span.after, self.pin);
            let planning = move || shared.planner.plan(&shared.http, &shared.config, after, pin);
            let page = blocking(planning).await??;
            if self.pin.is_none() {
                self.pin = Some(page.tip);
                self.counters.tip.store(page.tip, Ordering::Relaxed);
                let notice = if page.tip == 0 { Notice::Empty } else { Notice::Archive { tip: page.tip } };
                self.tell(notice).await?;
            }
            span.tip = self.pin.unwrap_or(page.tip);
            if span.tip <= span.after {
                break;
            }
            if page.through <= span.after || page.through > span.tip {
                let said = format!("the plan after event {} goes to event {}", span.after, page.through);
                return Err(Error::Answer(said).into());
            }
            self.download(page.entries, &mut span).await?;
            span.after = span.after.max(page.through);
            #[cfg(feature = "planted-bugs")]
            if alluvium_jss::planted::is_planted(alluvium_jss::planted::Bug::ContinuationPlusOne) {
                span.after += 1;
            }
            if span.gate.is_none() {
                self.position = Cursor::After(span.after);
                let passed = Handed::Batch { events: Vec::new(), through: span.after };
                self.out.send(passed).await.map_err(|_| Stop::Gone)?;
            }
        }
        self.pin = None;
        Ok(next)
    }

    async fn download(&mut self, entries: Vec<plan::Entry>, span: &mut Span) -> Result<(), Stop> {
        let (shared, counters) = (Arc::clone(&self.shared), Arc::clone(&self.counters));
        let (out, mut moving) = (self.out.clone(), *span);
        let work = move || {
            let taken = archive::run(&shared, &counters, &entries, &mut moving, &out);
            (taken, moving)
        };
        let (taken, moved) = blocking(work).await?;
        *span = moved;
        if span.gate.is_none() {
            self.position = Cursor::After(span.after);
        }
        match taken? {
            Taker::There => Ok(()),
            Taker::Gone => Err(Stop::Gone),
        }
    }

    /// Follows the live feed from the position, until it breaks off or no longer has what is wanted.
    async fn live(&mut self) -> Result<Phase, Stop> {
        let feed = match open(&self.shared, self.position, self.dictionary.as_ref()).await? {
            Opened::Feed(feed) => feed,
            #[cfg(feature = "planted-bugs")]
            Opened::TooOld
                if alluvium_jss::planted::is_planted(alluvium_jss::planted::Bug::TooOldIgnored) =>
            {
                self.position = Cursor::Now;
                return Ok(Phase::Live);
            }
            Opened::TooOld => return self.go_back(),
            // It is remembered, and so asked once.
            Opened::QueryTooLong => return Ok(Phase::Live),
            Opened::Dictionary(id) => {
                self.learn(id).await?;
                return Ok(Phase::Live);
            }
        };
        self.counters.is_live.store(true, Ordering::Relaxed);
        self.tell(Notice::Live).await?;
        if self.position == Cursor::Now {
            // Should it break off before the first event: no number is known yet, only since when to go on.
            let now = i64::try_from(self.shared.env.clock.now_us()).unwrap_or(i64::MAX);
            self.position = Cursor::Time(now);
        }
        let opened = Instant::now();
        let ended = self.follow(*feed).await;
        if let Err(Stop::Error(error)) = &ended {
            self.patience.held(opened, error, &self.shared.config.limits);
        }
        ended
    }

    /// To the archive, where the live feed no longer reaches. Once it has been there in vain, this is a failure.
    fn go_back(&mut self) -> Result<Phase, Stop> {
        self.phase = Phase::Archive;
        self.pin = None;
        if self.too_old.replace(self.position) == Some(self.position) {
            let after = if let Cursor::After(after) = self.position { after } else { 0 };
            return Err(Error::CursorTooOld { after }.into());
        }
        Ok(Phase::Archive)
    }

    /// Gets the dictionary that the server has. Without one messages come as they are.
    async fn learn(&mut self, id: Option<u32>) -> Result<(), Stop> {
        self.dictionary = None;
        if self.dictionaries >= DICTIONARIES_MAX {
            return Ok(());
        }
        self.dictionaries += 1;
        let shared = Arc::clone(&self.shared);
        let target = match id {
            Some(id) => format!("getZstdDictionary?id={id}"),
            None => "getZstdDictionary".to_owned(),
        };
        match blocking(move || shared.http.get_bytes(&target)).await? {
            Ok(bytes) => {
                let found = id_of(&bytes).filter(|found| id.is_none_or(|id| id == *found));
                self.dictionary = found.map(|id| Dictionary { id, bytes: bytes.into() });
            }
            Err(error) if error.is_passing() => return Err(error.into()),
            Err(_) => {}
        }
        Ok(())
    }

    async fn follow(&mut self, mut feed: Feed) -> Result<Phase, Stop> {
        let limits = self.shared.config.limits.clone();
        let mut waiting = Waiting::default();
        loop {
            let heard = tokio::select! {
                biased;
                heard = feed.next() => heard,
                () = std::future::ready(()), if waiting.through.is_some() => {
                    waiting.hand_over(&self.out).await?;
                    continue;
                }
            };
            let heard = match heard {
                Ok(heard) => heard,
                Err(error) => {
                    // What came before it broke off is as good as ever.
                    waiting.hand_over(&self.out).await?;
                    return Err(error.into());
                }
            };
            match heard {
                Heard::Event(event) => self.take(event, &mut waiting)?,
                Heard::Info { name, message } => {
                    waiting.hand_over(&self.out).await?;
                    self.tell(Notice::Info { name, message }).await?;
                }
                Heard::Error { name, message } => {
                    waiting.hand_over(&self.out).await?;
                    return Err(Error::Ended(format!("{name}: {message}")).into());
                }
                Heard::Other => {}
            }
            if waiting.events.len() >= limits.batch_events || waiting.bytes >= limits.batch_bytes {
                waiting.hand_over(&self.out).await?;
            }
        }
    }

    /// Takes an event of the live feed, unless it was there before.
    fn take(&mut self, event: Event, waiting: &mut Waiting) -> Result<(), Stop> {
        if let Cursor::After(after) = self.position
            && event.seq <= after
        {
            waiting.duplicates += 1;
            let limits = &self.shared.config.limits;
            let since = *waiting.behind.get_or_insert_with(Instant::now);
            let is_in_vain = limits.give_up_after.is_some_and(|limit| since.elapsed() >= limit);
            if is_in_vain || waiting.duplicates > limits.duplicates_max {
                return Err(Error::WentBack { after, found: event.seq }.into());
            }
            return Ok(());
        }
        (waiting.duplicates, waiting.behind) = (0, None);
        self.position = Cursor::After(event.seq);
        waiting.through = Some(event.seq);
        if event.passes(&self.shared.filter) {
            waiting.bytes += event.line.len();
            waiting.events.push(event);
        }
        Ok(())
    }
}

/// Events of the live feed that are not handed over yet.
#[derive(Default)]
struct Waiting {
    events: Vec<Event>,
    bytes: usize,
    through: Option<u64>,
    /// Events in a row that were there before, and since when.
    duplicates: u64,
    behind: Option<Instant>,
}

impl Waiting {
    async fn hand_over(&mut self, out: &mpsc::Sender<Handed>) -> Result<(), Stop> {
        let Some(through) = self.through.take() else { return Ok(()) };
        self.bytes = 0;
        let batch = Handed::Batch { events: std::mem::take(&mut self.events), through };
        out.send(batch).await.map_err(|_| Stop::Gone)
    }
}
