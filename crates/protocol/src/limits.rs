//! Bounds on what a client may send, each with its unit last in the name.
//!
//! They are part of the rules rather than of the configuration: raising one would let in streams that an
//! older build could not read back.

/// Longest stream path, counted after percent-decoding.
pub const PATH_BYTES_MAX: usize = 1024;

/// Longest prefix of paths, as it is written.
pub const PREFIX_BYTES_MAX: usize = 4 * 1024;

/// Shortest bucket id (extensions §1.1).
pub const BUCKET_ID_BYTES_MIN: usize = 4;

/// Longest bucket id (extensions §1.1).
pub const BUCKET_ID_BYTES_MAX: usize = 64;

/// Longest `{bucket}/{stream}`, counted after percent-decoding (extensions §1.1).
pub const BUCKETED_PATH_BYTES_MAX: usize = 122;

/// Longest JSON text of a stream's attributes.
pub const ATTRIBUTES_BYTES_MAX: usize = 16 * 1024;

/// Superseded snapshots of one stream that stay readable for a while.
pub const SUPERSEDED_SNAPSHOTS_MAX: usize = 16;

/// Marks of one stream that say how old its data is.
pub const MARKS_MAX: usize = 64;

/// Longest `Content-Type` value.
pub const CONTENT_TYPE_BYTES_MAX: usize = 256;

/// Longest `Producer-Id` value.
pub const PRODUCER_ID_BYTES_MAX: usize = 256;

/// Longest `Stream-Seq` value.
pub const STREAM_SEQ_BYTES_MAX: usize = 256;

/// Longest `Producer-Retry-Metadata` value.
pub const RETRY_METADATA_BYTES_MAX: usize = 1024;

/// Receipts that a store keeps of each producer of a stream, those of its last appends: so many of its own appends a
/// producer can repeat, whatever others append meanwhile. It is the store contract's.
pub const RECEIPTS_PER_PRODUCER: usize = 64;

/// Deepest nesting of arrays and objects inside one JSON message.
///
/// A read wraps the messages in one more array, so every response stays within the 128 levels many parsers
/// allow.
pub const JSON_NESTING_LEVELS_MAX: usize = 127;

/// Largest integer accepted in any header: 2^53 - 1, the largest that JavaScript holds exactly (PROTOCOL
/// §5.2.1).
pub const INTEGER_MAX: u64 = (1 << 53) - 1;

/// Longest pattern of a subscription.
pub const PATTERN_BYTES_MAX: usize = 1024;

/// Most segments of a pattern.
pub const PATTERN_SEGMENTS_MAX: usize = 64;

/// Longest id of a subscription.
pub const SUBSCRIPTION_ID_BYTES_MAX: usize = 256;

/// Longest URL of a webhook.
pub const WEBHOOK_URL_BYTES_MAX: usize = 2048;

/// Longest description of a subscription.
pub const DESCRIPTION_BYTES_MAX: usize = 4096;

/// Longest name that a worker claims under.
pub const WORKER_BYTES_MAX: usize = 256;

/// Streams named in one document about a subscription, and acknowledgements in one request.
pub const SUBSCRIPTION_NAMES_MAX: usize = 10_000;
