//! The access file: static tokens, issuers of signed ones, and what anyone may do (TOML).
//!
//! Nothing of its content is in an error, for somebody may have put a token where its hash belongs: an error says where
//! and what kind of thing is wrong.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_feed_protocol::{Id, Namespace};
use serde::Deserialize;

use crate::grants::parse_prefix;
use crate::limits::{ISSUERS_MAX, KEYS_REFRESH_S, KEYS_RETRY_S, LEEWAY_S, LEEWAY_S_MAX};
use crate::token::MARK;
use crate::{Caller, Grants, InvalidGrant, InvalidHash, Prefix, Rates, TokenHash};

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccessFile {
    /// The holders of static tokens, by what is kept of those.
    pub tokens: HashMap<TokenHash, Arc<Caller>>,
    /// Whose signed tokens are taken.
    pub issuers: Vec<Issuer>,
    /// What may be done without a token; `None` if the file doesn't say.
    pub anyone: Option<Grants>,
}

/// Somebody who signs tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Issuer {
    /// As it stands in `iss`.
    pub name: String,
    /// What may stand in `aud`.
    pub audience: Vec<String>,
    /// Where its keys are.
    pub keys: KeySource,
    /// Seconds after which keys of a URL are fetched again.
    pub refresh_s: u64,
    /// Seconds by which its clock may be off.
    pub leeway_s: u64,
    /// What its tokens can grant at most.
    pub ceiling: Grants,
    /// The claims that say what is granted.
    pub claims: ClaimNames,
    /// Identifiers (`jti`) and subjects (`sub`) of tokens that are not good any more.
    pub revoked: Vec<String>,
}

/// What claims are called.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimNames {
    /// Scopes, as in a file.
    pub scope: String,
    /// Prefixes for scopes without one of their own.
    pub prefixes: String,
    /// Actors of feeds.
    pub actors: String,
    /// Namespaces of feeds.
    pub namespaces: String,
}

/// Where keys come from.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum KeySource {
    /// A file with JSON Web Keys or PEM, read again when it changes.
    File(PathBuf),
    /// A set of JSON Web Keys, fetched now and then.
    Url(KeyUrl),
}

/// Where keys are fetched from.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct KeyUrl {
    /// `https://`, or `http://` on this machine.
    pub url: String,
    /// The file with the certificates (PEM) that are trusted there in place of the public ones.
    pub authority: Option<PathBuf>,
}

impl std::fmt::Display for KeyUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.url)
    }
}

