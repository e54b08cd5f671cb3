//! Appends: blocks get positions, all of a request's or none.

use std::collections::HashMap;

use alluvium_feed_protocol::{
    AppendRequest, AppendResponse, Block, BlockKey, Check, ContentHash, ErrorCode, Id, Limits, signature,
};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::{StoreError, blocks, feeds, spaces};

use crate::failure::Failure;
use crate::hub::Moved;
use crate::principal::Principal;
use crate::query::knows_history;

/// How far an author's clock may be off before it is mentioned.
const SKEW_MS_MAX: u64 = 24 * 3_600_000;
/// Warnings of one answer; what else there was to say is left out.
const WARNINGS_MAX: usize = 100;
/// Feeds of a space whose rows the writer remembers.
const REMEMBERED_MAX: usize = 10_000;

/// A request with the feed and the content's hash of each block, checked as far as that goes without the store.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) request: AppendRequest,
    pub(crate) principal: Principal,
    blocks: Vec<(Id, ContentHash)>,
    pub(crate) bytes: usize,
}

impl Checked {
    /// Checks sizes, names and signatures. Needs no lock and no transaction.
    pub(crate) fn new(
        space: &Id,
        principal: &Principal,
        request: AppendRequest,
        limits: &Limits,
    ) -> Result<Self, Failure> {
        if request.blocks.len() > limits.append_blocks_max {
            let message = format!("`blocks`: an append has at most {} blocks", limits.append_blocks_max);
            return Err(Failure::refused(ErrorCode::TooLarge, message));
        }
        let mut blocks = Vec::with_capacity(request.blocks.len());
        let mut bytes = 0;
        for (index, block) in request.blocks.iter().enumerate() {
            let bad = |field: &str, what: &str| {
                Failure::refused(ErrorCode::BadRequest, format!("`blocks[{index}]{field}`: {what}"))
            };
            if block.data.0.len() > limits.data_bytes_max {
                let what = format!("a block has at most {} bytes of data", limits.data_bytes_max);
                return Err(bad(".data", &what));
            }
            if block.encryption_key_id.is_some() != block.iv.is_some() {
                return Err(bad("", "a sealed block has both `encryptionKeyId` and `iv`"));
            }
            bytes += block.cost_bytes();
            let feed = block.feed_id.as_ref().or(request.feed_id.as_ref()).unwrap_or(&block.actor_id).clone();
            signature::verify(space, &feed, block).map_err(|error| bad(".signature", &error.to_string()))?;
            blocks.push((feed, ContentHash::of(block)));
        }
        if bytes > limits.append_bytes_max {
            let message = format!("`blocks`: an append has at most {} bytes", limits.append_bytes_max);
            return Err(Failure::refused(ErrorCode::TooLarge, message));
        }
        Ok(Self { request, principal: principal.clone(), blocks, bytes })
    }
}

/// What an append has done.
#[derive(Debug)]
pub(crate) struct Done {
    /// The answer.
    pub(crate) response: AppendResponse,
    /// Which feeds have moved, as they are now.
    pub(crate) grown: Vec<feeds::Feed>,
    /// Whether a feed or the space has more than is good for it.
    pub(crate) is_large: bool,
}

/// Rows of feeds as the writer last left them, so that it need not look them up. Whoever else writes them forgets them
/// here, under the same lock.
#[derive(Debug, Default)]
pub(crate) struct Remembered(HashMap<Id, feeds::Feed>);

impl Remembered {
    pub(crate) fn keep(&mut self, grown: impl IntoIterator<Item = feeds::Feed>) {
        for feed in grown {
            if self.0.len() >= REMEMBERED_MAX {
                self.0.clear();
            }
            self.0.insert(feed.id.clone(), feed);
        }
    }

    pub(crate) fn forget(&mut self) {
        self.0 = HashMap::new();
    }
}

impl From<&feeds::Feed> for Moved {
    fn from(feed: &feeds::Feed) -> Self {
        Self {
            feed: feed.private_id,
            feed_id: feed.id.clone(),
            namespace: feed.namespace.clone(),
            position: feed.head_position.unwrap_or_default(),
        }
    }
}

