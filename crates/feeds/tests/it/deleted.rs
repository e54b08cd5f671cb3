//! A space that an operator deletes: nobody gets anything of it or into it any more, and the disk has its room back.

use alluvium_feed_protocol::{
    ErrorCode, Hello, QueryRequest, Request, RequestId, Response, SubscribeRequest,
};
use alluvium_feeds::{DeleteError, Deleted, Listener, Principal};

use crate::damage::faults;
use crate::support::{Authority, NOW_MS, append, block, id};

/// Blocks of one append.
const AT_ONCE: u64 = 500;

/// With so many blocks in two feeds.
fn filled(blocks: u64, data: &str) -> Authority {
    let authority = Authority::new();
    for from in (0..blocks).step_by(usize::try_from(AT_ONCE).unwrap()) {
        let feed = ["f", "g"][usize::from(from >= blocks / 2)];
        let until = blocks.min(from + AT_ONCE);
        authority.append(append((from..until).map(|sequence| block(feed, "a", sequence, data)).collect()));
    }
    authority
}

/// Since when each space is deleted, by a list of all of them.
fn listed(authority: &Authority) -> Vec<(String, Option<u64>)> {
    let service = authority.service();
    let spaces = service.survey().unwrap();
    let listed = spaces.iter().map(|space| service.space_in(&space.folder).unwrap());
    listed.map(|space| (space.id.to_string(), space.deleted_at)).collect()
}

/// What the files of all spaces take.
fn bytes(authority: &Authority) -> u64 {
    authority.service().survey().unwrap().iter().map(|space| space.bytes).sum()
}

fn stopped(authority: &mut Authority) {
    authority.service().close();
    authority.service = None;
}

#[test]
fn a_list_of_spaces_says_which_are_deleted_and_since_when() {
    let mut authority = filled(3, "x");
    assert_eq!(listed(&authority), [("space".to_owned(), None)]);
    authority.service().delete_space(&id("space"), u64::MAX).unwrap();
    for _ in 0..2 {
        assert_eq!(listed(&authority), [("space".to_owned(), Some(NOW_MS))]);
        authority.clock.advance_ms(1000);
        authority.service().delete_space(&id("space"), u64::MAX).unwrap();
        authority.restart();
    }
}

#[test]
fn a_deleted_space_says_so() {
    let mut authority = filled(3, "x");
    assert_eq!(authority.service().delete_space(&id("space"), u64::MAX).unwrap().blocks, 3);
    for _ in 0..2 {
        authority.refused(Request::Query(QueryRequest::default()), ErrorCode::SpaceDeleted);
        let all = SubscribeRequest { all: Some(true), ..SubscribeRequest::default() };
        authority.refused(Request::Subscribe(all), ErrorCode::SpaceDeleted);
        let request = Request::Append(append(vec![block("f", "a", 0, "x")]));
        authority.refused(request, ErrorCode::SpaceDeleted);
        authority.restart();
    }
    assert_eq!(authority.service().delete_space(&id("none"), u64::MAX), Err(DeleteError::SpaceNotFound));
    assert_eq!(authority.service().look_at_deletion(&id("none")), Err(DeleteError::SpaceNotFound));
}

#[test]
fn a_greeting_that_names_a_deleted_space_is_answered_for_the_others() {
    let authority = filled(3, "x");
    let other = Request::Append(append(vec![block("f", "a", 0, "x")]));
    authority.service().handle_blocking(&Principal::anyone(), &id("other"), other, None);
    authority.service().delete_space(&id("space"), u64::MAX).unwrap();
    let hello = Hello { spaces: Some(vec![id("space"), id("other")]), ..Hello::default() };
    let Response::Welcome(welcome) = authority.handle(Request::Hello(hello)) else { panic!() };
    let named: Vec<_> = welcome.spaces.iter().map(|space| space.space_id.as_str()).collect();
    assert_eq!(named, ["other"]);
}

#[test]
fn the_disk_has_back_what_a_deleted_space_took() {
    let mut authority = filled(40, &"x".repeat(90_000));
    let before = bytes(&authority);
    let found = authority.service().look_at_deletion(&id("space")).unwrap();
    assert_eq!(found, Deleted { blocks: 40, bytes: 3_600_000, has_more: false });
    assert_eq!(authority.after(0).max_position, 40, "a look is only a look");
    assert_eq!(authority.service().delete_space(&id("space"), 1), Ok(found));
    let after = bytes(&authority);
    assert!(before > 3_600_000 && after < 300_000, "{before} and {after} bytes");
    assert_eq!(authority.service().look_at_deletion(&id("space")), Ok(Deleted::default()));
    assert_eq!(
        authority.service().delete_space(&id("space"), u64::MAX),
        Ok(Deleted::default()),
        "once more is no trouble"
    );
    stopped(&mut authority);
    assert_eq!(faults(&authority), Vec::<String>::new());
}

#[test]
fn a_deletion_that_is_cut_short_goes_on_where_it_was() {
    let mut authority = filled(5200, "xy");
    let began = authority.service().delete_space(&id("space"), 1).unwrap();
    assert_eq!(began, Deleted { blocks: 5000, bytes: 10_000, has_more: true });
    authority.refused(Request::Query(QueryRequest::default()), ErrorCode::SpaceDeleted);
    stopped(&mut authority);
    assert_eq!(faults(&authority), Vec::<String>::new());
    authority.start();
    let left = Deleted { blocks: 200, bytes: 400, has_more: false };
    assert_eq!(authority.service().look_at_deletion(&id("space")), Ok(left));
    assert_eq!(authority.service().delete_space(&id("space"), 1), Ok(left));
}

#[test]
fn who_listens_to_a_space_that_is_deleted_is_made_to_ask() {
    let authority = filled(3, "x");
    let listener = Listener::new();
    let feeds = SubscribeRequest { feed_ids: Some(vec![id("f")]), ..SubscribeRequest::default() };
    let subscribe = |listener| {
        let answer = authority.handle_as(&Principal::anyone(), Request::Subscribe(feeds.clone()), listener);
        let Response::Subscribe(answer) = answer else { panic!("{answer:?}") };
        answer.subscription_id
    };
    let subscription = subscribe(Some(&listener));
    subscribe(None);
    assert!(listener.take().is_empty());
    authority.service().delete_space(&id("space"), u64::MAX).unwrap();
    let hints = listener.take();
    assert_eq!(hints.len(), 1);
    // Beyond what anybody has seen, so that nobody takes it for old.
    assert_eq!((&hints[0].subscription_id, hints[0].position, hints[0].count), (&subscription, 4, 0));
    let query = QueryRequest {
        request_id: RequestId::default(),
        subscription_id: Some(subscription),
        ..QueryRequest::default()
    };
    authority.refused(Request::Query(query), ErrorCode::SpaceDeleted);
    authority.service().delete_space(&id("space"), u64::MAX).unwrap();
    assert!(listener.take().is_empty(), "told once");
}
