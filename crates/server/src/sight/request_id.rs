//! A name for each request, by which a client, a proxy and the log speak of the same one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use alluvium_metrics::PerThread;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The header with the name, in requests and answers.
pub(crate) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Where a tracing client has told of its trace (W3C Trace Context).
pub(crate) static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Bytes of a name that is taken from a client.
const ID_BYTES_MAX: usize = 128;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Gives names.
#[derive(Debug)]
pub(crate) struct RequestIds {
    seed: u64,
    next: PerThread<AtomicU64>,
}

impl RequestIds {
    /// Names that nobody guesses who does not know the seed.
    pub(crate) fn new(seed: u64) -> Self {
        let thread = AtomicUsize::new(0);
        let next = PerThread::new(|| AtomicU64::new((thread.fetch_add(1, Relaxed) as u64) << 48));
        Self { seed, next }
    }

    /// The name of a request: what the client calls it, if that is harmless wherever it is written, else its trace, else a
    /// new one.
    pub(crate) fn of(&self, headers: &HeaderMap) -> HeaderValue {
        let given = headers.get(&REQUEST_ID).filter(|id| is_harmless(id.as_bytes()));
        if let Some(id) = given {
            return id.clone();
        }
        let trace = headers.get(&TRACEPARENT).and_then(|parent| Traceparent::parse(parent.as_bytes()));
        match trace {
            Some(trace) => ascii(trace.trace_id),
            None => self.make(),
        }
    }

    fn make(&self) -> HeaderValue {
        let mut number = mixed(self.seed ^ self.next.mine().fetch_add(1, Relaxed));
        let mut id = [0; 16];
        for byte in &mut id {
            number = number.rotate_left(4);
            *byte = HEX[usize::from(number.to_le_bytes()[0] & 15)];
        }
        ascii(&id)
    }
}

/// The last step of `SplitMix64`: one number for each, and neighbours far apart.
const fn mixed(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn ascii(bytes: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(bytes).unwrap_or_else(|_| HeaderValue::from_static("0"))
}

/// Letters, digits and a few signs: nothing that a log, a header or a shell would take for something else.
fn is_harmless(id: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.iter().all(is_plain)
}

/// A trace that a request is part of, as its header tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Traceparent<'a> {
    /// 32 hexadecimal digits.
    pub(crate) trace_id: &'a [u8],
    /// 16 hexadecimal digits: the span that the request was made in.
    pub(crate) parent_id: &'a [u8],
    /// Whether whoever began the trace keeps it.
    pub(crate) is_sampled: bool,
}

impl<'a> Traceparent<'a> {
    /// Reads a header of version 00, or the part of a later version that is as in 00.
    pub(crate) fn parse(header: &'a [u8]) -> Option<Self> {
        let mut parts = header.split(|byte| *byte == b'-');
        let (version, trace_id) = (parts.next()?, parts.next()?);
        let (parent_id, flags) = (parts.next()?, parts.next()?);
        let is_hex = |part: &[u8], digits: usize| {
            part.len() == digits && part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let is_something = |part: &[u8]| part.iter().any(|byte| *byte != b'0');
        let is_read = is_hex(version, 2)
            && version != b"ff"
            && (version != b"00" || parts.next().is_none())
            && is_hex(trace_id, 32)
            && is_something(trace_id)
            && is_hex(parent_id, 16)
            && is_something(parent_id)
            && is_hex(flags, 2);
        let is_sampled = flags
            .last()
            .is_some_and(|digit| matches!(digit, b'1' | b'3' | b'5' | b'7' | b'9' | b'b' | b'd' | b'f'));
        is_read.then_some(Self { trace_id, parent_id, is_sampled })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn id(lines: &[(&'static str, &str)]) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
        }
        RequestIds::new(7).of(&headers).to_str().expect("text").to_owned()
    }

    #[test]
    fn a_harmless_name_is_kept_and_any_other_is_not() {
        for given in ["a", "018f-22.x_Y:1", &"x".repeat(128)] {
            assert_eq!(id(&[("x-request-id", given)]), given);
        }
        for given in ["", "a b", "a\"b", "a;b", "<x>", "é", "a=b", &"x".repeat(129)] {
            assert_eq!(id(&[("x-request-id", given)]), id(&[]), "{given}");
        }
    }

    #[test]
    fn a_trace_names_a_request_that_has_no_other_name() {
        let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
        assert_eq!(id(&[("traceparent", &parent)]), TRACE);
        assert_eq!(id(&[("traceparent", &parent), ("x-request-id", "mine")]), "mine");
        assert_eq!(id(&[("traceparent", &format!("01-{TRACE}-00f067aa0ba902b7-01-more"))]), TRACE);
        for wrong in [
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-00f067aa0ba902b7"),
            String::new(),
        ] {
            assert_eq!(id(&[("traceparent", &wrong)]), id(&[]), "{wrong}");
        }
    }

    #[test]
    fn made_names_differ_whichever_thread_makes_them() {
        let ids = RequestIds::new(1);
        let some = || (0..500).map(|_| ids.make().to_str().expect("text").to_owned()).collect::<Vec<_>>();
        let made: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..12).map(|_| scope.spawn(some)).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(made.iter().all(|id| id.len() == 16 && is_harmless(id.as_bytes())));
        assert_eq!(made.iter().collect::<BTreeSet<_>>().len(), made.len());
    }
}
