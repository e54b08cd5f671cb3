//! The whole of it with real threads: appends wake webhooks, and a claim sees what was appended just before.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use alluvium_engine::{AppendRequest, CreateRequest, Engine};
use alluvium_env::Env;
use alluvium_protocol::subscription::Config;
use alluvium_protocol::{ContentType, StreamPath};
use alluvium_subscriptions::{
    Answer, Core, Delivery, Options, Outcome, Refusal, Request, Service, Transport, What,
};
use bytes::Bytes;
use serde_json::Value;

/// Hands each webhook to the test, and says that it is done.
#[derive(Debug)]
struct Tell(std::sync::Mutex<Sender<Value>>);

impl Transport for Tell {
    fn send(&self, delivery: &Delivery) -> Outcome {
        let body = serde_json::from_slice(&delivery.body).unwrap();
        drop(self.0.lock().unwrap().send(body));
        Outcome::Accepted { done: true }
    }
}

async fn put(engine: &Engine, path: &str) {
    let path = StreamPath::parse_decoded(path).unwrap();
    let body = Bytes::from_static(b"x");
    if engine.end_of(&path).is_some() {
        let content_type = Some(ContentType::DEFAULT);
        engine.append(&path, AppendRequest { content_type, body, ..AppendRequest::default() }).await.unwrap();
        return;
    }
    let request = CreateRequest { body, ..CreateRequest::default() };
    engine.create(&path, request).await.unwrap();
}

fn about(id: &str, what: What) -> Request {
    Request::About { id: id.to_owned(), what }
}

fn make(document: &str) -> What {
    let config = Config::parse(document.as_bytes()).unwrap();
    What::Put { config: Box::new(config), origin: "http://h".to_owned() }
}

#[tokio::test]
async fn an_append_wakes_and_a_claim_sees_what_was_appended_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = alluvium_engine::Options::new(Arc::new(|fault| panic!("{fault}")));
    options.shards = 2;
    options.segment_bytes = 1024 * 1024;
    options.limits.append_bytes_max = 256 * 1024;
    let engine = Engine::open(Env::real(), dir.path(), options).unwrap();
    let core = Core::open(engine.clone(), Env::real(), Options::default()).unwrap();
    let (sender, told) = channel();
    let service = Service::start(core, Arc::new(Tell(sender.into()))).unwrap();
    let handle = service.handle();

    let hook = r#"{"type":"webhook","pattern":"e/*","webhook":{"url":"https://w.test/"}}"#;
    handle.ask(about("hook", make(hook))).await.unwrap();
    put(&engine, "e/a").await;
    let body = told.recv_timeout(Duration::from_secs(30)).unwrap();
    assert_eq!(body["streams"][0]["path"], "e/a");

    put(&engine, "w").await;
    let pull = r#"{"type":"pull-wake","pattern":"p/*","wake_stream":"w"}"#;
    handle.ask(about("pull", make(pull))).await.unwrap();
    for round in 0..50 {
        put(&engine, &format!("p/{}", round % 7)).await;
        let claim = What::Claim { worker: "w".to_owned() };
        let Ok(Answer::Json(_, body)) = handle.ask(about("pull", claim)).await else {
            panic!("round {round}")
        };
        let wake: Value = serde_json::from_slice(&body).unwrap();
        let request = serde_json::json!({
            "wake_id": wake["wake_id"], "generation": wake["generation"], "done": true,
            "acks": [{"stream": wake["streams"][0]["path"], "offset": wake["streams"][0]["tail_offset"]}],
        });
        let request =
            alluvium_protocol::subscription::WakeRequest::parse(request.to_string().as_bytes()).unwrap();
        let token = wake["token"].as_str().unwrap().to_owned();
        let ack = What::Ack { token, request, is_callback: false };
        let Ok(Answer::Json(_, body)) = handle.ask(about("pull", ack)).await else { panic!("round {round}") };
        assert_eq!(&body[..], br#"{"next_wake":false,"ok":true}"#);
    }
    assert_eq!(handle.counters().claims, 50);
    service.stop();
    assert_eq!(handle.ask(Request::Keys).await, Err(Refusal::Stopped));
    engine.shutdown();
}
