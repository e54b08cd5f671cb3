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

/// Largest single buffer a connection reads a body into.
pub const BODY_CHUNK_BYTES_MAX: usize = 512 * 1024;

/// Bytes of responses that may wait for slow readers, over all connections, before pieces get small.
pub const RESPONSES_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes of a response given to a connection before it waits for the socket. The last piece may go beyond.
pub const QUEUED_BYTES_MAX: usize = 128 * 1024;

/// Bytes of one piece of a response, about.
pub const PIECE_BYTES: usize = 256 * 1024;

/// The same once [`RESPONSES_BYTES_MAX`] bytes wait, and with it the most that further stalled readers hold.
pub const SCARCE_PIECE_BYTES: usize = 16 * 1024;

/// Bytes of an answer that make its connection one with large answers: see `roaming`.
pub const HEAVY_BYTES_MIN: u64 = 1024 * 1024;

/// Threads of one reactor that may wait for the disk at once. Further reads queue.
pub const BLOCKING_THREADS_MAX: usize = 32;
