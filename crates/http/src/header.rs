//! A header of a request that may stand once.

use http::HeaderMap;
use http::header::AsHeaderName;

/// Why the value of a header can't be used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InvalidHeader {
    /// It is given more than once: caches and servers disagree on which of the values counts.
    Repeated,
    /// It is not in UTF-8.
    Unreadable,
}

/// The value of a header as text; `None` where it is not given.
///
/// # Errors
///
/// [`InvalidHeader`].
pub fn header_text(headers: &HeaderMap, name: impl AsHeaderName) -> Result<Option<&str>, InvalidHeader> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(InvalidHeader::Repeated),
        (Some(value), None) => {
            str::from_utf8(value.as_bytes()).map(Some).map_err(|_| InvalidHeader::Unreadable)
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::{InvalidHeader, header_text};

    #[test]
    fn one_value_is_read_and_neither_two_nor_bytes_that_are_no_text() {
        let read = |values: &[&'static [u8]]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("last-event-id", HeaderValue::from_bytes(value).expect("a value"));
            }
            header_text(&headers, "Last-Event-ID").map(|text| text.map(str::to_owned))
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[b""]), Ok(Some(String::new())));
        assert_eq!(read(&["é 7".as_bytes()]), Ok(Some("é 7".to_owned())));
        assert_eq!(read(&[b"7", b"7"]), Err(InvalidHeader::Repeated));
        assert_eq!(read(&[b"\xff"]), Err(InvalidHeader::Unreadable));
    }
}
