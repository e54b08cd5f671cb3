//! Signed tokens in their compact form (RFC 7515, RFC 7519), read strictly.
//!
//! The library that is most used for this chooses the algorithm by the token's head from a list, and brings its own second
//! set of cryptography; the form is three parts with dots between them, so it is read here and verified by what TLS
//! verifies with.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::keys::{Key, KeySet};
use crate::limits::TOKEN_BYTES_MAX;

/// Types of token that give access. Others are for other things: a token of one kind must not pass for another.
const TYPES: [&str; 3] = ["JWT", "at+jwt", "application/at+jwt"];

/// Why a signed token is not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidJwt {
    /// Not the compact form, or not JSON where JSON belongs.
    #[error("the token is not a signed one")]
    Form,
    /// A kind of token, or an extension, that is not known here.
    #[error("the token is of a kind that is not taken")]
    Kind,
    /// No key of the issuer is meant: perhaps not yet.
    #[error("the token is signed with a key that is not known")]
    UnknownKey,
    /// The signature is not by that key.
    #[error("the signature of the token is wrong")]
    Signature,
    /// Nobody whose tokens are taken, or no issuer at all.
    #[error("the token is not from an issuer whose tokens are taken")]
    Issuer,
    /// It is for somebody else.
    #[error("the token is for another audience")]
    Audience,
    /// Its time is up, or it has no time.
    #[error("the token has expired")]
    Expired,
    /// Its time has not come.
    #[error("the token is not valid yet")]
    Early,
    /// It was taken back.
    #[error("the token was revoked")]
    Revoked,
    /// It names scopes, prefixes, actors or namespaces that do not parse.
    #[error("the token grants something that cannot be read")]
    Grants,
}

/// The head of a token. A member that stands twice is refused by `serde`.
#[derive(Deserialize)]
struct Head {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<Value>,
}

/// A token whose form is right. Nothing in it is to be believed before it is verified.
#[derive(Debug)]
pub struct Unverified<'a> {
    algorithm: String,
    key_id: Option<String>,
    /// What is signed.
    message: &'a str,
    signature: Vec<u8>,
    claims: Map<String, Value>,
}

impl<'a> Unverified<'a> {
    /// Reads the form.
    pub fn parse(token: &'a str) -> Result<Self, InvalidJwt> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(InvalidJwt::Form);
        }
        let (message, signature) = token.rsplit_once('.').ok_or(InvalidJwt::Form)?;
        let (head, claims) = message.split_once('.').ok_or(InvalidJwt::Form)?;
        let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| InvalidJwt::Form);
        let head: Head = serde_json::from_slice(&decoded(head)?).map_err(|_| InvalidJwt::Form)?;
        if head.crit.is_some()
            || head.typ.is_some_and(|typ| !TYPES.iter().any(|known| known.eq_ignore_ascii_case(&typ)))
        {
            return Err(InvalidJwt::Kind);
        }
        let signature = decoded(signature)?;
        let claims = serde_json::from_slice(&decoded(claims)?).map_err(|_| InvalidJwt::Form)?;
        Ok(Self { algorithm: head.alg, key_id: head.kid, message, signature, claims })
    }

    /// Whose token it says it is, to find the keys by.
    pub fn issuer(&self) -> Option<&str> {
        self.claims.get("iss")?.as_str()
    }

    /// Checks the signature by the key that the token names.
    pub fn verify(self, keys: &KeySet) -> Result<Claims, InvalidJwt> {
        let key: &Key = keys.find(&self.algorithm, self.key_id.as_deref()).ok_or(InvalidJwt::UnknownKey)?;
        if !key.verify(self.message.as_bytes(), &self.signature) {
            return Err(InvalidJwt::Signature);
        }
        Ok(Claims(self.claims))
    }
}

/// What a token that is verified says.
#[derive(Debug)]
pub struct Claims(Map<String, Value>);

impl Claims {
    /// Checks for whom and when the token is, and returns when it ends: in milliseconds since the Unix epoch, with what the
    /// issuer's clock may be off.
    pub fn check(&self, audience: &[String], leeway_s: u64, now_ms: u64) -> Result<u64, InvalidJwt> {
        let is_meant =
            |value: &Value| value.as_str().is_some_and(|name| audience.iter().any(|own| own == name));
        let is_for_us = match self.0.get("aud") {
            Some(Value::Array(names)) => names.iter().any(is_meant),
            Some(name) => is_meant(name),
            None => false,
        };
        if !is_for_us {
            return Err(InvalidJwt::Audience);
        }
        let slack = leeway_s.saturating_mul(1000);
        if let Some(begin_ms) = self.time_ms("nbf")?
            && begin_ms > now_ms.saturating_add(slack)
        {
            return Err(InvalidJwt::Early);
        }
        let end_ms = self.time_ms("exp")?.ok_or(InvalidJwt::Expired)?.saturating_add(slack);
        if end_ms <= now_ms { Err(InvalidJwt::Expired) } else { Ok(end_ms) }
    }

    /// A time: seconds since the Unix epoch, with or without a fraction.
    fn time_ms(&self, name: &str) -> Result<Option<u64>, InvalidJwt> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        if let Some(seconds) = value.as_u64() {
            return Ok(Some(seconds.saturating_mul(1000)));
        }
        let seconds = value.as_f64().filter(|seconds| seconds.is_finite()).ok_or(InvalidJwt::Form)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates: before the epoch is the epoch, and too far is as far as can be"
        )]
        Ok(Some((seconds * 1000.0) as u64))
    }

    /// A text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// Several texts: an array of them, or one with spaces between them. `None` if there is no such claim.
    pub fn texts(&self, name: &str) -> Result<Option<Vec<&str>>, InvalidJwt> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.split_ascii_whitespace().collect())),
            Some(Value::Array(values)) => {
                let texts = values.iter().map(|value| value.as_str().ok_or(InvalidJwt::Grants));
                texts.collect::<Result<_, _>>().map(Some)
            }
            Some(_) => Err(InvalidJwt::Grants),
        }
    }
}

#[cfg(test)]
mod tests;
