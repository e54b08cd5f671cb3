//! Fuzz bodies for `alluvium-websocket`: whatever the network does, the decoder has one opinion of it; what is negotiated
//! is what both ends read; an answer to a handshake is read or refused.

use alluvium_websocket::{
    AcceptOptions, Decoder, DeflateOptions, EncodedFrame, Event, Limits, Role, accept, extension,
};
use bytes::BytesMut;

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 3] =
    [("websocket_frames", frames), ("websocket_extensions", extensions), ("websocket_handshake", handshake)];

const LIMITS: Limits = Limits { frame_bytes_max: 4096, message_bytes_max: 8192, fragments_max: 16 };

/// The first byte says how the rest is cut and what was agreed on; the rest is what a peer sends.
pub fn frames(input: &[u8]) {
    let Some((&how, bytes)) = input.split_first() else { return };
    let options = DeflateOptions {
        server_no_context_takeover: how & 1 != 0,
        client_no_context_takeover: how & 2 != 0,
        ..DeflateOptions::default()
    };
    let deflate = extension::negotiate(["permessage-deflate"], &options).filter(|_| how & 4 != 0);
    let deflate = deflate.map(|(agreed, _)| agreed);
    let role = if how & 8 == 0 { Role::Server } else { Role::Client };
    let decoded = |cut: usize| {
        let mut decoder = Decoder::new(role, LIMITS, deflate.as_ref());
        let (mut input, mut events) = (BytesMut::new(), Vec::new());
        for part in bytes.chunks(cut) {
            input.extend_from_slice(part);
            loop {
                match decoder.decode(&mut input) {
                    Ok(Some(event)) => {
                        let is_over = matches!(event, Event::Close(_));
                        events.push(event);
                        if is_over {
                            return (events, None);
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return (events, Some(error.close_code())),
                }
            }
        }
        (events, None)
    };
    let whole = decoded(usize::MAX);
    let cut = decoded(usize::from(how >> 4) + 1);
    assert_eq!(whole.0, cut.0);
    // Which of several errors is found first may depend on the cut, but not whether there is one.
    assert_eq!(whole.1.is_some(), cut.1.is_some());
    for event in whole.0 {
        if let Event::Message(message) = event {
            assert!(message.payload().len() <= LIMITS.message_bytes_max);
            let frame = EncodedFrame::deflated(&message, 1, 9).expect("anything can be compressed");
            let mut client = Decoder::new(Role::Client, Limits::default(), deflate.as_ref());
            if deflate.is_some() {
                let event = client.decode(&mut BytesMut::from(&frame.bytes()[..]));
                assert_eq!(event, Ok(Some(Event::Message(message))));
            }
        }
    }
}

/// The input is a value of `Sec-WebSocket-Extensions`.
pub fn extensions(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let options = DeflateOptions { server_max_window_bits: 12, ..DeflateOptions::default() };
    if let Some((agreed, answer)) = extension::negotiate([text], &options) {
        assert!((9..=12).contains(&agreed.server_max_window_bits));
        let read = extension::accepted([answer.as_str()], Some(&options));
        let read = read.expect("an answer is one").expect("it agrees");
        assert_eq!(read.server_max_window_bits, agreed.server_max_window_bits);
        assert_eq!(read.client_max_window_bits, agreed.client_max_window_bits);
    }
    // Whatever it is, it is read or refused.
    let _ = extension::accepted([text], Some(&options));
}

/// The input is headers of a request, one a line.
pub fn handshake(input: &[u8]) {
    let mut request = http::Request::new(());
    for line in input.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = http::HeaderName::from_bytes(&line[..colon]);
        let value = http::HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            request.headers_mut().append(name, value);
        }
    }
    let options = AcceptOptions { subprotocols: &["a", "b"], deflate: Some(DeflateOptions::default()) };
    match accept(&request, &options) {
        Ok(accepted) => {
            assert_eq!(accepted.response.status(), 101);
            assert!(accepted.subprotocol.is_none_or(|name| ["a", "b"].contains(&name.as_str())));
        }
        Err(error) => assert!(error.status().is_client_error()),
    }
}
