//! The query of a read: where to start, whether to stay, which cursor was last seen (PROTOCOL §5.6 to §5.8).

use std::borrow::Cow;

use alluvium_protocol::{
    OffsetQuery,
    header::{LiveMode, QUERY_CURSOR, QUERY_LIVE, QUERY_OFFSET},
};

use super::error::Failure;

/// Most stored bytes of a read that a client wants; an addition of this project.
const QUERY_MAX_BYTES: &str = "max_bytes";

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
    use super::*;

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
