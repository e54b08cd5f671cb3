//! Addresses, answers, and what a server can do to us, over real sockets.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::thread;

use alluvium_env::SystemClock;

use super::*;
use crate::budget::Budget;

fn did(text: &str) -> Did {
    text.parse().expect("a DID")
}

#[test]
fn a_document_is_where_its_method_says() {
    let http = |allow_private| {
        let config = HttpConfig { allow_private, ..HttpConfig::new("https://plc.test/") };
        Http::new(config, Arc::new(SystemClock))
    };
    let (guarded, open) = (http(false), http(true));
    for (text, expected) in [
        ("did:plc:abc", Some("https://plc.test/did:plc:abc")),
        ("did:web:alice.test", Some("https://alice.test/.well-known/did.json")),
        ("did:web:alice.test%3A8080", None),
        ("did:web:alice.test:path", None),
        ("did:web:localhost", None),
        ("did:web:127.0.0.1", None),
        ("did:key:abc", None),
    ] {
        assert_eq!(guarded.document_url(&did(text)).as_deref(), expected, "{text}");
    }
    assert_eq!(
        open.document_url(&did("did:web:localhost%3A8080")).as_deref(),
        Some("http://localhost:8080/.well-known/did.json")
    );
}

/// A server that answers each connection with the next of these, and its address.
fn server(answers: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut head = BufReader::new(stream.try_clone().expect("a socket")).lines();
            while head.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let sent = stream.write_all(answer.as_bytes());
            drop(sent);
        }
    });
    format!("http://{address}")
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

fn open(plc: &str) -> Http {
    let config = HttpConfig { allow_private: true, repo_bytes: 1000, ..HttpConfig::new(plc) };
    Http::new(config, Arc::new(SystemClock))
}

fn fetch(http: &Http, server: &str, room: usize) -> Result<Bytes, FetchError> {
    let mut permit = Budget::new(room).reserve(1).expect("room");
    http.repo(server, &did("did:plc:abc"), &mut permit)
}

#[test]
fn a_guarded_client_reaches_on_this_machine_only_what_its_operator_names() {
    let active = r#"{"did":"did:plc:abc","active":true}"#;
    let address = server(vec![answer("200 OK", "", active), answer("200 OK", "", "{}")]);
    let config = HttpConfig { relay: Some(address.clone()), ..HttpConfig::new(&address) };
    let http = Http::new(config, Arc::new(SystemClock));
    let (known, transient) = (did("did:plc:abc"), FetchError::Failure(FetchFailure::Transient));
    assert_eq!(http.status(Some(&address), &known), Err(transient));
    assert!(http.status(None, &known).is_ok(), "the relay");
    let port = address.rsplit_once(':').expect("a port").1;
    for host in ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "127.1"] {
        for scheme in ["http", "https"] {
            let server = format!("{scheme}://{host}:{port}");
            assert_eq!(
                fetch(&http, &server, 10_000_000),
                Err(FetchError::Failure(FetchFailure::Transient)),
                "{server}"
            );
        }
    }
    // Had one of these come through, the last answer would be gone by now.
    assert_eq!(http.document(&known), Ok(b"{}".to_vec()), "the directory");
}

#[test]
fn answers_of_a_directory_are_told_apart() {
    let long = "x".repeat(did_document::MAX_LEN + 2);
    let address = server(vec![
        answer("200 OK", "", "{\"id\":1}"),
        answer("404 Not Found", "", ""),
        answer("410 Gone", "", ""),
        answer("500 Internal Server Error", "", ""),
        answer("200 OK", "", &long),
    ]);
    let http = open(&address);
    let results: Vec<_> = (0..5).map(|_| http.document(&did("did:plc:abc"))).collect();
    let expected = [
        Ok(b"{\"id\":1}".to_vec()),
        Err(LookupError::Gone),
        Err(LookupError::Gone),
        Err(LookupError::Failed),
        Err(LookupError::Failed),
    ];
    assert_eq!(results, expected);
}

