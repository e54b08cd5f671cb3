//! The sections of the Autobahn test suite as tables: an echo server, a client that is no implementation but bytes, and
//! what must come back. Numbers are those of the suite; its cases that differ in nothing but size are one here.

use alluvium_websocket::{
    ConnectionOptions, Deflate, DeflateOptions, EncodedFrame, Header, Limits, Message, Opcode, WebSocket,
    extension, mask,
};
use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

const LIMITS: Limits =
    Limits { frame_bytes_max: 1 << 20, message_bytes_max: 1 << 20, fragments_max: 100_000 };

/// A frame of a client: the bits of its first byte, and its payload.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let key = [0x11, 0x22, 0x33, 0x44];
    let head = Header {
        is_final: true,
        is_deflated: false,
        opcode: Opcode::Binary,
        mask: Some(key),
        len: payload.len() as u64,
    };
    let mut bytes = BytesMut::new();
    head.encode(&mut bytes);
    bytes[0] = first;
    let begin = bytes.len();
    bytes.extend_from_slice(payload);
    mask(&mut bytes[begin..], key, 0);
    bytes.to_vec()
}

/// What a server sends for a message.
fn echo_of(message: &Message) -> Vec<u8> {
    EncodedFrame::plain(message).bytes().to_vec()
}

fn text(text: &str) -> Vec<u8> {
    echo_of(&Message::text(text.to_owned()))
}

fn binary(bytes: &[u8]) -> Vec<u8> {
    echo_of(&Message::binary(bytes.to_vec()))
}

fn pong(payload: &[u8]) -> Vec<u8> {
    [&[0x8a, u8::try_from(payload.len()).unwrap()], payload].concat()
}

/// A close frame with this code and any reason.
fn closed(code: u16) -> Vec<u8> {
    code.to_be_bytes().to_vec()
}

