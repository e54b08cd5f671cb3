//! What a subscription is to be, as its document says it (PROTOCOL §6.2).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::glob::{InvalidPattern, Pattern};
use super::name::{InvalidName, name_of, parse_name};
use crate::limits::{DESCRIPTION_BYTES_MAX, SUBSCRIPTION_NAMES_MAX, WEBHOOK_URL_BYTES_MAX};

/// The lease of a document that names none, in milliseconds.
pub const LEASE_TTL_MS_DEFAULT: u64 = 30_000;
/// The shortest lease, in milliseconds.
pub const LEASE_TTL_MS_MIN: u64 = 1_000;
/// The longest lease, in milliseconds.
pub const LEASE_TTL_MS_MAX: u64 = 600_000;

/// How a subscription wakes its worker.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// By a request to a URL.
    Webhook,
    /// By an event in a stream, after which workers race for a claim.
    PullWake,
}

/// A subscription's configuration, normalized: names without outer slashes, sorted and each once; defaults filled in;
/// nothing that its kind has no use for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// How it wakes its worker.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Which streams it follows besides those it names.
    pub pattern: Option<String>,
    /// The streams that it names.
    pub streams: Vec<String>,
    /// Where webhooks go, of that kind.
    pub webhook_url: Option<String>,
    /// The stream that gets wake events, of the other.
    pub wake_stream: Option<String>,
    /// How long a worker may be silent, in milliseconds.
    pub lease_ttl_ms: u64,
    /// What it is for, for people.
    pub description: Option<String>,
}

/// Why a document is no configuration.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum InvalidConfig {
    /// Not a JSON object.
    #[error("the body must be a JSON object")]
    Json,
    /// `type` is neither of the two.
    #[error("`type` must be `webhook` or `pull-wake`")]
    Kind,
    /// A field is not of the kind it should be.
    #[error("`{0}` must be {1}")]
    Field(&'static str, &'static str),
    /// The pattern is none.
    #[error(transparent)]
    Pattern(#[from] InvalidPattern),
    /// A name that no stream can have.
    #[error("`{name}` names no stream: {source}")]
    Name {
        /// As it was given.
        name: String,
        /// What is wrong with it.
        source: InvalidName,
    },
    /// Nothing to follow.
    #[error("at least one of `pattern` and `streams` is required")]
    Nothing,
    /// More names than [`SUBSCRIPTION_NAMES_MAX`].
    #[error("more than {SUBSCRIPTION_NAMES_MAX} streams in one request")]
    TooManyStreams,
    /// Out of bounds.
    #[error("`lease_ttl_ms` must be an integer from {LEASE_TTL_MS_MIN} to {LEASE_TTL_MS_MAX}")]
    Lease,
    /// A webhook without a place to go.
    #[error("webhook subscriptions require `webhook.url`")]
    NoUrl,
    /// A wake without a place to go.
    #[error("pull-wake subscriptions require `wake_stream`")]
    NoWakeStream,
    /// Each wake event would be cause for the next.
    #[error("a subscription cannot follow its own wake stream")]
    FollowsItself,
}

impl Config {
    /// Reads the document of a `PUT`. Fields that are not known are passed over. Where webhooks may go is not checked.
    pub fn parse(body: &[u8]) -> Result<Self, InvalidConfig> {
        let Ok(Value::Object(document)) = serde_json::from_slice(body) else {
            return Err(InvalidConfig::Json);
        };
        let kind = match document.get("type").and_then(Value::as_str) {
            Some("webhook") => Kind::Webhook,
            Some("pull-wake") => Kind::PullWake,
            _ => return Err(InvalidConfig::Kind),
        };
        let pattern = match text(&document, "pattern")? {
            Some(pattern) => Some(Pattern::parse(pattern)?.to_string()),
            None => None,
        };
        let streams = names_of(document.get("streams"))?;
        if pattern.is_none() && streams.is_empty() {
            return Err(InvalidConfig::Nothing);
        }
        let (webhook_url, wake_stream) = match kind {
            Kind::Webhook => (Some(webhook_url(&document)?), None),
            Kind::PullWake => (None, Some(wake_stream(&document)?)),
        };
        if wake_stream.as_ref().is_some_and(|wake_stream| streams.contains(wake_stream)) {
            return Err(InvalidConfig::FollowsItself);
        }
        let description = text(&document, "description")?;
        if description.is_some_and(|text| text.len() > DESCRIPTION_BYTES_MAX) {
            return Err(InvalidConfig::Field("description", "of at most 4096 bytes"));
        }
        let lease_ttl_ms = lease(&document)?;
        let description = description.map(str::to_owned);
        Ok(Self { kind, pattern, streams, webhook_url, wake_stream, lease_ttl_ms, description })
    }

