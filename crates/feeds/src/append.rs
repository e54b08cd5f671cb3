//! Appends: blocks get positions, all of a request's or none.

use std::collections::HashMap;

use alluvium_feed_protocol::{
    AppendRequest, AppendResponse, Block, BlockKey, Check, ContentHash, ErrorCode, Id, Limits, signature,
};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::{blocks, feeds, spaces};

use crate::failure::Failure;
use crate::hub::Moved;
use crate::principal::Principal;
use crate::query::knows_history;

/// How far an author's clock may be off before it is mentioned.
const SKEW_MS_MAX: u64 = 24 * 3_600_000;

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
            let message = format!("an append has at most {} blocks", limits.append_blocks_max);
            return Err(Failure::refused(ErrorCode::TooLarge, message));
        }
        let mut blocks = Vec::with_capacity(request.blocks.len());
        let mut bytes = 0;
        for block in &request.blocks {
            if block.data.0.len() > limits.data_bytes_max {
                let message = format!("a block has at most {} bytes of data", limits.data_bytes_max);
                return Err(Failure::refused(ErrorCode::BadRequest, message));
            }
            if block.encryption_key_id.is_some() != block.iv.is_some() {
                let message = "a sealed block has both `encryptionKeyId` and `iv`";
                return Err(Failure::refused(ErrorCode::BadRequest, message));
            }
            bytes += block.cost_bytes();
            let feed = block.feed_id.as_ref().or(request.feed_id.as_ref()).unwrap_or(&block.actor_id).clone();
            signature::verify(space, &feed, block)
                .map_err(|error| Failure::refused(ErrorCode::BadRequest, error.to_string()))?;
            blocks.push((feed, ContentHash::of(block)));
        }
        if bytes > limits.append_bytes_max {
            let message = format!("an append has at most {} bytes", limits.append_bytes_max);
            return Err(Failure::refused(ErrorCode::TooLarge, message));
        }
        Ok(Self { request, principal: principal.clone(), blocks, bytes })
    }
}

/// What an append has done: the answer, and which feeds have moved.
pub(crate) type Done = (AppendResponse, Vec<Moved>);

/// Carries out one request inside the writer's transaction. On an error the caller rolls back to where it was.
pub(crate) fn apply(
    connection: &Connection,
    space: &mut spaces::Space,
    checked: &Checked,
    limits: &Limits,
    now_ms: u64,
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
        feeds: HashMap::new(),
        conflicts: Vec::new(),
        duplicates: 0,
        warnings: Vec::new(),
    };
    let mut positions = Vec::with_capacity(request.blocks.len());
    for (index, (block, (feed, content))) in (0..).zip(request.blocks.iter().zip(&checked.blocks)) {
        positions.push(appending.block(index, block, feed, *content)?);
    }
    let Appending { feeds, conflicts, duplicates, warnings, .. } = appending;
    let mut moved = Vec::new();
    for touched in feeds.into_values() {
        if touched.has_grown {
            feeds::update(connection, &touched.feed)?;
            let position = touched.feed.head_position.unwrap_or_default();
            moved.push(Moved {
                feed: touched.feed.private_id,
                feed_id: touched.feed.id,
                namespace: touched.feed.namespace,
                position,
            });
        }
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
    Ok((response, moved))
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
    feeds: HashMap<Id, Touched>,
    conflicts: Vec<u64>,
    duplicates: u64,
    warnings: Vec<String>,
}