/// What an echo server answers to these bytes, given `cut` at a time: all before its close frame, and that one's code.
async fn answer(sent: &[u8], cut: usize, deflate: Option<Deflate>) -> (Vec<u8>, Option<Vec<u8>>) {
    let (here, there) = duplex(4 << 20);
    let options = ConnectionOptions { limits: LIMITS, ping_interval: None, ..Default::default() };
    let server = tokio::spawn(async move {
        let mut socket = WebSocket::server(here, deflate.as_ref(), options);
        while let Ok(Some(message)) = socket.next().await {
            if socket.send(&message).await.is_err() {
                return;
            }
        }
    });
    let (mut reading, mut writing) = tokio::io::split(there);
    for part in sent.chunks(cut) {
        // The server may have ended the connection already.
        if writing.write_all(part).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    drop(writing.shutdown().await);
    let mut came = Vec::new();
    reading.read_to_end(&mut came).await.unwrap();
    server.await.unwrap();
    let (mut at, mut code) = (0, None);
    while let Some((header, len)) = Header::parse(&came[at..]).unwrap() {
        if header.opcode == Opcode::Close {
            code = Some(came[at + len..].iter().copied().take(2).collect());
            break;
        }
        at += len + usize::try_from(header.len).unwrap();
    }
    came.truncate(at);
    (came, code)
}

/// One row: the number, what is sent, what comes back, and the code of the close frame.
type Case = (&'static str, Vec<Vec<u8>>, Vec<Vec<u8>>, Vec<u8>);

async fn run(cases: Vec<Case>) {
    for (number, sent, expected, code) in cases {
        let (sent, expected) = (sent.concat(), expected.concat());
        let cuts = if sent.len() < 2000 { vec![1, 7, usize::MAX] } else { vec![997, usize::MAX] };
        for cut in cuts {
            let (came, closed) = answer(&sent, cut, None).await;
            assert!(came == expected, "{number}, cut {cut}: {} bytes for {}", came.len(), expected.len());
            assert_eq!(closed.as_ref(), Some(&code), "{number}, cut {cut}");
        }
    }
}

/// The end of most cases: the client closes, and the server says the same.
fn bye() -> Vec<u8> {
    frame(0x88, &[0x03, 0xe8])
}

fn normal() -> Vec<u8> {
    closed(1000)
}

fn protocol() -> Vec<u8> {
    closed(1002)
}

fn invalid() -> Vec<u8> {
    closed(1007)
}

#[tokio::test]
async fn section_1_framing() {
    let mut cases: Vec<Case> = Vec::new();
    for size in [0, 125, 126, 127, 128, 65_535, 65_536] {
        let payload = vec![b'*'; size];
        let as_text = String::from_utf8(payload.clone()).unwrap();
        cases.push(("1.1", vec![frame(0x81, &payload), bye()], vec![text(&as_text)], normal()));
        cases.push(("1.2", vec![frame(0x82, &payload), bye()], vec![binary(&payload)], normal()));
    }
    run(cases).await;
}

#[tokio::test]
async fn section_2_pings_and_pongs() {
    let long = [0xfe; 125];
    run(vec![
        ("2.1", vec![frame(0x89, b""), bye()], vec![pong(b"")], normal()),
        ("2.2", vec![frame(0x89, b"Hello"), bye()], vec![pong(b"Hello")], normal()),
        ("2.3", vec![frame(0x89, b"\0\xff\xfe\xfd"), bye()], vec![pong(b"\0\xff\xfe\xfd")], normal()),
        ("2.4", vec![frame(0x89, &long), bye()], vec![pong(&long)], normal()),
        ("2.5", vec![frame(0x89, &[0xfe; 126]), bye()], vec![], protocol()),
        ("2.7", vec![frame(0x8a, b""), bye()], vec![], normal()),
        ("2.8", vec![frame(0x8a, b"unasked"), bye()], vec![], normal()),
        ("2.9", vec![frame(0x8a, b"x"), frame(0x89, b"y"), bye()], vec![pong(b"y")], normal()),
    ])
    .await;
}

#[tokio::test]
async fn sections_3_and_4_reserved_bits_and_opcodes() {
    let mut cases: Vec<Case> = Vec::new();
    for bits in [0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70] {
        for opcode in [0x81, 0x82, 0x88, 0x89, 0x8a] {
            let sent = vec![frame(0x81, b"ok"), frame(opcode | bits, b"x"), bye()];
            cases.push(("3", sent, vec![text("ok")], protocol()));
        }
    }
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        let sent = vec![frame(0x81, b"ok"), frame(0x80 | opcode, b""), bye()];
        cases.push(("4", sent, vec![text("ok")], protocol()));
    }
    run(cases).await;
}

#[tokio::test]
async fn section_5_fragmentation() {
    let joined = || vec![text("fragment1fragment2")];
    let (first, last) = (|| frame(0x01, b"fragment1"), || frame(0x80, b"fragment2"));
    run(vec![
        ("5.1", vec![frame(0x09, b"a"), frame(0x80, b"b"), bye()], vec![], protocol()),
        ("5.2", vec![frame(0x0a, b"a"), frame(0x80, b"b"), bye()], vec![], protocol()),
        ("5.3", vec![first(), last(), bye()], joined(), normal()),
        (
            "5.6",
            vec![first(), frame(0x89, b"p"), last(), bye()],
            [vec![pong(b"p")], joined()].concat(),
            normal(),
        ),
        ("5.9", vec![frame(0x80, b"x"), frame(0x81, b"y"), bye()], vec![], protocol()),
        ("5.12", vec![frame(0x00, b"x"), frame(0x81, b"y"), bye()], vec![], protocol()),
        ("5.15", vec![first(), last(), frame(0x00, b"x"), frame(0x81, b"y")], joined(), protocol()),
        ("5.18", vec![first(), frame(0x81, b"fragment2"), bye()], vec![], protocol()),
        (
            "5.19",
            vec![
                first(),
                frame(0x00, b"fragment2"),
                frame(0x89, b"one"),
                frame(0x00, b"3"),
                frame(0x89, b"two"),
                frame(0x80, b"4"),
                bye(),
            ],
            vec![pong(b"one"), pong(b"two"), text("fragment1fragment234")],
            normal(),
        ),
    ])
    .await;
}

#[tokio::test]
async fn section_6_utf_8() {
    let good =
        "Hello-\u{b5}@\u{df}\u{f6}\u{e4}\u{fc}\u{e0}\u{e1}-UTF-8!! κόσμε \u{fffd}\u{ffff}\u{10ffff}\u{feff}";
    let bytes = good.as_bytes();
    let mut cases: Vec<Case> = vec![
        ("6.1", vec![frame(0x01, b""), frame(0x00, b""), frame(0x80, b""), bye()], vec![text("")], normal()),
        ("6.2", vec![frame(0x81, bytes), bye()], vec![text(good)], normal()),
        (
            "6.2.2",
            vec![frame(0x01, &bytes[..7]), frame(0x80, &bytes[7..]), bye()],
            vec![text(good)],
            normal(),
        ),
    ];
    // One byte a frame, so that every character is cut.
    let mut single = vec![frame(0x01, b"")];
    single.extend(bytes.iter().map(|byte| frame(0x00, &[*byte])));
    single.extend([frame(0x80, b""), bye()]);
    cases.push(("6.2.3", single, vec![text(good)], normal()));
    for bad in [
        // Beyond what UTF-8 has: surrogates, too many bytes, too long spellings, too large, cut off, stray.
        &b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited"[..],
        b"\xf8\x88\x80\x80\x80",
        b"\xfc\x84\x80\x80\x80\x80",
        b"\xf7\xbf\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xc0\xaf",
        b"\xe0\x80\xaf",
        b"\xf0\x80\x80\xaf",
        b"\xc1\xbf",
        b"\xe0\x9f\xbf",
        b"\xf0\x8f\xbf\xbf",
        b"\xed\xbf\xbf",
        b"\xed\xa0\x80\xed\xb0\x80",
        b"\x80",
        b"\xbf",
        b"\xfe",
        b"\xff",
        b"\xe2\x82",
        b"\xf0\x9f\x98",
        b"\xc2",
        b"\xe2a\xac",
    ] {
        cases.push(("6.3", vec![frame(0x81, bad), bye()], vec![], invalid()));
        let (begin, end) = bad.split_at(bad.len() / 2);
        cases.push(("6.4", vec![frame(0x01, begin), frame(0x80, end), bye()], vec![], invalid()));
    }
    for (good, shown) in [
        (&b"\xed\x9f\xbf"[..], "\u{d7ff}"),
        (b"\xee\x80\x80", "\u{e000}"),
        (b"\xef\xbf\xbd", "\u{fffd}"),
        (b"\xf4\x8f\xbf\xbf", "\u{10ffff}"),
        (b"\xef\xbf\xbe", "\u{fffe}"),
        (b"\0", "\0"),
    ] {
        cases.push(("6.5-6.23", vec![frame(0x81, good), bye()], vec![text(shown)], normal()));
    }
    run(cases).await;
}

#[tokio::test]
async fn section_7_closing() {
    let close = |code: u16, reason: &[u8]| frame(0x88, &[&code.to_be_bytes()[..], reason].concat());
    let mut cases: Vec<Case> = vec![
        ("7.1.2", vec![bye(), bye()], vec![], normal()),
        ("7.1.3", vec![bye(), frame(0x89, b"late")], vec![], normal()),
        ("7.1.4", vec![bye(), frame(0x81, b"late")], vec![], normal()),
        ("7.1.5", vec![frame(0x01, b"frag"), bye(), frame(0x80, b"ment")], vec![], normal()),
        ("7.3.1", vec![frame(0x88, b"")], vec![], vec![]),
        ("7.3.2", vec![frame(0x88, b"a")], vec![], protocol()),
        ("7.3.4", vec![close(1000, b"Hello World!")], vec![], normal()),
        ("7.3.5", vec![close(1000, &[b'*'; 123])], vec![], normal()),
        ("7.3.6", vec![close(1000, &[b'*'; 124])], vec![], protocol()),
        ("7.5.1", vec![close(1000, b"\xce\xba\xed\xa0\x80")], vec![], invalid()),
    ];
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999] {
        cases.push(("7.7", vec![close(code, b"")], vec![], closed(code)));
    }
    for code in [0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65_535] {
        cases.push(("7.9", vec![close(code, b"")], vec![], protocol()));
    }
    run(cases).await;
}

