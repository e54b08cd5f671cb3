//! TLS: both versions of HTTP over it, certificates that change, and what is sent over it.

use std::{
    io::{BufReader, Read, Write},
    net::TcpStream,
    sync::Arc,
};

use alluvium_http::{Front, Tls};
use tokio_rustls::rustls::{
    self, ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
    version,
};

use super::{Bodies, Drained, LONG, ResponseBudget, Server, live, start_front, stop};

type Client = StreamOwned<ClientConnection, TcpStream>;

/// A certificate in files, and the server that uses it.
struct Secured {
    server: Server<Bodies>,
    tls: Arc<Tls>,
    files: tempfile::TempDir,
    trusted: String,
}

#[expect(clippy::disallowed_methods, reason = "certificates are files")]
fn write_pair(files: &tempfile::TempDir) -> String {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(files.path().join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(files.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.pem()
}

fn secured() -> Secured {
    let files = tempfile::tempdir().unwrap();
    let trusted = write_pair(&files);
    let front = Front::default();
    let counters = Arc::clone(&front.counters);
    let tls = Tls::load(&files.path().join("cert.pem"), &files.path().join("key.pem"), counters).unwrap();
    let front = Front { tls: Some(Arc::clone(&tls)), ..front };
    let server = start_front(2, 0, Arc::new(ResponseBudget::new(usize::MAX)), front);
    Secured { server, tls, files, trusted }
}

fn connect_with(
    secured: &Secured,
    trusted: &str,
    protocols: &[&str],
    versions: &[&'static SupportedProtocolVersion],
) -> std::io::Result<Client> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(secured.server.address()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut client = StreamOwned::new(connection, stream);
    while client.conn.is_handshaking() {
        client.conn.complete_io(&mut client.sock)?;
    }
    Ok(client)
}

fn connect(secured: &Secured, protocols: &[&str]) -> Client {
    connect_with(secured, &secured.trusted, protocols, rustls::ALL_VERSIONS).unwrap()
}

fn ask(client: &mut Client, path: &str) -> String {
    client.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut chunk = [0; 1024];
    while !answer.ends_with(b"one two") {
        match client.read(&mut chunk).unwrap() {
            0 => break,
            read => answer.extend_from_slice(&chunk[..read]),
        }
    }
    String::from_utf8(answer).unwrap()
}

#[test]
fn a_client_gets_the_version_it_agrees_to() {
    let secured = secured();
    for protocols in [&[][..], &["http/1.1"], &["http/1.1", "h3"]] {
        for versions in [&[&version::TLS12][..], &[&version::TLS13]] {
            let mut client = connect_with(&secured, &secured.trusted, protocols, versions).unwrap();
            assert!(ask(&mut client, "/pieces").starts_with("HTTP/1.1 200"));
            // Several on one connection, as in plain text.
            assert!(ask(&mut client, "/chunks").starts_with("HTTP/1.1 200"));
        }
    }
    let mut client = connect(&secured, &["h2", "http/1.1"]);
    assert_eq!(client.conn.alpn_protocol(), Some(&b"h2"[..]));
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut settings = [0; 9];
    client.read_exact(&mut settings).unwrap();
    assert_eq!(settings[3], 4);
    // A client that says nothing more does not hold up the end.
    let _silent = client;
    // What is agreed is what is spoken.
    let mut client = connect(&secured, &["http/1.1"]);
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    let mut answer = String::new();
    drop(client.read_to_string(&mut answer));
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    drop(client);
    assert_eq!(stop(secured.server), Drained::Clean);
}

#[test]
fn an_answer_that_pauses_goes_on_and_leaves_the_connection_as_it_was() {
    let secured = secured();
    let mut client = BufReader::new(connect(&secured, &["http/1.1"]));
    for _ in 0..2 {
        live::go_on_after_a_pause(&mut client);
    }
    drop(client);
    assert_eq!(stop(secured.server), Drained::Clean);
}

#[test]
fn plain_text_gets_no_answer_that_could_be_taken_for_one() {
    let secured = secured();
    let mut stream = TcpStream::connect(secured.server.address()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    // The end can be seen here before it is counted there.
    while super::counters(&secured.server).tls_handshakes_failed == 0 {
        std::thread::yield_now();
    }
    assert_eq!(super::counters(&secured.server).tls_handshakes_failed, 1);
    assert_eq!(stop(secured.server), Drained::Clean);
}

#[test]
fn new_certificates_are_for_new_connections_and_the_old_ones_go_on() {
    let mut secured = secured();
    let mut before = connect(&secured, &[]);
    assert!(ask(&mut before, "/pieces").starts_with("HTTP/1.1 200"));
    let old = std::mem::take(&mut secured.trusted);
    secured.trusted = write_pair(&secured.files);
    secured.tls.reload().unwrap();
    let mut after = connect(&secured, &[]);
    connect_with(&secured, &old, &[], rustls::ALL_VERSIONS).unwrap_err();
    for client in [&mut before, &mut after] {
        assert!(ask(client, "/pieces").starts_with("HTTP/1.1 200"));
    }
    drop((before, after));
    assert_eq!(stop(secured.server), Drained::Clean);
}

#[test]
fn a_large_answer_and_an_upgrade_come_whole() {
    let secured = secured();
    let mut client = connect(&secured, &[]);
    client.write_all(b"GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // The end is said within TLS, so that nobody on the way can cut an answer.
    client.read_to_end(&mut answer).unwrap();
    assert!(answer.len() > 64 * 1024 * 1024 && answer.ends_with(b"xxxx"));
    let mut client = connect(&secured, &[]);
    client.write_all(b"GET /lined/9 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("no line"), "past TLS: {answer}");
    let mut client = connect(&secured, &[]);
    let request = "GET /upgrade HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: shout\r\n\r\nhello";
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"HELLO") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        answer.extend(byte);
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"));
    drop(client);
    assert_eq!(stop(secured.server), Drained::Clean);
}

#[test]
fn a_reader_that_stalls_holds_a_piece_and_not_an_answer() {
    let files = tempfile::tempdir().unwrap();
    let trusted = write_pair(&files);
    let front = Front::default();
    let counters = Arc::clone(&front.counters);
    let tls = Tls::load(&files.path().join("cert.pem"), &files.path().join("key.pem"), counters).unwrap();
    let responses = Arc::new(ResponseBudget::new(usize::MAX));
    let front = Front { tls: Some(Arc::clone(&tls)), ..front };
    let server = start_front(1, 0, Arc::clone(&responses), front);
    let secured = Secured { server, tls, files, trusted };
    let mut client = connect(&secured, &[]);
    client.write_all(b"GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    while responses.held() == 0 {
        std::thread::yield_now();
    }
    let bound = alluvium_http::QUEUED_BYTES_MAX + alluvium_http::PIECE_BYTES;
    assert!(responses.held() <= bound, "{}", responses.held());
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert!(answer.len() > 64 * 1024 * 1024);
    assert_eq!(stop(secured.server), Drained::Clean);
    assert_eq!(responses.held(), 0);
}
