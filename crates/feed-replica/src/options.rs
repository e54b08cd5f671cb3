//! How a replica behaves.

use alluvium_feed_protocol::Push;
use alluvium_feed_protocol::limits::DATA_BYTES_HARD_MAX;
use alluvium_feed_store::{Cypher, Durability};
use ed25519_dalek::SigningKey;

/// Whose blocks are pushed again when a server has lost them.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Repush {
    /// One's own, as where a server lets each actor write for itself only.
    Own,
    /// All, so that any replica heals the server.
    All,
}

/// How a replica behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether blocks are pulled.
    pub pulls: bool,
    /// Whether blocks are pushed.
    pub pushes: bool,
    /// Whose blocks are pushed again.
    pub repush: Repush,
    /// What a commit survives.
    pub durability: Durability,
    /// Seals data at rest.
    pub cypher: Option<Cypher>,
    /// Signs own blocks; the actor is then the key's.
    pub signing: Option<SigningKey>,
    /// Largest data of a block, in bytes, as it travels: sealing adds 16. Above what messages hold at all (1.5 MiB) it means that.
    pub data_bytes_max: usize,
    /// Blocks asked for in one page.
    pub page_blocks: u64,
    /// Most blocks of one push.
    pub push_blocks_max: usize,
    /// Most bytes of one push.
    pub push_bytes_max: usize,
    /// How long to wait before pushing what was just appended, in milliseconds.
    pub push_delay_ms: u64,
    /// What the authority shall send by itself about the replicated feeds, where the transport can bring it.
    pub push: Push,
    /// How often to look without a hint where hints come, in milliseconds.
    pub poll_live_ms: u64,
    /// How often to look where no hints come, in milliseconds.
    pub poll_ms: u64,
    /// After how long a request counts as lost, in milliseconds.
    pub timeout_ms: u64,
    /// The first wait after a failure, in milliseconds; the real one is drawn below it. So long, too, the next hint waits after
    /// one that led to nothing.
    pub backoff_ms_min: u64,
    /// The longest wait after failures, and of hints after some that led to nothing, in milliseconds.
    pub backoff_ms_max: u64,
    /// Pages that say there is more and have no block, in a row, and pages of one list of feeds, that are followed by the
    /// next at once. After more of them each is waited after as after a failure.
    pub pages_at_once_max: u64,
    /// Most feeds of a space that are replicated because a rule picks them. The status says so where there are more.
    pub picked_feeds_max: u64,
    /// How long subscriptions shall last, in milliseconds.
    pub subscription_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pulls: true,
            pushes: true,
            repush: Repush::All,
            durability: Durability::Machine,
            cypher: None,
            signing: None,
            data_bytes_max: (256 * 1024).min(DATA_BYTES_HARD_MAX),
            page_blocks: 500,
            push_blocks_max: 200,
            push_bytes_max: 512 * 1024,
            push_delay_ms: 20,
            push: Push::Blocks,
            poll_live_ms: 30_000,
            poll_ms: 5000,
            timeout_ms: 30_000,
            backoff_ms_min: 250,
            backoff_ms_max: 30_000,
            pages_at_once_max: 1000,
            picked_feeds_max: 100_000,
            subscription_ms: 3_600_000,
        }
    }
}
