//! What the status says of a server that explains itself at length, has too much of something, or doesn't answer.

use std::sync::Arc;

use alluvium_env::sim::{ManualClock, SeededRandom};
use alluvium_env::{Env, RealDisk};
use alluvium_feed_protocol::{
    Encoding, ErrorCode, ErrorResponse, From, Id, ListFeedsResponse, Operation, Request, RequestId, Response,
    Selector, SubscribeResponse,
};
use alluvium_feed_store::Durability;
use tempfile::TempDir;

use crate::{CallError, CallErrorKind, Options, Replica, SyncStatus};

/// A reason may be so long, in characters, with the mark that something is missing.
const LONG: usize = 1001;

fn id(text: &str) -> Id {
    Id::parse(text).unwrap()
}

/// A replica of one space with the server that the test is.
struct Told {
    replica: Replica,
    clock: Arc<ManualClock>,
    _folder: TempDir,
}

impl Told {
    fn new(options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let env = Env {
            clock: Arc::clone(&clock) as _,
            random: Arc::new(SeededRandom::new(7)),
            disk: Arc::new(RealDisk),
        };
        let options = Options { durability: Durability::Process, ..options };
        let mut replica = Replica::open(&folder.path().join("r.sqlite"), None, env, options).unwrap();
        replica.connected(&id("s"));
        Self { replica, clock, _folder: folder }
    }

    /// The next request, which is of this kind.
    fn asked(&mut self, operation: Operation) -> Request {
        loop {
            let wake_ms = self.replica.wake_ms(&id("s")).expect("there is something to ask");
            self.clock.advance_ms(wake_ms.saturating_sub(self.replica.now_ms()));
            if let Some(request) = self.replica.next_request(&id("s")).unwrap() {
                assert_eq!(request.operation(), operation);
                return request;
            }
        }
    }

    /// Answers the next request, which is of this kind.
    fn answer(&mut self, operation: Operation, response: impl FnOnce(RequestId) -> Response) {
        let request = self.asked(operation);
        self.replica.answered(&id("s"), response(request.request_id().clone())).unwrap();
    }

    /// The next request, which is of this kind, has no answer.
    fn fail(&mut self, operation: Operation, error: &CallError) -> Request {
        let request = self.asked(operation);
        self.replica.failed(&id("s"), request.request_id(), error).unwrap();
        request
    }

    fn refuse(&mut self, operation: Operation, code: ErrorCode, more: impl FnOnce(&mut ErrorResponse)) {
        self.answer(operation, |request_id| {
            let mut error = ErrorResponse::new(request_id, code, "ü".repeat(5 * LONG));
            more(&mut error);
            Response::Error(error)
        });
    }

    fn status(&self) -> SyncStatus {
        self.replica.status(&id("s")).unwrap()
    }
}

fn subscribed(request_id: RequestId) -> Response {
    let json = br#"{"requestId":"r","subscriptionId":"own","expiresAt":0,"maxPosition":0,"serverToken":"t"}"#;
    let answer: SubscribeResponse = Encoding::Json.decode(json).unwrap();
    Response::Subscribe(SubscribeResponse { request_id, ..answer })
}

