//! Requests, blocking: procedures and lists as JSON, and parts of the archive as bytes of one version.

use std::io::Read;

use alluvium_websocket::{plain_refusal, tls_refusal};
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use ureq::http::{HeaderMap, StatusCode, header};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body, RequestBuilder};

use crate::config::{Limits, Token};
use crate::error::Error;

/// Where the methods are.
const METHODS: &str = "/xrpc/network.bsky.jetstream.";
/// How often one part is gone on with after its connection broke, each time with more of it than before.
const RESUMES_MAX: u32 = 8;
/// How much of a refusal is read, in bytes.
const REFUSAL_BYTES_MAX: u64 = 8 * 1024;

/// Connections to a server.
#[derive(Debug)]
pub(crate) struct Http {
    agent: Agent,
    base: String,
    token: Option<Token>,
    answer_bytes_max: u64,
}

/// A refusal as XRPC has it.
#[derive(Deserialize, Default)]
pub(crate) struct Xrpc {
    #[serde(default)]
    pub(crate) error: String,
    #[serde(default)]
    pub(crate) message: String,
}

/// Bytes of one version of something.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) bytes: Bytes,
    /// The length of the whole.
    pub(crate) total: u64,
}

/// What came of asking for bytes.
#[derive(Debug)]
pub(crate) enum Fetched {
    Part(Part),
    /// It is there in another version, or not at all.
    Replaced,
}

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// The method with its query.
    pub(crate) target: &'a str,
    /// The version, in quotes.
    pub(crate) etag: &'a str,
    /// The first byte, and the one behind the last; all of it if there is none.
    pub(crate) range: Option<(u64, u64)>,
    /// More is refused.
    pub(crate) bytes_max: u64,
}

