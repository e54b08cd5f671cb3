//! Two ends of a connection over a pipe in memory, on a clock that is moved by hand.

use alluvium_env::sim::SeededRandom;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;
use crate::{extension::DeflateOptions, extension::negotiate, message::Text};

type Pair = (WebSocket<DuplexStream>, WebSocket<DuplexStream>);

fn pair_with(options: ConnectionOptions, pipe: usize) -> Pair {
    let deflate = DeflateOptions { bytes_min: 100, server_no_context_takeover: false, ..Default::default() };
    let agreed = negotiate(["permessage-deflate"], &deflate).unwrap().0;
    let (here, there) = duplex(pipe);
    let random = Arc::new(SeededRandom::new(1));
    let client = WebSocket::client(there, b"", Some(&agreed), options, random);
    (WebSocket::server(here, Some(&agreed), options), client)
}

fn pair() -> Pair {
    pair_with(ConnectionOptions::default(), 4096)
}

/// A server whose peer is a bare pipe.
fn server(options: ConnectionOptions) -> (WebSocket<DuplexStream>, DuplexStream) {
    let (here, there) = duplex(1 << 20);
    (WebSocket::server(here, None, options), there)
}

#[tokio::test(start_paused = true)]
async fn messages_go_both_ways_and_pings_are_answered() {
    let (mut server, mut client) = pair();
    let large = Message::binary(vec![5; 300_000]);
    let echo = async {
        while let Some(message) = server.next().await.unwrap() {
            server.send(&message).await.unwrap();
        }
        server.closed_by_peer().cloned()
    };
    let talk = async {
        for message in [Message::text("hi"), large, Message::text("é".repeat(5000))] {
            client.send(&message).await.unwrap();
            client.ping();
            assert_eq!(client.next().await.unwrap(), Some(message));
        }
        client.close(CloseCode::NORMAL, "bye").await.unwrap();
    };
    let (said, ()) = tokio::join!(echo, talk);
    assert_eq!(said, Some(Close::new(CloseCode::NORMAL, "bye")));
}

#[tokio::test(start_paused = true)]
async fn halves_work_at_once_though_both_send_more_than_the_pipe_holds() {
    let (server, client) = pair_with(ConnectionOptions::default(), 64);
    let run = |socket: WebSocket<DuplexStream>| {
        let (mut receiver, mut sender) = socket.split();
        let sending = async move {
            for number in 0..200_u8 {
                sender.send(&Message::binary(vec![number; 500])).await.unwrap();
            }
            sender
        };
        let receiving = async move {
            for number in 0..200_u8 {
                let message = receiver.next().await.unwrap().unwrap();
                assert_eq!(message, Message::binary(vec![number; 500]));
            }
            receiver
        };
        async { tokio::join!(tokio::spawn(sending), tokio::spawn(receiving)) }
    };
    let ((sender, receiver), (other, peer)) = tokio::join!(run(server), run(client));
    let (mut sender, mut receiver, mut peer) = (sender.unwrap(), receiver.unwrap(), peer.unwrap());
    // What one half queues, the other one's task writes.
    let _other = other.unwrap();
    let waiting = tokio::spawn(async move { peer.next().await.unwrap() });
    let driving = tokio::spawn(async move { receiver.next().await });
    sender.queue(&Message::text("last")).unwrap();
    assert_eq!(waiting.await.unwrap(), Some(Message::text("last")));
    sender.begin_close(CloseCode::AWAY, "");
    assert_eq!(sender.queue(&Message::text("late")), Err(SendError::Closed));
    drop(driving);
}

#[tokio::test(start_paused = true)]
async fn what_is_put_is_written_by_the_one_who_put_it_as_far_as_it_goes() {
    const ROOM: usize = 64;
    let (here, mut peer) = duplex(ROOM);
    let (mut receiver, mut sender) = WebSocket::server(here, None, ConnectionOptions::default()).split();
    let frame = EncodedFrame::plain(&Message::text("hello"));
    let all = frame.bytes().repeat(20);
    for _ in 0..20 {
        sender.put_encoded(&frame).unwrap();
    }
    assert_eq!(sender.queued_bytes(), all.len());
    sender.write().await;
    assert_eq!(sender.queued_bytes(), all.len() - ROOM, "nobody else has run");
    let driving = tokio::spawn(async move { receiver.next().await });
    let mut read = vec![0; all.len()];
    peer.read_exact(&mut read).await.unwrap();
    assert_eq!(read, all);
    driving.abort();
}

