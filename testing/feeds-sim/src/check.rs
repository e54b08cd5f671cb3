//! What must hold, by the numbers of the list in `docs/feeds.md`.

use std::collections::HashMap;

use alluvium_feed_protocol::{Block, BlockKey, ContentHash, Id, order};
use alluvium_feed_replica::{After, SyncStatus};

use crate::client::StoredLane;
use crate::world::World;
use crate::{Checked, Violation, ensure};

/// Where the authority has each key.
type Authority = HashMap<BlockKey, (u64, ContentHash)>;

/// What a client has in its file.
struct Held {
    client: usize,
    lanes: Vec<StoredLane>,
    token: Option<String>,
    blocks: Vec<Block>,
}

impl Held {
    fn by(world: &World, client: usize) -> Self {
        let (lanes, token) = world.clients[client].lanes();
        Self { client, lanes, token, blocks: world.clients[client].blocks() }
    }
}

/// What holds at every moment.
pub(crate) fn during(world: &mut World) -> Checked {
    let mut all = Vec::new();
    for client in 0..world.clients.len() {
        note_starts(world, client);
        let held = Held::by(world, client);
        only_what_was_asked_for(world, &held)?;
        in_order(world, &held)?;
        all.push(held);
    }
    if world.is_calm() {
        let (blocks, page) = world.server.blocks(&world.space);
        ascending(&blocks)?;
        let authority = by_key(&blocks);
        for held in &all {
            complete_so_far(world, held, &blocks)?;
            positions_stay(held, &authority)?;
        }
        ensure(blocks.last().is_none_or(|block| block.position <= Some(page.max_position)), "I-1", || {
            "a block above the highest position".to_owned()
        })?;
    }
    Ok(())
}

/// What holds once nothing more is wrong and everyone has caught up.
pub(crate) fn at_rest(world: &mut World) -> Checked {
    let (blocks, page) = world.server.blocks(&world.space);
    ascending(&blocks)?;
    let authority = by_key(&blocks);
    let token = page.server_token.as_str().to_owned();
    for client in 0..world.clients.len() {
        let status = status(world, client)?;
        // I-11: nothing left to do, exactly when everything is done.
        ensure((status.blocks_to_pull, status.blocks_to_push) == (0, 0), "I-11", || {
            format!("client {client} still has to do: {status:?}")
        })?;
        let held = Held::by(world, client);
        let known = held.token.as_deref();
        ensure(held.lanes.is_empty() || known == Some(&token), "I-4", || {
            format!("client {client} follows history {known:?}, not {token}")
        })?;
        for lane in &held.lanes {
            // A start that lies ahead of everything is waited for.
            let is_ahead = lane.from.is_some_and(|from| from > page.max_position);
            let is_complete = lane.from.is_some() && (is_ahead || lane.complete_to == page.max_position);
            ensure(is_complete, "I-4", || {
                format!("client {client}, {lane:?}: the head is {}", page.max_position)
            })?;
        }
        complete_so_far(world, &held, &blocks)?;
        positions_agree(world, &held, &authority)?;
    }
    promises_kept(world, &authority)?;
    namespaces_kept(world)
}

fn status(world: &World, client: usize) -> Result<SyncStatus, Violation> {
    let replica = world.clients[client].replica.as_ref();
    let status = replica.map(|replica| replica.status(&world.space));
    match status {
        Some(Ok(status)) => Ok(status),
        other => Err(Violation { rule: "faultless", what: format!("{other:?}") }),
    }
}

fn feed_of(block: &Block) -> Id {
    block.feed_id.clone().unwrap_or_else(|| block.actor_id.clone())
}

fn by_key(blocks: &[Block]) -> Authority {
    let entry = |block: &Block| {
        (block.key(feed_of(block)), (block.position.unwrap_or_default(), ContentHash::of(block)))
    };
    blocks.iter().map(entry).collect()
}

/// I-1: positions rise.
fn ascending(blocks: &[Block]) -> Checked {
    let is_ascending = blocks.windows(2).all(|pair| pair[0].position < pair[1].position);
    ensure(is_ascending, "I-1", || "positions do not rise".to_owned())
}

/// I-4: of each replicated feed, what the authority has between its start and where it is complete is here, at the same
/// positions and with the same content, and nothing else is.
fn complete_so_far(world: &World, held: &Held, blocks: &[Block]) -> Checked {
    let client = held.client;
    for lane in &held.lanes {
        let Some(from) = lane.from else { continue };
        let range = from..=lane.complete_to;
        let part = |blocks: &[Block]| -> Vec<(u64, u64, Id, ContentHash)> {
            let is_in = |block: &&Block| {
                feed_of(block) == lane.feed
                    && block.position.is_some_and(|position| range.contains(&position))
            };
            let describe = |block: &Block| {
                let position = block.position.unwrap_or_default();
                (position, block.sequence, block.actor_id.clone(), ContentHash::of(block))
            };
            blocks.iter().filter(is_in).map(describe).collect()
        };
        let (theirs, ours) = (part(blocks), part(&held.blocks));
        // What was pruned over there may have been pulled before.
        let ours: Vec<_> =
            ours.into_iter().filter(|entry| !world.prunes() || theirs.contains(entry)).collect();
        ensure(theirs == ours, "I-4", || {
            format!("client {client}, {lane:?}: the authority has {theirs:?}, the client {ours:?}")
        })?;
    }
    Ok(())
}

