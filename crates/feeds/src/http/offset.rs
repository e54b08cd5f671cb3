//! The offsets of a feed as a durable stream: a position, and which history of the space it is in.
//!
//! `<position>_<check>_<token>`: the position and [the check](alluvium_feed_protocol::Check) there in sixteen hexadecimal
//! digits each, and the server token. Clients take it as it is. Within a history the position alone decides, and it comes
//! first with all its digits, so offsets sort as text in the order of the feed. An offset of another history is told by its
//! token, and where a server was set back together with its guard, so that the token stayed, by its check.
//!
//! `<position>_0000000000000000`, which servers gave before offsets named their history, is still read; of its history only
//! so much is known that it had that position.

use alluvium_feed_protocol::limits::NUMBER_MAX;
use alluvium_feed_protocol::{Check, QueryResponse, Token};

/// What follows on the position where nothing is said of the history.
const PLAIN: &str = "0000000000000000";

/// A place in a feed as a stream: after a position, of a history. The start is after position 0, in whatever history.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Place {
    pub(super) position: u64,
    /// The check at the position, if it is known.
    pub(super) check: Option<Check>,
    /// The token, if anything is known of the history.
    pub(super) token: Option<Token>,
}

/// What the parameter `offset` asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum From {
    After(Place),
    Now,
}

impl Place {
    /// The end of a page.
    pub(super) fn after(page: &QueryResponse) -> Self {
        Self { position: page.next_cursor, check: page.check, token: Some(page.server_token.clone()) }
    }

    /// Whether nothing comes before it.
    pub(super) fn is_start(&self) -> bool {
        self.position == 0
    }

    /// As it stands in `Stream-Next-Offset`.
    pub(super) fn to_text(&self) -> String {
        let Self { position, check, token } = self;
        let Some(token) = token else { return format!("{position:016x}_{PLAIN}") };
        // Where the check can't be told it is the one that nothing has.
        format!("{position:016x}_{}_{token}", check.unwrap_or_default())
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('_');
        let position =
            u64::from_str_radix(parts.next()?, 16).ok().filter(|position| *position <= NUMBER_MAX)?;
        let check: Check = parts.next()?.parse().ok()?;
        let token = match parts.next() {
            // As servers draw them; whatever else there may be stands for no history of a server.
            Some(token) if !token.bytes().all(|byte| byte.is_ascii_alphanumeric()) => return None,
            Some(token) => Some(Token::parse(token).ok()?),
            None => None,
        };
        let is_known = token.is_some() && (position == 0 || check != Check::START);
        let place = Self { position, check: Some(check).filter(|_| is_known), token };
        // One spelling only, as in the protocol.
        (parts.next().is_none() && place.to_text() == text).then_some(place)
    }
}

impl From {
    /// Reads an offset as clients send it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "-1" => Some(Self::After(Place::default())),
            "now" => Some(Self::Now),
            text => Place::parse(text).map(Self::After),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(position: u64, check: Option<u64>, bits: u128) -> Place {
        Place { position, check: check.map(Check), token: (bits != 0).then(|| Token::from_random(bits)) }
    }

    #[test]
    fn an_offset_reads_as_it_was_written() {
        for bits in [1 << 100, u128::MAX] {
            for (position, check) in [(0, Some(0)), (1, None), (42, Some(7)), (NUMBER_MAX, Some(u64::MAX))] {
                let place = place(position, check, bits);
                assert_eq!(From::parse(&place.to_text()), Some(From::After(place)));
            }
        }
        let plain = place(42, None, 0);
        assert_eq!(plain.to_text(), "000000000000002a_0000000000000000");
        assert_eq!(From::parse(&plain.to_text()), Some(From::After(plain)));
    }

    #[test]
    fn offsets_of_a_history_sort_as_text_and_have_one_spelling() {
        let positions = [0, 1, 9, 10, 255, 256, 4096, 1 << 40, NUMBER_MAX];
        let texts: Vec<String> =
            positions.iter().map(|position| place(*position, Some(!position), 1 << 120).to_text()).collect();
        assert!(texts.is_sorted_by(|one, other| one < other), "{texts:?}");
        for bad in [
            "",
            "42",
            "-2",
            "+00000000000002a_0000000000000000",
            "000000000000002A_0000000000000000",
            "000000000000002a_0000000000000001",
            "000000000000002a_0000000000000001_",
            "000000000000002a_0000000000000001_01%2034567",
            "000000000000002a_000000000000000G_01234567",
            "000000000000002a_00000000000000AB_01234567",
            "000000000000002a_00000000000000ab_01234567_0",
            "0020000000000000_0000000000000000",
            "ffffffffffffffff_0000000000000000",
        ] {
            assert_eq!(From::parse(bad), None, "{bad}");
        }
    }
}
