use alluvium_atproto::cbor::encode;
use alluvium_atproto::json::from_json;
use alluvium_jss::Event;
use bytes::Bytes;

use super::*;

const TIME: i64 = 1_783_175_888_085_434;

fn event(kind: Kind, payload: &str) -> Event {
    let is_commit = kind.is_commit();
    let part = |text: &str| if is_commit { text.to_owned() } else { String::new() };
    let payload = if payload.is_empty() {
        Bytes::new()
    } else {
        Bytes::from(encode(&from_json(payload.as_bytes()).expect("JSON of the data model")))
    };
    Event {
        witnessed_at: TIME,
        indexed_at: 0,
        kind,
        did: "did:web:a.example".to_owned(),
        collection: part("app.example.note"),
        rkey: part("k"),
        rev: part("3mptbypluud2a"),
        payload,
    }
}

fn text(wire: Wire, event: &Event) -> String {
    wire.render(&event.at(5)).expect("it can be shown").expect("it is shown")
}

const NOTE: &str = r#"{"b":{"$bytes":"AQ"},"$type":"app.example.note","a":[null,true,-3],"t":"<\u2028é>"}"#;
const NOTE_TEXT: &str =
    r#"{"$type":"app.example.note","a":[null,true,-3],"b":{"$bytes":"AQ"},"t":"\u003c\u2028é\u003e"}"#;

#[test]
fn a_record_on_each_wire() {
    let event = event(Kind::Create, NOTE);
    let cid = event.cid().expect("a record has one");
    let base64 = STANDARD.encode(&event.payload);
    let commit = format!(
        r#"{{"rev":"3mptbypluud2a","operation":"create","collection":"app.example.note","rkey":"k","record":{NOTE_TEXT},"cid":"{cid}""#
    );
    assert_eq!(
        text(Wire::V1, &event),
        format!(
            r#"{{"did":"did:web:a.example","time_us":{TIME},"cursor":5,"kind":"commit","commit":{commit}}}}}"#
        )
    );
    assert_eq!(
        text(Wire::V2, &event),
        format!(
            r#"{{"did":"did:web:a.example","time_us":{TIME},"cursor":5,"kind":"commit","seq":5,"commit":{commit},"record_cbor":"{base64}"}}}}"#
        )
    );
    assert_eq!(
        text(Wire::Events, &event),
        format!(
            r#"{{"$type":"message","payload":{{"$type":"network.bsky.jetstream.subscribeEvents#commit","cid":"{cid}","collection":"app.example.note","did":"did:web:a.example","operation":"create","record":{NOTE_TEXT},"rev":"3mptbypluud2a","rkey":"k","seq":5,"time":"2026-07-04T14:38:08.085434Z"}}}}"#
        )
    );
}

#[test]
fn a_deletion_has_no_record() {
    let event = event(Kind::Delete, "");
    for wire in [Wire::V1, Wire::V2, Wire::Events] {
        let text = text(wire, &event);
        assert!(text.contains(r#""operation":"delete""#), "{text}");
        for absent in ["record", "cid"] {
            assert!(!text.contains(&format!("\"{absent}")), "{text}");
        }
    }
}

#[test]
fn records_of_a_replaced_repository_are_creations_but_not_on_the_oldest_wire() {
    let event = event(Kind::CreateResync, NOTE);
    assert_eq!(Wire::V1.render(&event.at(5)), Ok(None));
    for wire in [Wire::V2, Wire::Events] {
        assert!(text(wire, &event).contains(r#""operation":"create""#));
    }
}

#[test]
fn a_replacement_of_a_repository_has_its_blocks_in_the_form_of_the_wire() {
    let body =
        r#"{"did":"did:web:a.example","rev":"3mptbypluud2a","seq":7,"time":"t","blocks":{"$bytes":"AQ"}}"#;
    let with_blocks = event(Kind::Sync, body);
    assert_eq!(Wire::V1.render(&with_blocks.at(5)), Ok(None));
    assert!(text(Wire::V2, &with_blocks).ends_with(
        r#""kind":"sync","seq":5,"sync":{"blocks":"AQ==","did":"did:web:a.example","rev":"3mptbypluud2a","seq":7,"time":"t"}}"#
    ));
    assert!(
        text(Wire::Events, &with_blocks)
            .contains(r#"#sync","did":"did:web:a.example","seq":5,"sync":{"blocks":{"$bytes":"AQ"},"did""#)
    );
    let none = r#"{"blocks":null,"rev":"r"}"#;
    assert!(text(Wire::V2, &event(Kind::Sync, none)).contains(r#""sync":{"blocks":"","rev":"r"}"#));
}

#[test]
fn an_imported_time_is_shown_before_the_time_of_arrival() {
    let event = Event { indexed_at: 0x1000, ..event(Kind::Delete, "") };
    assert!(text(Wire::V1, &event).contains(r#""time_us":4096,"#));
    assert!(text(Wire::Events, &event).contains(r#""time":"1970-01-01T00:00:00.004096Z""#));
}

#[test]
fn what_cannot_be_read_is_an_error_and_later_kinds_are_passed_over() {
    let broken = Event { payload: Bytes::from_static(b"\xff"), ..event(Kind::Create, NOTE) };
    let list = Event { payload: Bytes::from_static(b"\x80"), ..event(Kind::Account, "{}") };
    let deep = Event { payload: Bytes::from(vec![0x81; 4096]), ..event(Kind::Create, NOTE) };
    let late = Event { witnessed_at: i64::MAX, ..event(Kind::Create, NOTE) };
    for wire in [Wire::V1, Wire::V2, Wire::Events] {
        assert!(matches!(wire.render(&broken.at(5)), Err(Unrenderable::Payload(_))));
        assert_eq!(wire.render(&list.at(5)), Err(Unrenderable::Shape));
        assert!(matches!(wire.render(&deep.at(5)), Err(Unrenderable::Payload(_))));
        assert_eq!(wire.render(&event(Kind::Unknown(9), "{}").at(5)), Ok(None));
    }
    assert_eq!(Wire::Events.render(&late.at(5)), Err(Unrenderable::Time(i64::MAX)));
}

#[test]
fn notices_have_the_form_of_their_wire() {
    assert_eq!(
        info("OutdatedCursor", "begins at \"5\""),
        r#"{"$type":"message","payload":{"$type":"network.bsky.jetstream.subscribeEvents#info","message":"begins at \"5\"","name":"OutdatedCursor"}}"#
    );
    assert_eq!(
        error("ConsumerTooSlow", "reconnect with cursor=5"),
        r#"{"$type":"error","error":"ConsumerTooSlow","message":"reconnect with cursor=5"}"#
    );
}
