//! Which server, which events, and how patiently.

use std::time::Duration;

use alluvium_jetstream_wire::filter::{Collections, FilterError, Prefixes, parse_dids};
use alluvium_jetstream_wire::{Cursor as WireCursor, Filter, KindSet, Topic, Wire};
use ureq::http::{HeaderValue, Uri};

/// The form of an event's line, and with it the live feed that is read.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub enum Form {
    /// That of `/subscribe-v2`: with the record's own bytes.
    #[default]
    V2,
    /// That of `network.bsky.jetstream.subscribeEvents`, which newer servers of others have instead.
    Events,
}

impl Form {
    pub(crate) const fn wire(self) -> Wire {
        match self {
            Self::V2 => Wire::V2,
            Self::Events => Wire::Events,
        }
    }
}

/// Where to begin. A time is never compared with a sequence number.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Cursor {
    /// Behind the event with this sequence number; 0 for the beginning.
    After(u64),
    /// With the first event that was seen at this time or later, in microseconds since the Unix epoch.
    Time(i64),
    /// With what comes from now on.
    Now,
}

impl Cursor {
    /// Reads a cursor as feeds have it: the number of the first event, or a time where it is too large for a number.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match WireCursor::parse(text).ok()? {
            WireCursor::Seq(seq) => Self::After(seq.saturating_sub(1)),
            WireCursor::Time(time) => Self::Time(time),
        })
    }

    /// The cursor as feeds have it; none for what comes from now on.
    pub const fn to_wire(self) -> Option<u64> {
        match self {
            Self::After(after) => Some(after.saturating_add(1)),
            Self::Time(time) => Some(time.unsigned_abs()),
            Self::Now => None,
        }
    }
}

/// How far to read, and what to read first.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Mode {
    /// The archive as it is at the beginning. What is not in a finished segment by then is not part of it.
    Archive,
    /// The archive, and then live without an end.
    Whole,
    /// Live without an end. From the archive only what the live feed no longer gives.
    Live,
}

/// What bounds a reader.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Longest wait for a connection; 10 s.
    pub connect_timeout: Duration,
    /// Longest wait for one answer with its body, which has at most [`Self::part_bytes`]; one minute.
    pub answer_timeout: Duration,
    /// Bytes of a segment that are downloaded at a time, and two times that are held; 4 MiB. A longer block is one part.
    pub part_bytes: u64,
    /// The longest block that is downloaded, and the longest that it is decoded to; 256 MiB.
    pub block_bytes_max: usize,
    /// The longest footer of a segment; 256 MiB.
    pub footer_bytes_max: usize,
    /// The longest plan or list; 64 MiB.
    pub answer_bytes_max: u64,
    /// The longest message of a live feed; 4 MiB.
    pub message_bytes_max: usize,
    /// Events that are handed over at a time; 256. Two times as many wait.
    pub batch_events: usize,
    /// Bytes of lines that are handed over at a time; 1 MiB. A longer line goes alone.
    pub batch_bytes: usize,
    /// The longest query of a live feed; 8,000 bytes, which proxies let through. A longer filter is said to the older feed
    /// in a message.
    pub query_bytes_max: usize,
    /// The longest query of the newer feed, which takes no messages; 1 MiB. Where server or proxy refuse one that is longer
    /// than [`Self::query_bytes_max`], and for a filter that is longer than this, the accounts are left out and filtered
    /// here.
    pub long_query_bytes_max: usize,
    /// Events in a row that a live feed may send although they were not asked for; 10,000. More are taken as a server
    /// whose numbers went back.
    pub duplicates_max: u64,
    /// The first pause before another attempt; 250 ms. Each further one is up to twice as long.
    pub pause_min: Duration,
    /// The longest pause; 30 s.
    pub pause_max: Duration,
    /// How long a live feed must be open to count as progress, events or none; 1 s. One that is ended sooner goes on with the
    /// trouble before it.
    pub healthy_after: Duration,
    /// How long it may go without any progress before it ends in an error; by default for ever. A live feed that is quiet is
    /// no lack of progress, one that sends nothing but events before the position is. A pause ends with this time, also
    /// where the server asks for a longer one.
    pub give_up_after: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_mins(1),
            part_bytes: 4 << 20,
            block_bytes_max: 256 << 20,
            footer_bytes_max: 256 << 20,
            answer_bytes_max: 64 << 20,
            message_bytes_max: 4 << 20,
            batch_events: 256,
            batch_bytes: 1 << 20,
            query_bytes_max: 8_000,
            long_query_bytes_max: 1 << 20,
            duplicates_max: 10_000,
            pause_min: Duration::from_millis(250),
            pause_max: Duration::from_secs(30),
            healthy_after: Duration::from_secs(1),
            give_up_after: None,
        }
    }
}

/// What a server knows a caller by. Its `Debug` output does not tell it.
#[derive(Clone)]
pub struct Token(HeaderValue);

