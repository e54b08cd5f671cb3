//! Queries that a `Uri` cannot hold.
//!
//! A filter of ten thousand names is a few hundred kilobytes of a query, and a [`Uri`] ends at 64 KiB. So what a long query
//! has beyond its first kilobytes is taken out of the bytes of a connection before the parser sees them (`framing`), and
//! the whole of it is put beside the request. Bytes that are taken out count against a bound for all connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::uri::{PathAndQuery, Uri};

/// Bytes of a request line that the parser gets in any case, if a head may have twice as many.
pub(crate) const SEEN_BYTES: usize = 16 * 1024;
/// Bytes that are claimed of the bound at a time.
const STEP_BYTES: usize = 16 * 1024;

/// The query of a request, empty without one. It is in the `Uri`, unless it is too long for that: then the `Uri` has none.
pub fn query<B>(request: &http::Request<B>) -> &str {
    match request.extensions().get::<LongQuery>() {
        Some(long) => long.text(),
        None => request.uri().query().unwrap_or_default(),
    }
}

/// A query that is too long for a request's `Uri`, among its extensions.
#[derive(Clone, Debug)]
pub struct LongQuery {
    text: Arc<str>,
    _claim: Arc<Claim>,
}

impl LongQuery {
    /// The whole query.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Leaves those parameters of a request's long query away that are not to be kept. A query in the `Uri` stays.
    pub fn retain<B>(request: &mut http::Request<B>, keep: impl Fn(&str) -> bool) {
        let Some(long) = request.extensions_mut().get_mut::<Self>() else { return };
        if long.text.split('&').all(&keep) {
            return;
        }
        let kept: Vec<&str> = long.text.split('&').filter(|pair| keep(pair)).collect();
        long.text = kept.join("&").into();
    }
}

/// How long queries may be.
#[derive(Clone, Debug)]
pub(crate) struct Queries {
    /// Bytes of one; 0 for as long as a `Uri` allows.
    pub(crate) bytes_max: usize,
    /// Bytes of all, as far as they are no part of a `Uri`.
    pub(crate) bound: Arc<QueryBound>,
}

impl Queries {
    pub(crate) fn new(bytes_max: usize, all_bytes_max: usize) -> Self {
        Self { bytes_max, bound: Arc::new(QueryBound { left: AtomicUsize::new(all_bytes_max) }) }
    }
}

/// What is left of what all long queries may take.
#[derive(Debug)]
pub(crate) struct QueryBound {
    left: AtomicUsize,
}

/// What one of them has taken, until it is dropped.
#[derive(Debug)]
struct Claim {
    bound: Arc<QueryBound>,
    bytes: usize,
}

impl Claim {
    /// Whether there is room for so many bytes in all.
    fn cover(&mut self, bytes: usize) -> bool {
        while self.bytes < bytes {
            let taken = self
                .bound
                .left
                .try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(STEP_BYTES));
            if taken.is_err() {
                return false;
            }
            self.bytes += STEP_BYTES;
        }
        true
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.bound.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

/// Why a query is not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Unfit {
    /// It alone is too long.
    Long,
    /// There is no room for it beside the others.
    Crowded,
}

/// What is taken out of a request line: the end of its query.
#[derive(Debug)]
pub(crate) struct Cut {
    bytes: Vec<u8>,
    bytes_max: usize,
    claim: Claim,
}

impl Cut {
    /// Nothing yet. `seen_bytes` of the query are in the `Uri`.
    pub(crate) fn new(queries: &Queries, seen_bytes: usize) -> Self {
        let claim = Claim { bound: Arc::clone(&queries.bound), bytes: 0 };
        Self { bytes: Vec::new(), bytes_max: queries.bytes_max.saturating_sub(seen_bytes), claim }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), Unfit> {
        let all = self.bytes.len() + bytes.len();
        if all > self.bytes_max {
            return Err(Unfit::Long);
        }
        // Twice: it is copied once, behind what the `Uri` has of it.
        if !self.claim.cover(2 * all) {
            return Err(Unfit::Crowded);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Puts the whole query beside a request that the parser has seen without its end.
    pub(crate) fn put<B>(self, request: &mut http::Request<B>) {
        let seen = request.uri().query().unwrap_or_default();
        let text: Arc<str> = format!("{seen}{}", String::from_utf8_lossy(&self.bytes)).into();
        let mut parts = request.uri().clone().into_parts();
        // A path that was part of a target is one.
        parts.path_and_query = Some(
            PathAndQuery::try_from(request.uri().path()).unwrap_or_else(|_| PathAndQuery::from_static("/")),
        );
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
        request.extensions_mut().insert(LongQuery { text, _claim: Arc::new(self.claim) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(queries: &Queries, uri: &str, rest: &str) -> http::Request<()> {
        let mut request = http::Request::builder().uri(uri).body(()).expect("a request");
        let mut cut = Cut::new(queries, 0);
        cut.push(rest.as_bytes()).expect("there is room");
        cut.put(&mut request);
        request
    }

    #[test]
    fn a_query_is_whole_wherever_it_is() {
        let queries = Queries::new(1000, 1 << 20);
        let short = http::Request::builder().uri("/a?b=1").body(()).expect("a request");
        assert_eq!(query(&short), "b=1");
        for uri in ["/a?b=1&c", "http://h/a?b=1&c"] {
            let long = put(&queries, uri, "=2&d=3");
            assert_eq!(query(&long), "b=1&c=2&d=3");
            assert_eq!((long.uri().path(), long.uri().query()), ("/a", None));
        }
    }

    #[test]
    fn parameters_can_be_left_away() {
        let queries = Queries::new(1000, 1 << 20);
        let mut long = put(&queries, "/a?secret=1&b=2&se", "cret=3&c=4");
        LongQuery::retain(&mut long, |pair| !pair.starts_with("secret="));
        assert_eq!(query(&long), "b=2&c=4");
        let mut short = http::Request::builder().uri("/a?b=1").body(()).expect("a request");
        LongQuery::retain(&mut short, |_| false);
        assert_eq!(query(&short), "b=1");
    }

    #[test]
    fn one_is_bounded_and_so_are_all_until_they_are_gone() {
        let queries = Queries::new(40_000, 4 * STEP_BYTES);
        let mut cut = Cut::new(&queries, 10_000);
        cut.push("a".repeat(30_000).as_bytes()).expect("exactly as long as it may be");
        assert_eq!(cut.push(b"a"), Err(Unfit::Long));
        assert_eq!(Cut::new(&queries, 0).push("a".repeat(30_000).as_bytes()), Err(Unfit::Crowded));
        drop(cut);
        let held = put(&queries, "/a?b", &"c".repeat(30_000));
        assert_eq!(Cut::new(&queries, 0).push(b"a"), Err(Unfit::Crowded));
        let copied = held.extensions().get::<LongQuery>().cloned();
        drop(held);
        assert_eq!(Cut::new(&queries, 0).push(b"a"), Err(Unfit::Crowded), "somebody has it still");
        drop(copied);
        assert_eq!(Cut::new(&queries, 0).push(b"a"), Ok(()));
    }
}
