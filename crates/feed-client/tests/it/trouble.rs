//! What keeps a request from an answer has its kind, over either way.

use std::error::Error;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use alluvium_env::Env;
use alluvium_feed_client::{CallError, CallErrorKind, Credentials, Server, Transport, Way};
use alluvium_feed_protocol::{ListFeedsRequest, Request};

use crate::support::{Script, Site, id, json, response};

/// Why a request has no answer.
async fn trouble(server: Server) -> CallError {
    let way = Way::new(&server, &id("s"), Env::real()).expect("a server");
    way.call(&id("s"), Request::ListFeeds(ListFeedsRequest::default())).await.expect_err("no answer")
}

/// What kind of trouble there is with a server, over either way.
async fn kinds(server: impl Fn(&str) -> Server) -> [CallErrorKind; 2] {
    [trouble(server("http")).await.kind(), trouble(server("ws")).await.kind()]
}

/// What kind of trouble there is with a server that says this.
async fn kinds_where(said: &[u8]) -> [CallErrorKind; 2] {
    kinds(|scheme| Server::new(format!("{scheme}://{}", Script::start(vec![said.to_vec()]).address))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_something_else() {
    assert_eq!(kinds_where(b"").await, [CallErrorKind::Closed; 2]);
    let broken = response("500 Internal Server Error", "", "oh");
    assert_eq!(kinds_where(&broken).await, [CallErrorKind::Status(500); 2]);
    // An alert, as one that wants TLS sends it.
    assert_eq!(kinds_where(&[21, 3, 3, 0, 2, 2, 70]).await, [CallErrorKind::Tls; 2]);
    let elsewhere = r#"{"_tag":"Error","requestId":"","code":"not_authority","message":"m","url":"ftp://x"}"#;
    assert_eq!(kinds_where(&json("421 Misdirected Request", elsewhere)).await, [CallErrorKind::SentOn; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_nothing() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = silent.local_addr().unwrap();
    let at_once = Duration::from_millis(1);
    let impatient = |scheme: &str| Server {
        connect_timeout: at_once,
        call_timeout: at_once,
        ..Server::new(format!("{scheme}://{address}"))
    };
    assert_eq!(kinds(impatient).await, [CallErrorKind::Timeout; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_too_large() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::start(&folder, None);
    for server in [site.named(), site.socket()] {
        let error = trouble(Server { answer_bytes_max: 10, ..server }).await;
        assert_eq!(error.kind(), CallErrorKind::TooLarge, "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_cannot_be_sent() {
    let unfit = Credentials::Source(Arc::new(|| Some("a\nb".to_owned())));
    let server = |scheme: &str| Server {
        credentials: unfit.clone(),
        ..Server::new(format!("{scheme}://127.0.0.1:1"))
    };
    assert_eq!(kinds(server).await, [CallErrorKind::Token; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_there_and_the_system_says_so() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    for scheme in ["http", "ws"] {
        let error = trouble(Server::new(format!("{scheme}://{address}"))).await;
        assert_eq!(error.kind(), CallErrorKind::Unreachable, "{scheme}");
        let is_refused = |cause: &io::Error| cause.kind() == io::ErrorKind::ConnectionRefused;
        let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
        assert!(causes.any(|cause| cause.downcast_ref().is_some_and(is_refused)), "{error:?}");
    }
}