/// Carries out one request inside the writer's transaction. On an error the caller rolls back to where it was.
pub(crate) fn apply(
    connection: &Connection,
    space: &mut spaces::Space,
    remembered: &Remembered,
    checked: &Checked,
    (limits, now_ms): (&Limits, u64),
) -> Result<Done, Failure> {
    let request = &checked.request;
    let expected =
        (request.expected_server_token.as_ref(), request.expected_position, request.expected_check);
    if !knows_history(connection, space, expected)? {
        return Err(Failure::refused(ErrorCode::ServerReset, "the history that the client knows is gone"));
    }
    let mut appending = Appending {
        connection,
        space,
        limits,
        now_ms,
        request,
        principal: &checked.principal,
        remembered,
        feeds: HashMap::new(),
        conflicts: Vec::new(),
        duplicates: 0,
        warnings: Vec::new(),
        is_large: false,
    };
    let mut positions = Vec::with_capacity(request.blocks.len());
    for (index, (block, (feed, content))) in (0..).zip(request.blocks.iter().zip(&checked.blocks)) {
        positions.push(appending.block(index, block, feed, *content)?);
    }
    let Appending { feeds, conflicts, duplicates, warnings, is_large, .. } = appending;
    let touched = feeds.into_values().filter(|touched| touched.has_grown);
    let grown: Vec<feeds::Feed> = touched.map(|touched| touched.feed).collect();
    for feed in &grown {
        feeds::grow(connection, feed)?;
    }
    let response = AppendResponse {
        request_id: request.request_id.clone(),
        space_id: None,
        positions,
        server_token: crate::space::token(space)?,
        max_position: space.max_position(),
        check: Some(space.check),
        conflicts,
        duplicates,
        warnings,
    };
    Ok(Done { response, grown, is_large })
}

struct Touched {
    feed: feeds::Feed,
    has_grown: bool,
}

struct Appending<'a> {
    connection: &'a Connection,
    space: &'a mut spaces::Space,
    limits: &'a Limits,
    now_ms: u64,
    request: &'a AppendRequest,
    principal: &'a Principal,
    remembered: &'a Remembered,
    feeds: HashMap<Id, Touched>,
    conflicts: Vec<u64>,
    duplicates: u64,
    warnings: Vec<String>,
    is_large: bool,
}

