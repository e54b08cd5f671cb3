//! What the tests of several modules make their inputs from.

use bytes::Bytes;
use proptest::prelude::*;

use crate::event::{Event, Kind, Row};

const COLLECTIONS: [&str; 4] =
    ["app.bsky.feed.post", "app.bsky.feed.like", "app.bsky.graph.follow", "com.example.thing"];

/// An event that follows from a number.
pub(crate) fn event(number: u64) -> Event {
    let kind = Kind::from_number(u8::try_from(number % 7 + 1).unwrap());
    let commit = kind.is_commit();
    let payload = if kind == Kind::Delete { Vec::new() } else { vec![0xa0; (number % 50) as usize + 1] };
    Event {
        witnessed_at: 1_783_000_000_000_000 + i64::try_from(number).unwrap() * 1000,
        indexed_at: if number.is_multiple_of(5) { 7 } else { 0 },
        kind,
        did: format!("did:plc:{:024}", number * number % 13),
        collection: if commit {
            COLLECTIONS[usize::try_from(number * 3 % 4).unwrap()].into()
        } else {
            String::new()
        },
        rkey: if commit { format!("rk{number}") } else { String::new() },
        rev: if commit || kind == Kind::Sync { format!("3m{number:011}") } else { String::new() },
        payload: Bytes::from(payload),
    }
}

/// The rows 1 to `count`.
pub(crate) fn rows(count: u64) -> Vec<Row> {
    (1..=count).map(|seq| Row { seq, event: event(seq) }).collect()
}

fn any_event() -> impl Strategy<Value = Event> {
    let kind = (1..=7_u8).prop_map(Kind::from_number);
    let times = (any::<i64>(), prop_oneof![Just(0_i64), any::<i64>()]);
    let collection = prop_oneof![Just(String::new()), "[a-c]\\.[a-c]\\.[a-c]", "\\PC{0,5}"];
    let names = ("did:[a-d]:[a-z]{0,3}|\\PC{0,6}", collection, "\\PC{0,8}", "[a-z0-9]{0,13}");
    (times, kind, names, proptest::collection::vec(any::<u8>(), 0..60)).prop_map(
        |((witnessed_at, indexed_at), kind, (did, collection, rkey, rev), payload)| Event {
            witnessed_at,
            indexed_at,
            kind,
            did,
            collection,
            rkey,
            rev,
            payload: payload.into(),
        },
    )
}

/// Any rows, with gaps in their numbers.
pub(crate) fn any_rows(max: usize) -> impl Strategy<Value = Vec<Row>> {
    proptest::collection::vec((1..4_u64, any_event()), 0..max).prop_map(|events| {
        let mut seq = 0;
        let number = |(gap, event)| {
            seq += gap;
            Row { seq, event }
        };
        events.into_iter().map(number).collect()
    })
}
