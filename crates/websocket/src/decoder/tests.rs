//! The decoder: every rule as a table, then any cut, mask, fragmentation and compression against the messages.

use std::sync::Arc;

use alluvium_env::sim::SeededRandom;
use proptest::prelude::*;

use super::*;
use crate::{
    close::CloseCode,
    encoder::Encoder,
    extension::{DeflateOptions, negotiate},
    message::EncodedFrame,
};

const LIMITS: Limits = Limits { frame_bytes_max: 1000, message_bytes_max: 2000, fragments_max: 4 };

/// Everything that `bytes` decode to, handed over `cut` bytes at a time.
fn decoded(mut decoder: Decoder, bytes: &[u8], cut: usize) -> Result<Vec<Event>, ProtocolError> {
    let (mut input, mut events) = (BytesMut::new(), Vec::new());
    for part in bytes.chunks(cut.max(1)) {
        input.extend_from_slice(part);
        while let Some(event) = decoder.decode(&mut input)? {
            events.push(event);
        }
    }
    Ok(events)
}

fn from_server(limits: Limits) -> Decoder {
    Decoder::new(Role::Client, limits, None)
}

fn deflate() -> Deflate {
    negotiate(["permessage-deflate"], &DeflateOptions::default()).unwrap().0
}

/// The frames of a server that a client reads in the same way, whole and byte by byte.
fn read(frames: &[&[u8]]) -> Result<Vec<Event>, ProtocolError> {
    let bytes = frames.concat();
    let whole = decoded(from_server(LIMITS), &bytes, usize::MAX);
    assert_eq!(decoded(from_server(LIMITS), &bytes, 1), whole, "{bytes:x?}");
    whole
}

fn text(text: &'static str) -> Event {
    Event::Message(Message::text(text))
}

fn binary(bytes: &'static [u8]) -> Event {
    Event::Message(Message::binary(bytes))
}

#[test]
fn messages_pings_and_pongs_are_read() {
    assert_eq!(read(&[b"\x81\0", b"\x82\0"]), Ok(vec![text(""), binary(b"")]));
    assert_eq!(read(&[b"\x81\x02hi", b"\x82\x01\xff"]), Ok(vec![text("hi"), binary(b"\xff")]));
    let ping = Event::Ping(Bytes::from_static(b"\0\xff"));
    assert_eq!(read(&[b"\x89\x02\0\xff", b"\x8a\0"]), Ok(vec![ping, Event::Pong(Bytes::new())]));
}

#[test]
fn fragments_are_joined_around_control_frames() {
    let pong = Event::Pong(Bytes::from_static(b"p"));
    let frames: [&[u8]; 5] = [b"\x01\x02he", b"\x00\0", b"\x8a\x01p", b"\x00\x02ll", b"\x80\x01o"];
    assert_eq!(read(&frames), Ok(vec![pong, text("hello")]));
    assert_eq!(read(&[b"\x02\0", b"\x80\0"]), Ok(vec![binary(b"")]));
    // A character may be cut.
    assert_eq!(read(&[b"\x01\x02\xe2\x82", b"\x80\x01\xac"]), Ok(vec![text("€")]));
}

#[test]
fn the_order_of_fragments_is_kept() {
    assert_eq!(read(&[b"\x80\0"]), Err(ProtocolError::NothingToContinue));
    assert_eq!(read(&[b"\x81\0", b"\x00\0"]), Err(ProtocolError::NothingToContinue));
    assert_eq!(read(&[b"\x01\0", b"\x81\0"]), Err(ProtocolError::Interleaved));
    assert_eq!(read(&[b"\x01\0", b"\x02\0"]), Err(ProtocolError::Interleaved));
    assert_eq!(read(&[b"\x09\0"]), Err(ProtocolError::FragmentedControl));
}

#[test]
fn text_is_checked_as_it_comes() {
    for frames in [&[&b"\x81\x01\xff"[..]][..], &[b"\x01\x01\xe2", b"\x80\x01a"], &[b"\x81\x02\xe2\x82"]] {
        assert_eq!(read(frames), Err(ProtocolError::Utf8), "{frames:x?}");
    }
    assert_eq!(read(&[b"\x01\x01\xe2", b"\x80\0"]), Err(ProtocolError::Utf8));
    // Before the frame is whole.
    assert_eq!(decoded(from_server(LIMITS), b"\x81\x7da\xed\xa0", 1), Err(ProtocolError::Utf8));
}

