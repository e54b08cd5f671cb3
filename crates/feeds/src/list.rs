//! Listings of feeds.

use alluvium_feed_protocol::limits::LISTED_HARD_MAX;
use alluvium_feed_protocol::{FeedInfo, ListFeedsRequest, ListFeedsResponse};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::{feeds, spaces};

use crate::failure::Failure;
use crate::principal::Principal;

/// Answers a listing on a snapshot. What is hidden from the caller isn't looked at: not even a page's end tells of it.
pub(crate) fn answer(
    connection: &Connection,
    space: &spaces::Space,
    principal: &Principal,
    request: &ListFeedsRequest,
) -> Result<ListFeedsResponse, Failure> {
    let limit = request.limit.map_or(LISTED_HARD_MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let limit = limit.clamp(1, LISTED_HARD_MAX);
    let asked = request.namespace.as_ref().map(std::slice::from_ref);
    let listing = feeds::Listing {
        within: principal.within(asked),
        prefix: request.prefix.as_deref(),
        after: request.after.as_ref(),
        limit: limit + 1,
    };
    let mut found = feeds::list(connection, &space.id, &listing)?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next_after = found.last().filter(|_| has_more).map(|feed| feed.id.clone());
    Ok(ListFeedsResponse {
        request_id: request.request_id.clone(),
        space_id: None,
        feeds: found.into_iter().map(FeedInfo::from).collect(),
        next_after,
    })
}
