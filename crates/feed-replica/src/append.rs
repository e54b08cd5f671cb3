//! Local appends: at once, without a network.

use alluvium_feed_protocol::{Block, ContentHash, Data, Id, Namespace, order, signature};
use alluvium_feed_store::{blocks, feeds, spaces};

use crate::{Replica, ReplicaError, ReplicaResult};

/// What an append has made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Appended {
    /// The block's sequence; with the actor it names the block in its feed.
    pub sequence: u64,
    /// The content's hash.
    pub content: ContentHash,
}

impl Replica {
    /// Appends a block to a feed. When this returns the block is durable here, and will be pushed when that is
    /// possible. The namespace counts if the feed is new. What no message could carry is refused, and nothing is kept of it.
    pub fn append(
        &mut self,
        space: &Id,
        feed: &Id,
        namespace: Option<&Namespace>,
        data: Vec<u8>,
    ) -> ReplicaResult<Appended> {
        let mut appended = self.append_all(space, feed, namespace, vec![data])?;
        appended
            .pop()
            .ok_or_else(|| ReplicaError::Store(alluvium_feed_store::StoreError::Corrupt(String::new())))
    }

    /// Appends several blocks to a feed, all of them or none.
    pub fn append_all(
        &mut self,
        space: &Id,
        feed: &Id,
        namespace: Option<&Namespace>,
        all: Vec<Vec<u8>>,
    ) -> ReplicaResult<Vec<Appended>> {
        let now_ms = self.now_ms();
        let appended = self.database.write::<_, ReplicaError>(|transaction| {
            let space = spaces::find_or_create(transaction, space)?;
            let mut row = feeds::find_or_create(transaction, &space.id, feed)?;
            if row.created_at.is_none() {
                row.namespace = namespace.cloned();
                row.created_at = Some(now_ms);
            }
            let mut appended = Vec::with_capacity(all.len());
            for data in all {
                let block = self.block(&space.id, feed, row.last.as_ref(), data, now_ms)?;
                let content = ContentHash::of(&block);
                let new = blocks::New {
                    space: space.key,
                    feed: row.private_id,
                    block: &block,
                    content,
                    position: None,
                    before: None,
                    now_ms,
                };
                blocks::insert(transaction, &new)?;
                row.last = Some((block.sequence, block.actor_id.clone()));
                row.block_count += 1;
                row.byte_count += block.data.0.len() as u64;
                appended.push(Appended { sequence: block.sequence, content });
            }
            feeds::update(transaction, &row)?;
            Ok(appended)
        })?;
        let due_ms = now_ms + self.options.push_delay_ms;
        self.session(space).push_at(due_ms);
        self.changed();
        Ok(appended)
    }

    /// The next block of a feed: sealed, then signed, so that the signature holds for whoever can't open it.
    fn block(
        &self,
        space: &Id,
        feed: &Id,
        last: Option<&(u64, Id)>,
        data: Vec<u8>,
        now_ms: u64,
    ) -> ReplicaResult<Block> {
        // A block that no message can carry would hold up everything behind it.
        let sequence = order::next_sequence(last.map(|(sequence, _)| *sequence));
        let sequence = sequence.ok_or_else(|| ReplicaError::SequencesUsedUp(feed.as_str().to_owned()))?;
        let mut block = Block {
            feed_id: None,
            namespace: None,
            position: None,
            sequence,
            actor_id: self.actor.clone(),
            prev_sequence: last.map(|(sequence, _)| *sequence),
            prev_actor_id: last.map(|(_, actor)| actor.clone()),
            timestamp: Some(now_ms),
            data: Data::from(data),
            encryption_key_id: None,
            iv: None,
            signature: None,
        };
        if let Some(cypher) = &self.options.cypher {
            cypher.seal(feed, &mut block, self.env.random.as_ref())?;
        }
        if let Some(key) = &self.options.signing {
            signature::sign(key, space, feed, &mut block);
        }
        // As it travels: what is sealed is longer than what was given.
        let (bytes, bytes_max) = (block.data.0.len(), self.options.data_bytes_max);
        if bytes > bytes_max {
            return Err(ReplicaError::TooLarge { bytes, bytes_max });
        }
        block.sendable()?;
        Ok(block)
    }
}
