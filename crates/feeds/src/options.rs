//! How a service is run.

use alluvium_env::Room;
use alluvium_feed_protocol::Limits;
use alluvium_feed_store::Durability;

/// Most spaces of one server, if nothing else is said.
pub const SPACES_MAX_DEFAULT: usize = 10_000;

/// Most spaces that are open at once, if nothing else is said.
pub const OPEN_SPACES_MAX_DEFAULT: usize = 64;

/// How a service is run. The limits are told to clients.
#[derive(Clone, Debug)]
pub struct Options {
    /// What messages, spaces and subscriptions may hold.
    pub limits: Limits,
    /// What a commit survives.
    pub durability: Durability,
    /// Most spaces that are open at once, at least one; the one unused for longest is closed for another.
    pub open_spaces_max: usize,
    /// Whether a space comes into being with its first append. Reading one makes nothing, nor does subscribing.
    pub creates_spaces: bool,
    /// Most spaces of the folder. Beyond it no more are made; those that are there go on.
    pub spaces_max: usize,
    /// How long a subscription lasts if its request doesn't say, in milliseconds.
    pub subscription_ms_default: u64,
    /// The shortest life of a subscription, in milliseconds.
    pub subscription_ms_min: u64,
    /// The longest life of a subscription, in milliseconds.
    pub subscription_ms_max: u64,
    /// Most subscriptions of one space, of all callers. As many again of all spaces together that aren't there yet.
    pub space_subscriptions_max: usize,
    /// Most bytes of names of feeds that aren't there, of one subscription.
    pub awaited_bytes_max: usize,
    /// The same of all subscriptions of one space, and of all spaces together that aren't there yet.
    pub space_awaited_bytes_max: usize,
    /// Most requests that wait for one space's writer.
    pub queue_requests_max: usize,
    /// Most bytes of blocks that wait for one space's writer.
    pub queue_bytes_max: usize,
    /// Most requests that become one transaction.
    pub batch_requests_max: usize,
    /// Bytes of blocks from which a transaction takes no further request.
    pub batch_bytes_max: usize,
    /// Longest time that a query may be held back, in milliseconds.
    pub wait_ms_max: u64,
    /// Rows that one page may look at.
    pub page_examined_max: usize,
    /// How old the guard may be while positions are given, in milliseconds.
    pub guard_interval_ms: u64,
    /// Whether the disk has room: while it has not, appends and what would make a space are refused as storage full. Who
    /// opens the service keeps it up to date.
    pub room: Room,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            durability: Durability::Machine,
            open_spaces_max: OPEN_SPACES_MAX_DEFAULT,
            creates_spaces: true,
            spaces_max: SPACES_MAX_DEFAULT,
            subscription_ms_default: 3_600_000,
            subscription_ms_min: 60_000,
            subscription_ms_max: 86_400_000,
            space_subscriptions_max: 10_000,
            awaited_bytes_max: 1024 * 1024,
            space_awaited_bytes_max: 16 * 1024 * 1024,
            queue_requests_max: 1024,
            queue_bytes_max: 64 * 1024 * 1024,
            batch_requests_max: 64,
            batch_bytes_max: 1024 * 1024,
            wait_ms_max: 30_000,
            page_examined_max: 20_000,
            guard_interval_ms: 2000,
            room: Room::default(),
        }
    }
}