/// A page of a list of feeds.
fn listed(request_id: RequestId, feeds: &[&str], next_after: Option<&str>) -> Response {
    let info = |feed: &&str| Encoding::Json.decode(format!(r#"{{"feedId":"{feed}"}}"#).as_bytes()).unwrap();
    let feeds = feeds.iter().map(info).collect();
    Response::ListFeeds(ListFeedsResponse {
        request_id,
        space_id: None,
        feeds,
        next_after: next_after.map(id),
    })
}

/// A reason goes on as it began for as long as it may, and no longer.
#[track_caller]
fn assert_cut(reason: Option<&str>, beginning: &str) {
    let rest = reason.and_then(|reason| reason.strip_prefix(beginning)).unwrap_or_default();
    let end: Vec<char> = rest.chars().skip(LONG - 2).collect();
    assert!(end == ['ü', '…'], "{} characters", reason.unwrap_or_default().chars().count());
}

#[test]
fn what_a_server_explains_is_kept_up_to_a_length() {
    let mut told = Told::new(Options::default());
    for feed in ["f", "g"] {
        told.replica.replicate(&id("s"), &id(feed), From::Beginning).unwrap();
    }
    told.fail(Operation::Subscribe, &CallError::new(CallErrorKind::Closed, "ü".repeat(5 * LONG)));
    assert_cut(told.status().last_error.as_deref(), "");
    told.refuse(Operation::Subscribe, ErrorCode::Overloaded, |_| {});
    assert_cut(told.status().last_error.as_deref(), "");
    told.answer(Operation::Subscribe, subscribed);
    told.refuse(Operation::Query, ErrorCode::ReadFailed, |error| error.feed_id = Some(id("f")));
    assert_cut(told.status().last_error.as_deref(), "feed `f` is held up: ");
}

#[test]
fn where_another_authority_is_said_to_be_is_kept_up_to_a_length() {
    let mut told = Told::new(Options::default());
    told.replica.replicate(&id("s"), &id("f"), From::Beginning).unwrap();
    told.refuse(Operation::Subscribe, ErrorCode::NotAuthority, |error| {
        error.message = "there".to_owned();
        error.url = Some("ü".repeat(5 * LONG));
    });
    let stopped = told.status().stopped.unwrap();
    assert!(stopped.starts_with("not_authority: there (üü"), "{}", stopped.len());
    assert_cut(Some(&stopped), "");
}

#[test]
fn what_is_said_of_a_refused_block_is_kept_up_to_a_length() {
    let mut told = Told::new(Options { pulls: false, ..Options::default() });
    told.replica.append(&id("s"), &id("f"), None, b"x".to_vec()).unwrap();
    told.refuse(Operation::Append, ErrorCode::BadRequest, |_| {});
    let refused = told.status().refused;
    assert_eq!(refused.len(), 1);
    assert_cut(Some(&refused[0].reason), "");
}

#[test]
fn rules_pick_so_many_feeds_and_the_status_says_that_there_are_more() {
    let options = Options { picked_feeds_max: 2, pushes: false, ..Options::default() };
    let mut told = Told::new(options);
    told.replica.select(&id("s"), &Selector::All, From::Beginning).unwrap();
    told.answer(Operation::Subscribe, subscribed);
    // Over two pages: the first has as many as may be, the second one more.
    told.answer(Operation::ListFeeds, |request| listed(request, &["a", "b"], Some("b")));
    assert_eq!(told.status().last_error, None);
    told.answer(Operation::ListFeeds, |request| listed(request, &["c"], None));
    let too_many = Some("rules pick more feeds than may be replicated because of them");
    let replicated = |told: &Told| -> Vec<Id> {
        told.replica.replicated(&id("s")).unwrap().into_iter().map(|(feed, _)| feed).collect()
    };
    assert_eq!((told.status().last_error.as_deref(), replicated(&told)), (too_many, vec![id("a"), id("b")]));
    // What is asked for by name is no matter of rules.
    told.replica.replicate(&id("s"), &id("c"), From::Beginning).unwrap();
    assert_eq!(replicated(&told), [id("a"), id("b"), id("c")]);
    // Other rules may pick fewer.
    told.replica.unselect(&id("s"), &Selector::All).unwrap();
    assert_eq!((told.status().last_error, replicated(&told)), (None, vec![id("c")]));
}

#[test]
fn after_a_list_without_an_end_something_else_is_asked_and_the_status_says_so() {
    let mut told = Told::new(Options { pages_at_once_max: 3, pushes: false, ..Options::default() });
    told.replica.select(&id("s"), &Selector::Prefix("x".to_owned()), From::Beginning).unwrap();
    told.answer(Operation::Subscribe, subscribed);
    let began_ms = told.replica.now_ms();
    for page in ["a", "b", "c"] {
        assert_eq!(told.status().last_error, None, "before page {page}");
        told.answer(Operation::ListFeeds, |request| listed(request, &[], Some(page)));
        assert_eq!(told.replica.now_ms(), began_ms, "page {page}");
    }
    assert_eq!(told.status().last_error.as_deref(), Some("a list without an end"));
    // Another loop goes on meanwhile.
    told.asked(Operation::Query);
    assert_eq!(told.replica.now_ms(), began_ms);
}

#[test]
fn the_kind_of_what_went_wrong_is_told_until_there_is_an_answer_of_whatever_kind() {
    let mut told = Told::new(Options::default());
    told.replica.replicate(&id("s"), &id("f"), From::Beginning).unwrap();
    for kind in [CallErrorKind::Unreachable, CallErrorKind::Status(500)] {
        told.fail(Operation::Subscribe, &CallError::new(kind, "so it is"));
        let status = told.status();
        assert_eq!((status.last_failure, status.last_error.as_deref()), (Some(kind), Some("so it is")));
    }
    told.refuse(Operation::Subscribe, ErrorCode::Overloaded, |_| {});
    assert!(told.status().last_failure.is_none() && told.status().last_error.is_some());
}

#[test]
fn of_a_page_that_is_too_large_half_is_asked_for_until_there_is_another_connection() {
    let mut told = Told::new(Options { page_blocks: 5, pushes: false, ..Options::default() });
    told.replica.replicate(&id("s"), &id("f"), From::Beginning).unwrap();
    told.answer(Operation::Subscribe, subscribed);
    let asked = |request: &Request| match request {
        Request::Query(query) => query.limit,
        _ => None,
    };
    for (kind, limit) in [
        (CallErrorKind::Closed, 5),
        (CallErrorKind::TooLarge, 5),
        (CallErrorKind::TooLarge, 2),
        (CallErrorKind::Timeout, 1),
        (CallErrorKind::TooLarge, 1),
        (CallErrorKind::Nonsense, 1),
    ] {
        let request = told.fail(Operation::Query, &CallError::new(kind, "so it is"));
        assert_eq!(asked(&request), Some(limit), "{kind:?}");
    }
    told.replica.connected(&id("s"));
    assert_eq!(told.status().last_failure, None);
    told.answer(Operation::Subscribe, subscribed);
    assert_eq!(asked(&told.asked(Operation::Query)), Some(5));
}

#[test]
fn a_push_whose_answer_is_too_large_is_repeated_as_it_is() {
    let mut told = Told::new(Options { pulls: false, ..Options::default() });
    told.replica.append_all(&id("s"), &id("f"), None, vec![b"x".to_vec(), b"y".to_vec()]).unwrap();
    for round in 0..5 {
        let error = CallError::new(CallErrorKind::TooLarge, "so it is");
        let request = told.fail(Operation::Append, &error);
        assert!(matches!(&request, Request::Append(push) if push.blocks.len() == 2), "round {round}");
    }
    let status = told.status();
    assert_eq!((status.blocks_to_push, status.blocks_refused), (2, 0));
}