/// What is wrong with the file.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidFile {
    /// Nothing is in it, as while it is being written, or when there was no room to.
    #[error("it is empty; a file that lets nobody in says so: `[anyone]` and `scopes = []`")]
    Empty,
    /// It is not TOML, or has what it should not or lacks what it should have.
    #[error("line {line}: {message}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// What is wrong there, without what stands there.
        message: String,
    },
    /// A name that says nothing, or is there twice.
    #[error("`{0}`: names of tokens and issuers have 1 to 128 characters, are no tokens, and stand once")]
    Name(String),
    /// A hash that is none, or is there twice.
    #[error("token `{name}`: {error}")]
    Hash {
        /// Whose.
        name: String,
        /// What is wrong.
        error: InvalidHash,
    },
    /// A hash that two have.
    #[error("token `{0}`: another one has the same hash")]
    SameHash(String),
    /// Scopes or prefixes that are none.
    #[error("`{name}`: {error}")]
    Grant {
        /// Whose.
        name: String,
        /// What is wrong.
        error: InvalidGrant,
    },
    /// An actor or a namespace of feeds that cannot be one.
    #[error("`{0}`: an actor or a namespace of feeds is not valid")]
    Feeds(String),
    /// A time that cannot be read.
    #[error("`{0}`: `expires` is a time as in `2027-01-31T12:00:00Z`")]
    Expires(String),
    /// A rate of nothing.
    #[error("`{0}`: a rate is at least 1")]
    Rate(String),
    /// An issuer without an audience.
    #[error("issuer `{0}`: `audience` names at least one")]
    Audience(String),
    /// A URL of keys that is not safe.
    #[error("issuer `{0}`: keys come from a file, from `https://…`, or from `http://` on this machine")]
    Keys(String),
    /// Certificates for what is not fetched over TLS.
    #[error("issuer `{0}`: `keys-ca` names a file, for keys from `https://…`")]
    Authority(String),
    /// A time that is too short or too long.
    #[error("issuer `{0}`: `leeway-s` is at most {LEEWAY_S_MAX}, `refresh-s` at least {KEYS_RETRY_S}")]
    Times(String),
    /// More than [`ISSUERS_MAX`].
    #[error("there are more than {ISSUERS_MAX} issuers")]
    TooManyIssuers,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(default)]
    token: Vec<RawToken>,
    #[serde(default)]
    issuer: Vec<RawIssuer>,
    anyone: Option<RawGrants>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawGrants {
    scopes: Vec<String>,
    prefixes: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawToken {
    name: String,
    hash: String,
    scopes: Vec<String>,
    prefixes: Option<Vec<String>>,
    actors: Option<Vec<String>>,
    namespaces: Option<Vec<String>>,
    expires: Option<toml::Value>,
    requests_per_s: Option<u64>,
    append_bytes_per_s: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawIssuer {
    issuer: String,
    audience: OneOrMore,
    keys: String,
    keys_ca: Option<String>,
    scopes: Vec<String>,
    prefixes: Option<Vec<String>>,
    refresh_s: Option<u64>,
    leeway_s: Option<u64>,
    scope_claim: Option<String>,
    prefixes_claim: Option<String>,
    actors_claim: Option<String>,
    namespaces_claim: Option<String>,
    #[serde(default)]
    revoked: Vec<String>,
}

impl AccessFile {
    /// Reads the file. Names of files with keys are relative to `folder`.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, InvalidFile> {
        if text.trim().is_empty() {
            return Err(InvalidFile::Empty);
        }
        let raw: Raw = toml::from_str(text).map_err(|error| syntax(text, &error))?;
        let mut file = Self::default();
        let mut names = std::collections::HashSet::new();
        for token in raw.token {
            check_name(&token.name, &mut names)?;
            let failed = |error| InvalidFile::Hash { name: token.name.clone(), error };
            let hash: TokenHash = token.hash.parse().map_err(failed)?;
            let name = token.name.clone();
            if file.tokens.insert(hash, Arc::new(caller(token)?)).is_some() {
                return Err(InvalidFile::SameHash(name));
            }
        }
        if raw.issuer.len() > ISSUERS_MAX {
            return Err(InvalidFile::TooManyIssuers);
        }
        for raw in raw.issuer {
            check_name(&raw.issuer, &mut names)?;
            file.issuers.push(issuer(raw, folder)?);
        }
        file.anyone = raw
            .anyone
            .map(|anyone| grants("anyone", &anyone.scopes, anyone.prefixes.as_deref()))
            .transpose()?;
        Ok(file)
    }
}

/// An entry of the file for a token, as text.
pub fn entry(
    name: &str,
    hash: &TokenHash,
    scopes: &[String],
    prefixes: &[String],
    expires: Option<&str>,
) -> String {
    let text = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let list =
        |texts: &[String]| format!("[{}]", texts.iter().map(|one| text(one)).collect::<Vec<_>>().join(", "));
    let mut entry =
        format!("[[token]]\nname = {}\nhash = \"{hash}\"\nscopes = {}\n", text(name), list(scopes));
    if !prefixes.is_empty() {
        entry.extend(["prefixes = ", &list(prefixes), "\n"]);
    }
    if let Some(expires) = expires {
        entry.extend(["expires = ", expires, "\n"]);
    }
    entry
}

/// Where and what, but nothing that stands there.
fn syntax(text: &str, error: &toml::de::Error) -> InvalidFile {
    let until = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = text.get(..until).unwrap_or_default().matches('\n').count() + 1;
    InvalidFile::Syntax { line, message: without_secrets(error.message()) }
}

/// Leaves out what is between double quotes, every long word, and what looks like a token.
fn without_secrets(message: &str) -> String {
    let quoted = message.split('"').step_by(2).collect::<Vec<_>>().join("\"…\"");
    let short =
        |word: &str| if word.len() > 40 || word.contains(MARK) { "…".to_owned() } else { word.to_owned() };
    quoted.split(' ').map(short).collect::<Vec<_>>().join(" ")
}

/// The beginning of a text, unless it looks like a token.
pub(crate) fn shown(text: &str) -> String {
    if text.contains(MARK) { "…".to_owned() } else { text.chars().take(64).collect() }
}

fn check_name(name: &str, names: &mut std::collections::HashSet<String>) -> Result<(), InvalidFile> {
    let is_name =
        (1..=128).contains(&name.chars().count()) && !name.contains(char::is_control) && !name.contains(MARK);
    if is_name && names.insert(name.to_owned()) { Ok(()) } else { Err(InvalidFile::Name(shown(name))) }
}

fn grants(name: &str, scopes: &[String], prefixes: Option<&[String]>) -> Result<Grants, InvalidFile> {
    let failed = |error| InvalidFile::Grant { name: name.to_owned(), error };
    let prefixes: Option<Vec<Prefix>> = prefixes
        .map(|prefixes| prefixes.iter().map(|text| parse_prefix(text)).collect())
        .transpose()
        .map_err(failed)?;
    Grants::parse(scopes.iter().map(String::as_str), prefixes.as_deref()).map_err(failed)
}

fn caller(token: RawToken) -> Result<Caller, InvalidFile> {
    let RawToken { name, scopes, prefixes, actors, namespaces, expires, .. } = token;
    let invalid = |_| InvalidFile::Feeds(name.clone());
    let actors = actors.map(|all| all.iter().map(|text| Id::parse(text)).collect());
    let namespaces = namespaces.map(|all| all.iter().map(|text| Namespace::parse(text)).collect());
    let rate = |rate: Option<u64>| match rate {
        Some(0) => Err(InvalidFile::Rate(name.clone())),
        rate => Ok(rate),
    };
    let rates = Rates {
        requests_per_s: rate(token.requests_per_s)?,
        append_bytes_per_s: rate(token.append_bytes_per_s)?,
    };
    Ok(Caller {
        is_shared: false,
        grants: grants(&name, &scopes, prefixes.as_deref())?,
        actors: actors.transpose().map_err(invalid)?,
        namespaces: namespaces.transpose().map_err(invalid)?,
        expires_ms: expires
            .map(|time| time_ms(&time).ok_or_else(|| InvalidFile::Expires(name.clone())))
            .transpose()?,
        rates: (rates != Rates::default()).then_some(rates),
        name,
    })
}

/// A time of TOML, or one in quotes.
fn time_ms(value: &toml::Value) -> Option<u64> {
    let text = match value {
        toml::Value::Datetime(time) => time.to_string(),
        toml::Value::String(text) => text.clone(),
        _ => return None,
    };
    let time: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

fn issuer(raw: RawIssuer, folder: &Path) -> Result<Issuer, InvalidFile> {
    let name = raw.issuer;
    let audience = match raw.audience {
        OneOrMore::One(one) => vec![one],
        OneOrMore::More(all) => all,
    };
    if audience.is_empty() {
        return Err(InvalidFile::Audience(name));
    }
    let mut keys = key_source(&raw.keys, folder).ok_or_else(|| InvalidFile::Keys(name.clone()))?;
    if let Some(authority) = raw.keys_ca {
        match &mut keys {
            KeySource::Url(from) if from.url.starts_with("https:") && !authority.is_empty() => {
                from.authority = Some(folder.join(authority));
            }
            _ => return Err(InvalidFile::Authority(name)),
        }
    }
    let (refresh_s, leeway_s) = (raw.refresh_s.unwrap_or(KEYS_REFRESH_S), raw.leeway_s.unwrap_or(LEEWAY_S));
    if refresh_s < KEYS_RETRY_S || leeway_s > LEEWAY_S_MAX {
        return Err(InvalidFile::Times(name));
    }
    let claim = |named: Option<String>, usual: &str| named.unwrap_or_else(|| usual.to_owned());
    Ok(Issuer {
        audience,
        keys,
        refresh_s,
        leeway_s,
        ceiling: grants(&name, &raw.scopes, raw.prefixes.as_deref())?,
        claims: ClaimNames {
            scope: claim(raw.scope_claim, "scope"),
            prefixes: claim(raw.prefixes_claim, "prefixes"),
            actors: claim(raw.actors_claim, "actors"),
            namespaces: claim(raw.namespaces_claim, "namespaces"),
        },
        revoked: raw.revoked,
        name,
    })
}

/// A file, or a URL from which keys can be had unaltered.
fn key_source(text: &str, folder: &Path) -> Option<KeySource> {
    if !text.contains("://") {
        return (!text.is_empty()).then(|| KeySource::File(folder.join(text)));
    }
    let uri: http::Uri = text.parse().ok()?;
    let authority = uri.authority()?;
    let is_local = || matches!(authority.host(), "127.0.0.1" | "[::1]" | "localhost");
    let is_safe = match uri.scheme_str()? {
        "https" => true,
        "http" => is_local(),
        _ => false,
    };
    (is_safe && !authority.as_str().contains('@'))
        .then(|| KeySource::Url(KeyUrl { url: text.to_owned(), authority: None }))
}

#[cfg(test)]
mod tests;