impl Appending<'_> {
    /// Stores one block, or finds it stored; its position either way.
    fn block(&mut self, index: u64, block: &Block, feed: &Id, content: ContentHash) -> Result<u64, Failure> {
        let is_strict = self.request.strict.unwrap_or(false);
        let private_id = self.feed(feed, is_strict)?;
        let stored = blocks::find(self.connection, private_id, block.sequence, &block.actor_id)?;
        if let Some(stored) = stored {
            if stored.content == content {
                self.duplicates += 1;
            } else if is_strict {
                let message = format!("block {index} has the key of another one");
                return Err(Failure::refused(ErrorCode::BlockConflict, message));
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
            return Ok(position);
        }
        let now_ms = self.now_ms;
        if block.timestamp.is_some_and(|timestamp| timestamp.abs_diff(now_ms) > SKEW_MS_MAX) {
            self.warn(format!("the clock of block {index} is more than a day off"));
        }
        #[cfg(feature = "planted-bugs")]
        self.misplace()?;
        let (position, check) = self.place(block, feed, content);
        let new = blocks::New {
            space: self.space.key,
            feed: private_id,
            block,
            content,
            position: Some((position, Some(check))),
            now_ms,
        };
        blocks::insert(self.connection, &new)?;
        self.grow(feed, block, position)?;
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
    fn misplace(&mut self) -> Result<(), Failure> {
        if alluvium_feed_store::planted::is_planted(alluvium_feed_store::planted::Bug::HighestPlusOne) {
            let sql = "SELECT coalesce(max(position), 0) + 1 FROM blocks WHERE position IS NOT NULL";
            self.space.next_position = self.connection.query_row(sql, [], |row| row.get(0))?;
        }
        Ok(())
    }

    /// The number of a feed, made if it is new.
    fn feed(&mut self, id: &Id, is_strict: bool) -> Result<i64, Failure> {
        if let Some(touched) = self.feeds.get(id) {
            return Ok(touched.feed.private_id);
        }
        let feed = self.load(id, is_strict)?;
        let private_id = feed.private_id;
        self.feeds.insert(id.clone(), Touched { feed, has_grown: false });
        Ok(private_id)
    }

    fn load(&mut self, id: &Id, is_strict: bool) -> Result<feeds::Feed, Failure> {
        let found = feeds::find(self.connection, &self.space.id, id)?;
        #[cfg(feature = "planted-bugs")]
        let was_named = found.is_some();
        let mut feed = match found {
            Some(feed) => feed,
            None => create_feed(self.connection, &self.space.id, id, self.limits)?,
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
        } else if self.request.namespace.is_some() && feed.namespace != self.request.namespace {
            if is_strict {
                let message = format!("feed `{id}` has another namespace");
                return Err(Failure::refused(ErrorCode::NamespaceMismatch, message));
            }
            self.warn(format!("feed `{id}` keeps its namespace"));
        }
        if !self.principal.may_see(feed.namespace.as_ref()) {
            let message = "the caller may not write in this namespace";
            return Err(Failure::refused(ErrorCode::Forbidden, message));
        }
        Ok(feed)
    }

    /// Counts a new block in its feed's row, which is written at the end.
    fn grow(&mut self, id: &Id, block: &Block, position: u64) -> Result<(), Failure> {
        let Some(touched) = self.feeds.get_mut(id) else { return Ok(()) };
        let feed = &mut touched.feed;
        if feed.block_count >= self.limits.feed_blocks_max {
            let message = format!("a feed has at most {} blocks", self.limits.feed_blocks_max);
            return Err(Failure::refused(ErrorCode::LimitReached, message));
        }
        touched.has_grown = true;
        feed.created_at.get_or_insert(self.now_ms);
        feed.block_count += 1;
        feed.byte_count += block.data.0.len() as u64;
        feed.head_position = Some(position);
        feed.first_position.get_or_insert(position);
        if feed.last.as_ref().is_none_or(|(sequence, _)| *sequence <= block.sequence) {
            feed.last = Some((block.sequence, block.actor_id.clone()));
        }
        Ok(())
    }

    fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }
}

/// Makes the row of a feed, if the space may have one more.
pub(crate) fn create_feed(
    connection: &Connection,
    space: &Id,
    feed: &Id,
    limits: &Limits,
) -> Result<feeds::Feed, Failure> {
    if feeds::count(connection, space)? >= limits.feeds_max as u64 {
        let message = format!("a space has at most {} feeds", limits.feeds_max);
        return Err(Failure::refused(ErrorCode::LimitReached, message));
    }
    Ok(feeds::create(connection, space, feed)?)
}