#[tokio::test(start_paused = true)]
async fn an_owner_learns_when_all_is_written_and_of_what_comes_meanwhile() {
    let (mut socket, mut peer) = server(ConnectionOptions::default());
    socket.queue(&Message::text("hi")).unwrap();
    assert_eq!(socket.next_or_written().await.unwrap(), Progress::Written);
    let mut frame = [0; 4];
    peer.read_exact(&mut frame).await.unwrap();
    assert_eq!(&frame, b"\x81\x02hi");
    peer.write_all(b"\x81\x81\0\0\0\0x\x88\x80\0\0\0\0").await.unwrap();
    drop(peer.shutdown().await);
    assert_eq!(socket.next_or_written().await.unwrap(), Progress::Message(Message::text("x")));
    assert_eq!(socket.next_or_written().await.unwrap(), Progress::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_frame_encoded_once_goes_between_messages_with_a_context() {
    let (mut server, mut client) = pair();
    let message = Message::text("some text that comes again and again, ".repeat(20));
    for _ in 0..3 {
        server.queue(&message).unwrap();
        server.queue_encoded(&EncodedFrame::deflated(&message, 6, 15).unwrap()).unwrap();
        server.queue_encoded(&EncodedFrame::plain(&message)).unwrap();
    }
    let frame = EncodedFrame::plain(&message);
    assert_eq!(client.queue_encoded(&frame), Err(SendError::Unfit));
    server.flush().await.unwrap();
    for _ in 0..9 {
        assert_eq!(client.next().await.unwrap().as_ref(), Some(&message));
    }
    let (mut plain, _peer) = self::server(ConnectionOptions::default());
    let deflated = EncodedFrame::deflated(&message, 6, 15).unwrap();
    assert_eq!(plain.queue_encoded(&deflated), Err(SendError::Unfit));
    assert_eq!(plain.queue_encoded(&frame), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_broken_rule_is_told_with_its_code_and_ends_the_connection() {
    for (bytes, code) in [
        (&b"\x81\x02hi"[..], 1002_u16),
        (b"\x83\x80\0\0\0\0", 1002),
        (b"\x81\x81\0\0\0\0\xff", 1007),
        (b"\x82\xff\0\0\0\x01\0\0\0\0\0\0\0\0", 1009),
    ] {
        let (mut socket, mut peer) = server(ConnectionOptions::default());
        peer.write_all(bytes).await.unwrap();
        // Bytes behind the error must not keep the peer from hearing of it.
        peer.write_all(&[0; 5000]).await.unwrap();
        let failing = tokio::spawn(async move {
            let error = socket.next().await.unwrap_err();
            assert!(matches!(error, Error::Protocol(_)), "{error}");
            assert_eq!(socket.next().await.unwrap(), None);
            assert_eq!(socket.queue(&Message::text("x")), Err(SendError::Closed));
        });
        let mut answer = Vec::new();
        peer.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer[0], 0x88, "{bytes:x?}");
        assert_eq!(answer[2..4], code.to_be_bytes(), "{bytes:x?}");
        drop(peer);
        failing.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_last_of_many_pings_waits_for_its_answer() {
    let options = ConnectionOptions { outgoing_bytes_max: 100, ..Default::default() };
    let (here, mut peer) = duplex(128);
    let mut socket = WebSocket::server(here, None, options);
    socket.queue(&Message::binary(vec![0; 1000])).unwrap();
    let driving = tokio::spawn(async move { socket.next().await });
    for number in 0..200_u8 {
        peer.write_all(&[0x89, 0x81, 0, 0, 0, 0, number]).await.unwrap();
    }
    let mut message = vec![0; 1004];
    peer.read_exact(&mut message).await.unwrap();
    // Some are answered from then on, the last of all among them.
    let mut answers = Vec::new();
    while answers.last() != Some(&199) {
        let mut pong = [0; 3];
        peer.read_exact(&mut pong).await.unwrap();
        assert_eq!(pong[..2], [0x8a, 1]);
        answers.push(pong[2]);
    }
    assert!(answers.is_sorted() && answers.len() < 200, "{}", answers.len());
    driving.abort();
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_asked_and_given_up() {
    let (mut socket, mut peer) = server(ConnectionOptions::default());
    let begun = tokio::time::Instant::now();
    let waiting = tokio::spawn(async move { socket.next().await });
    let mut ping = [0; 2];
    peer.read_exact(&mut ping).await.unwrap();
    assert_eq!((ping, begun.elapsed().as_secs()), ([0x89, 0], 30));
    // A sign of life, and silence again.
    peer.write_all(b"\x8a\x80\0\0\0\0").await.unwrap();
    assert!(matches!(waiting.await.unwrap(), Err(Error::Silent)));
    assert_eq!(begun.elapsed().as_secs(), 30 + 30 + 20);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_is_given_up() {
    let (here, _peer) = duplex(64);
    let options = ConnectionOptions { outgoing_bytes_max: 10_000, ping_interval: None, ..Default::default() };
    let mut socket = WebSocket::server(here, None, options);
    let large = Message::binary(vec![0; 9000]);
    socket.queue(&large).unwrap();
    assert_eq!(socket.queue(&large), Err(SendError::Full));
    let begun = tokio::time::Instant::now();
    assert!(matches!(socket.next().await, Err(Error::Stalled)));
    assert_eq!(begun.elapsed(), options.write_timeout + options.close_timeout);
    assert!(matches!(socket.next().await, Ok(None)));
    let (here, _peer) = duplex(64);
    let mut socket = WebSocket::server(here, None, options);
    assert!(matches!(socket.send(&large).await, Err(Error::Stalled)));
    assert_eq!(socket.queue(&large), Err(SendError::Closed));
}

/// Time goes on only once both ends wait, so the peer comes back when it was given up, and before it is cut.
#[tokio::test(start_paused = true)]
async fn a_peer_that_was_given_up_and_comes_back_is_told() {
    const CLOSE: &[u8] = b"\x88\x24\x03\xf0nothing was taken of what was sent";
    let options = ConnectionOptions { outgoing_bytes_max: 10_000, ping_interval: None, ..Default::default() };
    for taken in [64, 104, 103] {
        let (here, mut peer) = duplex(taken);
        let (mut receiver, mut sender) = WebSocket::server(here, None, options).split();
        for _ in 0..4 {
            sender.queue(&Message::binary(vec![7; 50])).unwrap();
        }
        let running = tokio::spawn(async move { receiver.next().await });
        tokio::time::sleep(options.write_timeout + Duration::from_secs(1)).await;
        assert_eq!(sender.queue(&Message::binary(vec![7])), Err(SendError::Closed));
        let mut got = Vec::new();
        peer.read_to_end(&mut got).await.unwrap();
        let frame = [&[0x82, 50][..], &[7; 50]].concat();
        assert_eq!(got, [&frame[..], &frame, CLOSE].concat(), "{taken}");
        drop(peer);
        assert!(matches!(running.await.unwrap(), Err(Error::Stalled)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_close_that_is_not_answered_has_an_end() {
    let (mut socket, _peer) = server(ConnectionOptions::default());
    let begun = tokio::time::Instant::now();
    assert!(matches!(socket.close(CloseCode::AWAY, "").await, Err(Error::CloseTimeout)));
    assert_eq!(begun.elapsed().as_secs(), 5);
    // Answered, but the stream is left open.
    let (mut socket, mut peer) = server(ConnectionOptions::default());
    peer.write_all(b"\x88\x82\0\0\0\0\x03\xe8").await.unwrap();
    assert_eq!(socket.next().await.unwrap(), None);
    assert_eq!(begun.elapsed().as_secs(), 10);
    let mut answer = Vec::new();
    peer.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, b"\x88\x02\x03\xe8");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_without_a_close_frame_is_broken() {
    let (mut socket, peer) = server(ConnectionOptions::default());
    drop(peer);
    assert!(matches!(socket.next().await, Err(Error::Broken)));
    assert!(matches!(socket.next().await, Ok(None)));
}

#[test]
fn text_that_was_read_is_text() {
    assert_eq!(Text::from("é").as_str(), "é");
}
