//! Entity tags of reads, and how `If-None-Match` is compared with them (PROTOCOL §10.1, RFC 9110 §13.1.2).

use std::fmt;
use std::str::FromStr;

use crate::integer;
use crate::offset::{Offset, TOKEN_BYTES};

/// Length of every incarnation's token, in bytes.
pub const INCARNATION_BYTES: usize = 36;

/// Quotes, incarnation, two offsets, and what tells the end.
const TAG_BYTES_MAX: usize = 2 + INCARNATION_BYTES + 2 * (1 + TOKEN_BYTES) + 2;

/// One life of a stream path: a stream created anew at the path of a deleted one gets another.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct Incarnation(pub u128);

impl Incarnation {
    /// The incarnation as ASCII bytes: `inc_` and 32 digits of lower-case hexadecimal.
    pub fn to_token(self) -> [u8; INCARNATION_BYTES] {
        let mut token = *b"inc_00000000000000000000000000000000";
        integer::write_hex(&mut token[4..], self.0);
        token
    }
}

/// What an incarnation's token begins with.
const INCARNATION_PREFIX: &str = "inc_";

impl FromStr for Incarnation {
    type Err = InvalidIncarnation;

    fn from_str(token: &str) -> Result<Incarnation, InvalidIncarnation> {
        let digits = token.strip_prefix(INCARNATION_PREFIX).ok_or(InvalidIncarnation)?;
        let is_canonical = token.len() == INCARNATION_BYTES
            && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match u128::from_str_radix(digits, 16) {
            Ok(value) if is_canonical => Ok(Incarnation(value)),
            _ => Err(InvalidIncarnation),
        }
    }
}

/// The text is not an incarnation of this server: `inc_` and 32 digits of lower-case hexadecimal.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[error("not an incarnation of this server")]
pub struct InvalidIncarnation;

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(str::from_utf8(&self.to_token()).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The entity tag of a response that carries the bytes from `start` to `end`, quotes included.
///
/// `closed` is whether the response tells that the stream ended: closing changes no byte, but must change the
/// tag.
pub fn etag(incarnation: Incarnation, start: Offset, end: Offset, closed: bool) -> String {
    let mut tag = Vec::with_capacity(TAG_BYTES_MAX);
    tag.push(b'"');
    tag.extend_from_slice(&incarnation.to_token());
    for offset in [start, end] {
        tag.push(b':');
        tag.extend_from_slice(&offset.to_token());
    }
    tag.extend_from_slice(if closed { b":c\"" } else { b"\"" });
    String::from_utf8(tag).unwrap_or_else(|_| unreachable!("a tag is ASCII"))
}

/// What [`etag`] put into a tag.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct EntityTag {
    /// The stream's identity.
    pub incarnation: Incarnation,
    /// Where the response began.
    pub start: Offset,
    /// Where it ended.
    pub end: Offset,
    /// Whether it told that the stream ended.
    pub closed: bool,
}

impl fmt::Display for EntityTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&etag(self.incarnation, self.start, self.end, self.closed))
    }
}

/// Reads a tag made by [`etag`], quotes included; `None` for any other text.
pub fn parse_etag(tag: &str) -> Option<EntityTag> {
    let mut parts = tag.strip_prefix('"')?.strip_suffix('"')?.split(':');
    let incarnation = parts.next()?.parse().ok()?;
    let start = parts.next()?.parse().ok()?;
    let end = parts.next()?.parse().ok()?;
    let closed = match parts.next() {
        None => false,
        Some("c") => true,
        Some(_) => return None,
    };
    parts.next().is_none().then_some(EntityTag { incarnation, start, end, closed })
}

/// Whether an `If-None-Match` value names `etag`, so that the response is `304 Not Modified`.
///
/// Takes `*` and lists; a weak tag matches its strong twin. Reading stops at the first thing that is no
/// entity tag.
pub fn if_none_match(header: &str, etag: &str) -> bool {
    const SEPARATORS: [char; 3] = [' ', '\t', ','];
    let wanted = etag.strip_prefix("W/").unwrap_or(etag);
    let mut rest = header.trim_matches([' ', '\t']);
    if rest == "*" {
        return true;
    }
    loop {
        rest = rest.trim_start_matches(SEPARATORS);
        rest = rest.strip_prefix("W/").unwrap_or(rest);
        let Some(length) = quoted_length(rest) else { return false };
        let (candidate, tail) = rest.split_at(length);
        if candidate == wanted {
            return true;
        }
        rest = tail;
    }
}

/// Bytes of the quoted string at the start of `text`; a tag has no escapes, so it ends at the next quote.
fn quoted_length(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('"')?;
    inner.find('"').map(|length| length + 2)
}

#[cfg(test)]
mod tests;
