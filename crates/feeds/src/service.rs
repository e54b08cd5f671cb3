//! The one handler behind all transports.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use alluvium_env::{DiskLock, Env};
use alluvium_feed_protocol::{
    AppendRequest, BlocksPushed, ErrorCode, Hello, Id, Limits, QueryRequest, Request, RequestId, Response,
    UnsubscribeResponse, Welcome,
};
use alluvium_feed_store::ListedSpace;

use crate::append::Checked;
use crate::cache::Cache;
use crate::counters::{Counted, Counters};
use crate::failure::Failure;
use crate::hub::Listener;
use crate::identity;
use crate::options::Options;
use crate::principal::Principal;
use crate::queue;
use crate::space::Space;
use crate::survey::SurveyedSpace;
use crate::waiters::Waiting;

/// Most blocks that one message brings unasked.
const PUSHED_BLOCKS_MAX: u64 = 200;
/// Most bytes of blocks that one message brings unasked.
pub(crate) const PUSHED_BYTES_MAX: usize = 256 * 1024;
/// The version of the protocol.
const PROTOCOL: u64 = 1;

/// Why a service does not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder can't be used.
    #[error("cannot use the folder of feeds: {0}")]
    Folder(#[from] std::io::Error),
    /// Another process has it.
    #[error("another process uses the folder of feeds")]
    Locked,
}

/// The authority of all spaces in a folder.
#[derive(Debug)]
pub struct Service {
    options: Arc<Options>,
    /// Which server this is.
    id: Id,
    cache: Cache,
    counters: Arc<Counters>,
    _lock: Box<dyn DiskLock>,
}

impl Service {
    /// Takes a folder for itself. Spaces are opened when they are asked for.
    pub fn open(folder: &Path, env: Env, mut options: Options) -> Result<Self, OpenError> {
        env.disk.create_dir_all(folder)?;
        let lock = env.disk.lock(&folder.join(crate::keep::LOCK))?.ok_or(OpenError::Locked)?;
        options.limits = options.limits.within_hard();
        let options = Arc::new(options);
        let counters = Arc::new(Counters::default());
        let id = identity::of_folder(folder, &env);
        let cache = Cache::new(folder, env, Arc::clone(&options), Arc::clone(&counters))?;
        Ok(Self { options, id, cache, counters, _lock: lock })
    }

    /// What was counted since the service was opened.
    pub fn counted(&self) -> Counted {
        self.counters.counted(self.cache.open_now().unwrap_or_default())
    }

    /// What messages may hold.
    pub fn limits(&self) -> &Limits {
        &self.options.limits
    }

    /// Carries out a request and returns its answer, blocking meanwhile. `listener` is the caller's connection, if it
    /// can be sent hints.
    pub fn handle_blocking(
        &self,
        principal: &Principal,
        space: &Id,
        request: Request,
        listener: Option<&Arc<Listener>>,
    ) -> Response {
        let id = request.request_id().clone();
        let outcome = match request {
            Request::Append(append) => {
                return self.append_blocking(principal, space, vec![append]).remove(0);
            }
            request => self.carry_out(principal, space, &request, listener),
        };
        self.told(outcome, id)
    }

    /// The answer that an outcome comes to, counted.
    fn told(&self, outcome: Result<Response, Failure>, id: RequestId) -> Response {
        let answer = outcome.unwrap_or_else(|failure| Response::Error(failure.into_response(id)));
        self.counters.count(&answer);
        answer
    }

    /// Appends several requests in one transaction, as they are when they wait for the writer together.
    pub fn append_blocking(
        &self,
        principal: &Principal,
        space: &Id,
        requests: Vec<AppendRequest>,
    ) -> Vec<Response> {
        let ids: Vec<_> = requests.iter().map(|request| request.request_id.clone()).collect();
        let mut batch = Vec::new();
        let prepared: Vec<_> = requests
            .into_iter()
            .map(|request| self.prepare(principal, space, request).map(|checked| batch.push(checked)))
            .collect();
        // Where all are refused there is nothing to write, and no space to make for it.
        let open = if batch.is_empty() { Ok(None) } else { self.cache.get_to_append(space).map(Some) };
        let (outcomes, announcement) = match open {
            Ok(None) => (Vec::new(), None),
            Ok(Some(open)) => {
                let (outcomes, announcement) = open.append(&batch);
                (outcomes, Some((open, announcement)))
            }
            Err(failure) => {
                let failure = failure.into_response(ids.first().cloned().unwrap_or_default());
                return ids
                    .into_iter()
                    .map(|request_id| {
                        Response::Error(alluvium_feed_protocol::ErrorResponse {
                            request_id,
                            ..failure.clone()
                        })
                    })
                    .collect();
            }
        };
        let mut outcomes = outcomes.into_iter();
        let missing = || Err(Failure::refused(ErrorCode::Internal, "an append without an outcome"));
        let answers = ids.into_iter().zip(prepared).map(|(id, prepared)| {
            let outcome = prepared.and_then(|()| outcomes.next().unwrap_or_else(missing));
            self.told(outcome.map(Response::Append), id)
        });
        let answers = answers.collect();
        if let Some((open, announcement)) = announcement {
            open.announce(announcement);
        }
        answers
    }

