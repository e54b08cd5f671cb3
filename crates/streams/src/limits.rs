//! The limits of the surface, each a named constant; those that are options give the option its default.

use std::time::Duration;

/// How long a long-poll waits for data (PROTOCOL §5.7). Below the 30 s after which many proxies give up.
pub const LONG_POLL_TIMEOUT: Duration = Duration::from_secs(25);

/// About how long an SSE response lasts (PROTOCOL §10.2); varied by [`SSE_CYCLE_JITTER_PERCENT`].
pub const SSE_CYCLE: Duration = Duration::from_mins(1);

/// By how much an SSE response may last longer, so that subscribers that came together don't return together.
pub const SSE_CYCLE_JITTER_PERCENT: u64 = 20;

/// Silence after which an SSE response sends a comment, so that proxies keep the connection.
pub const SSE_HEARTBEAT: Duration = Duration::from_secs(15);

/// Stored bytes of one SSE data event, more only if a single message is larger.
pub const SSE_EVENT_BYTES_MAX: u64 = 256 * 1024;

/// Bytes of one piece of a long event, about. Events of up to two pieces are made at once, for all subscribers at
/// their place.
pub const SSE_PIECE_BYTES: usize = 64 * 1024;

/// Stored bytes of one catch-up or long-poll response, more only if a single message is larger.
pub const READ_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Responses up to this size are joined into one buffer; larger ones are written piece by piece.
pub const JOINED_BYTES_MAX: u64 = 16 * 1024;

/// Long-polls and SSE responses that wait at once.
pub const WAITERS_MAX: usize = 16_384;

/// Bytes of partly received request bodies held at once.
pub const BODIES_BYTES_MAX: usize = 256 * 1024 * 1024;

/// How long a request body may take to arrive.
pub const BODY_TIMEOUT: Duration = Duration::from_mins(1);

/// Seconds a client is asked to wait after `503`.
pub const RETRY_AFTER_S: u64 = 1;

/// Seconds a response with data may be cached (PROTOCOL §10.1), less if the stream expires sooner.
pub const CACHE_FRESH_S: u64 = 60;

/// Seconds a cached response may be used further while it is revalidated (PROTOCOL §10.1).
pub const CACHE_STALE_S: u64 = 300;

/// Bytes of the messages of one bootstrap with their part headers, a little more to end at a message; the rest is for
/// ordinary reads.
pub const BOOTSTRAP_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// How long the body of a snapshot may take to arrive, if it never pauses for as long as a body may take.
pub const SNAPSHOT_TIMEOUT: Duration = Duration::from_mins(15);

/// Stored units that are read for bootstraps at once, over all connections.
pub const BOOTSTRAP_LOADS_MAX: usize = 2;

/// Bootstraps that hold messages at once while responses hold as much as they should, over all connections.
pub const BOOTSTRAPS_SCARCE_MAX: usize = 256;

/// Subscribers of one stream on one thread from which on those at the tail are served together. Fewer gain little by it.
pub const FAN_OUT_MIN: usize = 4;

/// Subscribers that are served before the thread looks at its other connections again.
pub const FAN_OUT_STEP: usize = 32;
