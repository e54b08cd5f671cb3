//! The reader that applications have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use alluvium_env::Env;
use alluvium_jetstream_wire::Filter;
use alluvium_websocket::{Tls, trusting};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use ureq::tls::{PemItem, RootCerts, parse_pem};

use crate::config::{Config, ConfigError, Cursor, Mode};
use crate::error::Error;
use crate::event::Event;
use crate::http::Http;
use crate::plan::Planner;
use crate::run::Driver;

/// Batches that wait to be taken.
const BATCHES_MAX: usize = 2;

/// A server, and which of its events are wanted.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

/// What a reader and the task behind it share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) filter: Filter,
    pub(crate) http: Http,
    /// What stands in front of the path of a live feed.
    pub(crate) sockets: String,
    pub(crate) tls: Option<Tls>,
    pub(crate) planner: Planner,
    /// Whether long queries are refused where the server is.
    pub(crate) no_long_queries: AtomicBool,
    pub(crate) env: Env,
}

/// How far a reader is.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct Progress {
    /// The last event of the archive, as of when its download was planned; 0 before that.
    pub tip: u64,
    /// Bytes of blocks that were downloaded.
    pub bytes: u64,
    /// Whether a live feed is open.
    pub is_live: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) tip: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) is_live: AtomicBool,
}

/// Something to tell whoever watches.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Notice {
    /// The archive is downloaded, up to this event.
    Archive {
        /// Its last event.
        tip: u64,
    },
    /// The archive has nothing of what is wanted: no finished segment yet, or none that is as late.
    Empty,
    /// A live feed is open.
    Live,
    /// Something did not work. It is tried again.
    Again {
        /// Why.
        reason: String,
        /// After this pause.
        pause: Duration,
    },
    /// The server has something to say.
    Info {
        /// The name of it.
        name: String,
        /// In words.
        message: String,
    },
}

/// What comes from a reader.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Item {
    /// An event that passes the filter.
    Event(Event),
    /// Nothing of what lies between passes: the cursor has moved.
    Passed(Cursor),
    /// Something to tell.
    Notice(Notice),
}

/// What the task hands over.
#[derive(Debug)]
pub(crate) enum Handed {
    /// Events, and how far everything was looked at.
    Batch {
        events: Vec<Event>,
        through: u64,
    },
    Notice(Notice),
}

/// The certificates in `pem`, for requests.
fn roots(pem: &[u8]) -> Result<RootCerts, ConfigError> {
    let mut roots = Vec::new();
    for item in parse_pem(pem) {
        if let PemItem::Certificate(root) = item.map_err(|error| ConfigError::Roots(error.to_string()))? {
            roots.push(root);
        }
    }
    Ok(RootCerts::Specific(Arc::new(roots)))
}

impl Client {
    /// A client. Nothing is sent yet.
    pub fn new(config: Config, env: Env) -> Result<Self, ConfigError> {
        let (requests, sockets) = config.bases()?;
        let (roots, tls) = match config.roots_pem.as_deref() {
            None => (None, None),
            Some(pem) => {
                let tls = trusting(pem).map_err(|error| ConfigError::Roots(error.to_string()))?;
                (Some(roots(pem)?), Some(tls))
            }
        };
        let shared = Shared {
            filter: config.filter()?,
            http: Http::new(requests, config.token.clone(), &config.limits, roots),
            sockets,
            tls,
            planner: Planner::default(),
            no_long_queries: AtomicBool::new(false),
            env,
            config,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Starts to read. Within a runtime of Tokio; the task ends when the reader is dropped.
    pub fn events(&self, from: Cursor, mode: Mode) -> Result<Events, ConfigError> {
        if (from, mode) == (Cursor::Now, Mode::Archive) {
            return Err(ConfigError::NowInArchive);
        }
        let (out, handed) = mpsc::channel(BATCHES_MAX);
        let counters = Arc::new(Counters::default());
        let driver = Driver::new(Arc::clone(&self.shared), Arc::clone(&counters), out, from, mode);
        Ok(Events {
            handed,
            task: Some(tokio::spawn(driver.run())),
            batch: Vec::new().into_iter(),
            through: None,
            cursor: from,
            counters,
        })
    }
}

/// A reader of events. No event comes twice, and none is passed over.
#[derive(Debug)]
pub struct Events {
    handed: mpsc::Receiver<Handed>,
    task: Option<JoinHandle<Result<(), Error>>>,
    batch: std::vec::IntoIter<Event>,
    /// Where the cursor is once the batch is given out.
    through: Option<u64>,
    cursor: Cursor,
    counters: Arc<Counters>,
}

impl Events {
    /// The next event; none at the end of the archive, where it is the end. After an error there is none. Nothing is lost
    /// if the future is dropped.
    pub async fn next(&mut self) -> Result<Option<Event>, Error> {
        loop {
            match self.next_item().await? {
                Some(Item::Event(event)) => return Ok(Some(event)),
                Some(Item::Passed(_) | Item::Notice(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// Like [`next`](Self::next), with what there is to tell in between.
    pub async fn next_item(&mut self) -> Result<Option<Item>, Error> {
        loop {
            if let Some(event) = self.batch.next() {
                self.cursor = Cursor::After(event.seq);
                return Ok(Some(Item::Event(event)));
            }
            if let Some(through) = self.through.take().map(Cursor::After)
                && through != self.cursor
            {
                self.cursor = through;
                return Ok(Some(Item::Passed(through)));
            }
            match self.handed.recv().await {
                Some(Handed::Batch { events, through }) => {
                    self.batch = events.into_iter();
                    self.through = Some(through);
                }
                Some(Handed::Notice(notice)) => return Ok(Some(Item::Notice(notice))),
                None => return self.ended().await.map(|()| None),
            }
        }
    }

    /// How the task ended; told once.
    async fn ended(&mut self) -> Result<(), Error> {
        let Some(task) = &mut self.task else { return Ok(()) };
        let ended = task.await;
        self.task = None;
        ended.unwrap_or(Err(Error::Stopped))
    }

    /// Where to go on another time: behind the last event that was given out, or behind what lay after it and does not
    /// pass.
    pub const fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Whether all events that were handed over are given out, so that the next one has to be waited for.
    pub fn is_drained(&self) -> bool {
        self.batch.len() == 0 && self.through.is_none() && self.handed.is_empty()
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        Progress {
            tip: self.counters.tip.load(Ordering::Relaxed),
            bytes: self.counters.bytes.load(Ordering::Relaxed),
            is_live: self.counters.is_live.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
