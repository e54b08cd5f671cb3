//! What a refusal means: from an answer's status and headers to a [`Failure`].

use std::io::Read;

use super::Answer;
use crate::stream::failure::Failure;
use alluvium_protocol::header::{PRODUCER_EPOCH, PRODUCER_EXPECTED_SEQ, STREAM_CLOSED, STREAM_NEXT_OFFSET};

/// The code of a refusal, beside its text (docs/errors.md).
const ERROR_CODE: &str = "alluvium-error";
/// Of the text of an error, this much is read.
const TEXT_BYTES_MAX: u64 = 16 * 1024;
/// Of the text of an error that is not in our servers' shape, this much is shown.
const TEXT_SHOWN_CHARS: usize = 200;

/// The failure that a final refusal stands for. Headers decide before texts do, so that it works with any
/// server of the protocol.
pub(super) fn judge(answer: Answer, url: &str) -> Failure {
    let status = answer.status;
    let epoch = answer.header(PRODUCER_EPOCH).map(str::to_owned);
    let expected = answer.header(PRODUCER_EXPECTED_SEQ).map(str::to_owned);
    let closed = answer.flag(STREAM_CLOSED);
    let tail = answer.header(STREAM_NEXT_OFFSET).map(str::to_owned);
    // The answer to a HEAD has no text of its own, and that of our servers a code.
    let code = answer.header(ERROR_CODE).and_then(printable);
    let untold = match status {
        404 => "no such stream",
        410 => "the stream is deleted, or no longer has what is asked for",
        _ => code.as_deref().unwrap_or("no reason given"),
    };
    let described = describe(answer, untold);
    match status {
        401 => Failure::Denied(format!("{url}: {described}")),
        403 => match epoch {
            Some(epoch) => {
                Failure::Fenced(format!("{url}: the producer is at epoch {epoch}; this one is fenced"))
            }
            None => Failure::Denied(format!("{url}: {described}")),
        },
        404 => Failure::NotFound(format!("{url}: {described}")),
        409 if closed => {
            let tail = tail.map(|tail| format!(" at offset {tail}")).unwrap_or_default();
            Failure::Conflict(format!("{url}: the stream is closed{tail}"))
        }
        409 => match expected {
            Some(seq) => Failure::Conflict(format!("{url}: {described}: the server expects sequence {seq}")),
            None => Failure::Conflict(format!("{url}: {described}")),
        },
        410 => Failure::Gone(format!("{url}: {described}")),
        412 => Failure::Conflict(format!("{url}: {described}")),
        500..600 => Failure::Unavailable(format!("{url}: {described}")),
        _ => Failure::Other(format!("{url}: {described}")),
    }
}

/// One line about an answer: its status, and what its body says; `untold` if that is nothing.
pub(super) fn describe(answer: Answer, untold: &str) -> String {
    let status = ureq::http::StatusCode::from_u16(answer.status)
        .map_or_else(|_| answer.status.to_string(), |status| status.to_string());
    let mut body = Vec::new();
    let read = answer.into_reader().take(TEXT_BYTES_MAX).read_to_end(&mut body);
    let told = read.ok().and_then(|_| message(&body));
    format!("{status}: {}", told.as_deref().unwrap_or(untold))
}

/// The message and code of `{"error":{"code","message"}}`, or the beginning of a plain text.
fn message(body: &[u8]) -> Option<String> {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(body) else {
        return printable(&String::from_utf8_lossy(body));
    };
    let error = value.get("error").unwrap_or(&value);
    let text = error.get("message").unwrap_or(error).as_str().and_then(printable);
    let code = error.get("code").and_then(serde_json::Value::as_str).and_then(printable);
    match (text, code) {
        (Some(text), Some(code)) => Some(format!("{text} ({code})")),
        (text, code) => text.or(code),
    }
}

/// A server's text is not to be trusted with the terminal: no control characters, no second line.
fn printable(text: &str) -> Option<String> {
    let line = text.trim().lines().next()?;
    let shown: String = line.chars().filter(|char| !char.is_control()).take(TEXT_SHOWN_CHARS).collect();
    (!shown.is_empty()).then_some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_found_in_the_shapes_that_servers_use() {
        let cases: [(&[u8], Option<&str>); 6] = [
            (
                br#"{"error":{"code":"not_found","message":"no such stream"}}"#,
                Some("no such stream (not_found)"),
            ),
            (br#"{"error":{"code":"not_found"}}"#, Some("not_found")),
            (br#"{"error":"nope"}"#, Some("nope")),
            (b"Stream not found\nmore", Some("Stream not found")),
            (b"bad \x1b[31mred", Some("bad [31mred")),
            (b"", None),
        ];
        for (body, expected) in cases {
            assert_eq!(message(body).as_deref(), expected);
        }
    }
}
