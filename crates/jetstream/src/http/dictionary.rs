//! `getZstdDictionary`.

use alluvium_http::{Request, Response};
use alluvium_jetstream_wire::query::Query;
use alluvium_jetstream_wire::{Wire, dictionary};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};

use super::ranged::{self, Served, Source};
use super::refusal::Refusal;

const ID: HeaderName = HeaderName::from_static("x-zstd-dictionary-id");

pub(super) fn get(query: &Query, request: &Request) -> Result<Response, Refusal> {
    let current = dictionary::known(Wire::Events).current;
    let wanted = query.get("id").filter(|id| !id.is_empty());
    let id = match wanted {
        Some(text) => text.parse().map_err(|_| Refusal::Invalid("id must be an integer".to_owned()))?,
        None => current,
    };
    let found = dictionary::find(id).ok_or(Refusal::DictionaryNotFound(current))?;
    let served = Served {
        source: Source::Memory(Bytes::from_static(found.bytes)),
        etag: format!("\"zstd-dict-{id}\""),
        modified_s: None,
        // What was asked for by its id never changes; which one is current does.
        cache_control: HeaderValue::from_static(match wanted {
            Some(_) => "public, max-age=31536000, immutable",
            None => "no-cache",
        }),
    };
    let mut response = ranged::respond(served, request.headers(), *request.method() == Method::HEAD)?;
    response.headers_mut().insert(ID, HeaderValue::from(id));
    Ok(response)
}