#[tokio::test]
async fn sections_9_and_10_large_messages_in_large_and_small_parts() {
    let large: Vec<u8> = (0..1_u32 << 20).map(|n| n.to_le_bytes()[1]).collect();
    let mut parts = vec![frame(0x02, b"")];
    parts.extend(large.chunks(1300).map(|part| frame(0x00, part)));
    parts.extend([frame(0x80, b""), bye()]);
    let too_large = [large.as_slice(), b"x"].concat();
    run(vec![
        ("9.2", vec![frame(0x82, &large), bye()], vec![binary(&large)], normal()),
        ("9.4", parts, vec![binary(&large)], normal()),
        ("9 (beyond)", vec![frame(0x82, &too_large), bye()], vec![], closed(1009)),
        ("9 (beyond)", vec![frame(0x02, &large), frame(0x80, b"x"), bye()], vec![], closed(1009)),
    ])
    .await;
}

/// A message as a client would deflate it, in frames of `cut` bytes.
fn deflated(message: &Message, cut: usize) -> Vec<u8> {
    let whole = EncodedFrame::deflated(message, 9, 15).unwrap();
    let (header, begin) = Header::parse(whole.bytes()).unwrap().unwrap();
    let opcode = if header.opcode == Opcode::Text { 1 } else { 2 };
    let parts: Vec<&[u8]> = whole.bytes()[begin..].chunks(cut).collect();
    let mut frames = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let is_final = u8::from(number + 1 == parts.len()) << 7;
        let kind = if number == 0 { 0x40 | opcode } else { 0 };
        frames.extend(frame(is_final | kind, part));
    }
    frames
}

