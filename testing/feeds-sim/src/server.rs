//! The authority as a node: starts, dies, is wiped, set back, copied.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_env::sim::{ManualClock, SeededRandom};
use alluvium_env::{Env, RealDisk};
use alluvium_feed_protocol::{
    Block, BlocksPushed, FeedInfo, Id, ListFeedsRequest, QueryRequest, QueryResponse, Request, Response,
};
use alluvium_feed_store::Durability;
use alluvium_feeds::{Listener, Options, Principal, Service};

/// Shortest life of a subscription here, in milliseconds.
const SUBSCRIPTION_MS_MIN: u64 = 1000;

/// The files of the folder at some moment.
#[derive(Debug)]
pub(crate) struct Snapshot(BTreeMap<PathBuf, Vec<u8>>);

/// The authority.
pub(crate) struct Server {
    folder: PathBuf,
    pub(crate) clock: Arc<ManualClock>,
    random: Arc<SeededRandom>,
    service: Option<Service>,
    pub(crate) answered: u64,
}

impl Server {
    pub(crate) fn new(folder: PathBuf, seed: u64, now_ms: u64) -> Self {
        let clock = Arc::new(ManualClock::new(now_ms));
        let random = Arc::new(SeededRandom::new(seed ^ 0x5e7));
        let mut server = Self { folder, clock, random, service: None, answered: 0 };
        server.start();
        server
    }

    pub(crate) fn start(&mut self) {
        let env = Env {
            clock: Arc::clone(&self.clock) as _,
            random: Arc::clone(&self.random) as _,
            disk: Arc::new(RealDisk),
        };
        let options = Options {
            durability: Durability::Process,
            subscription_ms_min: SUBSCRIPTION_MS_MIN,
            page_examined_max: 40,
            ..Options::default()
        };
        let service = Service::open(&self.folder, env, options).expect("a folder of the simulation");
        self.service = Some(service);
    }

    /// Stops it; as it should be stopped, or as a process dies.
    pub(crate) fn stop(&mut self, is_clean: bool) {
        if let Some(service) = self.service.take()
            && is_clean
        {
            service.close();
        }
    }

    pub(crate) fn service(&self) -> &Service {
        self.service.as_ref().expect("it runs between actions")
    }

    pub(crate) fn handle(&mut self, space: &Id, request: Request, listener: &Arc<Listener>) -> Response {
        self.answered += 1;
        self.service().handle_blocking(&Principal::anyone(), space, request, Some(listener))
    }

    /// What a subscription is sent in place of a hint.
    pub(crate) fn push(&self, space: &Id, subscription: &Id, after: u64) -> Option<BlocksPushed> {
        self.service().pushed_blocking(&Principal::anyone(), space, subscription, after)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot(files(&self.folder))
    }

    /// Puts the folder back to what it was. The guard of the present stays or goes back too.
    pub(crate) fn set_back(&mut self, to: &Snapshot, with_guard: bool) {
        self.stop(false);
        let now = files(&self.folder);
        wipe(&self.folder);
        for (path, bytes) in &to.0 {
            let is_guard = path.file_name().is_some_and(|name| name == "guard");
            let bytes = if is_guard && !with_guard { now.get(path).unwrap_or(bytes) } else { bytes };
            put(path, bytes);
        }
        self.start();
    }

    pub(crate) fn wipe(&mut self) {
        self.stop(false);
        wipe(&self.folder);
        self.start();
    }

    /// Everything that it holds of a space.
    pub(crate) fn blocks(&self, space: &Id) -> (Vec<Block>, QueryResponse) {
        let mut blocks = Vec::new();
        let mut cursor = 0;
        loop {
            let query = QueryRequest { cursor: Some(cursor), limit: Some(1000), ..QueryRequest::default() };
            let response =
                self.service().handle_blocking(&Principal::anyone(), space, Request::Query(query), None);
            let Response::Query(mut page) = response else { panic!("{response:?}") };
            blocks.append(&mut page.blocks);
            cursor = page.next_cursor;
            if !page.has_more {
                return (blocks, page);
            }
        }
    }

    pub(crate) fn feeds(&self, space: &Id) -> Vec<FeedInfo> {
        let list = Request::ListFeeds(ListFeedsRequest::default());
        let response = self.service().handle_blocking(&Principal::anyone(), space, list, None);
        let Response::ListFeeds(list) = response else { panic!("{response:?}") };
        list.feeds
    }
}

fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(files(&path));
        } else if path.extension().is_none_or(|extension| extension != "sqlite-shm") {
            all.insert(path.clone(), fs::read(&path).unwrap_or_default());
        }
    }
    all
}

fn wipe(folder: &Path) {
    // What isn't there is gone as well.
    drop(fs::remove_dir_all(folder));
    fs::create_dir_all(folder).expect("a folder of the simulation");
}

pub(crate) fn put(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("inside of the folder")).expect("a folder of the simulation");
    #[expect(
        clippy::disallowed_methods,
        reason = "a snapshot is put back behind the back of the code under test"
    )]
    fs::write(path, bytes).expect("a file of the simulation");
}
