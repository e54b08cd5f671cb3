//! `wss://`: a connection over TLS, and servers that are not who they say.

use std::sync::Arc;

use alluvium_env::OsRandom;
use alluvium_websocket::{
    AcceptOptions, CloseCode, ConnectError, ConnectOptions, ConnectionOptions, DeflateOptions, Message,
    WebSocket, accept, connect,
};
use http::{HeaderName, HeaderValue, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

const ROOT: &[u8] = include_bytes!("../tls/root.der");
const CERTIFICATE: &[u8] = include_bytes!("../tls/localhost.der");
const KEY: &[u8] = include_bytes!("../tls/localhost-key.der");

fn acceptor() -> TlsAcceptor {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(KEY.to_vec()));
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(CERTIFICATE.to_vec())], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

fn trusting() -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(ROOT.to_vec())).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// An echo server for one connection. Tells whether a client came as far as a handshake.
async fn serve() -> (u16, JoinHandle<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let Ok(mut stream) = acceptor().accept(stream).await else { return false };
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut head).await.unwrap() > 0);
        }
        let mut request = Request::new(());
        for line in String::from_utf8(head).unwrap().lines().skip(1) {
            let Some((name, value)) = line.split_once(": ") else { continue };
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().append(name, HeaderValue::from_str(value).unwrap());
        }
        let options = AcceptOptions { subprotocols: &[], deflate: Some(DeflateOptions::default()) };
        let accepted = accept(&request, &options).unwrap();
        let mut answer = String::from("HTTP/1.1 101 Switching Protocols\r\n");
        for (name, value) in accepted.response.headers() {
            answer.extend([name.as_str(), ": ", value.to_str().unwrap(), "\r\n"]);
        }
        stream.write_all(format!("{answer}\r\n").as_bytes()).await.unwrap();
        let deflate = accepted.deflate.as_ref();
        let mut socket = WebSocket::server(stream, deflate, ConnectionOptions::default());
        while let Some(message) = socket.next().await.unwrap() {
            socket.send(&message).await.unwrap();
        }
        true
    });
    (port, serving)
}

#[tokio::test]
async fn messages_go_over_tls_in_both_directions_at_once() {
    let (port, serving) = serve().await;
    let options = ConnectOptions {
        tls: Some(trusting()),
        deflate: Some(DeflateOptions::default()),
        ..ConnectOptions::default()
    };
    let url = format!("wss://localhost:{port}/x");
    let connected = connect(&url, options, Arc::new(OsRandom)).await.unwrap();
    let (mut receiver, mut sender) = connected.socket.split();
    let messages: Vec<_> = (0..50_u8).map(|n| Message::binary(vec![n; usize::from(n) * 3000])).collect();
    let sent = messages.clone();
    let sending = tokio::spawn(async move {
        for message in &sent {
            sender.send(message).await.unwrap();
        }
        sender
    });
    for message in messages {
        assert_eq!(receiver.next().await.unwrap(), Some(message));
    }
    sending.await.unwrap().begin_close(CloseCode::NORMAL, "");
    assert_eq!(receiver.next().await.unwrap(), None);
    assert!(serving.await.unwrap());
}

#[tokio::test]
async fn a_server_that_is_not_trusted_gets_no_handshake() {
    // With the roots of the web, and under another name than the certificate's.
    for (tls, host) in [(None, "localhost"), (Some(trusting()), "127.0.0.1")] {
        let (port, serving) = serve().await;
        let options = ConnectOptions { tls, ..ConnectOptions::default() };
        let outcome = connect(&format!("wss://{host}:{port}/"), options, Arc::new(OsRandom)).await;
        assert!(matches!(outcome, Err(ConnectError::Untrusted { .. })), "{host}");
        assert!(!serving.await.unwrap());
    }
}
