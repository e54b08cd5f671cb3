//! A service in a temporary folder, and short ways to ask it.

use std::sync::Arc;

use alluvium_env::sim::{ManualClock, SeededRandom};
use alluvium_env::{Env, RealDisk};
use alluvium_feed_protocol::{
    AppendRequest, AppendResponse, Block, Data, ErrorCode, ErrorResponse, Id, ListFeedsRequest,
    ListFeedsResponse, Namespace, QueryRequest, QueryResponse, Request, Response, SubscribeRequest,
    SubscribeResponse,
};
use alluvium_feed_store::Durability;
use alluvium_feeds::{Listener, Options, Principal, Service};
use tempfile::TempDir;

/// When tests begin.
pub(crate) const NOW_MS: u64 = 1_750_000_000_000;

/// A running authority.
pub(crate) struct Authority {
    pub(crate) service: Option<Arc<Service>>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) options: Options,
    pub(crate) folder: TempDir,
    seed: u64,
}

pub(crate) fn id(text: &str) -> Id {
    Id::parse(text).expect("an identifier")
}

pub(crate) fn namespace(text: &str) -> Namespace {
    Namespace::parse(text).expect("a namespace")
}

/// A block of a feed, by an actor.
pub(crate) fn block(feed: &str, actor: &str, sequence: u64, data: &str) -> Block {
    Block {
        feed_id: Some(id(feed)),
        namespace: None,
        position: None,
        sequence,
        actor_id: id(actor),
        prev_sequence: None,
        prev_actor_id: None,
        timestamp: Some(NOW_MS),
        data: Data::from(data.as_bytes().to_vec()),
        encryption_key_id: None,
        iv: None,
        signature: None,
    }
}

pub(crate) fn append(blocks: Vec<Block>) -> AppendRequest {
    AppendRequest { blocks, ..AppendRequest::default() }
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::with(Options { durability: Durability::Process, ..Options::default() })
    }

    pub(crate) fn with(options: Options) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let mut authority = Self { service: None, clock, options, folder, seed: 0 };
        authority.start();
        authority
    }

    pub(crate) fn start(&mut self) {
        self.seed += 1;
        let env = Env {
            clock: Arc::clone(&self.clock) as _,
            random: Arc::new(SeededRandom::new(self.seed)),
            disk: Arc::new(RealDisk),
        };
        let service = Service::open(self.folder.path(), env, self.options.clone()).expect("a free folder");
        self.service = Some(Arc::new(service));
    }

    pub(crate) fn restart(&mut self) {
        self.service().close();
        self.service = None;
        self.start();
    }

    pub(crate) fn service(&self) -> &Arc<Service> {
        self.service.as_ref().expect("it runs")
    }

    pub(crate) fn handle(&self, request: Request) -> Response {
        self.handle_as(&Principal::anyone(), request, None)
    }

    pub(crate) fn handle_as(
        &self,
        principal: &Principal,
        request: Request,
        listener: Option<&Arc<Listener>>,
    ) -> Response {
        self.service().handle_blocking(principal, &id("space"), request, listener)
    }

    pub(crate) fn append(&self, request: AppendRequest) -> AppendResponse {
        match self.handle(Request::Append(request)) {
            Response::Append(response) => response,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn query(&self, request: QueryRequest) -> QueryResponse {
        match self.handle(Request::Query(request)) {
            Response::Query(response) => response,
            other => panic!("{other:?}"),
        }
    }

    /// Everything after a cursor.
    pub(crate) fn after(&self, cursor: u64) -> QueryResponse {
        self.query(QueryRequest { cursor: Some(cursor), limit: Some(1000), ..QueryRequest::default() })
    }

    pub(crate) fn subscribe(&self, request: SubscribeRequest) -> SubscribeResponse {
        match self.handle(Request::Subscribe(request)) {
            Response::Subscribe(response) => response,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn list(&self, request: ListFeedsRequest) -> ListFeedsResponse {
        match self.handle(Request::ListFeeds(request)) {
            Response::ListFeeds(response) => response,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn refused(&self, request: Request, code: ErrorCode) -> ErrorResponse {
        match self.handle(request) {
            Response::Error(error) if error.code == code.as_str() => error,
            other => panic!("{other:?}"),
        }
    }
}
