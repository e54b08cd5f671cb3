//! Bounds, each a named constant with its unit last.

/// Longest token that is looked at, in bytes. A longer one is none.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;
pub use alluvium_protocol::limits::PREFIX_BYTES_MAX;
/// Grants of one caller: scopes, each with its prefixes.
pub const GRANTS_MAX: usize = 256;
/// Longest access file, in bytes.
pub const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Longest file or answer with keys, in bytes.
pub const KEYS_BYTES_MAX: u64 = 256 * 1024;
/// Longest head of an answer with keys, in bytes.
pub const KEYS_HEAD_BYTES_MAX: usize = 16 * 1024;
/// Longest file with the certificates of authorities, in bytes.
pub const AUTHORITY_BYTES_MAX: u64 = 1024 * 1024;
/// Keys of one issuer.
pub const KEYS_MAX: usize = 64;
/// Issuers of one file.
pub const ISSUERS_MAX: usize = 32;
/// Signed tokens that are remembered, so that a signature is checked once and not with every request.
pub const REMEMBERED_MAX: usize = 4096;
/// Seconds between two looks at the access file and files of keys. A revoked token is good for that long.
pub const LOOK_S: u64 = 1;
/// Seconds after which keys of a URL are fetched again.
pub const KEYS_REFRESH_S: u64 = 300;
/// Least seconds between two fetches from one URL, whatever asks for them.
pub const KEYS_RETRY_S: u64 = 30;
/// Seconds for which fetched keys stay in use when they cannot be fetched again.
pub const KEYS_STALE_S: u64 = 24 * 3600;
/// Seconds that one fetch of keys may take.
pub const KEYS_TIMEOUT_S: u64 = 10;
/// Seconds by which the clock of an issuer may be off, unless the file says otherwise.
pub const LEEWAY_S: u64 = 30;
/// Most seconds that the file may say.
pub const LEEWAY_S_MAX: u64 = 300;
/// Longest name of a caller, in bytes; a longer subject is cut.
pub const NAME_BYTES_MAX: usize = 256;
/// Addresses whose requests are counted at once; IPv6 by networks of 64 bits.
pub const ADDRESSES_MAX: usize = 65_536;
/// Callers whose requests are counted at once.
pub const CALLERS_MAX: usize = 16_384;
/// Origins that can be listed.
pub const ORIGINS_MAX: usize = 256;
/// Bytes of a refused body that are read, so that its sender comes to read the refusal.
pub const REFUSED_BODY_BYTES_MAX: u64 = 1024 * 1024;