/// I-3: a position under the present token is the authority's own.
fn positions_stay(held: &Held, authority: &Authority) -> Checked {
    let client = held.client;
    for block in &held.blocks {
        let Some(position) = block.position else { continue };
        let key = block.key(feed_of(block));
        let there = authority.get(&key).map(|(position, _)| *position);
        ensure(there == Some(position), "I-3", || {
            format!("client {client} has {key:?} at {position}, the authority at {there:?}")
        })?;
    }
    Ok(())
}

/// I-2 and I-3 at the end: same key, same content; same key, same position.
fn positions_agree(world: &World, held: &Held, authority: &Authority) -> Checked {
    let client = held.client;
    for block in &held.blocks {
        let key = block.key(feed_of(block));
        let lane = held.lanes.iter().find(|lane| lane.feed == key.feed_id);
        let is_own = block.actor_id == world.clients[client].actor;
        let is_covered = lane.is_some_and(|lane| lane.from <= block.position);
        // What is neither followed nor one's own is a leftover of an earlier choice.
        if !is_own && !is_covered {
            continue;
        }
        let Some((position, content)) = authority.get(&key) else {
            ensure(world.prunes(), "I-7", || format!("client {client} has {key:?}, the authority has not"))?;
            continue;
        };
        // Whose key was pruned may be given to other bytes, if two write as one actor.
        let may_differ = world.prunes() && world.copies();
        ensure(may_differ || *content == ContentHash::of(block), "I-2", || {
            format!("client {client} has other bytes in {key:?}")
        })?;
        ensure(world.prunes() || block.position == Some(*position), "I-3", || {
            format!("client {client} has {key:?} at {:?}, the authority at {position}", block.position)
        })?;
    }
    Ok(())
}

/// I-5: nothing of a feed that was never asked for, and nothing below its start, but one's own.
fn only_what_was_asked_for(world: &World, held: &Held) -> Checked {
    let client = held.client;
    for block in &held.blocks {
        let is_own = block.actor_id == world.clients[client].actor;
        if is_own || world.copies() {
            continue;
        }
        let start = world.ledger.lowest_start.get(&(client, feed_of(block)));
        // A position that was given up for a moment says nothing, nor one that was given anew after a loss.
        let is_late = |start: &u64| block.position.is_none_or(|position| position >= *start);
        let is_asked_for = start.is_some_and(|start| world.ledger.has_lost || is_late(start));
        ensure(is_asked_for, "I-5", || {
            format!("client {client} has {block:?}, and never asked for it (start: {start:?})")
        })?;
    }
    Ok(())
}

/// I-6: local reads are in the order of the protocol. I-10: what is settled has nothing before it that is still to come,
/// which [`complete_so_far`] shows for what is stored; here, that no unsettled position is shown.
fn in_order(world: &World, held: &Held) -> Checked {
    let client = held.client;
    let Some(replica) = &world.clients[client].replica else { return Ok(()) };
    for (feed, _) in &world.feeds {
        let mut read = Vec::new();
        let mut after = After::Start;
        loop {
            let part = replica.read(&world.space, feed, &after, 5);
            let part = part.map_err(|error| Violation { rule: "faultless", what: error.to_string() })?;
            let Some(last) = part.last() else { break };
            after = After::block(last);
            read.extend(part);
        }
        let is_ordered = read.windows(2).all(|pair| order::compare(&pair[0], &pair[1]).is_lt());
        ensure(is_ordered, "I-6", || format!("client {client} reads {feed} out of order"))?;
        let lane = held.lanes.iter().find(|lane| lane.feed == *feed);
        let highest = read.iter().filter_map(|block| block.position).max();
        ensure(lane.is_none_or(|lane| highest <= Some(lane.complete_to)), "I-10", || {
            format!("client {client} shows {highest:?} of {feed}, and is complete to {lane:?}")
        })?;
        let count = held.blocks.iter().filter(|block| feed_of(block) == *feed).count();
        ensure(count == read.len(), "I-6", || {
            format!("client {client} holds {count} blocks of {feed} and reads {}", read.len())
        })?;
    }
    Ok(())
}

/// I-7: what an application was told is safe has a position in the end, or is reported.
fn promises_kept(world: &World, authority: &Authority) -> Checked {
    let set_aside: Vec<_> = world.clients.iter().flat_map(crate::client::Client::set_aside).collect();
    for promise in &world.ledger.promises {
        let is_there = authority.get(&promise.key).is_some_and(|(_, content)| *content == promise.content);
        let is_pruned = world.prunes() || (promise.is_released && world.ledger.has_lost);
        let is_reported = set_aside.contains(&promise.content);
        ensure(is_there || is_reported || is_pruned, "I-7", || {
            format!("{:?} of client {} is lost", promise.key, promise.client)
        })?;
    }
    Ok(())
}

/// A feed's namespace is the one of its first append.
fn namespaces_kept(world: &World) -> Checked {
    for info in world.server.feeds(&world.space) {
        let expected =
            world.feeds.iter().find(|(feed, _)| *feed == info.feed_id).map(|(_, namespace)| namespace);
        ensure(info.namespace.as_ref() == expected, "namespace", || {
            format!("{} has namespace {:?}, not {expected:?}", info.feed_id, info.namespace)
        })?;
    }
    Ok(())
}

/// Remembers the lowest start that a client had for each feed.
pub(crate) fn note_starts(world: &mut World, client: usize) {
    let (lanes, _) = world.clients[client].lanes();
    for lane in lanes {
        let Some(from) = lane.from else { continue };
        let lowest = world.ledger.lowest_start.entry((client, lane.feed)).or_insert(from);
        *lowest = from.min(*lowest);
    }
}