impl Token {
    /// A token; `None` if it has characters that a header cannot hold.
    pub fn new(token: &str) -> Option<Self> {
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }

    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// A server and what is wanted of it.
#[derive(Clone, Debug)]
pub struct Config {
    /// `http://`, `https://`, `ws://` or `wss://`, with a path in front of all others if there is one.
    pub server: String,
    /// The form of lines.
    pub form: Form,
    /// The kinds that pass; empty for all.
    pub kinds: Vec<Topic>,
    /// The accounts that pass, at most 10,000; empty for all.
    pub dids: Vec<String>,
    /// The collections that pass, by name or as `app.example.*`, at most 100; empty for all. Events that are no change of
    /// a record pass whatever this says.
    pub collections: Vec<String>,
    /// Whether live messages are compressed by a dictionary; yes.
    pub compress: bool,
    /// Sent as `Authorization: Bearer`.
    pub token: Option<Token>,
    /// Certificates in PEM to trust in place of the public ones.
    pub roots_pem: Option<Vec<u8>>,
    /// The bounds.
    pub limits: Limits,
}

/// What cannot be asked for.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// The text is no URL of a server.
    #[error("`{0}` is no URL of a server: it begins with http, https, ws or wss")]
    Server(String),
    /// A collection or an account that is none, or too many.
    #[error("{0}")]
    Filter(#[from] FilterError),
    /// Certificates that cannot be read.
    #[error("the certificates cannot be read: {0}")]
    Roots(String),
    /// Collections of records, and no records.
    #[error("collections are wanted and changes of records are not")]
    CollectionsWithoutCommits,
    /// The archive has nothing of what comes from now on.
    #[error("the archive has nothing of what comes from now on")]
    NowInArchive,
}

impl Config {
    /// A server by its URL: all of its events, with everything else as it mostly is.
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            form: Form::default(),
            kinds: Vec::new(),
            dids: Vec::new(),
            collections: Vec::new(),
            compress: true,
            token: None,
            roots_pem: None,
            limits: Limits::default(),
        }
    }

    /// The exact filter.
    pub(crate) fn filter(&self) -> Result<Filter, ConfigError> {
        let kinds = if self.kinds.is_empty() {
            KindSet::default()
        } else {
            KindSet::only(self.kinds.iter().copied())
        };
        if !self.collections.is_empty() && !kinds.has_commits() {
            return Err(ConfigError::CollectionsWithoutCommits);
        }
        Ok(Filter {
            kinds,
            dids: parse_dids(self.dids.iter().map(String::as_str))?,
            collections: Collections::parse(self.collections.iter().map(String::as_str), Prefixes::OfNsids)?,
            message_bytes_max: 0,
        })
    }

    /// What stands in front of every path: for requests, and for sockets.
    pub(crate) fn bases(&self) -> Result<(String, String), ConfigError> {
        let invalid = || ConfigError::Server(self.server.clone());
        let uri: Uri = self.server.parse().map_err(|_| invalid())?;
        let is_secure = match uri.scheme_str() {
            Some("http" | "ws") => false,
            Some("https" | "wss") => true,
            _ => return Err(invalid()),
        };
        let authority =
            uri.authority().filter(|authority| !authority.host().is_empty()).ok_or_else(invalid)?;
        if authority.as_str().contains('@') || uri.query().is_some() {
            return Err(invalid());
        }
        let rest = format!("{authority}{}", uri.path().trim_end_matches('/'));
        Ok(if is_secure {
            (format!("https://{rest}"), format!("wss://{rest}"))
        } else {
            (format!("http://{rest}"), format!("ws://{rest}"))
        })
    }
}

/// The name of a topic on the wire.
pub(crate) const fn topic_name(topic: Topic) -> &'static str {
    match topic {
        Topic::Commit => "commit",
        Topic::Identity => "identity",
        Topic::Account => "account",
        Topic::Sync => "sync",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_url_stands_for_requests_and_sockets() {
        let bases = |url: &str| Config::new(url).bases();
        assert_eq!(bases("http://h:1").unwrap(), ("http://h:1".to_owned(), "ws://h:1".to_owned()));
        assert_eq!(bases("wss://h/a/").unwrap(), ("https://h/a".to_owned(), "wss://h/a".to_owned()));
        for bad in ["", "h", "ftp://h", "http://", "http://u@h", "http://h?x=1"] {
            assert_eq!(bases(bad), Err(ConfigError::Server(bad.to_owned())), "{bad}");
        }
    }

    #[test]
    fn a_filter_is_checked_before_anything_is_sent() {
        let config = Config::new("http://h");
        let with = |collections: &[&str], dids: &[&str], kinds: &[Topic]| {
            let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
            let (collections, dids, kinds) = (owned(collections), owned(dids), kinds.to_vec());
            Config { kinds, dids, collections, ..config.clone() }.filter()
        };
        assert!(with(&["app.example.*", "app.example.note"], &["did:web:a.example"], &[]).is_ok());
        assert!(matches!(with(&["*"], &[], &[]), Err(ConfigError::Filter(FilterError::Collection(_)))));
        assert!(matches!(with(&[], &["x"], &[]), Err(ConfigError::Filter(FilterError::Did(_)))));
        assert_eq!(
            with(&["app.example.*"], &[], &[Topic::Sync]),
            Err(ConfigError::CollectionsWithoutCommits)
        );
    }
}
