//! The limits of the HTTP layer, each a named constant with its unit last.

/// Connections held at once, over all reactors. A connection over the limit is answered `503` and closed.
pub const CONNECTIONS_MAX: usize = 16_384;

/// Connections held at once for one address, or for the first 64 bits of one of IPv6. This machine's own addresses and
/// trusted proxies are exempt. A connection over the limit is answered `429` and closed.
pub const CONNECTIONS_PER_ADDRESS_MAX: usize = 1024;

/// Requests under way at once on one connection of HTTP/2. A client keeps further ones back.
pub const STREAMS_PER_CONNECTION_MAX: usize = 128;

/// Bytes of a request body that a client of HTTP/2 may send before the server has read them, for one request.
pub const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;

/// The same for all requests of a connection.
pub const CONNECTION_WINDOW_BYTES: u32 = 2 * 1024 * 1024;

/// Requests of HTTP/2 that a client may have taken back before the server has looked at them. One more ends the
/// connection.
pub const RESETS_PENDING_MAX: usize = 20;

/// Faults in streams of HTTP/2 that a client may make the server answer with resets. One more ends the connection.
pub const RESETS_CAUSED_MAX: usize = 256;

/// Seconds that a TLS handshake may take.
pub const HANDSHAKE_TIMEOUT_S: u64 = 10;

/// Seconds that a client of HTTP/2 may take to answer a ping, which it is sent when a connection has been silent for the
/// idle timeout.
pub const PING_TIMEOUT_S: u64 = 20;

/// Seconds between two looks at certificate files.
pub const CERTIFICATE_LOOK_S: u64 = 5;

/// Bytes of a response that TLS may hold beside the pieces that are counted, for each connection.
pub const TLS_BUFFER_BYTES_MAX: usize = 32 * 1024;

/// Bytes of a request head (request line and headers). A larger one is answered `431`.
pub const HEADER_BYTES_MAX: usize = 64 * 1024;

/// Bytes that queries of more than 16 KiB take in memory, over all requests whose answer has not begun, where a server
/// takes such queries at all. Beyond it a request is answered `503`.
pub const QUERIES_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Headers in one request. More are answered `431`.
pub const HEADERS_MAX: usize = 100;

/// Seconds a connection may stay without a complete request head. Closed between one and two of these, so
/// that no timer is set per request.
pub const IDLE_TIMEOUT_S: u64 = 60;

/// Seconds a peer may leave sent bytes unacknowledged or its receive window shut before its connection is
/// dropped (`TCP_USER_TIMEOUT`), and may give an answer over HTTP/2 no room before that is dropped. Bounds what a
/// reader that stopped reading can hold.
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
