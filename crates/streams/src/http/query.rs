//! The query of a read: where to start, whether to stay, which cursor was last seen (PROTOCOL §5.6 to §5.8).

use std::borrow::Cow;

use alluvium_protocol::{
    OffsetQuery,
    header::{LiveMode, QUERY_CURSOR, QUERY_LIVE, QUERY_OFFSET},
};

use super::error::Failure;

/// What a read asks for.
#[derive(Debug, PartialEq)]
pub(super) struct ReadQuery<'a> {
    pub(super) offset: OffsetQuery,
    pub(super) live: Option<LiveMode>,
    pub(super) cursor: Option<Cow<'a, str>>,
}

impl<'a> ReadQuery<'a> {
    /// Reads a raw query string. Unknown parameters are passed over; a known one given twice is refused, because
    /// caches and servers disagree on which of the two counts.
    pub(super) fn parse(raw: Option<&'a str>) -> Result<Self, Failure> {
        let (mut offset, mut live, mut cursor) = (None, None, None);
        for pair in raw.unwrap_or_default().split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, slot) = match decode(name).as_deref() {
                Some(QUERY_OFFSET) => (QUERY_OFFSET, &mut offset),
                Some(QUERY_LIVE) => (QUERY_LIVE, &mut live),
                Some(QUERY_CURSOR) => (QUERY_CURSOR, &mut cursor),
                _ => continue,
            };
            let value = decode(value).ok_or(Failure::UnreadableParameter { name })?;
            if slot.replace(value).is_some() {
                return Err(Failure::RepeatedParameter { name });
            }
        }
        let live = match live.as_deref() {
            None => None,
            Some(mode) => Some(LiveMode::parse(mode).ok_or(Failure::UnknownLiveMode)?),
        };
        if live.is_some() && offset.is_none() {
            return Err(Failure::OffsetMissing);
        }
        Ok(Self { offset: OffsetQuery::parse(offset.as_deref())?, live, cursor })
    }
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
    use super::*;

    #[test]
    fn no_query_asks_for_everything_from_the_start() {
        let query = ReadQuery::parse(None).expect("valid");
        assert_eq!(query, ReadQuery { offset: OffsetQuery::Start, live: None, cursor: None });
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
        ] {
            assert_eq!(ReadQuery::parse(Some(raw)), Err(expected), "{raw}");
        }
    }
}
