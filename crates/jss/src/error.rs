//! What can go wrong: an event that does not fit, a file that is damaged, a disk that fails.

use std::fmt;
use std::io;

/// A column of a block whose length is bounded.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Field {
    /// The account.
    Did,
    /// The collection.
    Collection,
    /// The record key.
    Rkey,
    /// The revision.
    Rev,
    /// The payload.
    Payload,
}

impl Field {
    /// The longest value that the format can store, in bytes.
    pub const fn bytes_max(self) -> usize {
        match self {
            Self::Did => u16::MAX as usize,
            Self::Collection | Self::Rkey | Self::Rev => u8::MAX as usize,
            Self::Payload => u32::MAX as usize,
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Did => "DID",
            Self::Collection => "collection",
            Self::Rkey => "record key",
            Self::Rev => "revision",
            Self::Payload => "payload",
        })
    }
}

/// An event that a segment cannot take. Nothing was changed.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum Refused {
    /// A value is longer than its column can store.
    #[error("the {field} has {len} bytes, and the format has room for {}", field.bytes_max())]
    TooLong {
        /// Which value.
        field: Field,
        /// Its length in bytes.
        len: usize,
    },
    /// A kind that is never written.
    #[error("events of kind {0} are not written")]
    Kind(u8),
    /// The sequence number is not above that of the row before, or 0.
    #[error("sequence number {seq} does not follow {last}")]
    Seq {
        /// The number that was given.
        seq: u64,
        /// The number of the row before; 0 when there is none.
        last: u64,
    },
    /// The block is full; flush it first.
    #[error("the block is full")]
    Full,
    /// Blocks were prepared and are not committed; or one is committed that is not the next, or another writer's.
    #[error("blocks are committed in the order in which they were prepared, and all of them")]
    Prepared,
}

/// Why bytes are not what they should be. Such a file is refused; it is never read around.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The file or a part of it ends too early.
    #[error("{what} ends too early")]
    Short {
        /// Which part.
        what: &'static str,
    },
    /// Bytes follow where a part should end.
    #[error("bytes follow the end of {what}")]
    Trailing {
        /// Which part.
        what: &'static str,
    },
    /// The first four bytes are not `jss0`.
    #[error("this is no segment file: it does not start with `jss0`")]
    Magic,
    /// A version other than 1.
    #[error("version {0} of the format is not known")]
    Version(u16),
    /// The header contradicts itself.
    #[error("the header: {0}")]
    Header(&'static str),
    /// The checksum over header and footer does not match.
    #[error("the checksum is {stored:016x} and should be {computed:016x}")]
    Checksum {
        /// What the header says.
        stored: u64,
        /// What the bytes give.
        computed: u64,
    },
    /// An offset of the header leads nowhere.
    #[error("{what} is at {offset}, which is not possible here")]
    Offset {
        /// Which part.
        what: &'static str,
        /// Where it should be.
        offset: u64,
    },
    /// A number is beyond what a reader takes.
    #[error("{what}: {found} is more than {limit}")]
    TooMany {
        /// What is counted.
        what: &'static str,
        /// The number found.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// Two places say different things.
    #[error("{what}: {found} here and {expected} there")]
    Mismatch {
        /// What is said twice.
        what: &'static str,
        /// What was found.
        found: u64,
        /// What it should be.
        expected: u64,
    },
    /// A zstd frame of a kind that the format does not have, or that does not decode.
    #[error("{0}")]
    Frame(FrameDamage),
    /// A value that should be text is none.
    #[error("a {0} is not UTF-8")]
    Text(Field),
    /// An entry of the block index contradicts itself or its neighbours.
    #[error("block {block}: {what}")]
    BlockIndex {
        /// Which entry.
        block: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Rows or blocks are out of order.
    #[error("sequence number {seq} follows {last}")]
    Order {
        /// The number found.
        seq: u64,
        /// The number before it.
        last: u64,
    },
    /// A bloom filter that cannot be read.
    #[error("bloom filter: {0}")]
    Bloom(&'static str),
    /// A sealed file where an active one is needed.
    #[error("the segment is sealed already")]
    Sealed,
    /// An active file where a sealed one is needed.
    #[error("the segment is not sealed")]
    Active,
    /// Rows that were acknowledged are not there.
    #[error("rows up to {acknowledged} were acknowledged, and only those up to {found} are there")]
    Lost {
        /// The last row that must be there.
        acknowledged: u64,
        /// The last row that is there; 0 when there is none.
        found: u64,
    },
    /// Behind the last complete frame is something that is neither a torn write nor an interrupted seal.
    #[error("what follows the last complete frame is neither torn nor an unfinished seal")]
    Tail,
}

/// What is wrong with a frame.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameDamage {
    /// It does not start with the magic number of zstd.
    #[error("the frame does not start like one of zstd")]
    Magic,
    /// It needs a dictionary.
    #[error("the frame needs a dictionary")]
    Dictionary,
    /// It has no content checksum.
    #[error("the frame has no checksum")]
    NoChecksum,
    /// Reserved bits are set.
    #[error("the frame's header has reserved bits")]
    Reserved,
    /// It is not exactly one whole frame.
    #[error("there is not exactly one frame")]
    NotOne,
    /// Its content is longer than the limit.
    #[error("the frame's content is too large")]
    TooLarge,
    /// It does not decode, or the checksum of its content does not match.
    #[error("the frame does not decode")]
    Corrupt,
}

impl From<FrameDamage> for Damage {
    fn from(damage: FrameDamage) -> Self {
        Self::Frame(damage)
    }
}

/// A failure while working with a file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk failed.
    #[error("{context}: {source}")]
    Io {
        /// What was being done.
        context: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The file is damaged.
    #[error("damaged at byte {at}: {damage}")]
    Damaged {
        /// About where in the file.
        at: u64,
        /// What is wrong.
        #[source]
        damage: Damage,
    },
    /// The event does not fit.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// An earlier write or sync failed, so what the file holds is not known. Open it again.
    #[error("an earlier write of this file failed")]
    Poisoned,
    /// A change that would alter what must stay as it is.
    #[error("a patch may change times only: {0}")]
    NotAPatch(&'static str),
}

impl Error {
    /// The damage, if that is what it is.
    pub const fn damage(&self) -> Option<&Damage> {
        if let Self::Damaged { damage, .. } = self { Some(damage) } else { None }
    }

    pub(crate) const fn damaged(at: u64, damage: Damage) -> Self {
        Self::Damaged { at, damage }
    }
}

/// Says what was being done when an I/O error came.
pub(crate) fn io(context: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { context, source }
}
