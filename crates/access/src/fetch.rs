//! Fetching the keys of an issuer: a set of JSON Web Keys, over TLS unless it is on this machine.
//!
//! Bounded in every direction: in time as a whole, in bytes of head and body. Redirects are not followed: what a URL says
//! is where its operator wants keys from.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use alluvium_env::Disk;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::AccessError;
use crate::file::KeyUrl;
use crate::keeper::read;
use crate::keys::{InvalidKeys, KeySet};
use crate::limits::{AUTHORITY_BYTES_MAX, KEYS_BYTES_MAX, KEYS_HEAD_BYTES_MAX};

/// Why there is nobody to trust.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootsError {
    /// The file cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// It has no certificate.
    #[error("`{}` has no certificate in PEM", .0.display())]
    None(PathBuf),
}

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// Nobody is trusted.
    #[error("{0}")]
    Roots(#[from] RootsError),
    /// The issuer did not answer with what was wanted, or not in time.
    #[error("{0}")]
    Exchange(#[from] ureq::Error),
    /// What it answered are no keys.
    #[error("{0}")]
    Keys(#[from] InvalidKeys),
}

impl From<RootsError> for AccessError {
    fn from(error: RootsError) -> Self {
        match error {
            RootsError::Unreadable { path, source } => Self::Unreadable { path, source },
            RootsError::None(path) => Self::Authority(path),
        }
    }
}

/// Fetches keys, in this time at most. Blocks.
pub(crate) fn fetch(disk: &dyn Disk, from: &KeyUrl, timeout: Duration) -> Result<KeySet, FetchError> {
    // Read each time, so that the certificates of an authority can be replaced like any others.
    let roots = from.authority.as_ref().map(|path| roots(disk, path)).transpose()?;
    let tls = TlsConfig::builder().root_certs(roots.unwrap_or(RootCerts::WebPki)).build();
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .max_redirects(0)
        .max_redirects_will_error(true)
        .https_only(!from.url.starts_with("http://"))
        .timeout_global(Some(timeout))
        .max_response_header_size(KEYS_HEAD_BYTES_MAX)
        .user_agent(concat!("alluvium/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls)
        .build()
        .into();
    let mut answer = agent.get(&from.url).call()?;
    let bytes = answer.body_mut().with_config().limit(KEYS_BYTES_MAX).read_to_vec()?;
    Ok(KeySet::parse(&bytes)?)
}

/// The certificates in a file.
pub(crate) fn roots(disk: &dyn Disk, path: &Path) -> Result<RootCerts, RootsError> {
    let unreadable = |source| RootsError::Unreadable { path: path.to_owned(), source };
    let pem = read(disk, path, AUTHORITY_BYTES_MAX).map_err(unreadable)?;
    let mut roots: Vec<Certificate<'static>> = Vec::new();
    for item in parse_pem(&pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => roots.push(certificate),
            Ok(_) => {}
            Err(_) => return Err(RootsError::None(path.to_owned())),
        }
    }
    if roots.is_empty() {
        return Err(RootsError::None(path.to_owned()));
    }
    Ok(RootCerts::Specific(Arc::new(roots)))
}

#[cfg(test)]
mod tests;
