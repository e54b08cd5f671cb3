//! Requests that are wrong in themselves.

use anyhow::{Result, ensure};

use super::{APPEND_MIB, MIB, answers};
use crate::http::Connection;
use crate::server::Server;

/// What would be answered if a request were hidden behind another.
const HIDDEN: &str = "GET /v1/stream/others?offset=-1 HTTP/1.1\r\nhost: x\r\n\r\n";

/// Each head, the status and the code that it gets.
fn refused(server: &Server, cases: &[(String, u16, &str)]) -> Result<()> {
    for (request, status, code) in cases {
        let answer = answers(server.address, format!("{request}{HIDDEN}").as_bytes())?;
        let short: String = request.chars().take(80).collect();
        ensure!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{short:?}: {answer}");
        ensure!(answer.contains(code), "{short:?}: {answer}");
        ensure!(answer.matches("HTTP/1.1 ").count() == 1, "{short:?} is answered twice: {answer}");
    }
    Ok(())
}

/// Heads of many bytes and of many headers.
pub(super) fn large(server: &Server) -> Result<()> {
    let start = "GET /v1/stream/others HTTP/1.1\r\nhost: x\r\n";
    let cases = [
        (format!("{start}x: {}\r\n\r\n", "x".repeat(100_000)), 431, "head_too_large"),
        (format!("{start}{}\r\n", "x: y\r\n".repeat(10_000)), 431, "too_many_headers"),
        (format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(100_000)), 431, "head_too_large"),
        (format!("{start}cookie: {}", "x".repeat(500_000)), 431, "head_too_large"),
        ("\r\n".repeat(100_000), 431, "head_too_large"),
    ];
    refused(server, &cases)
}

/// What proxies and servers read differently.
pub(super) fn smuggled(server: &Server) -> Result<()> {
    let post = |head: &str, body: &str| {
        format!(
            "POST /v1/stream/others HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\n{head}\r\n\r\n{body}"
        )
    };
    let cases = [
        (post("content-length: 5\r\ntransfer-encoding: chunked", "0\r\n\r\n"), 400, "ambiguous_length"),
        (post("transfer-encoding: chunked\r\ncontent-length: 5", "0\r\n\r\n"), 400, "ambiguous_length"),
        (post("content-length: 1\r\ncontent-length: 1", "x"), 400, "ambiguous_length"),
        (post("content-length: 1\r\ncontent-length: 2", "x"), 400, ""),
        (post("content-length: 1, 1", "x"), 400, ""),
        (post("content-length: 0x1", "x"), 400, ""),
        (post("content-length: -1", "x"), 400, ""),
        (post("transfer-encoding: xchunked", "0\r\n\r\n"), 400, ""),
        (post("transfer-encoding: chunked, chunked", "0\r\n\r\n"), 501, "unsupported_transfer_coding"),
        (post("transfer-encoding: gzip, chunked", "0\r\n\r\n"), 501, "unsupported_transfer_coding"),
        (post("transfer-encoding : chunked", "0\r\n\r\n"), 400, ""),
        (post("transfer-encoding:\x0bchunked", "0\r\n\r\n"), 400, ""),
        (post("content-length\x00: 1", "x"), 400, ""),
        (post("x: y\r\n content-length: 5", ""), 400, ""),
        (post("x: y\ncontent-length: 1", "x"), 400, "malformed_head"),
        (post("x: y\rz: 1", ""), 400, ""),
        (post("host: y", ""), 400, "invalid_host"),
        ("GET /v1/stream/others HTTP/1.1\nhost: x\n\n".to_owned(), 400, "malformed_head"),
        (
            "GET /v1/stream/others HTTP/1.1\r\nhost: x\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned(),
            400,
            "invalid_host",
        ),
    ];
    let closing: Vec<_> = cases
        .into_iter()
        .map(|(request, status, code)| {
            // What is refused for its host alone leaves no doubt where it ends.
            let request = if code == "invalid_host" {
                request.replace("host: y", "host: y\r\nconnection: close")
            } else {
                request
            };
            (request, status, code)
        })
        .collect();
    refused(server, &closing)?;
    // The chunks of a body are as strict.
    for chunks in [
        "1\nx\r\n0\r\n\r\n",
        "1;\nx\r\n0\r\n\r\n",
        "0x1\r\nx\r\n0\r\n\r\n",
        "1\r\nxy\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\nx",
    ] {
        let answer =
            answers(server.address, (post("transfer-encoding: chunked", chunks) + HIDDEN).as_bytes())?;
        ensure!(
            answer.starts_with("HTTP/1.1 4") && answer.matches("HTTP/1.1 ").count() == 1,
            "{chunks:?}: {answer}"
        );
    }
    Ok(())
}

