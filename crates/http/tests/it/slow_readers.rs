//! Readers that stop reading: what they hold, and that others go on.

use std::sync::Arc;

use alluvium_http::{PIECE_BYTES, QUEUED_BYTES_MAX, SCARCE_PIECE_BYTES};

use super::{
    Body, BufReader, Bytes, Drained, LONG, Read, ResponseBudget, Server, TcpStream, get, send, start_with,
    stop,
};

/// Bytes of a response that no socket has room for.
const LARGE_BYTES: usize = 64 * 1024 * 1024;
const READERS: usize = 20;
/// What one stalled connection may hold.
const HELD_BYTES_MAX: usize = QUEUED_BYTES_MAX + PIECE_BYTES;

pub(crate) fn large(responses: &Arc<ResponseBudget>) -> Body {
    let responses = Arc::clone(responses);
    Body::chunks(LARGE_BYTES as u64, async move |mut feed| {
        let mut left = LARGE_BYTES;
        while left > 0 {
            let piece = left.min(responses.piece_bytes());
            feed.send(Bytes::from(vec![b'x'; piece])).await;
            left -= piece;
        }
        Ok(())
    })
}

/// Starts readers that read nothing, and waits until as many bytes are held as `enough` asks for.
fn stall(
    server: &Server<super::Bodies>,
    responses: &ResponseBudget,
    enough: impl Fn(usize) -> bool,
) -> Vec<BufReader<TcpStream>> {
    let stalled: Vec<_> =
        (0..READERS).map(|_| send(server, "GET /large HTTP/1.1\r\nhost: x\r\n\r\n")).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let waited = runtime.block_on(async {
        let waiting = async {
            while !enough(responses.held()) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, waiting).await
    });
    assert!(waited.is_ok(), "{} bytes are held", responses.held());
    stalled
}

#[test]
fn a_stalled_reader_holds_a_piece_and_gets_the_rest_when_it_reads_on() {
    let responses = Arc::new(ResponseBudget::new(usize::MAX));
    let server = start_with(2, 0, Arc::clone(&responses));
    let mut stalled = stall(&server, &responses, |held| held >= READERS * PIECE_BYTES);
    assert!(responses.held() <= READERS * HELD_BYTES_MAX, "{}", responses.held());
    let mut head = [0; 1024];
    let read = stalled[0].read(&mut head).unwrap();
    let body_starts = head[..read].windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let mut rest = vec![0; LARGE_BYTES - (read - body_starts)];
    stalled[0].read_exact(&mut rest).unwrap();
    assert!(rest.iter().all(|byte| *byte == b'x'));
    drop(stalled);
    assert_eq!(stop(server), Drained::Clean);
    assert_eq!(responses.held(), 0);
}

#[test]
fn beyond_the_budget_stalled_readers_hold_little_and_others_are_served() {
    const BUDGET: usize = 4 * PIECE_BYTES;
    let responses = Arc::new(ResponseBudget::new(BUDGET));
    let server = start_with(1, 0, Arc::clone(&responses));
    let stalled = stall(&server, &responses, |held| held >= BUDGET);
    // Each more piece that a connection takes is a small one, two at most before it waits.
    let bound = BUDGET + HELD_BYTES_MAX + READERS * 2 * SCARCE_PIECE_BYTES;
    assert!(get(&server, "/large").len() > LARGE_BYTES);
    assert!(responses.held() <= bound, "{} bytes are held, {bound} are due", responses.held());
    drop(stalled);
    assert_eq!(stop(server), Drained::Clean);
    assert_eq!(responses.held(), 0);
}
