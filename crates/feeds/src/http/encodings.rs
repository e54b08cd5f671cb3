//! Which encoding a request has, and which one its answer.

use std::cmp::Reverse;

use alluvium_feed_protocol::Encoding;
use http::{HeaderMap, header};

/// Elements of an `Accept` that are looked at.
const RANGES_MAX: usize = 64;

/// The encoding of the body; `None` for another `Content-Type`. Text that doesn't say is taken for JSON, so that a plain
/// `curl -d` works.
pub(super) fn sent(headers: &HeaderMap) -> Option<Encoding> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Some(Encoding::Json) };
    let media_type = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    match media_type.to_ascii_lowercase().as_str() {
        "application/json" | "text/plain" | "application/x-www-form-urlencoded" => Some(Encoding::Json),
        "application/cbor" => Some(Encoding::Cbor),
        _ => None,
    }
}

/// The encoding of the answer, be it an error: what is accepted most, else the request's own.
pub(super) fn wanted(headers: &HeaderMap) -> Encoding {
    let own = sent(headers).unwrap_or(Encoding::Json);
    let lines = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<Range> =
        lines.flat_map(|line| line.split(',')).take(RANGES_MAX).enumerate().map(Range::parse).collect();
    match (liking(&ranges, Encoding::Json), liking(&ranges, Encoding::Cbor)) {
        (None, None) => own,
        (Some(_), None) => Encoding::Json,
        (None, Some(_)) => Encoding::Cbor,
        (Some(json), Some(cbor)) if json == cbor => own,
        (Some(json), Some(cbor)) => {
            if json > cbor {
                Encoding::Json
            } else {
                Encoding::Cbor
            }
        }
    }
}

/// One element of an `Accept`.
struct Range {
    types: String,
    /// Thousandths.
    quality: u16,
    place: usize,
}

/// How much an encoding is liked: by its quality, then by how closely it is named, then by how early.
type Liking = (u16, u8, Reverse<usize>);

impl Range {
    fn parse((place, text): (usize, &str)) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let types = parts.next().unwrap_or_default().to_ascii_lowercase();
        let quality = parts.find_map(|part| part.strip_prefix(['q', 'Q'])?.trim_start().strip_prefix('='));
        let quality = quality.map_or(Some(1000), |quality| thousandths(quality.trim()));
        // What can't be read says nothing.
        Self { types, quality: quality.unwrap_or(0), place }
    }

    /// How closely it names an encoding, if it does.
    fn fits(&self, encoding: Encoding) -> Option<u8> {
        match self.types.as_str() {
            "*/*" => Some(0),
            "application/*" => Some(1),
            named if named == encoding.media_type() => Some(2),
            _ => None,
        }
    }
}

/// A quality as it is written: from 0 to 1, with at most three digits behind the point.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = fraction.len() <= 3 && fraction.bytes().all(|digit| digit.is_ascii_digit());
    let fraction: u16 = format!("{fraction:0<3}").parse().ok().filter(|_| is_number)?;
    match whole {
        "0" => Some(fraction),
        "1" if fraction == 0 => Some(1000),
        _ => None,
    }
}

/// How much an encoding is liked, by the range that names it most closely; `None` if it isn't accepted.
fn liking(ranges: &[Range], encoding: Encoding) -> Option<Liking> {
    let fitting =
        ranges.iter().filter_map(|range| Some((range.fits(encoding)?, Reverse(range.place), range)));
    let (closeness, place, range) = fitting.max_by_key(|(closeness, place, _)| (*closeness, *place))?;
    (range.quality > 0).then_some((range.quality, closeness, place))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn an_answer_has_the_encoding_that_is_accepted_most() {
        let wanted = |content_type: &'static str, accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            wanted(&headers)
        };
        let (json, cbor) = ("application/json", "application/cbor");
        for (accept, of_json, of_cbor) in [
            ("", Encoding::Json, Encoding::Cbor),
            ("*/*", Encoding::Json, Encoding::Cbor),
            ("text/html", Encoding::Json, Encoding::Cbor),
            ("application/cbor", Encoding::Cbor, Encoding::Cbor),
            ("Application/JSON", Encoding::Json, Encoding::Json),
            ("application/cbor, application/json", Encoding::Cbor, Encoding::Cbor),
            ("application/json, application/cbor", Encoding::Json, Encoding::Json),
            ("application/json, */*", Encoding::Json, Encoding::Json),
            ("application/cbor;q=0.5, application/json;q=0.9", Encoding::Json, Encoding::Json),
            ("application/json; q=0.1 , */*;q=0.2", Encoding::Cbor, Encoding::Cbor),
            ("application/*;q=0.1, application/json;q=0", Encoding::Cbor, Encoding::Cbor),
            ("application/json;q=0, application/cbor;q=0.0", Encoding::Json, Encoding::Cbor),
            ("application/json;q=2, application/cbor;q=0.001", Encoding::Cbor, Encoding::Cbor),
        ] {
            assert_eq!((wanted(json, accept), wanted(cbor, accept)), (of_json, of_cbor), "{accept}");
        }
    }
}
