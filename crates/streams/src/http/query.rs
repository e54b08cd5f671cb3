//! The query of a read: where to start, whether to stay, which cursor was last seen (PROTOCOL §5.6 to §5.8).

use std::borrow::Cow;

use alluvium_protocol::{
    OffsetQuery,
    header::{LiveMode, QUERY_CURSOR, QUERY_LIVE, QUERY_OFFSET},
};

use http::HeaderMap;

use super::{
    error::Failure,
    headers::{self, LAST_EVENT_ID},
};

/// Most stored bytes of a read that a client wants; an addition of this project.
const QUERY_MAX_BYTES: &str = "max_bytes";

/// What a browser comes back with is no offset.
const LAST_EVENT: Failure = Failure::InvalidOffsetIn { place: "header `Last-Event-ID`" };

/// What a read asks for.
#[derive(Debug, PartialEq)]
pub(super) struct ReadQuery<'a> {
    pub(super) offset: OffsetQuery,
    pub(super) live: Option<LiveMode>,
    pub(super) cursor: Option<Cow<'a, str>>,
    pub(super) max_bytes: Option<u64>,
}

impl<'a> ReadQuery<'a> {
    /// Reads a raw query string.
    pub(super) fn parse(raw: Option<&'a str>) -> Result<Self, Failure> {
        let [offset, live, cursor, max_bytes] =
            parameters(raw, [QUERY_OFFSET, QUERY_LIVE, QUERY_CURSOR, QUERY_MAX_BYTES])?;
        let live = match live.as_deref() {
            None => None,
            Some(mode) => Some(LiveMode::parse(mode).ok_or(Failure::UnknownLiveMode)?),
        };
        if live.is_some() && offset.is_none() {
            return Err(Failure::OffsetMissing);
        }
        let max_bytes = match max_bytes.as_deref() {
            None => None,
            // An event stream has no length that could be bounded.
            Some(_) if live == Some(LiveMode::Sse) => return Err(Failure::InvalidMaxBytes),
            Some(text) => Some(positive(text).ok_or(Failure::InvalidMaxBytes)?),
        };
        Ok(Self { offset: OffsetQuery::parse(offset.as_deref())?, live, cursor, max_bytes })
    }

    /// Goes on after the last event that a browser has seen, if it tells one. `EventSource` comes back with the URL that it
    /// began with, so that event goes before the offset there.
    pub(super) fn resumed(mut self, headers: &HeaderMap) -> Result<Self, Failure> {
        if self.live == Some(LiveMode::Sse)
            && let Some(id) = headers::text(headers, &LAST_EVENT_ID)?
        {
            self.offset = OffsetQuery::parse(Some(id)).map_err(|_| LAST_EVENT)?;
        }
        Ok(self)
    }
}

/// Decimal digits that come to a number of at least 1.
pub(super) fn positive(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_plain && *number > 0)
}

/// The decoded values of parameters, in the order of their names. Unknown parameters are passed over; a known one
/// given twice is refused, because caches and servers disagree on which of the two counts.
pub(super) fn parameters<'a, const N: usize>(
    raw: Option<&'a str>,
    names: [&'static str; N],
) -> Result<[Option<Cow<'a, str>>; N], Failure> {
    let mut values = [const { None }; N];
    for pair in raw.unwrap_or_default().split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(name) = decode(name) else { continue };
        let Some(index) = names.iter().position(|known| *known == name) else { continue };
        let value = decode(value).ok_or(Failure::UnreadableParameter { name: names[index] })?;
        if values[index].replace(value).is_some() {
            return Err(Failure::RepeatedParameter { name: names[index] });
        }
    }
    Ok(values)
}

/// Decodes a name or value of a query; `None` if it is not UTF-8 afterwards or has a broken escape.
fn decode(raw: &str) -> Option<Cow<'_, str>> {
    if !raw.contains(['%', '+']) {
        return Some(Cow::Borrowed(raw));
    }
    let mut decoded = Vec::with_capacity(raw.len());
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? << 4 | digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_last_event_that_was_seen_goes_before_the_offset_of_the_url_for_events_alone() {
        let parsed = |raw, ids: &[&'static str]| {
            let ids = ids.iter().map(|id| (LAST_EVENT_ID.clone(), HeaderValue::from_static(id)));
            ReadQuery::parse(Some(raw)).unwrap().resumed(&ids.collect()).map(|query| query.offset)
        };
        let seen = "000000000000000a_00000000000000ff";
        let at = OffsetQuery::At(seen.parse().unwrap());
        for raw in
            ["offset=-1&live=sse", "offset=now&live=sse", "offset=0000000000000001_0000000000000001&live=sse"]
        {
            assert_eq!(parsed(raw, &[seen]), Ok(at), "{raw}");
            for bad in ["", "x", "000000000000000a", "000000000000000a_00000000000000ff,"] {
                assert_eq!(parsed(raw, &[bad]), Err(LAST_EVENT), "{raw}: `{bad}`");
            }
            let twice = Failure::RepeatedHeader { name: LAST_EVENT_ID.clone() };
            assert_eq!(parsed(raw, &[seen, seen]), Err(twice));
        }
        assert_eq!(parsed("offset=now&live=sse", &[]), Ok(OffsetQuery::Now));
        for raw in ["", "offset=-1&live=long-poll"] {
            assert_eq!(parsed(raw, &[seen]), Ok(OffsetQuery::Start), "{raw}");
        }
    }

    #[test]
    fn no_query_asks_for_everything_from_the_start() {
        let query = ReadQuery::parse(None).expect("valid");
        assert_eq!(
            query,
            ReadQuery { offset: OffsetQuery::Start, live: None, cursor: None, max_bytes: None }
        );
    }

    #[test]
    fn names_and_values_are_decoded_once() {
        let query =
            ReadQuery::parse(Some("x=1&%6fffset=n%6Fw&live=long-poll&cursor=a%2525+b")).expect("valid");
        assert_eq!(query.offset, OffsetQuery::Now);
        assert_eq!(query.live, Some(LiveMode::LongPoll));
        assert_eq!(query.cursor.as_deref(), Some("a%25 b"));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (raw, expected) in [
            ("offset=", Failure::InvalidOffset),
            ("offset=1,2", Failure::InvalidOffset),
            ("offset=now+", Failure::InvalidOffset),
            ("offset=-1&offset=-1", Failure::RepeatedParameter { name: "offset" }),
            ("offset=%zz", Failure::UnreadableParameter { name: "offset" }),
            ("offset=%ff", Failure::UnreadableParameter { name: "offset" }),
            ("live=sse", Failure::OffsetMissing),
            ("offset=-1&live=", Failure::UnknownLiveMode),
            ("max_bytes=0", Failure::InvalidMaxBytes),
            ("max_bytes=+1", Failure::InvalidMaxBytes),
            ("offset=-1&live=sse&max_bytes=1", Failure::InvalidMaxBytes),
        ] {
            assert_eq!(ReadQuery::parse(Some(raw)), Err(expected), "{raw}");
        }
    }
}
