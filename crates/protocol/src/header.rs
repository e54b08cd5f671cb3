//! Names of headers, query parameters and their fixed values, all in lower case (PROTOCOL §13.2).

/// Whole idle seconds a stream lives for (PROTOCOL §5.1).
pub const STREAM_TTL: &str = "stream-ttl";
/// Instant at which a stream expires, RFC 3339 (PROTOCOL §5.1).
pub const STREAM_EXPIRES_AT: &str = "stream-expires-at";
/// Writer's own sequence string, compared byte by byte (PROTOCOL §5.2).
pub const STREAM_SEQ: &str = "stream-seq";
/// Cursor of a live read (PROTOCOL §10.1).
pub const STREAM_CURSOR: &str = "stream-cursor";
/// Offset to continue from (PROTOCOL §5.6).
pub const STREAM_NEXT_OFFSET: &str = "stream-next-offset";
/// Present when a response reaches the tail (PROTOCOL §5.6).
pub const STREAM_UP_TO_DATE: &str = "stream-up-to-date";
/// Closes a stream, or tells that it is closed (PROTOCOL §4.1).
pub const STREAM_CLOSED: &str = "stream-closed";
/// URL path of the stream to fork (PROTOCOL §4.2).
pub const STREAM_FORKED_FROM: &str = "stream-forked-from";
/// Offset at which a fork parts from its source (PROTOCOL §4.2).
pub const STREAM_FORK_OFFSET: &str = "stream-fork-offset";
/// Bytes or messages past the fork offset (PROTOCOL §4.2).
pub const STREAM_FORK_SUB_OFFSET: &str = "stream-fork-sub-offset";
/// Encoding of SSE data events, [`BASE64`] or absent (PROTOCOL §5.8).
pub const STREAM_SSE_DATA_ENCODING: &str = "stream-sse-data-encoding";
/// Name of an idempotent producer (PROTOCOL §5.2.1).
pub const PRODUCER_ID: &str = "producer-id";
/// Epoch of an idempotent producer (PROTOCOL §5.2.1).
pub const PRODUCER_EPOCH: &str = "producer-epoch";
/// Sequence number of one append by an idempotent producer (PROTOCOL §5.2.1).
pub const PRODUCER_SEQ: &str = "producer-seq";
/// On a sequence gap: the number that would have been accepted (PROTOCOL §5.2.1).
pub const PRODUCER_EXPECTED_SEQ: &str = "producer-expected-seq";
/// On a sequence gap: the number that came (PROTOCOL §5.2.1).
pub const PRODUCER_RECEIVED_SEQ: &str = "producer-received-seq";
/// Identity of the stream that answers (extension).
pub const STREAM_INCARNATION: &str = "stream-incarnation";
/// Request only: the identity that the stream must have (extension).
pub const STREAM_IF_INCARNATION: &str = "stream-if-incarnation";
/// Opaque text kept with an append by a producer, which a repetition must bring again (extension).
pub const PRODUCER_RETRY_METADATA: &str = "producer-retry-metadata";
/// How long a response may be kept (PROTOCOL §10.1).
pub const CACHE_CONTROL: &str = "cache-control";
/// Forbids browsers to guess a type (PROTOCOL §12.7).
pub const CONTENT_TYPE_OPTIONS: &str = "x-content-type-options";
/// Lets pages of other origins embed a response (PROTOCOL §12.7).
pub const CROSS_ORIGIN_RESOURCE_POLICY: &str = "cross-origin-resource-policy";

/// Name and value of the headers that every response carries (PROTOCOL §12.7).
pub const PROTOCOL_SECURITY_HEADERS: [(&str, &str); 2] =
    [(CONTENT_TYPE_OPTIONS, "nosniff"), (CROSS_ORIGIN_RESOURCE_POLICY, "cross-origin")];
/// [`CACHE_CONTROL`] of a `HEAD`, and of a read at `now`.
pub const HEAD_CACHE_CONTROL: &str = "no-store";
/// [`CACHE_CONTROL`] of an event stream.
pub const SSE_CACHE_CONTROL: &str = "no-cache";
/// On a read of events: the `id` of the last one that a browser has seen. It goes before the offset in the URL, which is
/// where its page began (HTML, 9.2).
pub const LAST_EVENT_ID: &str = "last-event-id";

/// Query parameter: where to read from (PROTOCOL §8).
pub const QUERY_OFFSET: &str = "offset";
/// Query parameter: live mode (PROTOCOL §5.7, §5.8).
pub const QUERY_LIVE: &str = "live";
/// Query parameter: cursor of the previous live response (PROTOCOL §10.1).
pub const QUERY_CURSOR: &str = "cursor";

/// Value of [`QUERY_OFFSET`] that stands for the tail.
pub const TAIL_OFFSET: &str = "now";

/// Value of the presence headers [`STREAM_CLOSED`] and [`STREAM_UP_TO_DATE`].
pub const TRUE: &str = "true";
/// Value of [`STREAM_SSE_DATA_ENCODING`].
pub const BASE64: &str = "base64";

/// Whether a presence header counts as given: only `true`, in any case (PROTOCOL §4.1).
pub fn is_true(value: &str) -> bool {
    value.eq_ignore_ascii_case(TRUE)
}

/// How a read stays open at the tail.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum LiveMode {
    /// One response once data is there or time is up (PROTOCOL §5.7).
    LongPoll,
    /// A stream of server-sent events (PROTOCOL §5.8).
    Sse,
}

impl LiveMode {
    /// The mode a `live` query value asks for; `None` if it names no mode.
    pub fn parse(value: &str) -> Option<LiveMode> {
        match value {
            "long-poll" => Some(LiveMode::LongPoll),
            "sse" => Some(LiveMode::Sse),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_presence_header_counts_only_as_true() {
        for given in ["true", "TRUE", "True"] {
            assert!(is_true(given), "{given}");
        }
        for absent in ["", "false", "yes", "1", "true ", "truely"] {
            assert!(!is_true(absent), "{absent:?}");
        }
    }

    #[test]
    fn live_modes_are_spelled_exactly() {
        assert_eq!(LiveMode::parse("long-poll"), Some(LiveMode::LongPoll));
        assert_eq!(LiveMode::parse("sse"), Some(LiveMode::Sse));
        for unknown in ["", "SSE", "true", "longpoll"] {
            assert_eq!(LiveMode::parse(unknown), None, "{unknown:?}");
        }
    }
}
