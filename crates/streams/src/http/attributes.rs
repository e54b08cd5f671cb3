//! `…/attrs`: a small JSON object that describes a stream. An addition of this project to the extensions.

use std::fmt::Write;

use alluvium_http::{Body, Response};
use alluvium_protocol::{Attributes, InvalidAttributes, StreamPath, limits::ATTRIBUTES_BYTES_MAX};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{
    Request, collect_at_most,
    error::Failure,
    headers::{JSON, NO_STORE, STREAM_ATTRS, ascii, respond, set_incarnation, text},
};
use crate::state::State;

/// What a store without them is said not to support.
pub(super) const ATTRIBUTES: &str = "attributes";

/// `GET` and `HEAD`: the object as it was written, `{}` if there is none. Does not count as a read: a TTL runs on.
pub(super) fn get(streams: &State, path: &StreamPath) -> Result<Response, Failure> {
    let head = streams.backend.engine(ATTRIBUTES)?.head(path)?;
    let mut response = respond(StatusCode::OK);
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    set_incarnation(response.headers_mut(), head.incarnation);
    *response.body_mut() = Body::full(Bytes::copy_from_slice(head.attributes.as_json().as_bytes()));
    Ok(response)
}

/// `PUT`: replaces them all, also on a closed stream; `{}` takes them away.
pub(super) async fn set(
    streams: &State,
    path: &StreamPath,
    request: &mut Request,
) -> Result<Response, Failure> {
    let engine = streams.backend.engine(ATTRIBUTES)?;
    let body =
        collect_at_most(streams, request, ATTRIBUTES_BYTES_MAX).await.map_err(|error| match error {
            Failure::BodyTooLarge { .. } => InvalidAttributes::TooLarge.into(),
            error => error,
        })?;
    let incarnation = engine.set_attributes(path, Attributes::parse(&body)?).await?;
    let mut response = respond(StatusCode::NO_CONTENT);
    set_incarnation(response.headers_mut(), incarnation);
    Ok(response)
}

/// What `Stream-Attrs` says on a create.
pub(super) fn of_create(headers: &HeaderMap) -> Result<Option<Attributes>, Failure> {
    match text(headers, &STREAM_ATTRS)? {
        None => Ok(None),
        Some(text) => Ok(Some(Attributes::parse(text.as_bytes())?)),
    }
}

/// The same object as the value of a header: in ASCII, on one line.
pub(super) fn in_header(attributes: &Attributes) -> HeaderValue {
    let json = attributes.as_json();
    let mut value = String::with_capacity(json.len());
    for char in json.chars() {
        match char {
            // JSON has line ends and tabs between tokens only, and whatever else is not printable ASCII in strings only.
            '\t' | '\n' | '\r' => value.push(' '),
            ' '..='~' => value.push(char),
            char => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    // Writing to a string does not fail.
                    let _ = write!(value, "\\u{unit:04x}");
                }
            }
        }
    }
    ascii(Bytes::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_the_same_object_in_ascii_on_one_line() {
        for json in ["{}", r#"{"title":"Aare"}"#, "{\n\t\"t\": \"\u{e4}\u{1f600}\\n\u{7f}\"\r}"] {
            let attributes = Attributes::parse(json.as_bytes()).unwrap();
            let value = in_header(&attributes);
            let shown: serde_json::Value = serde_json::from_str(value.to_str().unwrap()).unwrap();
            let meant: serde_json::Value = serde_json::from_str(json).unwrap();
            assert_eq!(shown, meant, "{json:?}");
        }
    }
}
