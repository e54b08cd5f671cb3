//! From a signed token to a caller.

use alluvium_feed_protocol::{Id, Namespace};

use crate::file::Issuer;
use crate::grants::parse_prefix;
use crate::jwt::{Claims, InvalidJwt, Unverified};
use crate::keys::KeySet;
use crate::limits::NAME_BYTES_MAX;
use crate::{Caller, Grants, Prefix, Scope};

/// Verifies a token of an issuer, and reads what it grants.
pub(crate) fn caller(
    issuer: &Issuer,
    keys: &KeySet,
    token: Unverified<'_>,
    now_ms: u64,
) -> Result<Caller, InvalidJwt> {
    let claims = token.verify(keys)?;
    let expires_ms = claims.check(&issuer.audience, issuer.leeway_s, now_ms)?;
    let is_revoked =
        |name| claims.text(name).is_some_and(|value| issuer.revoked.iter().any(|one| one == value));
    if is_revoked("jti") || is_revoked("sub") {
        return Err(InvalidJwt::Revoked);
    }
    let names = &issuer.claims;
    let parsed = |name: &str| claims.texts(name);
    let invalid = |_| InvalidJwt::Grants;
    let actors = parsed(&names.actors)?
        .map(|all| all.iter().map(|text| Id::parse(text)).collect::<Result<Vec<_>, _>>())
        .transpose()
        .map_err(invalid)?;
    let namespaces = parsed(&names.namespaces)?
        .map(|all| all.iter().map(|text| Namespace::parse(text)).collect::<Result<Vec<_>, _>>())
        .transpose()
        .map_err(invalid)?;
    Ok(Caller {
        name: name(issuer, &claims),
        is_shared: false,
        grants: grants(issuer, &claims)?.within(&issuer.ceiling),
        actors,
        namespaces,
        expires_ms: Some(expires_ms),
        rates: None,
    })
}

/// Words that are no scopes here are the scopes of others.
fn grants(issuer: &Issuer, claims: &Claims) -> Result<Grants, InvalidJwt> {
    let scopes = claims.texts(&issuer.claims.scope)?.unwrap_or_default();
    let known =
        scopes.into_iter().filter(|text| Scope::parse(text.split(':').next().unwrap_or_default()).is_some());
    let prefixes: Option<Vec<Prefix>> = claims
        .texts(&issuer.claims.prefixes)?
        .map(|texts| texts.into_iter().map(parse_prefix).collect())
        .transpose()
        .map_err(|_| InvalidJwt::Grants)?;
    Grants::parse(known, prefixes.as_deref()).map_err(|_| InvalidJwt::Grants)
}

/// The issuer and the subject, so that subjects of two issuers are not taken for one.
fn name(issuer: &Issuer, claims: &Claims) -> String {
    let subject = claims.text("sub").unwrap_or_default();
    let mut name = format!("{} {subject}", issuer.name);
    let end = (0..=NAME_BYTES_MAX.min(name.len())).rev().find(|at| name.is_char_boundary(*at));
    name.truncate(end.unwrap_or_default());
    name.replace(char::is_control, "?")
}
