//! What a simulated client asks for, and how the next thing to ask is drawn from the seed.

use std::sync::Arc;

use alluvium_engine::TrimTo;
use alluvium_protocol::Offset;

/// Content types that the simulation uses: the three that the protocol tells apart.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Kind {
    /// `application/octet-stream`, the default.
    Binary,
    /// `application/json`: bodies are cut into messages.
    Json,
    /// `text/plain`.
    Text,
}

impl Kind {
    /// The media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Binary => "application/octet-stream",
            Self::Json => "application/json",
            Self::Text => "text/plain",
        }
    }
}

/// How long a stream is to live.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Life {
    /// Until it is deleted.
    Forever,
    /// This many idle seconds.
    Ttl(u64),
    /// Until an instant, in Unix milliseconds.
    Until(u64),
}

/// A body, by its messages.
#[derive(Clone, Eq, PartialEq)]
pub enum Body {
    /// One message of these bytes; none when empty.
    Bytes(Vec<u8>),
    /// These JSON texts, sent as an array.
    Json(Vec<String>),
}

impl std::fmt::Debug for Body {
    /// The sizes of the messages: their text is long and says nothing.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Self::Json(texts) => write!(f, "Json{:?}", texts.iter().map(String::len).collect::<Vec<_>>()),
        }
    }
}

impl Body {
    /// Nothing.
    pub const EMPTY: Self = Self::Bytes(Vec::new());

    /// Whether there is nothing to append.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::Json(texts) => texts.is_empty(),
        }
    }

    /// What is sent.
    pub fn sent(&self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes.clone(),
            Self::Json(texts) if texts.is_empty() => Vec::new(),
            Self::Json(texts) => format!("[{}]", texts.join(" , ")).into_bytes(),
        }
    }

    /// What is stored, message by message.
    pub fn stored(&self) -> Vec<Arc<[u8]>> {
        match self {
            Self::Bytes(bytes) if bytes.is_empty() => Vec::new(),
            Self::Bytes(bytes) => vec![bytes.as_slice().into()],
            Self::Json(texts) => texts.iter().map(|text| format!("{text},").into_bytes().into()).collect(),
        }
    }
}

/// A producer's stamp on a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stamp {
    /// Who.
    pub id: String,
    /// Its epoch.
    pub epoch: u64,
    /// Its sequence number.
    pub seq: u64,
}

/// A fork to be made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ForkAsk {
    /// The source's path.
    pub source: String,
    /// Where; the tail when left out.
    pub offset: Option<Offset>,
    /// How far after that: messages of JSON, else bytes.
    pub sub_offset: u64,
}

/// A stream to be created.
#[derive(Clone, Debug)]
pub struct CreateAsk {
    /// Its path.
    pub path: String,
    /// Its content type, when the request names one.
    pub kind: Option<Kind>,
    /// How long it is to live.
    pub life: Life,
    /// Created closed.
    pub closed: bool,
    /// Initial content.
    pub body: Body,
    /// What it is forked from.
    pub fork: Option<ForkAsk>,
}

/// Bytes to be appended, a close, or both.
#[derive(Clone, Debug)]
pub struct AppendAsk {
    /// The stream's path.
    pub path: String,
    /// The content type that the request names.
    pub kind: Kind,
    /// What to append.
    pub body: Body,
    /// The producer, for an idempotent append.
    pub stamp: Option<Stamp>,
    /// `Stream-Seq`.
    pub seq: Option<String>,
    /// Whether the stream is closed.
    pub close: bool,
}

/// A snapshot to be published.
#[derive(Clone)]
pub struct PublishAsk {
    /// The stream's path.
    pub path: String,
    /// Where.
    pub offset: Offset,
    /// Its body.
    pub body: Vec<u8>,
    /// Whether what is before it stays readable.
    pub retain_all: bool,
}

impl std::fmt::Debug for PublishAsk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, offset, body, retain_all } = self;
        write!(f, "PublishAsk {{ `{path}` at {offset}, {} bytes, retain all: {retain_all} }}", body.len())
    }
}

/// A rule of retention.
#[derive(Clone, Debug)]
pub struct RetainAsk {
    /// What the URL paths of the streams begin with.
    pub prefix: String,
    /// How long they may go without a write.
    pub idle_ms_max: Option<u64>,
    /// How long closed ones stay.
    pub closed_ms_max: Option<u64>,
    /// What all may hold together.
    pub bytes_max: Option<u64>,
}

/// What is to be given up of streams that go on.
#[derive(Clone, Debug)]
pub enum TrimAsk {
    /// Of one stream.
    One {
        /// Its path.
        path: String,
        /// How much is to stay.
        to: TrimTo,
    },
    /// Of those that a rule is about.
    Rule {
        /// What their URL paths begin with.
        prefix: String,
        /// What each may hold.
        bytes_max: Option<u64>,
        /// How old what it holds may be.
        age_ms_max: Option<u64>,
    },
}

/// One step of a simulation.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Ask for a stream.
    Create(CreateAsk),
    /// Ask for an append or a close.
    Append(AppendAsk),
    /// Ask for a deletion.
    Delete(String),
    /// Look which streams a rule says are to go, and have them ended.
    Retain(RetainAsk),
    /// Give up the beginning of streams.
    Trim(TrimAsk),
    /// Ask for a snapshot to be published.
    Publish(PublishAsk),
    /// Ask for a bucket.
    CreateBucket(String),
    /// Ask for the deletion of a bucket.
    DeleteBucket(String),
    /// Cut a stream for a bootstrap, and hold the cut.
    Cut(String),
    /// Read the oldest cut that is held.
    ReadCut,
    /// Look at a stream without renewing it.
    Head(String),
    /// Read a stream from one of its boundaries (counted modulo their number), so many bytes at a time.
    Read {
        /// The stream's path.
        path: String,
        /// Which boundary.
        boundary: usize,
        /// Bytes per read.
        bytes_max: u64,
    },
    /// Read from an offset that the stream never gave out.
    ReadUnaligned {
        /// The stream's path.
        path: String,
        /// The offset, if it happens not to be a boundary.
        offset: Offset,
    },
    /// Let a shard commit what waits for it.
    Commit(u16),
    /// Let a shard fold, whatever the number of its sealed segments.
    Fold(u16),
    /// Look for streams whose time is over.
    Expire,
    /// Let time pass, in milliseconds.
    Advance(u64),
    /// Shut down in order and start again.
    Restart,
    /// `kill -9` and start again: the kernel keeps what was written.
    Kill,
    /// Lose power and start again.
    Crash,
    /// Lose power in the middle of the disk operation so many from now.
    CrashSoon(u64),
    /// Fail the sync of a file so many from now.
    FailSync(u64),
    /// Fail the write to a file so many from now.
    FailWrite(u64),
    /// Fail the read so many from now.
    FailRead(u64),
    /// Leave only so many bytes of space.
    Squeeze(u64),
    /// Have space again.
    Relax,
    /// Send once more an append whose answer was lost.
    Retry,
}