/// Paths that would leave where they are, if they were paths of files.
pub(super) fn paths(server: &Server) -> Result<()> {
    for path in [
        "/v1/stream/../../etc/passwd",
        "/v1/stream/%2e%2e/%2e%2e/etc/passwd",
        "/v1/stream/..%2f..%2fetc%2fpasswd",
        "/v1/stream/a/../b",
        "/v1/stream/a%00b",
        "/v1/stream/a%0ab",
        "/v1/stream/%ff%fe",
        "/v1/stream/a%2",
        "/v1/stream/a//b",
        "/v1/stream//a",
        "/v1/stream/",
        "/v1//stream/a",
        "//v1/stream/a",
        "/ds/../v1/stream/a",
        "/ds/%2e%2e/a",
        "/feeds/v1/spaces/../x",
        "/feeds/v1/spaces/%2e%2e/head",
        "*",
    ] {
        for method in ["PUT", "GET", "DELETE"] {
            // What is no request at all ends its connection.
            let mut connection = Connection::open(server.address)?;
            let answer = connection.call(method, path, &[("content-type", "text/plain")], &[])?;
            ensure!(answer.status < 500, "{method} {path}: {}", answer.status);
            ensure!(!answer.body.starts_with(b"root:"), "{method} {path} reads a file");
        }
    }
    // What is no name was none, and what is one was no other's.
    for name in ["a", "b", "passwd", "etc/passwd"] {
        let mut connection = Connection::open(server.address)?;
        let answer = connection.send("GET", &format!("{name}?offset=-1"), &[], &[])?;
        ensure!(answer.status == 404, "{name}: {}", answer.status);
    }
    // In absolute form the host is the target's, and the path what follows it.
    let absolute =
        "GET http://elsewhere/v1/stream/../others HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let answer = answers(server.address, absolute.as_bytes())?;
    ensure!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    Ok(())
}

/// Bodies that are small and would not stay so.
pub(super) fn documents(server: &Server) -> Result<()> {
    const DEEP: usize = 1_000_000;
    let mut connection = Connection::open(server.address)?;
    let json = [("content-type", "application/json")];
    connection.send("PUT", "documents", &json, &[])?.expect(&[201], "make a stream")?;
    for deep in
        ["[".repeat(DEEP), "{\"a\":".repeat(DEEP), format!("{}{}", "[".repeat(DEEP), "]".repeat(DEEP))]
    {
        let mut connection = Connection::open(server.address)?;
        let answer = connection.send("POST", "documents", &json, deep.as_bytes())?;
        ensure!(
            answer.status == 400 && answer.code() == "invalid_json",
            "{}: {}",
            answer.status,
            answer.code()
        );
        let mut feeds = Connection::open(server.address)?;
        let answer = feeds.call("POST", "/feeds/v1/spaces/x/append", &json, deep.as_bytes())?;
        ensure!((400..500).contains(&answer.status), "feeds: {}", answer.status);
    }
    // One that is larger than any may be is refused before it is sent, or as it comes.
    let large = usize::try_from(APPEND_MIB * MIB)? + 1;
    let head = "POST /v1/stream/documents HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    let announced = answers(server.address, format!("{head}content-length: {large}\r\n\r\n").as_bytes())?;
    let chunk = format!("{head}transfer-encoding: chunked\r\n\r\n{large:x}\r\n{}", " ".repeat(large));
    for answer in [announced, answers(server.address, chunk.as_bytes())?] {
        ensure!(answer.starts_with("HTTP/1.1 413") && answer.contains("body_too_large"), "{answer}");
    }
    // What says that it is packed is kept as it is. The first connection has been without a request for long.
    let mut connection = Connection::open(server.address)?;
    let packed = [("content-type", "text/plain"), ("content-encoding", "gzip")];
    connection.send("PUT", "packed", &packed[..1], &[])?.expect(&[201], "make a stream")?;
    let bomb = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03not unpacked";
    connection.send("POST", "packed", &packed, bomb)?.expect(&[204, 415], "append what is packed")?;
    let kept = connection.send("GET", "packed?offset=-1", &[], &[])?;
    ensure!(kept.body.is_empty() || kept.body == bomb, "something else is kept");
    Ok(())
}
