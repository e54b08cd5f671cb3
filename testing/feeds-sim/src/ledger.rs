//! What the world has seen and may hold the code to.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use alluvium_feed_protocol::{AppendRequest, AppendResponse, BlockKey, ContentHash, Id};

use crate::{Checked, ensure};

/// A block that an application was told is safe.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    pub(crate) key: BlockKey,
    pub(crate) content: ContentHash,
    pub(crate) client: usize,
    /// Its author has since thrown its own copy away, as it may with what the authority has.
    pub(crate) is_released: bool,
}

/// What the authority has said since it last lost something.
#[derive(Debug, Default)]
pub(crate) struct Said {
    by_position: BTreeMap<u64, (BlockKey, ContentHash)>,
    by_key: HashMap<BlockKey, (u64, ContentHash)>,
}

/// Everything.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) promises: Vec<Promise>,
    pub(crate) said: Said,
    /// Whether the authority has lost acknowledged data in this run, under a new token or the same.
    pub(crate) has_lost: bool,
    /// Keys that were pruned: they may come back at another position.
    pub(crate) pruned: BTreeSet<BlockKey>,
    /// Requests with their answers, for being sent again.
    pub(crate) recorded: Vec<(AppendRequest, AppendResponse)>,
    /// When each position was given, by the authority's clock.
    arrived: BTreeMap<u64, u64>,
    /// Lowest start that each client had for each feed; what lies below was never to be pulled.
    pub(crate) lowest_start: HashMap<(usize, Id), u64>,
}

impl Ledger {
    /// The authority has lost something: what it said before doesn't bind it.
    pub(crate) fn lose(&mut self) {
        self.has_lost = true;
        self.said = Said::default();
        self.recorded.clear();
        self.pruned.clear();
    }

    /// I-1, I-2, I-8: positions are given once, to one content, and told the same ever after.
    pub(crate) fn hear(&mut self, request: &AppendRequest, response: &AppendResponse) -> Checked {
        for (index, (block, position)) in (0u64..).zip(request.blocks.iter().zip(&response.positions)) {
            let feed = block.feed_id.clone().or(request.feed_id.clone()).unwrap_or(block.actor_id.clone());
            let key = block.key(feed);
            let content = ContentHash::of(block);
            let is_conflict = response.conflicts.contains(&index);
            if let Some((known, content_there)) = self.said.by_position.get(position) {
                ensure(*known == key, "I-1", || {
                    format!("position {position} was given to {known:?} and then to {key:?}")
                })?;
                ensure((*content_there == content) != is_conflict, "I-2", || {
                    format!("{key:?}: conflict is {is_conflict}, and that is wrong")
                })?;
            }
            let is_pruned = self.pruned.contains(&key);
            if let Some((before, _)) = self.said.by_key.get(&key).filter(|_| !is_pruned) {
                ensure(before == position, "I-8", || {
                    format!("{key:?} was told to be at {before}, and then at {position}")
                })?;
            }
            if !is_conflict {
                self.pruned.remove(&key);
                self.said.by_position.insert(*position, (key.clone(), content));
                self.said.by_key.insert(key, (*position, content));
            }
        }
        let highest = response.positions.iter().max().copied().unwrap_or(0);
        ensure(highest <= response.max_position, "I-1", || {
            format!("position {highest} is above the highest one, {}", response.max_position)
        })
    }

    /// Positions that were told now; those that were told before arrived before.
    pub(crate) fn arrive(&mut self, positions: &[u64], server_ms: u64) {
        for position in positions {
            self.arrived.entry(*position).or_insert(server_ms);
        }
    }

    /// I-4: what came at or after a time begins where the authority says, not later and not earlier.
    pub(crate) fn since(&self, asked: Option<u64>, told: Option<u64>) -> Checked {
        let (Some(time), Some(start)) = (asked, told) else { return Ok(()) };
        // What is left after a loss came at a time that nobody has noted.
        if self.has_lost {
            return Ok(());
        }
        let wrong = self.arrived.iter().find(|(position, at_ms)| (**at_ms >= time) != (**position >= start));
        ensure(wrong.is_none(), "I-4", || {
            format!("what came since {time} is said to begin at {start}, but {wrong:?} is known")
        })
    }
}
