//! Repeated creates: the same request again is a success, another one a conflict (PROTOCOL §5.1, §4.2).
//!
//! What a request for a fork leaves out, the first create filled in from the source. A repeat that leaves it
//! out again asks for no other stream, so an omitted content type, lifetime or fork offset matches whatever
//! the fork has.

use crate::attributes::Attributes;
use crate::content_type::ContentType;
use crate::fork::ForkOrigin;
use crate::lifetime::Lifetime;

/// What an existing stream was created with, omissions filled in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StreamConfig {
    /// Its content type.
    pub content_type: ContentType,
    /// Its lifetime.
    pub lifetime: Lifetime,
    /// Whether it is closed now.
    pub closed: bool,
    /// Where it was forked from. The offset is the resolved one even if the request had none.
    pub fork: Option<ForkOrigin>,
    /// Its attributes now.
    pub attributes: Attributes,
}

/// What a request to create asks for.
#[derive(Copy, Clone, Debug)]
pub struct RequestedConfig<'a> {
    /// Content type; `None` for the default, or in a fork for the source's.
    pub content_type: Option<&'a ContentType>,
    /// Lifetime; [`Lifetime::Forever`] in a fork stands for the source's.
    pub lifetime: Lifetime,
    /// Whether the stream is to be created closed.
    pub closed: bool,
    /// Where to fork from.
    pub fork: Option<&'a ForkOrigin>,
    /// Attributes; a request that names none asks for any.
    pub attributes: Option<&'a Attributes>,
}

/// What differs between an existing stream and a request to create it; the first difference found.
#[derive(Copy, Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConfigConflict {
    /// The media type.
    #[error("stream exists with another content type")]
    ContentType,
    /// The TTL or the expiry.
    #[error("stream exists with another lifetime")]
    Lifetime,
    /// One is closed, the other open.
    #[error("stream exists and is closed where the request says open, or the reverse")]
    Closed,
    /// Only one is a fork, or they fork from different places.
    #[error("stream exists with another fork origin")]
    Fork,
    /// The attributes.
    #[error("stream exists with other attributes")]
    Attributes,
}

/// Whether the request asks for the stream that exists; if not, in what it differs.
pub fn reconfirm(existing: &StreamConfig, requested: &RequestedConfig<'_>) -> Result<(), ConfigConflict> {
    let inherits = requested.fork.is_some();
    let same_type = match requested.content_type {
        Some(content_type) => content_type.same_media_type(&existing.content_type),
        None => inherits || existing.content_type.same_media_type(&ContentType::DEFAULT),
    };
    let same_lifetime = match requested.lifetime {
        Lifetime::Forever if inherits => true,
        lifetime => lifetime == existing.lifetime,
    };
    let same_fork = match (requested.fork, &existing.fork) {
        (None, None) => true,
        (Some(requested), Some(existing)) => requested.names_same_cut(existing),
        (None, Some(_)) | (Some(_), None) => false,
    };
    if !same_fork {
        Err(ConfigConflict::Fork)
    } else if !same_type {
        Err(ConfigConflict::ContentType)
    } else if !same_lifetime {
        Err(ConfigConflict::Lifetime)
    } else if requested.closed != existing.closed {
        Err(ConfigConflict::Closed)
    } else if requested.attributes.is_some_and(|attributes| *attributes != existing.attributes) {
        Err(ConfigConflict::Attributes)
    } else {
        Ok(())
    }
}

/// Whether the request asks for the stream that exists.
pub fn matches(existing: &StreamConfig, requested: &RequestedConfig<'_>) -> bool {
    reconfirm(existing, requested).is_ok()
}

#[cfg(test)]
mod tests;