#[test]
fn limits_are_kept_before_anything_is_held() {
    let frame = ProtocolError::FrameTooLarge { max: 1000 };
    assert_eq!(read(&[b"\x82\x7e\x03\xe9"]), Err(frame));
    assert_eq!(read(&[b"\x82\x7f\0\0\0\x01\0\0\0\0"]), Err(frame));
    let part = [&b"\x02\x7e\x03\xe8"[..], &[0; 1000]].concat();
    let more = [&b"\x00\x7e\x03\xe8"[..], &[0; 1000]].concat();
    let message = ProtocolError::MessageTooLarge { max: 2000 };
    assert_eq!(read(&[&part, &more, b"\x80\x01"]), Err(message));
    assert_eq!(read(&[&part, &more, b"\x80\0"]).unwrap().len(), 1);
    let fragments = ProtocolError::TooManyFragments { max: 4 };
    assert_eq!(read(&[b"\x02\0", b"\0\0", b"\0\0", b"\0\0", b"\0\0"]), Err(fragments));
    assert_eq!(frame.close_code(), CloseCode::TOO_BIG);
}

#[test]
fn only_clients_mask() {
    let server = || Decoder::new(Role::Server, LIMITS, None);
    assert_eq!(decoded(server(), b"\x81\x02hi", 9), Err(ProtocolError::NotMasked));
    assert_eq!(decoded(server(), b"\x81\x82\0\0\0\0hi", 9), Ok(vec![text("hi")]));
    assert_eq!(read(&[b"\x81\x82\0\0\0\0hi"]), Err(ProtocolError::Masked));
}

#[test]
fn compression_needs_an_agreement_and_its_bit_at_the_start() {
    let frame = b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00";
    assert_eq!(read(&[frame]), Err(ProtocolError::ReservedBits));
    let with = |bytes: &[u8]| decoded(Decoder::new(Role::Client, LIMITS, Some(&deflate())), bytes, 2);
    assert_eq!(with(frame), Ok(vec![text("Hello")]));
    // RFC 7692 §7.2.3.1: in two frames.
    assert_eq!(with(b"\x41\x03\xf2\x48\xcd\x80\x04\xc9\xc9\x07\x00"), Ok(vec![text("Hello")]));
    assert_eq!(with(b"\x41\x03\xf2\x48\xcd\xc0\x04\xc9\xc9\x07\x00"), Err(ProtocolError::ReservedBits));
    assert_eq!(with(b"\xc9\0"), Err(ProtocolError::ReservedBits));
    assert_eq!(with(b"\xc1\x02\xff\xff"), Err(ProtocolError::Inflate));
    let bomb = EncodedFrame::deflated(&Message::binary(vec![0; 100_000]), 9, 15).unwrap();
    assert_eq!(with(bomb.bytes()), Err(ProtocolError::MessageTooLarge { max: 2000 }));
    let bad =
        EncodedFrame::deflated(&Message::Text(Text::checked(Bytes::from_static(b"\xff"))), 9, 15).unwrap();
    assert_eq!(with(bad.bytes()), Err(ProtocolError::Utf8));
}

#[test]
fn a_close_frame_is_read_with_its_reason() {
    let close = Close::new(CloseCode::NORMAL, "bye");
    assert_eq!(read(&[b"\x88\x05\x03\xe8bye"]), Ok(vec![Event::Close(Some(close))]));
    assert_eq!(read(&[b"\x88\0"]), Ok(vec![Event::Close(None)]));
    assert_eq!(read(&[b"\x88\x01\x03"]), Err(ProtocolError::CloseLength));
    assert_eq!(read(&[b"\x88\x02\x03\xed"]), Err(ProtocolError::CloseCode(1005)));
    assert_eq!(read(&[b"\x88\x03\x03\xe8\xff"]), Err(ProtocolError::Utf8));
}

/// A message, cut into frames in some way, with pings between them.
#[derive(Clone, Debug)]
struct Sent {
    message: Message,
    cuts: Vec<usize>,
    is_deflated: bool,
    is_shared: bool,
}

fn sent() -> impl Strategy<Value = Sent> {
    let message = prop_oneof![
        "[a-zé€😀]{0,40}".prop_map(Message::text),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Message::binary),
        Just(Message::text("")),
        (any::<u8>(), 0..9000_usize).prop_map(|(byte, len)| Message::binary(vec![byte; len])),
    ];
    (message, prop::collection::vec(0..60_usize, 0..4), any::<bool>(), any::<bool>())
        .prop_map(|(message, cuts, is_deflated, is_shared)| Sent { message, cuts, is_deflated, is_shared })
}