#[tokio::test]
async fn sections_12_and_13_compression() {
    let context = DeflateOptions {
        bytes_min: 0,
        server_no_context_takeover: false,
        client_no_context_takeover: false,
        ..DeflateOptions::default()
    };
    for options in [
        DeflateOptions { bytes_min: 0, ..DeflateOptions::default() },
        context,
        DeflateOptions { server_max_window_bits: 9, ..context },
        DeflateOptions { server_max_window_bits: 9, server_no_context_takeover: true, ..context },
    ] {
        let (agreed, _) = extension::negotiate(["permessage-deflate"], &options).unwrap();
        let mut messages = Vec::new();
        for size in [0, 16, 64, 256, 1024, 8192, 131_072] {
            messages.push(Message::text("{\"a\": [1, 2]}".chars().cycle().take(size).collect::<String>()));
            messages.push(Message::binary((0..size).map(|n| n.to_le_bytes()[0] ^ 0x5a).collect::<Vec<_>>()));
        }
        for cut in [usize::MAX, 255] {
            let sent: Vec<u8> =
                messages.iter().flat_map(|message| deflated(message, cut)).chain(bye()).collect();
            let (came, code) = answer(&sent, 1021, Some(agreed)).await;
            assert_eq!(code, Some(normal()), "{options:?}");
            // The echo, read by the other end of such a connection.
            let mut decoder =
                alluvium_websocket::Decoder::new(alluvium_websocket::Role::Client, LIMITS, Some(&agreed));
            let mut input = BytesMut::from(&came[..]);
            for message in &messages {
                let event = decoder.decode(&mut input).unwrap();
                assert_eq!(event, Some(alluvium_websocket::Event::Message(message.clone())), "{options:?}");
            }
        }
        let plain = frame(0x81, b"not everything is compressed");
        let (_, code) = answer(&[plain, bye()].concat(), 7, Some(agreed)).await;
        assert_eq!(code, Some(normal()));
        for (bad, expected) in [
            (frame(0xc1, b"\xff\xff\xff"), invalid()),
            (frame(0xc0, b"x"), protocol()),
            (frame(0xc9, b""), protocol()),
            (deflated(&Message::binary(vec![0; 2 << 20]), 1 << 16), closed(1009)),
        ] {
            assert_eq!(answer(&bad, 1021, Some(agreed)).await, (vec![], Some(expected)));
        }
    }
}
