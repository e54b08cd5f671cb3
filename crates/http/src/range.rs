//! Which bytes a request wants of what it asks for (RFC 9110, section 14).
//!
//! Several ranges at once are answered if they make up one part, and else with the whole, as section 14.2 allows.

use std::ops::Range;

use http::{HeaderMap, HeaderValue, header};

/// More ranges than this in a request are none: nobody needs them but to make work.
const RANGES_MAX: usize = 16;

/// What a request with a `Range` is to be given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ranged {
    /// Everything: there is no range, or one that may be passed over, as of other units, of several parts, or of another
    /// version.
    Whole,
    /// Bytes that there are, one at least.
    Part(Range<u64>),
    /// Nothing: all that is asked for lies past the end.
    Nothing,
}

impl Ranged {
    /// What a GET with these headers is to be given of `len` bytes. `is_current` says of the value of `If-Range` whether it
    /// names what there is now.
    pub fn of(headers: &HeaderMap, len: u64, is_current: impl FnOnce(&HeaderValue) -> bool) -> Self {
        let mut lines = headers.get_all(header::RANGE).iter();
        let (Some(line), None) = (lines.next(), lines.next()) else { return Self::Whole };
        let is_current = headers.get(header::IF_RANGE).is_none_or(is_current);
        let parts = line.to_str().ok().filter(|_| is_current).and_then(|text| parts(text, len));
        parts.map_or(Self::Whole, Self::joined)
    }

    /// The one part that these make up.
    fn joined(mut parts: Vec<Range<u64>>) -> Self {
        parts.retain(|part| !part.is_empty());
        parts.sort_unstable_by_key(|part| part.start);
        let mut parts = parts.into_iter();
        let Some(mut whole) = parts.next() else { return Self::Nothing };
        for part in parts {
            if part.start > whole.end {
                return Self::Whole;
            }
            whole.end = whole.end.max(part.end);
        }
        Self::Part(whole)
    }
}

/// The ranges that a header lists, cut at the end; empty ones lie outside. None if it is no list of ranges of bytes.
fn parts(text: &str, len: u64) -> Option<Vec<Range<u64>>> {
    let (unit, specs) = text.split_once('=')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    // A list may have empty elements (section 5.6.1.2).
    let specs: Vec<&str> = specs.split(',').map(str::trim).filter(|spec| !spec.is_empty()).collect();
    if specs.is_empty() || specs.len() > RANGES_MAX {
        return None;
    }
    let part = |spec: &str| {
        let (first, last) = spec.split_once('-')?;
        Some(match (digits(first), digits(last)) {
            (Some(_), Some(_)) if is_above(first, last) => return None,
            (Some(first), Some(last)) => first.min(len)..last.saturating_add(1).min(len),
            (Some(first), None) if last.is_empty() => first.min(len)..len,
            (None, Some(count)) if first.is_empty() => len - count.min(len)..len,
            _ => return None,
        })
    };
    specs.into_iter().map(part).collect()
}

/// A number of any length; one that is too long is beyond every end.
fn digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Whether one number is greater than another, whatever their lengths.
fn is_above(one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(|text| text.trim_start_matches('0'));
    (one.len(), one) > (other.len(), other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(lines: &[&'static str], len: u64) -> Ranged {
        let lines = lines.iter().map(|line| (header::RANGE, HeaderValue::from_static(line)));
        Ranged::of(&lines.collect(), len, |_| false)
    }

    #[test]
    fn parts_are_cut_at_the_end() {
        for (spec, expected) in [
            ("bytes=0-0", Some(0..1)),
            ("bytes=2-", Some(2..10)),
            ("bytes=-3", Some(7..10)),
            ("bytes=-30", Some(0..10)),
            ("bytes=5-99", Some(5..10)),
            ("bytes=0-18446744073709551615", Some(0..10)),
            ("bytes=3-2", None),
            ("bytes=99999999999999999999999-99999999999999999999998", None),
            ("bytes=18446744073709551617-18446744073709551616", None),
            ("bytes=0099-98", None),
            ("bytes=0001-2", Some(1..3)),
            ("bytes=1-00000000000000000000000002", Some(1..3)),
            ("bytes=x-2", None),
            ("bytes=0-1,3-4", None),
            ("lines=0-1", None),
            ("Bytes=1-2", Some(1..3)),
            ("BYTES=1-2", Some(1..3)),
            ("bytes= 1-2 ", Some(1..3)),
            ("bytes=,1-2,", Some(1..3)),
            ("bytes=0-1,2-4", Some(0..5)),
            ("bytes=3-4, 0-2", Some(0..5)),
            ("bytes=0-,-3", Some(0..10)),
            ("bytes=1-2,50-60", Some(1..3)),
            ("bytes=0-99999999999999999999999", Some(0..10)),
            ("bytes=-99999999999999999999999", Some(0..10)),
            ("bytes=+1-2", None),
            ("bytes=1-+2", None),
            ("bytes=1 -2", None),
            ("bytes=1-2-3", None),
            ("bytes=-", None),
            ("bytes=", None),
            ("bytes=,", None),
            ("bytes 1-2", None),
            ("bytes=1-2,x", None),
            ("bytes=--1", None),
            ("bytes=1-1,1-1,1-1,1-1,1-1,1-1,1-1,1-1,1-1,1-1,1-1,1-1,1-1,1-1,1-1,1-1,1-1", None),
        ] {
            assert_eq!(ask(&[spec], 10), expected.map_or(Ranged::Whole, Ranged::Part), "{spec}");
        }
        assert_eq!(ask(&[], 10), Ranged::Whole);
        assert_eq!(ask(&["bytes=0-1", "bytes=3-4"], 10), Ranged::Whole);
    }

    #[test]
    fn what_lies_past_the_end_is_nothing() {
        for spec in [
            "bytes=10-",
            "bytes=99-100",
            "bytes=-0",
            "bytes=10-11,-0",
            "bytes=99999999999999999999999-",
            "bytes=99999999999999999999998-99999999999999999999999",
            "bytes=99999999999999999999999-99999999999999999999999",
        ] {
            assert_eq!(ask(&[spec], 10), Ranged::Nothing, "{spec}");
        }
        assert_eq!(ask(&["bytes=0-"], 0), Ranged::Nothing);
    }

    #[test]
    fn a_part_of_another_version_is_the_whole() {
        let mut headers = HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static("bytes=1-2"))]);
        headers.insert(header::IF_RANGE, HeaderValue::from_static("\"1\""));
        assert_eq!(Ranged::of(&headers, 10, |tag| tag == "\"1\""), Ranged::Part(1..3));
        assert_eq!(Ranged::of(&headers, 10, |tag| tag == "\"2\""), Ranged::Whole);
    }
}