/// Cuts a whole frame into several, each masked like a client's or not.
fn fragmented(frame: &[u8], cuts: &[usize], is_masked: bool, out: &mut BytesMut) {
    let (header, begin) = Header::parse(frame).unwrap().unwrap();
    let mut payload = frame[begin..].to_vec();
    if let Some(key) = header.mask {
        mask(&mut payload, key, 0);
    }
    let mut rest = &payload[..];
    let mut opcode = header.opcode;
    for (number, cut) in (0_u8..).zip(cuts.iter().copied().map(Some).chain([None])) {
        let (part, left) = rest.split_at(cut.unwrap_or(rest.len()).min(rest.len()));
        let key = is_masked.then_some([1, 2, 3, number]);
        let len = part.len() as u64;
        let is_deflated = header.is_deflated && number == 0;
        Header { is_final: cut.is_none(), is_deflated, opcode, mask: key, len }.encode(out);
        let at = out.len();
        out.extend_from_slice(part);
        if let Some(key) = key {
            mask(&mut out[at..], key, 0);
        }
        if cut.is_some() {
            let key = is_masked.then_some([9; 4]);
            Header { is_final: true, is_deflated: false, opcode: Opcode::Ping, mask: key, len: 0 }
                .encode(out);
        }
        (rest, opcode) = (left, Opcode::Continuation);
    }
}

proptest! {
    /// Whatever is sent comes out as it went in, however it was fragmented, compressed, masked and cut by the network.
    #[test]
    fn what_is_sent_is_what_comes(
        sent in prop::collection::vec(sent(), 0..6),
        cut in prop_oneof![1..8_usize, 1..10_000_usize],
        is_client: bool,
        server_alone: bool,
        client_alone: bool,
        window_bits in 9..16_u8,
    ) {
        let options = DeflateOptions {
            bytes_min: 0,
            server_no_context_takeover: server_alone,
            client_no_context_takeover: client_alone,
            server_max_window_bits: window_bits,
            client_max_window_bits: window_bits,
            ..DeflateOptions::default()
        };
        let agreed = negotiate(["permessage-deflate; client_max_window_bits"], &options).unwrap().0;
        let mut encoder = if is_client {
            Encoder::client(Some(&agreed), Arc::new(SeededRandom::new(7)))
        } else {
            Encoder::server(Some(&agreed))
        };
        let mut bytes = BytesMut::new();
        for Sent { message, cuts, is_deflated, is_shared } in &sent {
            let frame = if *is_shared && !is_client {
                let shared = match is_deflated {
                    true => EncodedFrame::deflated(message, 6, window_bits).unwrap(),
                    false => EncodedFrame::plain(message),
                };
                encoder.encoded(&shared).unwrap().to_vec()
            } else if *is_deflated {
                let (head, payload) = encoder.message(message).unwrap();
                [head, payload].concat()
            } else {
                EncodedFrame::plain(message).bytes().to_vec()
            };
            fragmented(&frame, cuts, is_client, &mut bytes);
        }
        let role = if is_client { Role::Server } else { Role::Client };
        let events = decoded(Decoder::new(role, Limits::default(), Some(&agreed)), &bytes, cut).unwrap();
        let (pings, messages): (Vec<_>, Vec<_>) =
            events.into_iter().partition(|event| matches!(event, Event::Ping(_)));
        prop_assert_eq!(pings.len(), sent.iter().map(|sent| sent.cuts.len()).sum::<usize>());
        let expected: Vec<_> = sent.into_iter().map(|sent| Event::Message(sent.message)).collect();
        prop_assert_eq!(messages, expected);
    }

    /// Bytes that nobody sent on purpose give the same outcome however they are cut, and no panic.
    #[test]
    fn any_bytes_have_one_outcome(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0..3_u8, 0x80..0x8b_u8, 0xc1..0xc3_u8], 0..60),
        cut in 1..20_usize,
    ) {
        for role in [Role::Server, Role::Client] {
            let decoder = || Decoder::new(role, LIMITS, Some(&deflate()));
            prop_assert_eq!(decoded(decoder(), &bytes, cut).is_ok(), decoded(decoder(), &bytes, 100).is_ok());
        }
    }
}
