//! Queries: pages of blocks after a cursor.

use alluvium_feed_protocol::limits::{NAMES_HARD_MAX, PAGE_BLOCKS_DEFAULT, PAGE_BYTES_DEFAULT};
use alluvium_feed_protocol::{Check, ErrorCode, Id, Pruned, QueryRequest, QueryResponse, Token};
use alluvium_feed_store::feeds::{KnownNames, Pick, Selected, Within};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::{Page, PageLimits, Selection, blocks, feeds, page, spaces};

use crate::failure::Failure;
use crate::hub::Interest;
use crate::options::Options;
use crate::principal::Principal;
use crate::subscribe;

/// What a client says it knows: token, position, and the check there.
pub(crate) type Expected<'a> = (Option<&'a Token>, Option<u64>, Option<Check>);

/// Whether a client's knowledge is still part of this history. What can't be told any more counts as known: where the block
/// was pruned very long ago, or before checks were kept. To take that for another history would have everything pushed again that was pruned on purpose.
pub(crate) fn knows_history(
    connection: &Connection,
    space: &spaces::Space,
    (token, position, check): Expected<'_>,
) -> Result<bool, Failure> {
    if token.is_some_and(|token| space.token.as_ref() != Some(token)) {
        return Ok(false);
    }
    let Some(position) = position else { return Ok(true) };
    if position > space.max_position() {
        return Ok(false);
    }
    let Some(check) = check else { return Ok(true) };
    let ours = check_at(connection, space, position)?;
    Ok(ours.is_none_or(|ours| ours == check))
}

/// The check at a position, if it can be told.
fn check_at(connection: &Connection, space: &spaces::Space, position: u64) -> Result<Option<Check>, Failure> {
    if position == space.max_position() {
        return Ok(Some(space.check));
    }
    Ok(blocks::check_at(connection, space.key, position)?)
}

/// Answers a query on a snapshot.
pub(crate) fn answer(
    connection: &Connection,
    space: &spaces::Space,
    principal: &Principal,
    request: &QueryRequest,
    options: &Options,
    known: &KnownNames,
    now_ms: u64,
) -> Result<QueryResponse, Failure> {
    let expected =
        (request.expected_server_token.as_ref(), request.expected_position, request.expected_check);
    let reset = !knows_history(connection, space, expected)?;
    let cursor = if reset { 0 } else { request.cursor.unwrap_or(0) };
    let selected = selected(connection, space, principal, request, known, now_ms)?;
    let limits = PageLimits {
        blocks_max: bounded(request.limit, PAGE_BLOCKS_DEFAULT, options.limits.page_blocks_max),
        bytes_max: bounded(request.max_bytes, PAGE_BYTES_DEFAULT, options.limits.page_bytes_max),
        examined_max: options.page_examined_max,
    };
    let selection = selected.as_deref().map_or(Selection::All, Selection::Feeds);
    let place = (space.key, space.max_position());
    let Page { blocks, complete_to, pruned: missing } =
        page::read(connection, place, selection, cursor, limits)?;
    // Nothing selected lies between the last block and the end, so a quiet selection need not be searched again. Safe
    // because positions become visible in their order.
    let pruned = pruned(connection, space, selected.as_deref(), missing, cursor)?;
    let next_cursor = complete_to.unwrap_or_else(|| space.max_position());
    Ok(QueryResponse {
        request_id: request.request_id.clone(),
        space_id: None,
        blocks,
        next_cursor,
        has_more: complete_to.is_some(),
        server_token: crate::space::token(space)?,
        max_position: space.max_position(),
        check: check_at(connection, space, next_cursor)?,
        cursor_block: cursor_block(connection, space, principal, cursor)?,
        reset,
        since_position: request.since.map(|time| since(connection, space, time)).transpose()?,
        pruned_below: pruned.iter().map(|pruned| pruned.below).max(),
        pruned: pruned.into_iter().take(NAMES_HARD_MAX).collect(),
    })
}

