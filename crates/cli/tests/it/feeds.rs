//! Feeds over the binary: what was acknowledged is there after `kill -9`, and nothing is doubled.

use super::support::{Server, call};

const JSON: &str = "content-type: application/json";

fn ask(server: &Server, operation: &str, message: &str) -> serde_json::Value {
    let target = format!("/feeds/v1/spaces/demo/{operation}");
    let answer = call(server.address(), "POST", &target, &[JSON], message.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

fn block(sequence: usize) -> String {
    format!(
        r#"{{"requestId":"{sequence}","namespace":"notes","blocks":[{{"feedId":"f","actorId":"a","sequence":{sequence},"data":"AQID"}}]}}"#
    )
}

#[test]
fn appended_blocks_survive_a_kill_and_a_repeated_append_changes_nothing() {
    let mut server = Server::start();
    let mut token = None;
    for sequence in 0..6 {
        let answer = ask(&server, "append", &block(sequence));
        assert_eq!(answer["positions"], serde_json::json!([sequence + 1]));
        assert_eq!(*token.get_or_insert(answer["serverToken"].clone()), answer["serverToken"]);
        if sequence % 2 == 0 {
            server.kill();
            server.restart();
            // The answer may have been lost on the way; the client asks again.
            assert_eq!(
                ask(&server, "append", &block(sequence))["positions"],
                serde_json::json!([sequence + 1])
            );
        }
    }
    let page = ask(&server, "query", r#"{"cursor":0}"#);
    assert_eq!(page["blocks"].as_array().unwrap().len(), 6);
    let stream = call(server.address(), "GET", "/feeds/v1/spaces/demo/streams/f?offset=-1", &[], b"");
    let messages: Vec<serde_json::Value> = serde_json::from_slice(&stream.body).unwrap();
    assert_eq!(messages.len(), 6);
}

#[test]
fn a_server_without_feeds_has_nothing_there() {
    let server = Server::start_with("--feeds no");
    let answer = call(server.address(), "POST", "/feeds/v1/spaces/demo/feeds", &[JSON], b"{}");
    assert_eq!((answer.status, answer.code()), (404, "no_such_resource".to_owned()));
    assert!(!server.data().join("feeds").exists());
}