    /// Carries out a request without blocking the calling task. Appends that wait together become one transaction; a
    /// query that may wait does, if there is nothing to give.
    pub async fn handle(
        self: &Arc<Self>,
        principal: &Principal,
        space: &Id,
        request: Request,
        listener: Option<&Arc<Listener>>,
    ) -> Response {
        let id = request.request_id().clone();
        let outcome = match request {
            Request::Append(append) => self.append(principal, space, append).await,
            Request::Query(query) if query.wait_ms.is_some() => self.wait(principal, space, query).await,
            request => self.on_blocking_thread(principal, space, request, listener).await,
        };
        self.told(outcome, id)
    }

    async fn on_blocking_thread(
        self: &Arc<Self>,
        principal: &Principal,
        space: &Id,
        request: Request,
        listener: Option<&Arc<Listener>>,
    ) -> Result<Response, Failure> {
        let (service, principal, space) = (Arc::clone(self), principal.clone(), space.clone());
        let listener = listener.cloned();
        blocking(move || service.carry_out(&principal, &space, &request, listener.as_ref())).await?
    }

    async fn append(
        self: &Arc<Self>,
        principal: &Principal,
        space: &Id,
        request: AppendRequest,
    ) -> Result<Response, Failure> {
        let checked = self.prepare(principal, space, request)?;
        let (service, id) = (Arc::clone(self), space.clone());
        let open = blocking(move || service.cache.get_to_append(&id)).await??;
        let (answer, is_first) = open.queue.push(checked, &self.options)?;
        if is_first {
            let options = Arc::clone(&self.options);
            drop(tokio::task::spawn_blocking(move || queue::drain(&open, &options)));
        }
        let outcome = answer.await;
        let lost = |_| Failure::refused(ErrorCode::Internal, "the writer ended");
        outcome.map_err(lost)?.map(Response::Append)
    }