/// What a query waits for that has found nothing.
pub(crate) fn interest(
    connection: &Connection,
    space: &spaces::Space,
    principal: &Principal,
    request: &QueryRequest,
    now_ms: u64,
) -> Result<Interest, Failure> {
    let selected = match (&request.feed_ids, &request.subscription_id) {
        (Some(names), _) => Interest { names: names.iter().cloned().collect(), ..Interest::default() },
        (None, Some(id)) => subscribe::interest(connection, &space.id, id, principal, now_ms)?,
        (None, None) => Interest { all: true, ..Interest::default() },
    };
    Ok(Interest { within: request.namespaces.clone(), bound_to: principal.namespaces.clone(), ..selected })
}

/// The block at the cursor. Not for callers from whom namespaces are hidden; the check tells them as much.
fn cursor_block(
    connection: &Connection,
    space: &spaces::Space,
    principal: &Principal,
    cursor: u64,
) -> Result<Option<alluvium_feed_protocol::BlockKey>, Failure> {
    if cursor == 0 || cursor > space.max_position() || principal.namespaces.is_some() {
        return Ok(None);
    }
    Ok(blocks::key_at(connection, space.key, cursor)?)
}

/// The first position that came at or after a time, or the next one to be given. Positions are given in the order of
/// arrival, so halving finds it with a handful of look-ups; a clock that was set back meanwhile makes it come out early.
pub(crate) fn since(connection: &Connection, space: &spaces::Space, time: u64) -> Result<u64, Failure> {
    let (mut low, mut high) = (1, space.max_position() + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        // What was pruned is passed over: the next block that is kept stands for it.
        match blocks::arrival_from(connection, space.key, middle)? {
            Some((position, arrived_at)) if arrived_at < time => low = position + 1,
            Some(_) | None => high = middle,
        }
    }
    Ok(low)
}

fn bounded(wanted: Option<u64>, default: usize, max: usize) -> usize {
    wanted.map_or(default, |wanted| usize::try_from(wanted).unwrap_or(usize::MAX)).clamp(1, max)
}

/// The selected feeds; `None` for all of the space.
fn selected(
    connection: &Connection,
    space: &spaces::Space,
    principal: &Principal,
    request: &QueryRequest,
    known: &KnownNames,
    now_ms: u64,
) -> Result<Option<Vec<Selected>>, Failure> {
    let within = principal.within(request.namespaces.as_deref());
    let select = |pick, within: &Within<'_>| feeds::select(connection, &space.id, pick, within);
    let named = match (&request.feed_ids, &request.subscription_id) {
        (Some(_), Some(_)) => {
            let message = "a query has `feedIds` or `subscriptionId`, not both";
            return Err(Failure::refused(ErrorCode::BadRequest, message));
        }
        (Some(ids), None) => return Ok(Some(select(Pick::Names(ids, known), &within)?)),
        (None, Some(subscription)) => {
            subscribe::selected(connection, &space.id, subscription, principal, known, now_ms)?
        }
        (None, None) => None,
    };
    let Some(named) = named else {
        let is_all = within.lists.is_empty();
        return Ok(if is_all { None } else { Some(select(Pick::All, &within)?) });
    };
    let mut selected = select(Pick::Numbers(&named.feeds), &within)?;
    if !named.namespaces.is_empty() {
        let mut of_namespaces = within.clone();
        of_namespaces.lists.push(&named.namespaces);
        selected.extend(select(Pick::All, &of_namespaces)?);
        selected.sort_unstable_by_key(|feed| feed.number);
        selected.dedup_by_key(|feed| feed.number);
    }
    Ok(Some(selected))
}

/// The selected feeds of which something after the cursor was pruned. Of a whole space, the index over those tells, unless
/// positions are missing on the page: then all rows were looked at.
fn pruned(
    connection: &Connection,
    space: &spaces::Space,
    selected: Option<&[Selected]>,
    missing: Option<Vec<(u64, Id)>>,
    cursor: u64,
) -> Result<Vec<Pruned>, Failure> {
    let mut pruned = match (selected, missing) {
        (Some(selected), _) => selected.iter().filter_map(|feed| feed.pruned.clone()).collect(),
        (None, Some(missing)) => missing,
        (None, None) => feeds::pruned(connection, &space.id, cursor)?,
    };
    pruned.retain(|(below, _)| *below > cursor.saturating_add(1));
    pruned.sort_unstable();
    Ok(pruned.into_iter().map(|(below, feed_id)| Pruned { feed_id, below }).collect())
}
