use super::*;

fn head(text: &str) -> Head {
    parse_head(text.as_bytes()).expect("well-formed").expect("whole").0
}

/// Decodes `input` in steps of `step` bytes; the content and whether the body ended.
fn decode(framing: Framing, input: &[u8], step: usize) -> (Vec<u8>, bool) {
    let mut decoder = BodyDecoder::new(framing);
    let (mut content, mut start, mut end) = (Vec::new(), 0, 0);
    while end < input.len() {
        end = (end + step).min(input.len());
        start += decoder
            .decode(&input[start..end], &mut |piece| content.extend_from_slice(piece))
            .expect("well-formed");
    }
    (content, decoder.is_done())
}

#[test]
fn a_head_is_reported_whole_with_its_length() {
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nStream-Next-Offset: 1_5\r\nStream-Up-To-Date: true\r\n\r\nhello";
    let (parsed, length) = parse_head(text.as_bytes()).unwrap().unwrap();
    assert_eq!(length, text.len() - 5);
    assert_eq!(parsed.status, 200);
    assert_eq!(parsed.framing, Framing::Length(5));
    assert_eq!(parsed.next_offset.as_deref(), Some("1_5"));
    assert!(parsed.up_to_date && !parsed.close);
}

#[test]
fn every_proper_prefix_of_a_head_asks_for_more() {
    let text = b"HTTP/1.1 204 No Content\r\nstream-next-offset: 1_5\r\n\r\n";
    for end in 0..text.len() {
        assert_eq!(parse_head(&text[..end]), Ok(None), "prefix of {end} bytes");
    }
}

#[test]
fn an_answer_without_content_has_no_body() {
    assert_eq!(head("HTTP/1.1 204 No Content\r\n\r\n").framing, Framing::Length(0));
    assert_eq!(head("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n").framing, Framing::Length(0));
}

#[test]
fn header_names_and_values_are_compared_without_case() {
    let parsed = head("HTTP/1.1 200 OK\r\nTRANSFER-encoding:  Chunked \r\nconnection: Close\r\n\r\n");
    assert_eq!(parsed.framing, Framing::Chunked);
    assert!(parsed.close);
}

#[test]
fn chunked_wins_over_a_length_in_either_order() {
    for lines in
        ["Content-Length: 3\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 3"]
    {
        assert_eq!(head(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n")).framing, Framing::Chunked);
    }
}

#[test]
fn a_body_without_framing_lasts_until_the_connection_closes() {
    let parsed = head("HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(parsed.framing, Framing::UntilClose);
    assert!(parsed.close);
}

#[test]
fn malformed_heads_are_refused() {
    for (text, error) in [
        ("HTTP/2 200\r\n\r\n", WireError::StatusLine),
        ("HTTP/1.1 20\r\n\r\n", WireError::StatusLine),
        ("HTTP/1.1 2000 OK\r\n\r\n", WireError::StatusLine),
        ("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", WireError::Header),
        ("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n", WireError::ContentLength),
    ] {
        assert_eq!(parse_head(text.as_bytes()), Err(error), "{text:?}");
    }
}

#[test]
fn a_head_without_end_is_refused_at_the_limit() {
    let mut text = b"HTTP/1.1 200 OK\r\nx: ".to_vec();
    text.resize(HEAD_BYTES_MAX, b'y');
    assert_eq!(parse_head(&text), Err(WireError::HeadTooLong));
}

#[test]
fn a_body_of_known_length_ends_after_it() {
    for step in 1..=7 {
        let mut decoder = BodyDecoder::new(Framing::Length(5));
        let mut content = Vec::new();
        let mut used = 0;
        for piece in b"hello".chunks(step) {
            used += decoder.decode(piece, &mut |bytes| content.extend_from_slice(bytes)).unwrap();
        }
        assert_eq!((content.as_slice(), used, decoder.is_done()), (b"hello".as_slice(), 5, true));
        assert_eq!(decoder.decode(b"HTTP/1.1", &mut |_| panic!("nothing is left")), Ok(0));
    }
}

#[test]
fn chunks_are_decoded_however_the_bytes_arrive() {
    let input = b"5\r\nhello\r\nA;ext=\"1\"\r\n, world!!!\r\n0\r\nTrailer: x\r\n\r\n";
    for step in 1..=input.len() {
        assert_eq!(decode(Framing::Chunked, input, step), (b"hello, world!!!".to_vec(), true), "step {step}");
    }
}

#[test]
fn a_chunked_body_is_not_done_before_its_last_line() {
    let input = b"2\r\nhi\r\n0\r\n";
    assert_eq!(decode(Framing::Chunked, input, 3), (b"hi".to_vec(), false));
}

#[test]
fn malformed_chunks_are_refused() {
    for input in [b"x\r\n".as_slice(), b"\r\n", b"-1\r\n", b"1\r\nab\r\n"] {
        let mut decoder = BodyDecoder::new(Framing::Chunked);
        assert_eq!(decoder.decode(input, &mut |_| ()), Err(WireError::Chunk), "{input:?}");
    }
}

#[test]
fn only_an_unframed_body_may_end_with_its_connection() {
    assert!(BodyDecoder::new(Framing::UntilClose).may_end_with_connection());
    assert!(!BodyDecoder::new(Framing::Length(1)).may_end_with_connection());
    assert!(!BodyDecoder::new(Framing::Chunked).may_end_with_connection());
}
