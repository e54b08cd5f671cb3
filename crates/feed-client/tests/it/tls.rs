//! Servers behind TLS whose certificate no root of the web has signed.
//!
//! The key and the certificates in `tests/tls` were made for this test with `openssl`; nothing else trusts them.

use std::net::SocketAddr;
use std::sync::Arc;

use alluvium_feed_client::{CallErrorKind, From, Server, StartError};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::support::{LONG, Peer, Site, id, until};

const AUTHORITY: &[u8] = include_bytes!("../tls/authority.pem");
const CERTIFICATE: &[u8] = include_bytes!("../tls/server.pem");
const KEY: &[u8] = include_bytes!("../tls/server.key");

/// Takes TLS off connections and passes them on.
async fn start_door(to: SocketAddr) -> SocketAddr {
    let certificates =
        CertificateDer::pem_slice_iter(CERTIFICATE).collect::<Result<_, _>>().expect("a door of TLS");
    let key = PrivateKeyDer::from_pem_slice(KEY).expect("a door of TLS");
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("a door of TLS")
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .expect("a door of TLS");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a door of TLS");
    let address = listener.local_addr().expect("a door of TLS");
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that doesn't trust the certificate goes away.
                let Ok(mut outside) = acceptor.accept(socket).await else { return };
                let mut inside = TcpStream::connect(to).await.expect("a door of TLS");
                drop(tokio::io::copy_bidirectional(&mut outside, &mut inside).await);
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roots_of_ones_own_are_trusted_over_both_ways_and_nothing_else_is() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::start(&folder, None);
    let address = start_door(site.address()).await;
    let trusting = |scheme: &str| Server {
        roots_pem: Some(AUTHORITY.to_vec()),
        ..Server::new(format!("{scheme}://localhost:{}", address.port()))
    };
    for (number, scheme) in ["https", "wss"].into_iter().enumerate() {
        let peer = Peer::new();
        let space = peer.client.space(&id("space"));
        space.append(&id("f"), None, scheme.as_bytes().to_vec()).unwrap();
        space.replicate(&id("f"), From::Beginning).unwrap();
        let status = space.sync(&trusting(scheme), LONG).await.unwrap();
        assert_eq!((status.blocks_to_push, status.position), (0, number as u64 + 1), "{scheme}");
        // The roots of the web have not signed it.
        let strict = Server { roots_pem: None, ..trusting(scheme) };
        let stranger = Peer::new();
        let space = stranger.client.space(&id("space"));
        space.replicate(&id("f"), From::Beginning).unwrap();
        let syncing = space.start(&strict).unwrap();
        until(&space, |space| space.status().unwrap().last_error.is_some()).await;
        let status = space.status().unwrap();
        let error = status.last_error.unwrap_or_default();
        assert!(error.contains("certificate"), "{scheme}: {error}");
        assert_eq!(status.last_failure, Some(CallErrorKind::Tls), "{scheme}");
        drop(syncing);
        let broken = Server { roots_pem: Some(b"nothing".to_vec()), ..trusting(scheme) };
        assert!(matches!(space.start(&broken), Err(StartError::Server(_))), "{scheme}");
    }
}