impl Appending<'_> {
    /// Stores one block, or finds it stored; its position either way.
    fn block(&mut self, index: u64, block: &Block, feed: &Id, content: ContentHash) -> Result<u64, Failure> {
        let is_strict = self.request.strict.unwrap_or(false);
        let private_id = self.feed(index, feed, is_strict)?;
        #[cfg(feature = "planted-bugs")]
        self.misplace(private_id, block)?;
        let before = (self.space.next_position, self.space.check);
        let head = self.feeds.get(feed).map(|touched| touched.feed.head_position.unwrap_or_default());
        let (position, check) = self.place(block, feed, content);
        let new = blocks::New {
            space: self.space.key,
            feed: private_id,
            block,
            content,
            position: Some((position, Some(check))),
            before: head.filter(|head| *head < position),
            now_ms: self.now_ms,
        };
        if blocks::insert_new(self.connection, &new)?.is_some() {
            if block.timestamp.is_some_and(|timestamp| timestamp.abs_diff(self.now_ms) > SKEW_MS_MAX) {
                self.warn(format!("the clock of block {index} is more than a day off"));
            }
            self.grow(index, feed, block, position)?;
            return Ok(position);
        }
        // The key is taken: no position is used up.
        (self.space.next_position, self.space.check) = before;
        let stored = blocks::find_whole(self.connection, private_id, block.sequence, &block.actor_id)?;
        let missing = || StoreError::Corrupt("a key that is taken, and by no block".to_owned());
        let stored = stored.ok_or_else(missing)?;
        if stored.content == content {
            self.duplicates += 1;
        } else if is_strict {
            return Err(at(index, ErrorCode::BlockConflict, "it has the key of another block"));
        } else {
            self.conflicts.push(index);
        }
        #[cfg(feature = "planted-bugs")]
        if alluvium_feed_store::planted::is_planted(alluvium_feed_store::planted::Bug::WastedPosition) {
            self.space.next_position += 1;
            return Ok(self.space.next_position - 1);
        }
        if let Some(position) = stored.position {
            return Ok(position);
        }
        // A file that was a replica's before it became an authority's.
        let (position, check) = self.place(block, feed, content);
        blocks::set_position(self.connection, stored.insertion_id, Some(position), Some(check))?;
        Ok(position)
    }

    /// Takes the next position for a block; that, and the check there.
    fn place(&mut self, block: &Block, feed: &Id, content: ContentHash) -> (u64, Check) {
        let position = self.space.next_position;
        self.space.next_position += 1;
        let key =
            BlockKey { feed_id: feed.clone(), sequence: block.sequence, actor_id: block.actor_id.clone() };
        self.space.check = self.space.check.then(position, &key, &content);
        (position, self.space.check)
    }

    /// Takes the next position from what is stored, as is not to be done.
    #[cfg(feature = "planted-bugs")]
    fn misplace(&mut self, feed: i64, block: &Block) -> Result<(), Failure> {
        if alluvium_feed_store::planted::is_planted(alluvium_feed_store::planted::Bug::HighestPlusOne)
            && blocks::find(self.connection, feed, block.sequence, &block.actor_id)?.is_none()
        {
            let sql = "SELECT coalesce(max(position), 0) + 1 FROM blocks WHERE position IS NOT NULL";
            self.space.next_position = self.connection.query_row(sql, [], |row| row.get(0))?;
        }
        Ok(())
    }

    /// The number of a feed, made if it is new.
    fn feed(&mut self, index: u64, id: &Id, is_strict: bool) -> Result<i64, Failure> {
        if let Some(touched) = self.feeds.get(id) {
            return Ok(touched.feed.private_id);
        }
        let feed = self.load(index, id, is_strict)?;
        let private_id = feed.private_id;
        self.feeds.insert(id.clone(), Touched { feed, has_grown: false });
        Ok(private_id)
    }

    fn load(&mut self, index: u64, id: &Id, is_strict: bool) -> Result<feeds::Feed, Failure> {
        let found = if let Some(feed) = self.remembered.0.get(id) {
            Some(feed.clone())
        } else {
            let found = feeds::find(self.connection, &self.space.id, id)?;
            found.iter().try_for_each(|feed| blocks::check_end(self.connection, feed))?;
            found
        };
        #[cfg(feature = "planted-bugs")]
        let was_named = found.is_some();
        let mut feed = match found {
            Some(feed) => feed,
            None => self.create(index, id)?,
        };
        // A feed that was only named, by a subscriber, is as new as one that wasn't.
        let is_new = feed.created_at.is_none();
        #[cfg(feature = "planted-bugs")]
        let is_new = is_new
            && !(was_named
                && alluvium_feed_store::planted::is_planted(
                    alluvium_feed_store::planted::Bug::NamespaceLost,
                ));
        if is_new {
            feed.namespace.clone_from(&self.request.namespace);
        }
        // Before anything is said about a feed that the caller may not see.
        if !self.principal.may_see(feed.namespace.as_ref()) {
            return Err(at(index, ErrorCode::Forbidden, "the caller may not write in this namespace"));
        }
        if self.request.namespace.is_some() && feed.namespace != self.request.namespace {
            if is_strict {
                let what = format!("feed `{id}` has another namespace");
                return Err(at(index, ErrorCode::NamespaceMismatch, &what));
            }
            self.warn(format!("feed `{id}` keeps its namespace"));
        }
        Ok(feed)
    }

    /// Makes the row of a feed, if the space may have one more.
    fn create(&mut self, index: u64, id: &Id) -> Result<feeds::Feed, Failure> {
        let count = feeds::count_without(self.connection, &self.space.id, id)? + 1;
        if count > self.limits.feeds_max as u64 {
            let what = format!("a space has at most {} feeds", self.limits.feeds_max);
            return Err(at(index, ErrorCode::LimitReached, &what));
        }
        let feed = feeds::create(self.connection, &self.space.id, id)?;
        if count > self.limits.feeds_soft_max as u64 {
            self.is_large = true;
            self.warn(format!("the space has more than {} feeds", self.limits.feeds_soft_max));
        }
        Ok(feed)
    }

    /// Counts a new block in its feed's row, which is written at the end.
    fn grow(&mut self, index: u64, id: &Id, block: &Block, position: u64) -> Result<(), Failure> {
        let Some(touched) = self.feeds.get_mut(id) else { return Ok(()) };
        let is_first = !touched.has_grown;
        let feed = &mut touched.feed;
        if feed.block_count >= self.limits.feed_blocks_max {
            let what = format!("a feed has at most {} blocks", self.limits.feed_blocks_max);
            return Err(at(index, ErrorCode::LimitReached, &what));
        }
        touched.has_grown = true;
        feed.created_at.get_or_insert(self.now_ms);
        feed.block_count += 1;
        feed.byte_count += block.data.0.len() as u64;
        feed.head_position = Some(position);
        feed.last_timestamp = block.timestamp;
        feed.first_position.get_or_insert(position);
        if feed.last.as_ref().is_none_or(|(sequence, _)| *sequence <= block.sequence) {
            feed.last = Some((block.sequence, block.actor_id.clone()));
        }
        if is_first && feed.block_count > self.limits.feed_blocks_soft_max {
            let blocks_max = self.limits.feed_blocks_soft_max;
            self.is_large = true;
            self.warn(format!("feed `{id}` has more than {blocks_max} blocks"));
        }
        Ok(())
    }

    fn warn(&mut self, warning: String) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(warning);
        }
    }
}

/// The refusal of a request for one of its blocks.
fn at(index: u64, code: ErrorCode, what: &str) -> Failure {
    Failure::refused(code, format!("`blocks[{index}]`: {what}"))
}
