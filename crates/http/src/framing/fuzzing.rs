//! What fuzzing needs of the following of requests, which is otherwise nobody's business.

use std::sync::atomic::Ordering;

use super::{Findings, Follower};
use crate::query::Queries;

/// What came of following bytes.
#[derive(Debug, Eq, PartialEq)]
pub struct Followed {
    /// What the parser gets to see.
    pub seen: Vec<u8>,
    /// Why the connection ends, and with which request.
    pub fault: Option<String>,
    /// The first request whose length is stated twice.
    pub ambiguous: u64,
}

/// Follows the bytes of a connection as they come in parts.
pub fn follow<'a>(
    parts: impl Iterator<Item = &'a [u8]>,
    head_bytes_max: usize,
    query_bytes_max: usize,
) -> Followed {
    // Room for all is another matter, which depends on other connections.
    let queries = Queries::new(query_bytes_max, query_bytes_max.saturating_add(1024 * 1024));
    let (mut follower, findings) = (Follower::new(head_bytes_max, queries), Findings::default());
    let mut seen = Vec::new();
    for part in parts {
        let mut part = part.to_vec();
        let len = follower.follow(&mut part, &findings);
        seen.extend_from_slice(&part[..len]);
    }
    let fault = findings.fault.get().map(|fault| format!("{fault:?}"));
    Followed { seen, fault, ambiguous: findings.ambiguous.load(Ordering::SeqCst) }
}