impl Http {
    pub(crate) fn new(base: String, token: Option<Token>, limits: &Limits, roots: Option<RootCerts>) -> Self {
        let tls = roots.map(|roots| TlsConfig::builder().root_certs(roots).build());
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .user_agent(concat!("alluvium/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(limits.connect_timeout))
            .timeout_global(Some(limits.answer_timeout))
            .tls_config(tls.unwrap_or_default())
            .build()
            .into();
        Self { agent, base, token, answer_bytes_max: limits.answer_bytes_max }
    }

    /// A request with the token, if there is one.
    fn authorized<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.token {
            Some(token) => request.header(header::AUTHORIZATION, token.header()),
            None => request,
        }
    }

    /// A procedure with a body of JSON.
    pub(crate) fn post<T: DeserializeOwned>(&self, method: &str, body: &[u8]) -> Result<T, Error> {
        let url = format!("{}{METHODS}{method}", self.base);
        let answer =
            self.authorized(self.agent.post(&url)).header("content-type", "application/json").send(body);
        let (parts, body) = answer.map_err(network)?.into_parts();
        let bytes = self.succeeded(parts.status, &parts.headers, body)?;
        read(method, &bytes)
    }

    /// A query that answers with JSON.
    pub(crate) fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T, Error> {
        let bytes = self.get_bytes(target)?;
        read(target, &bytes)
    }

    /// A query that answers with bytes.
    pub(crate) fn get_bytes(&self, target: &str) -> Result<Vec<u8>, Error> {
        let url = format!("{}{METHODS}{target}", self.base);
        let (parts, body) = self.authorized(self.agent.get(&url)).call().map_err(network)?.into_parts();
        self.succeeded(parts.status, &parts.headers, body)
    }

    fn succeeded(&self, status: StatusCode, headers: &HeaderMap, body: Body) -> Result<Vec<u8>, Error> {
        if !status.is_success() {
            return Err(refused(status, headers, body));
        }
        let max = self.answer_bytes_max;
        let mut bytes = Vec::new();
        body.into_reader().take(max + 1).read_to_end(&mut bytes).map_err(|error| broken(&error))?;
        if bytes.len() as u64 > max {
            return Err(Error::Answer(format!("it is longer than {max} bytes")));
        }
        Ok(bytes)
    }

    /// Downloads bytes of one version. What a broken connection brought is kept, and the rest asked for.
    pub(crate) fn fetch(&self, wanted: &Wanted<'_>) -> Result<Fetched, Error> {
        let mut got = Vec::new();
        let mut resumes = 0;
        loop {
            let before = got.len();
            match self.fetch_on(wanted, &mut got) {
                Ok(fetched) => {
                    return Ok(fetched.map_or(Fetched::Replaced, |total| {
                        Fetched::Part(Part { bytes: std::mem::take(&mut got).into(), total })
                    }));
                }
                Err(Error::Network(_)) if got.len() > before && resumes < RESUMES_MAX => resumes += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// One request for what is missing. The length of the whole, if it is that version.
    fn fetch_on(&self, wanted: &Wanted<'_>, got: &mut Vec<u8>) -> Result<Option<u64>, Error> {
        let url = format!("{}{METHODS}{}", self.base, wanted.target);
        let begin = wanted.range.map_or(0, |(begin, _)| begin) + got.len() as u64;
        let is_partial = wanted.range.is_some() || !got.is_empty();
        let mut request = self.authorized(self.agent.get(&url));
        if is_partial {
            let end = wanted.range.map(|(_, end)| (end - 1).to_string()).unwrap_or_default();
            request = request.header("range", format!("bytes={begin}-{end}")).header("if-range", wanted.etag);
        }
        let (parts, body) = request.call().map_err(network)?.into_parts();
        match parts.status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => {}
            StatusCode::NOT_FOUND | StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::PRECONDITION_FAILED => {
                return Ok(None);
            }
            status => return Err(refused(status, &parts.headers, body)),
        }
        let etag = text(&parts.headers, header::ETAG).map(|etag| etag.trim_start_matches("W/"));
        match etag {
            Some(etag) if etag != wanted.etag => return Ok(None),
            Some(_) => {}
            None => return Err(Error::Answer(format!("{}: it has no ETag", wanted.target))),
        }
        let length: Option<u64> =
            text(&parts.headers, header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
        let (end, total) = if parts.status == StatusCode::PARTIAL_CONTENT {
            let range = text(&parts.headers, header::CONTENT_RANGE).and_then(content_range);
            let (first, end, total) = range.filter(|_| is_partial).ok_or_else(|| odd_range(wanted))?;
            let is_all = wanted.range.is_none_or(|(_, wanted_end)| end == wanted_end) && end <= total;
            if first != begin || !is_all {
                return Err(odd_range(wanted));
            }
            (end, total)
        } else if is_partial {
            return Err(Error::Answer(format!("{}: a part was asked for and all of it came", wanted.target)));
        } else {
            let length =
                length.ok_or_else(|| Error::Answer(format!("{}: it has no length", wanted.target)))?;
            (length, length)
        };
        let missing = end - begin;
        if got.len() as u64 + missing > wanted.bytes_max {
            return Err(Error::Answer(format!("{}: more than {} bytes", wanted.target, wanted.bytes_max)));
        }
        collect(body, missing, got)?;
        Ok(Some(total))
    }
}

/// Reads exactly what is missing. What comes before the connection breaks is kept.
fn collect(body: Body, missing: u64, got: &mut Vec<u8>) -> Result<(), Error> {
    let read = body.into_reader().take(missing).read_to_end(got).map_err(|error| broken(&error))?;
    if (read as u64) < missing {
        return Err(Error::Network("the answer breaks off".to_owned()));
    }
    Ok(())
}

fn odd_range(wanted: &Wanted<'_>) -> Error {
    Error::Answer(format!("{}: it is another range than the one asked for", wanted.target))
}

/// `bytes 0-255/1000` as the first byte, the one behind the last, and the length of the whole.
fn content_range(text: &str) -> Option<(u64, u64, u64)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last.checked_add(1)?, total.parse().ok()?))
}

fn read<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|error| Error::Answer(format!("{what}: {error}")))
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn network(error: ureq::Error) -> Error {
    let refusal = match &error {
        ureq::Error::Io(error) => tls_refusal(error),
        ureq::Error::Rustls(error) => tls_refusal(error),
        ureq::Error::Protocol(error) => plain_refusal(error),
        _ => None,
    };
    match refusal {
        Some(why) => Error::Untrusted(why),
        None => Error::Network(error.to_string()),
    }
}

fn broken(error: &std::io::Error) -> Error {
    Error::Network(format!("the answer breaks off: {error}"))
}

/// The seconds of a `Retry-After`; a date there is passed over.
pub(crate) fn retry_after_s(headers: &HeaderMap) -> Option<u64> {
    text(headers, header::RETRY_AFTER).and_then(|text| text.trim().parse().ok())
}

fn refused(status: StatusCode, headers: &HeaderMap, body: Body) -> Error {
    let mut bytes = Vec::new();
    // What there is of it says more than nothing.
    drop(body.into_reader().take(REFUSAL_BYTES_MAX).read_to_end(&mut bytes));
    let said = serde_json::from_slice(&bytes).unwrap_or_else(|_| Xrpc {
        error: String::new(),
        message: String::from_utf8_lossy(&bytes).trim().to_owned(),
    });
    Error::Refused {
        status: status.as_u16(),
        name: said.error,
        message: said.message,
        retry_after_s: retry_after_s(headers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_range_is_read_or_refused() {
        assert_eq!(content_range("bytes 0-255/1000"), Some((0, 256, 1000)));
        for bad in
            ["", "bytes */5", "bytes 5-4/9", "bytes 0-1/*", "items 0-1/2", "bytes 0-18446744073709551615/1"]
        {
            assert_eq!(content_range(bad), None, "{bad}");
        }
    }
}