    async fn wait(
        self: &Arc<Self>,
        principal: &Principal,
        space: &Id,
        request: QueryRequest,
    ) -> Result<Response, Failure> {
        let wait_ms = request.wait_ms.unwrap_or(0).min(self.options.wait_ms_max);
        let (service, id) = (Arc::clone(self), space.clone());
        let asked = Request::Query(request.clone());
        principal.check(space, &asked)?;
        named_alike(space, &asked)?;
        let open = blocking(move || service.cache.get(&id)).await??;
        let waiting = Waiting::new(&open);
        let looking = async {
            loop {
                let (open, principal, request) = (Arc::clone(&open), principal.clone(), request.clone());
                let (page, interest) = blocking(move || open.look_or_wait(&principal, &request)).await??;
                if page.reset || page.has_more || !page.blocks.is_empty() {
                    return Ok(Response::Query(page));
                }
                waiting.news(interest).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_millis(wait_ms), looking).await;
        match waited {
            Ok(answer) => answer,
            Err(_elapsed) => self.on_blocking_thread(principal, space, Request::Query(request), None).await,
        }
    }

    /// Everything but appends.
    fn carry_out(
        &self,
        principal: &Principal,
        space: &Id,
        request: &Request,
        listener: Option<&Arc<Listener>>,
    ) -> Result<Response, Failure> {
        if let Request::Hello(hello) = request {
            return self.welcome(principal, hello).map(Response::Welcome);
        }
        principal.check(space, request)?;
        named_alike(space, request)?;
        let open = self.cache.get(space)?;
        match request {
            Request::Query(query) => open.query(principal, query).map(Response::Query),
            Request::Subscribe(subscribe) => {
                open.subscribe(principal, subscribe, listener).map(Response::Subscribe)
            }
            Request::Unsubscribe(unsubscribe) => {
                open.unsubscribe(principal, unsubscribe)?;
                let request_id = unsubscribe.request_id.clone();
                Ok(Response::Unsubscribe(UnsubscribeResponse { request_id, space_id: None }))
            }
            Request::ListFeeds(list) => open.list(principal, list).map(Response::ListFeeds),
            Request::Hello(_) | Request::Append(_) => {
                Err(Failure::refused(ErrorCode::Internal, "a request that is handled elsewhere"))
            }
        }
    }

    fn prepare(&self, principal: &Principal, space: &Id, request: AppendRequest) -> Result<Checked, Failure> {
        let request = Request::Append(request);
        principal.check(space, &request)?;
        named_alike(space, &request)?;
        if self.options.room.refuses() {
            return Err(Failure::short());
        }
        let Request::Append(request) = request else {
            return Err(Failure::refused(ErrorCode::Internal, "an append that is none"));
        };
        Checked::new(space, principal, request, &self.options.limits)
    }

    fn welcome(&self, principal: &Principal, hello: &Hello) -> Result<Welcome, Failure> {
        if hello.protocol.is_some_and(|protocol| protocol != PROTOCOL) {
            let message = format!("this server speaks version {PROTOCOL} of the protocol");
            return Err(Failure::refused(ErrorCode::BadRequest, message));
        }
        let mut spaces = Vec::new();
        for id in hello.spaces.as_deref().unwrap_or_default() {
            if principal.may_use(id)
                && let Ok(space) = self.cache.existing(id)
            {
                match space.state() {
                    // As one that isn't there: the other spaces of a connection have nothing to do with it.
                    Err(Failure::Refused(ErrorCode::SpaceDeleted, _)) => {}
                    state => spaces.push(state?),
                }
            }
        }
        let limits = self.options.limits.clone();
        let request_id = hello.request_id.clone();
        let server_id = Some(self.id.clone());
        Ok(Welcome { request_id, protocol: PROTOCOL, server_id, limits, heartbeat_ms: None, spaces })
    }

    /// What follows a position in a subscription, for a listener that is sent blocks; `None` if that is more than is sent
    /// unasked, or can't be told: a hint has to do then. Blocks meanwhile.
    pub fn pushed_blocking(
        &self,
        principal: &Principal,
        space: &Id,
        subscription: &Id,
        after: u64,
    ) -> Option<BlocksPushed> {
        let query = QueryRequest {
            cursor: Some(after),
            subscription_id: Some(subscription.clone()),
            limit: Some(PUSHED_BLOCKS_MAX),
            max_bytes: Some(PUSHED_BYTES_MAX as u64),
            ..QueryRequest::default()
        };
        let answer = self.carry_out(principal, space, &Request::Query(query), None);
        let Ok(Response::Query(page)) = answer else { return None };
        let is_whole = !page.has_more && page.pruned_below.is_none();
        (is_whole && page.next_cursor > after).then(|| BlocksPushed {
            space_id: space.clone(),
            subscription_id: subscription.clone(),
            after,
            blocks: page.blocks,
            position: page.next_cursor,
            server_token: page.server_token,
            check: page.check,
        })
    }

    /// A space that there is.
    pub(crate) fn existing(&self, space: &Id) -> Result<Arc<Space>, Failure> {
        self.cache.existing(space)
    }

    /// Counts blocks that were pruned.
    pub(crate) fn note_pruned(&self, blocks: u64) {
        self.counters.pruned(blocks);
    }

    /// What all spaces take, the largest first. Looks at the files of each: blocks for a while if there are many.
    pub fn survey(&self) -> std::io::Result<Vec<SurveyedSpace>> {
        self.cache.survey()
    }

    /// The space in a folder that [`survey`](Self::survey) has found; none if that cannot be read now. Blocks.
    pub fn space_in(&self, folder: &str) -> Option<ListedSpace> {
        self.cache.space_in(folder)
    }

    /// Removes expired subscriptions and brings guards up to date. To be called once a minute.
    pub fn sweep(&self) {
        if let Err(failure) = self.cache.sweep_ground() {
            tracing::warn!(?failure, "spaces that are not there were not swept");
        }
        for space in self.cache.all() {
            if let Err(failure) = space.sweep() {
                tracing::warn!(?failure, "a space was not swept");
            }
        }
    }

    /// Notes the state of every open space, so that the next start can tell whether anything was lost. Call it when no
    /// more requests come.
    pub fn close(&self) {
        for space in self.cache.all() {
            if let Err(failure) = space.note_now() {
                tracing::warn!(?failure, "a space was not noted");
            }
        }
    }
}

/// A request may name the space that its path or connection names already, but no other.
fn named_alike(space: &Id, request: &Request) -> Result<(), Failure> {
    if request.space_id().is_some_and(|named| named != space) {
        return Err(Failure::refused(ErrorCode::BadRequest, "`spaceId` and path name different spaces"));
    }
    Ok(())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    let ended = |_| Failure::refused(ErrorCode::Internal, "the work was not finished");
    tokio::task::spawn_blocking(work).await.map_err(ended)
}