#[test]
fn answers_of_a_server_are_told_apart() {
    let error = |name: &str| answer("400 Bad Request", "", &format!("{{\"error\":\"{name}\"}}"));
    let failed = |failure| Err(FetchError::Failure(failure));
    let table = [
        (answer("200 OK", "", "a repository"), Ok(Bytes::from_static(b"a repository"))),
        (error("RepoTakendown"), failed(FetchFailure::Unavailable)),
        (error("RepoSuspended"), failed(FetchFailure::Unavailable)),
        (error("RepoDeactivated"), failed(FetchFailure::Unavailable)),
        (error("RepoNotFound"), failed(FetchFailure::Gone)),
        (answer("404 Not Found", "", ""), failed(FetchFailure::Gone)),
        (error("InvalidRequest"), failed(FetchFailure::Transient)),
        (answer("502 Bad Gateway", "", "<html>"), failed(FetchFailure::Transient)),
        (answer("200 OK", "", &"x".repeat(1001)), failed(FetchFailure::Refused)),
        ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf".to_owned(), failed(FetchFailure::Transient)),
        ("nonsense".to_owned(), failed(FetchFailure::Transient)),
    ];
    for (answer, expected) in table {
        let address = server(vec![answer.clone()]);
        assert_eq!(fetch(&open("http://127.0.0.1:1"), &address, 10_000_000), expected, "{answer}");
    }
    let endless = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}", "x".repeat(2000));
    let address = server(vec![endless]);
    assert_eq!(fetch(&open("http://127.0.0.1:1"), &address, 10_000_000), failed(FetchFailure::Refused));
}

#[test]
fn a_busy_server_is_left_alone_for_as_long_as_it_asks() {
    for (status, header, wait_ms) in [
        ("429 Too Many Requests", "retry-after: 7\r\n", 7000),
        ("429 Too Many Requests", "", BUSY_MS),
        ("503 Service Unavailable", "retry-after: 99999999999\r\n", BUSY_MAX_MS),
    ] {
        let address = server(vec![answer(status, header, "")]);
        let http = open("http://127.0.0.1:1");
        assert_eq!(fetch(&http, &address, 10_000_000), Err(FetchError::Busy { wait_ms }));
        assert!(
            matches!(fetch(&http, &address, 10_000_000), Err(FetchError::Busy { .. })),
            "nothing is sent: nobody would answer"
        );
    }
}

#[test]
fn a_repository_for_which_there_is_no_room_is_not_read() {
    let address = server(vec![answer("200 OK", "", "a repository")]);
    assert_eq!(fetch(&open("http://127.0.0.1:1"), &address, 10), Err(FetchError::NoRoom));
}

#[test]
fn a_status_is_asked_of_a_server_and_of_the_relay() {
    let told = |active, status: &str| Ok(HostingStatus { active, status: status.to_owned() });
    let failed = |failure| Err(FetchError::Failure(failure));
    let table = [
        (answer("200 OK", "", r#"{"did":"did:plc:abc","active":true,"rev":"3k"}"#), told(true, "")),
        (
            answer("200 OK", "", r#"{"did":"did:plc:abc","active":false,"status":"deleted"}"#),
            told(false, "deleted"),
        ),
        (answer("200 OK", "", r#"{"did":"did:plc:another","active":true}"#), failed(FetchFailure::Refused)),
        (answer("200 OK", "", "<html>"), failed(FetchFailure::Refused)),
        (answer("200 OK", "", &" ".repeat(100_000)), failed(FetchFailure::Transient)),
        (answer("400 Bad Request", "", r#"{"error":"RepoNotFound"}"#), failed(FetchFailure::Gone)),
        (answer("501 Not Implemented", "", ""), failed(FetchFailure::Transient)),
        (answer("429 Too Many Requests", "retry-after: 7\r\n", ""), Err(FetchError::Busy { wait_ms: 7000 })),
    ];
    for (answer, expected) in table {
        for of_relay in [false, true] {
            let address = server(vec![answer.clone()]);
            let relay = of_relay.then(|| address.clone());
            let config = HttpConfig { allow_private: true, relay, ..HttpConfig::new("http://127.0.0.1:1") };
            let http = Http::new(config, Arc::new(SystemClock));
            let asked = (!of_relay).then_some(&*address);
            assert_eq!(http.status(asked, &did("did:plc:abc")), expected, "{answer}");
        }
    }
    let none = open("http://127.0.0.1:1");
    assert_eq!(
        none.status(None, &did("did:plc:abc")),
        failed(FetchFailure::Gone),
        "there is no relay to ask"
    );
}
