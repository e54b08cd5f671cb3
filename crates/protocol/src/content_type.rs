//! Content types: what counts as the same type, and how a type is framed (PROTOCOL §9).
//!
//! A stream keeps the creator's spelling and returns it on reads. Appends and forks are compared by media
//! type alone: parameters such as `charset` and the case of letters don't matter.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::fork::SubOffsetUnit;
use crate::limits::CONTENT_TYPE_BYTES_MAX;

/// Spellings that are so common that recognising them saves an allocation on every append.
const COMMON: [&str; 4] =
    ["application/json", "application/octet-stream", "text/plain", "application/x-ndjson"];

/// A content type as its creator spelled it, without surrounding white space.
///
/// Two values are equal if they are spelled alike; the protocol's looser comparison is
/// [`ContentType::same_media_type`].
#[derive(Clone)]
pub struct ContentType(Spelling);

#[derive(Clone)]
enum Spelling {
    Common(&'static str),
    Other(Arc<str>),
}

/// How payload bytes travel in an SSE data event (PROTOCOL §5.8).
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub enum SseEncoding {
    /// The messages as one JSON array.
    Json,
    /// UTF-8 text.
    Text,
    /// Anything else, in base64.
    Base64,
}

impl ContentType {
    /// The type of a stream created without one (PROTOCOL §5.1).
    pub const DEFAULT: ContentType = ContentType(Spelling::Common("application/octet-stream"));

    /// The type whose streams keep message boundaries (PROTOCOL §9.1).
    pub const JSON: ContentType = ContentType(Spelling::Common("application/json"));

    /// Reads a header value: `type/subtype` and, after a semicolon, anything printable.
    pub fn parse(value: &str) -> Result<ContentType, InvalidContentType> {
        let value = value.trim_matches([' ', '\t']);
        if let Some(common) = COMMON.into_iter().find(|&common| common == value) {
            return Ok(ContentType(Spelling::Common(common)));
        }
        if value.len() > CONTENT_TYPE_BYTES_MAX {
            return Err(InvalidContentType::TooLong);
        }
        let (top, sub) = media_type(value).split_once('/').ok_or(InvalidContentType::Syntax)?;
        let printable = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
        if !is_token(top) || !is_token(sub) || !value.bytes().all(printable) {
            return Err(InvalidContentType::Syntax);
        }
        Ok(ContentType(Spelling::Other(Arc::from(value))))
    }

    /// The creator's spelling.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Spelling::Common(text) => text,
            Spelling::Other(text) => text,
        }
    }

    /// Whether both name one media type, whatever their parameters and the case of their letters.
    pub fn same_media_type(&self, other: &ContentType) -> bool {
        let (ours, theirs) = (self.as_str(), other.as_str());
        ours == theirs || media_type(ours).eq_ignore_ascii_case(media_type(theirs))
    }

    /// Whether streams of this type keep message boundaries (PROTOCOL §9.1): `application/json`, no `+json`
    /// suffix.
    pub fn is_json(&self) -> bool {
        self.same_media_type(&ContentType::JSON)
    }

    /// How this type travels in SSE data events.
    pub fn sse_encoding(&self) -> SseEncoding {
        let media_type = media_type(self.as_str()).as_bytes();
        if self.is_json() {
            SseEncoding::Json
        } else if media_type.get(..5).is_some_and(|top| top.eq_ignore_ascii_case(b"text/")) {
            SseEncoding::Text
        } else {
            SseEncoding::Base64
        }
    }

    /// What a fork's sub-offset counts in streams of this type (PROTOCOL §4.2).
    pub fn sub_offset_unit(&self) -> SubOffsetUnit {
        if self.is_json() { SubOffsetUnit::Messages } else { SubOffsetUnit::Bytes }
    }

    /// The spelling, borrowed for the program's lifetime where it is a common one.
    pub fn to_static(&self) -> Cow<'static, str> {
        match &self.0 {
            Spelling::Common(text) => Cow::Borrowed(text),
            Spelling::Other(text) => Cow::Owned(text.to_string()),
        }
    }
}

fn media_type(value: &str) -> &str {
    value.split_once(';').map_or(value, |(media_type, _)| media_type).trim_matches([' ', '\t'])
}

/// `token` of RFC 9110 §5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

impl Default for ContentType {
    fn default() -> ContentType {
        ContentType::DEFAULT
    }
}

impl PartialEq for ContentType {
    fn eq(&self, other: &ContentType) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for ContentType {}

impl AsRef<str> for ContentType {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Why a value is no content type.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum InvalidContentType {
    /// Not `type/subtype`, or unprintable.
    #[error("content type is not of the form `type/subtype`")]
    Syntax,
    /// Longer than [`CONTENT_TYPE_BYTES_MAX`].
    #[error("content type is longer than {CONTENT_TYPE_BYTES_MAX} bytes")]
    TooLong,
}

#[cfg(test)]
mod tests;
