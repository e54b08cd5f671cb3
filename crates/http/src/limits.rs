//! The limits of the HTTP layer, each a named constant with its unit last.

/// Connections held at once, over all reactors. A connection over the limit is answered `503` and closed.
pub const CONNECTIONS_MAX: usize = 16_384;

/// Bytes of a request head (request line and headers). A larger one is answered `431`.
pub const HEADER_BYTES_MAX: usize = 64 * 1024;

/// Headers in one request. More are answered `431`.
pub const HEADERS_MAX: usize = 100;

/// Seconds a connection may stay without a complete request head. Closed between one and two of these, so
/// that no timer is set per request.
pub const IDLE_TIMEOUT_S: u64 = 60;

/// Seconds a peer may leave sent bytes unacknowledged or its receive window shut before its connection is
/// dropped (`TCP_USER_TIMEOUT`). Bounds what a reader that stopped reading can hold.
pub const STALLED_PEER_TIMEOUT_S: u64 = 120;

/// Connections the kernel queues before they are accepted.
pub const LISTEN_BACKLOG: i32 = 4096;

/// Milliseconds to wait after `accept` fails for want of descriptors or memory.
pub const ACCEPT_RETRY_MS: u64 = 50;

/// Largest single buffer a connection reads a body into, and the most it queues for writing before it waits
/// for the socket. Responses are handed over in pieces up to 1 MiB, which are queued whole.
pub const BODY_CHUNK_BYTES_MAX: usize = 512 * 1024;

/// Bytes of an answer that make its connection one with large answers: see `roaming`.
pub const HEAVY_BYTES_MIN: u64 = 1024 * 1024;

/// Threads of one reactor that may wait for the disk at once. Further reads queue.
pub const BLOCKING_THREADS_MAX: usize = 32;
