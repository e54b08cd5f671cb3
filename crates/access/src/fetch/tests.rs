//! Keys over TLS: whose word is taken, and what an issuer cannot do to whoever asks it.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use alluvium_env::RealDisk;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;

const SET: &str = include_str!("../../../../fuzz/seeds/access_keys/set.json");
/// Longer than anything takes here.
const LONG: Duration = Duration::from_mins(1);

type Tls = StreamOwned<ServerConnection, TcpStream>;

/// An issuer with a certificate for `localhost`, by an authority whose own is in a file.
struct Issuer {
    folder: tempfile::TempDir,
    port: u16,
    /// The heads of the requests that it got.
    asked: Receiver<String>,
}

impl Issuer {
    /// Answers each request as it is told.
    fn start(answer: impl Fn(&mut Tls) + Send + 'static) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("authority.pem"), authority.pem().as_bytes());
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let made = params.signed_by(&key, &authority).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, asked) = channel();
        thread::spawn(move || {
            for socket in listener.incoming() {
                let connection = ServerConnection::new(config.clone()).unwrap();
                let mut tls = StreamOwned::new(connection, socket.unwrap());
                let mut head = [0; 4096];
                // A client that does not trust the certificate goes away.
                let Ok(read) = tls.read(&mut head) else { continue };
                drop(sender.send(String::from_utf8_lossy(&head[..read]).into_owned()));
                answer(&mut tls);
            }
        });
        Self { folder, port, asked }
    }

    fn keys(&self) -> KeyUrl {
        let authority = Some(self.folder.path().join("authority.pem"));
        KeyUrl { url: format!("https://localhost:{}/keys", self.port), authority }
    }
}

#[expect(clippy::disallowed_methods, reason = "what an operator does by other means")]
fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

fn say(tls: &mut Tls, head: &str, body: &[u8]) {
    // Whoever has heard enough goes away.
    drop(tls.write_all(format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n").as_bytes()));
    drop(tls.write_all(body));
    tls.conn.send_close_notify();
    drop(tls.flush());
}

#[test]
fn keys_come_from_whom_an_authority_of_ones_own_vouches_for_and_from_nobody_else() {
    let issuer = Issuer::start(|tls| say(tls, "200 OK", SET.as_bytes()));
    let keys = issuer.keys();
    assert_eq!(fetch(&RealDisk, &keys, LONG).unwrap().len(), 3);
    assert!(issuer.asked.recv().unwrap().starts_with("GET /keys HTTP/1.1\r\n"));
    // The authorities of the web, another one, and the right one for another name.
    let other = Issuer::start(|_| {});
    let by_address = keys.url.replace("localhost", "127.0.0.1");
    for wrong in [
        KeyUrl { authority: None, ..keys.clone() },
        KeyUrl { authority: other.keys().authority, ..keys.clone() },
        KeyUrl { url: by_address, ..keys.clone() },
    ] {
        let error = fetch(&RealDisk, &wrong, LONG).unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
    }
    assert!(issuer.asked.try_recv().is_err(), "nothing was asked of whom nobody vouches for");
}

#[test]
fn a_file_of_authorities_is_read_each_time_and_must_have_one() {
    let issuer = Issuer::start(|tls| say(tls, "200 OK", SET.as_bytes()));
    let (keys, path) = (issuer.keys(), issuer.folder.path().join("authority.pem"));
    let good = read(&RealDisk, &path, AUTHORITY_BYTES_MAX).unwrap();
    let key = KeyPair::generate().unwrap().serialize_pem();
    let long = [good.clone(), vec![b'\n'; usize::try_from(AUTHORITY_BYTES_MAX).unwrap()]].concat();
    for bad in [&b""[..], b"nothing", key.as_bytes(), b"-----BEGIN CERTIFICATE-----\n!\n", &long] {
        write(&path, bad);
        fetch(&RealDisk, &keys, LONG).expect_err("there is none");
        write(&path, &good);
        fetch(&RealDisk, &keys, LONG).unwrap();
    }
    let missing = KeyUrl { authority: Some(path.with_extension("none")), ..keys };
    assert!(matches!(
        fetch(&RealDisk, &missing, LONG),
        Err(FetchError::Roots(RootsError::Unreadable { .. }))
    ));
}

#[test]
fn a_redirect_is_not_followed_wherever_it_leads() {
    let elsewhere = Issuer::start(|tls| say(tls, "200 OK", SET.as_bytes()));
    for target in [elsewhere.keys().url, "http://127.0.0.1:1/".to_owned(), "/keys2".to_owned()] {
        for status in [301, 302, 303, 307, 308] {
            let head = format!("{status} Over There\r\nlocation: {target}\r\ncontent-length: 0");
            let issuer = Issuer::start(move |tls| say(tls, &head, b""));
            fetch(&RealDisk, &issuer.keys(), LONG).expect_err("it leads elsewhere");
            assert_eq!(issuer.asked.iter().take(1).count(), 1);
            assert!(issuer.asked.try_recv().is_err(), "it is asked once");
        }
    }
    assert!(elsewhere.asked.try_recv().is_err());
}

#[test]
fn an_answer_without_an_end_is_read_to_its_bound() {
    for is_head in [true, false] {
        let issuer = Issuer::start(move |tls| {
            let beginning =
                if is_head { "HTTP/1.1 200 OK\r\n" } else { "HTTP/1.1 200 OK\r\n\r\n{\"keys\":[" };
            let more = if is_head { "x: y\r\n" } else { "  " }.repeat(1024);
            let mut is_open = tls.write_all(beginning.as_bytes()).is_ok();
            while is_open {
                is_open = tls.write_all(more.as_bytes()).is_ok();
            }
        });
        fetch(&RealDisk, &issuer.keys(), LONG).expect_err("it has no end");
    }
}

#[test]
fn an_answer_that_comes_slowly_is_given_up_as_a_whole() {
    // A byte now and then, in the head and in the body, and nothing at all.
    for beginning in ["HTTP/1.1 200 OK\r\nx: ", "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n", ""] {
        let issuer = Issuer::start(move |tls| {
            let mut is_open = tls.write_all(beginning.as_bytes()).is_ok();
            while is_open {
                thread::park_timeout(Duration::from_millis(20));
                is_open = beginning.is_empty() || tls.write_all(b"x").is_ok();
                // Whoever has given up closes: then a byte cannot be sent, or the end is read.
                if beginning.is_empty() {
                    let mut scratch = [0; 16];
                    is_open = tls.read(&mut scratch).is_ok_and(|read| read > 0);
                }
            }
        });
        let error = fetch(&RealDisk, &issuer.keys(), Duration::from_millis(300)).unwrap_err();
        assert!(matches!(error, FetchError::Exchange(ureq::Error::Timeout(_))), "{error}");
    }
}
