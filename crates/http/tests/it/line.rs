//! Pieces that are sent past the connection's task.

use std::sync::{Arc, Mutex};

use alluvium_http::{Framed, Line, Sent};
use tokio::{sync::oneshot, task::yield_now};

use super::{Body, BodyError, BufRead, Bytes, Drained, LONG, Read, ResponseBudget, send, start_with, stop};

/// The lengths of the pieces of floods that are over.
static OVER: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// A body of which all pieces but the first and the last come down the line, for as long as the socket takes them whole.
/// The last says how many there were and what became of the one after them.
pub(crate) fn lined(piece_bytes: usize) -> Body {
    Body::live(async move |mut feed| {
        feed.send(Bytes::from_static(b"first\n")).await;
        let told = match feed.line().cloned() {
            Some(line) => {
                let (tell, told) = oneshot::channel();
                tokio::spawn(async move {
                    drop(tell.send(flood(&line, piece_bytes).await));
                });
                told.await.map_err(|_| BodyError("nobody tells".to_owned()))?
            }
            None => "no line".to_owned(),
        };
        feed.send(Bytes::from(format!("\n{told}\n"))).await;
        Ok(())
    })
}

async fn flood(line: &Line, piece_bytes: usize) -> String {
    let piece = Framed::new(&vec![b'x'; piece_bytes]).unwrap();
    let mut whole = 0;
    loop {
        match line.send(&piece) {
            Sent::Whole => whole += 1,
            // The first piece of all is still on its way.
            Sent::Not if whole == 0 => yield_now().await,
            sent => {
                assert_eq!(line.send(&piece), Sent::Not, "behind what is left of another");
                OVER.lock().unwrap().push(piece_bytes);
                return format!("{whole} {sent:?}");
            }
        }
    }
}

fn unchunked(mut chunks: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = chunks.windows(2).position(|two| two == b"\r\n").unwrap();
        let len = usize::from_str_radix(std::str::from_utf8(&chunks[..end]).unwrap(), 16).unwrap();
        let (chunk, rest) = chunks[end + 2..].split_at(len);
        chunks = rest.strip_prefix(b"\r\n").unwrap();
        body.extend_from_slice(chunk);
        if len == 0 {
            assert!(chunks.is_empty());
            return body;
        }
    }
}

#[test]
fn what_a_socket_does_not_take_of_a_piece_comes_before_all_else() {
    let responses = Arc::new(ResponseBudget::new(usize::MAX));
    let server = start_with(1, 0, Arc::clone(&responses));
    let mut parts = 0;
    for piece_bytes in [997, 4_093, 1_000_003] {
        let mut reader = send(&server, &format!("GET /lined/{piece_bytes} HTTP/1.1\r\nhost: x\r\n\r\n"));
        // The reader reads nothing of the body before the socket is full.
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0);
        }
        while !OVER.lock().unwrap().contains(&piece_bytes) {
            std::thread::yield_now();
        }
        let mut chunks = Vec::new();
        while !chunks.ends_with(b"\r\n0\r\n\r\n") {
            let mut more = [0; 16 * 1024];
            let read = reader.read(&mut more).unwrap();
            assert!(read > 0);
            chunks.extend_from_slice(&more[..read]);
        }
        let body = unchunked(&chunks);
        let body = body.strip_prefix(b"first\n").unwrap();
        let end = body.iter().position(|byte| *byte == b'\n').unwrap();
        let last = std::str::from_utf8(&body[end..]).unwrap().trim();
        let (whole, sent) = last.split_once(' ').unwrap();
        let part = usize::from(sent == "Part");
        parts += part;
        assert!(body[..end].iter().all(|byte| *byte == b'x'));
        assert_eq!(end, (whole.parse::<usize>().unwrap() + part) * piece_bytes, "{last}");
        // The connection is as good as before.
        reader.get_mut().set_read_timeout(Some(LONG)).unwrap();
        std::io::Write::write_all(reader.get_mut(), b"GET /pieces HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        head.clear();
        reader.read_line(&mut head).unwrap();
        assert_eq!(head, "HTTP/1.1 200 OK\r\n");
    }
    assert!(parts > 0, "no socket has taken a part");
    assert_eq!(stop(server), Drained::Clean);
    assert_eq!(responses.held(), 0);
}

#[test]
fn a_reader_that_goes_while_pieces_wait_for_it_leaves_nothing() {
    let responses = Arc::new(ResponseBudget::new(usize::MAX));
    let server = start_with(1, 0, Arc::clone(&responses));
    let readers: Vec<_> =
        (0..8).map(|_| send(&server, "GET /lined/1000007 HTTP/1.1\r\nhost: x\r\n\r\n")).collect();
    while responses.held() == 0 {
        std::thread::yield_now();
    }
    drop(readers);
    assert_eq!(stop(server), Drained::Clean);
    assert_eq!(responses.held(), 0);
}

#[test]
fn without_chunks_there_is_no_line() {
    let server = start_with(1, 0, Arc::new(ResponseBudget::new(usize::MAX)));
    let mut answer = String::new();
    send(&server, "GET /lined/9 HTTP/1.0\r\n\r\n").read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nfirst\n\nno line\n"), "{answer}");
    assert_eq!(super::http2::body_of(&server, "/lined/9"), "first\n\nno line\n");
    assert_eq!(stop(server), Drained::Clean);
}
