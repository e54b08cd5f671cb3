//! Attributes: a small JSON object that describes a stream, set at its creation or later.
//!
//! An addition of this project to the extensions. The text is kept as it was written, without surrounding white
//! space; the empty object stands for "none".

use std::fmt;
use std::sync::Arc;

use crate::json;
use crate::limits::ATTRIBUTES_BYTES_MAX;

/// The attributes of a stream. Cheap to clone; equal when they are spelled alike.
#[derive(Clone, Eq, PartialEq, Default)]
pub struct Attributes(Option<Arc<str>>);

impl Attributes {
    /// Checks the text of a JSON object.
    pub fn parse(text: &[u8]) -> Result<Attributes, InvalidAttributes> {
        if text.len() > ATTRIBUTES_BYTES_MAX {
            return Err(InvalidAttributes::TooLarge);
        }
        // The same care as for a message: valid UTF-8, valid JSON, nested no deeper than a parser takes.
        if text.trim_ascii_start().first() == Some(&b'[') {
            return Err(InvalidAttributes::NotAnObject);
        }
        let message = json::flatten(text).map_err(|_| InvalidAttributes::NotAnObject)?;
        let text = str::from_utf8(&message.bytes).map_err(|_| InvalidAttributes::NotAnObject)?;
        let text = text.strip_suffix(char::from(json::SEPARATOR)).unwrap_or(text);
        let content = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        match (message.lengths.len(), content) {
            (1, Some(content)) if content.trim_ascii().is_empty() => Ok(Attributes::default()),
            (1, Some(_)) => Ok(Attributes(Some(Arc::from(text)))),
            _ => Err(InvalidAttributes::NotAnObject),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The JSON text; `{}` when there are none.
    pub fn as_json(&self) -> &str {
        self.0.as_deref().unwrap_or("{}")
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json())
    }
}

/// Why a text is no attributes.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum InvalidAttributes {
    /// More than [`ATTRIBUTES_BYTES_MAX`] bytes.
    #[error("attributes are longer than {ATTRIBUTES_BYTES_MAX} bytes")]
    TooLarge,
    /// Something else than one JSON object.
    #[error("attributes are not a JSON object")]
    NotAnObject,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_object_will_do_and_it_keeps_its_spelling() {
        let text = r#"{"title":"Aare", "n":1.50}"#;
        let padded = format!(" {text}\n");
        assert_eq!(Attributes::parse(padded.as_bytes()).expect("an object").as_json(), text);
        for bad in ["", "[]", "[{}]", "1", "null", "{", "{}x", r#"{"a":}"#, "\u{feff}{}"] {
            assert_eq!(Attributes::parse(bad.as_bytes()), Err(InvalidAttributes::NotAnObject), "{bad:?}");
        }
        assert_eq!(Attributes::parse(b"{\"\xff\":1}"), Err(InvalidAttributes::NotAnObject));
    }

    #[test]
    fn an_empty_object_is_none() {
        assert_eq!(Attributes::parse(b" { } "), Ok(Attributes::default()));
        assert!(Attributes::default().is_empty());
        assert_eq!(Attributes::default().as_json(), "{}");
    }

    #[test]
    fn the_limit_counts_bytes_and_nesting_is_bounded() {
        let filled = |length: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(length - 8));
        assert!(Attributes::parse(filled(ATTRIBUTES_BYTES_MAX).as_bytes()).is_ok());
        let over = filled(ATTRIBUTES_BYTES_MAX + 1);
        assert_eq!(Attributes::parse(over.as_bytes()), Err(InvalidAttributes::TooLarge));
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(500), "]".repeat(500));
        assert_eq!(Attributes::parse(deep.as_bytes()), Err(InvalidAttributes::NotAnObject));
    }
}
