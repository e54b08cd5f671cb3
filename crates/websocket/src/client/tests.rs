//! Addresses, heads, and handshakes with servers that answer as they please.

use alluvium_env::OsRandom;
use tokio::net::TcpListener;

use super::*;
use crate::{connection::WebSocket, handshake, message::Message};

#[test]
fn addresses_are_read_or_refused() {
    let parsed = |url: &str| {
        let address = Address::parse(url)?;
        Some((address.is_secure, address.host, address.port, address.authority, address.target))
    };
    let address = |is_secure, host: &str, port, authority: &str, target: &str| {
        Some((is_secure, host.to_owned(), port, authority.to_owned(), target.to_owned()))
    };
    assert_eq!(parsed("ws://a.example"), address(false, "a.example", 80, "a.example", "/"));
    assert_eq!(parsed("wss://a:8443/x?y=z"), address(true, "a", 8443, "a:8443", "/x?y=z"));
    assert_eq!(parsed("wss://[::1]/"), address(true, "::1", 443, "[::1]", "/"));
    assert_eq!(parsed("ws://a?x"), address(false, "a", 80, "a", "/?x"));
    assert_eq!(parsed("ws://a/x?y#z"), address(false, "a", 80, "a", "/x?y"));
    let query = "a=did:web:a.example&".repeat(50_000);
    let long = format!("/x?{query}");
    assert_eq!(parsed(&format!("ws://a{long}")), address(false, "a", 80, "a", &long));
    for bad in ["ws://a/?x y", "ws://a/?x\r\nHost: b", "ws://a/?\u{7f}"] {
        assert_eq!(parsed(bad), None, "{bad}");
    }
    for bad in ["http://a", "ws:///x", "a/b", "ws://u:p@a", "ws://a:99999", "ws://a b", "ws://", ""] {
        assert_eq!(parsed(bad), None, "{bad}");
    }
}

#[test]
fn a_head_is_read_once_it_is_whole_and_not_without_end() {
    assert!(matches!(response_head(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n"), Ok(None)));
    let (status, headers, len) =
        response_head(b"HTTP/1.1 101 Y\r\nA: b\r\nA: c\r\n\r\n\x81").unwrap().unwrap();
    assert_eq!((status.as_u16(), headers.get_all("a").iter().count(), len), (101, 2, 30));
    assert!(response_head(b"SSH-2.0-x\r\n").is_err());
    let endless = [&b"HTTP/1.1 101 Y\r\nA: "[..], &[b'a'; RESPONSE_HEAD_BYTES_MAX]].concat();
    assert!(response_head(&endless).is_err());
}

/// A server that reads a request and answers with these bytes. Returns its address and what it read.
async fn answering(answer: Vec<u8>) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/path?q", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut head).await.unwrap() > 0);
        }
        stream.write_all(&answer).await.unwrap();
        String::from_utf8(head).unwrap()
    });
    (url, serving)
}

async fn outcome(answer: &str) -> ConnectError {
    let (url, serving) = answering(answer.as_bytes().to_vec()).await;
    let error = connect(&url, ConnectOptions::default(), Arc::new(OsRandom)).await.unwrap_err();
    serving.await.unwrap();
    error
}

#[tokio::test]
async fn other_answers_than_an_upgrade_are_handed_on() {
    let refused = outcome("HTTP/1.1 302 Found\r\nLocation: ws://x/\r\nContent-Length: 4\r\n\r\nbody").await;
    let ConnectError::Refused(refusal) = refused else { panic!("{refused}") };
    assert_eq!((refusal.status.as_u16(), &refusal.body[..]), (302, &b"body"[..]));
    assert_eq!(refusal.headers["location"], "ws://x/");
    let wrong = outcome(
        "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n",
    );
    assert!(matches!(wrong.await, ConnectError::Handshake(AnswerError::Accept)));
    assert!(matches!(outcome("nonsense\r\n\r\n").await, ConnectError::Answer));
    let address = connect("http://x", ConnectOptions::default(), Arc::new(OsRandom)).await;
    assert!(matches!(address, Err(ConnectError::Address(_))));
}

/// A server that goes away, or what stands before one that is not there, is trouble of the network wherever it comes.
#[tokio::test]
async fn an_answer_that_ends_too_early_is_trouble_of_the_network() {
    let whole = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
    for end in 0..whole.len() {
        let error = outcome(&whole[..end]).await;
        let ConnectError::Io { source, .. } = &error else { panic!("after {end} bytes: {error}") };
        assert_eq!(source.kind(), io::ErrorKind::UnexpectedEof, "after {end} bytes: {error}");
    }
}

#[tokio::test]
async fn a_server_that_never_answers_has_a_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let options = ConnectOptions { timeout: Duration::from_millis(20), ..Default::default() };
    let outcome = connect(&url, options, Arc::new(OsRandom)).await;
    assert!(matches!(outcome, Err(ConnectError::Timeout(_))));
}

#[tokio::test]
async fn a_connection_is_opened_with_headers_subprotocol_and_compression() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/chat?x=1", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_buf(&mut head).await.unwrap();
        }
        let mut parsed = [httparse::EMPTY_HEADER; 32];
        let mut read = httparse::Request::new(&mut parsed);
        read.parse(&head).unwrap();
        assert_eq!(read.path, Some("/chat?x=1"));
        let mut request = http::Request::new(());
        for header in read.headers.iter() {
            let value = HeaderValue::from_bytes(header.value).unwrap();
            request.headers_mut().append(HeaderName::from_bytes(header.name.as_bytes()).unwrap(), value);
        }
        assert_eq!(request.headers()["user-agent"], "test");
        let options =
            handshake::AcceptOptions { subprotocols: &["two"], deflate: Some(DeflateOptions::default()) };
        let accepted = handshake::accept(&request, &options).unwrap();
        let mut answer = b"HTTP/1.1 101 Switching Protocols\r\n".to_vec();
        for (name, value) in accepted.response.headers() {
            answer.extend_from_slice(format!("{name}: {}\r\n", value.to_str().unwrap()).as_bytes());
        }
        // The first message comes with the head, in one write.
        answer.extend_from_slice(b"\r\n\x81\x02hi");
        stream.write_all(&answer).await.unwrap();
        let deflate = accepted.deflate.as_ref();
        let mut socket = WebSocket::server(stream, deflate, ConnectionOptions::default());
        let message = socket.next().await.unwrap();
        assert_eq!(socket.next().await.unwrap(), None);
        message
    });
    let mut headers = HeaderMap::new();
    headers.insert(header::USER_AGENT, HeaderValue::from_static("test"));
    let options = ConnectOptions {
        headers,
        subprotocols: vec!["one".into(), "two".into()],
        deflate: Some(DeflateOptions::default()),
        ..Default::default()
    };
    let mut connected = connect(&url, options, Arc::new(OsRandom)).await.unwrap();
    assert_eq!(connected.agreed.subprotocol.as_deref(), Some("two"));
    assert!(connected.agreed.deflate.is_some());
    assert_eq!(connected.socket.next().await.unwrap(), Some(Message::text("hi")));
    let long = Message::text("long ".repeat(200));
    connected.socket.send(&long).await.unwrap();
    connected.socket.close(crate::CloseCode::NORMAL, "").await.unwrap();
    assert_eq!(serving.await.unwrap(), Some(long));
}