    /// What tells this configuration from others: SHA-256 over its normalized form, in hexadecimal.
    pub fn hash(&self) -> String {
        // Fields are written in the order of their declaration, so one configuration has one form.
        let canonical = serde_json::to_vec(self).unwrap_or_default();
        let digits = |byte: &u8| {
            [byte >> 4, byte & 0xf].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]))
        };
        Sha256::digest(&canonical).iter().flat_map(digits).collect()
    }
}

/// The streams of a request that adds some to a subscription (PROTOCOL §6.4): at least one.
pub fn parse_streams(body: &[u8]) -> Result<Vec<String>, InvalidConfig> {
    let Ok(Value::Object(document)) = serde_json::from_slice(body) else {
        return Err(InvalidConfig::Json);
    };
    let names = names_of(document.get("streams"))?;
    if names.is_empty() {
        return Err(InvalidConfig::Field("streams", "an array of at least one string"));
    }
    Ok(names)
}

/// A field that may be missing, `null` or empty.
fn text<'a>(document: &'a Map<String, Value>, field: &'static str) -> Result<Option<&'a str>, InvalidConfig> {
    match document.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        Some(_) => Err(InvalidConfig::Field(field, "a string")),
    }
}

fn names_of(value: Option<&Value>) -> Result<Vec<String>, InvalidConfig> {
    let names = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(names)) => names,
        Some(_) => return Err(InvalidConfig::Field("streams", "an array of strings")),
    };
    if names.len() > SUBSCRIPTION_NAMES_MAX {
        return Err(InvalidConfig::TooManyStreams);
    }
    let name = |value: &Value| match value.as_str() {
        Some(name) => normalized(name),
        None => Err(InvalidConfig::Field("streams", "an array of strings")),
    };
    let mut names: Vec<String> = names.iter().map(name).collect::<Result<_, _>>()?;
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

fn normalized(name: &str) -> Result<String, InvalidConfig> {
    let path = parse_name(name).map_err(|source| InvalidConfig::Name { name: shown(name), source })?;
    Ok(name_of(&path).unwrap_or_default().into_owned())
}

/// As much of a name as a message has room for.
fn shown(name: &str) -> String {
    name.chars().take(100).collect()
}

fn webhook_url(document: &Map<String, Value>) -> Result<String, InvalidConfig> {
    let url = document.get("webhook").and_then(|webhook| webhook.get("url")).and_then(Value::as_str);
    let url = url.filter(|url| !url.is_empty()).ok_or(InvalidConfig::NoUrl)?;
    if url.len() > WEBHOOK_URL_BYTES_MAX {
        return Err(InvalidConfig::Field("webhook.url", "of at most 2048 bytes"));
    }
    Ok(url.to_owned())
}

fn wake_stream(document: &Map<String, Value>) -> Result<String, InvalidConfig> {
    normalized(text(document, "wake_stream")?.ok_or(InvalidConfig::NoWakeStream)?)
}

fn lease(document: &Map<String, Value>) -> Result<u64, InvalidConfig> {
    let lease = match document.get("lease_ttl_ms") {
        None | Some(Value::Null) => LEASE_TTL_MS_DEFAULT,
        Some(value) => value.as_u64().ok_or(InvalidConfig::Lease)?,
    };
    if (LEASE_TTL_MS_MIN..=LEASE_TTL_MS_MAX).contains(&lease) { Ok(lease) } else { Err(InvalidConfig::Lease) }
}
