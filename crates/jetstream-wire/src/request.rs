//! What a client asks for when it connects.

use thiserror::Error;

use crate::cursor::{Cursor, InvalidCursor};
use crate::filter::{Collections, Filter, FilterError, KindSet, Prefixes, Topic, parse_dids};
use crate::query::{InvalidQuery, Query};
use crate::render::Wire;

/// Most kinds in a request for `subscribeEvents`.
pub const KINDS_MAX: usize = 4;

/// How the messages of a subscriber are sent.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Compression {
    /// As text; the socket may compress them.
    Socket,
    /// As text, and the socket is not to compress them: some browsers don't read what it makes.
    None,
    /// As binary messages of one Zstandard frame each, by the dictionary with this id.
    Zstd(u32),
}

/// A request that was understood.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Subscription {
    /// The feed.
    pub wire: Wire,
    /// What of it.
    pub filter: Filter,
    /// From where; none for what comes from now on.
    pub cursor: Option<Cursor>,
    /// In which form.
    pub compression: Compression,
    /// Whether nothing is sent before the client's first update of the filter.
    pub require_hello: bool,
}

/// Why a request was refused. The text is for the client.
#[derive(Clone, Eq, PartialEq, Debug, Error)]
pub enum RequestError {
    /// The query string cannot be read.
    #[error(transparent)]
    Query(#[from] InvalidQuery),
    /// The filter is not one.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The cursor is not one.
    #[error(transparent)]
    Cursor(#[from] InvalidCursor),
    /// A kind of events that there is not.
    #[error("unknown kind: {0}")]
    Kind(String),
    /// More than [`KINDS_MAX`] kinds.
    #[error("too many kinds: at most {KINDS_MAX}")]
    TooManyKinds,
    /// Collections are asked for where no change of a record can pass.
    #[error("collections need the kind commit")]
    CollectionsWithoutCommits,
    /// A length that is none, or given twice.
    #[error("maxMessageSizeBytes must be given once, as a number of 32 bits")]
    MessageBytes,
    /// A parameter that has another name on this wire.
    #[error("{0} is not a parameter here; use {1}")]
    Renamed(&'static str, &'static str),
    /// A dictionary's id that is no number.
    #[error("zstdDictionary must be a positive integer zstd dictionary ID")]
    DictionaryId,
    /// A dictionary that this server does not have for the wire.
    #[error("unknown zstd dictionary id {id}; current dictionary id is {current}; fetch it and try again")]
    UnknownDictionary {
        /// What was asked for.
        id: u32,
        /// What the server has.
        current: u32,
    },
}

/// The dictionaries of one wire.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Known<'a> {
    /// All that were ever given out.
    pub ids: &'a [u32],
    /// The one to use.
    pub current: u32,
}

impl Subscription {
    /// Reads a request. `socket_encoding` is the header `Socket-Encoding`; of `/subscribe`'s dictionaries, the current
    /// one is used.
    pub fn parse(
        wire: Wire,
        query: &str,
        socket_encoding: Option<&str>,
        dictionaries: Known<'_>,
    ) -> Result<Self, RequestError> {
        let query = Query::parse(query)?;
        let wants_legacy = query.get("compress") == Some("true")
            || socket_encoding.is_some_and(|encodings| encodings.contains("zstd"));
        let compression = match wire {
            Wire::V1 if wants_legacy => Compression::Zstd(dictionaries.current),
            Wire::V1 if query.get("compress") == Some("none") => Compression::None,
            Wire::V1 => Compression::Socket,
            Wire::V2 | Wire::Events if wants_legacy => {
                return Err(RequestError::Renamed("compress", "zstdDictionary"));
            }
            Wire::V2 | Wire::Events => dictionary(&query, dictionaries)?,
        };
        let filter = match wire {
            Wire::V1 | Wire::V2 => legacy_filter(&query)?,
            Wire::Events => events_filter(&query)?,
        };
        let cursor = query.get("cursor").filter(|text| !text.is_empty()).map(Cursor::parse).transpose()?;
        let require_hello = query.get("requireHello") == Some("true");
        Ok(Self { wire, filter, cursor, compression, require_hello })
    }
}

fn dictionary(query: &Query, known: Known<'_>) -> Result<Compression, RequestError> {
    let Some(text) = query.get("zstdDictionary") else { return Ok(Compression::None) };
    let id = text.parse().ok().filter(|id| *id > 0).ok_or(RequestError::DictionaryId)?;
    if known.ids.contains(&id) {
        Ok(Compression::Zstd(id))
    } else {
        Err(RequestError::UnknownDictionary { id, current: known.current })
    }
}

fn legacy_filter(query: &Query) -> Result<Filter, FilterError> {
    // What is no number of 32 bits is no limit.
    let message_bytes_max = query.get("maxMessageSizeBytes").and_then(|text| text.parse().ok()).unwrap_or(0);
    Ok(Filter {
        kinds: KindSet::default(),
        dids: parse_dids(query.all("wantedDids"))?,
        collections: Collections::parse(query.all("wantedCollections"), Prefixes::Any)?,
        message_bytes_max,
    })
}

/// Filters by what `subscribeEvents` and the feed as a stream call it.
pub fn events_filter(query: &Query) -> Result<Filter, RequestError> {
    let renamed = [
        ("wantedDids", "dids"),
        ("wantedCollections", "collections"),
        ("requireHello", "the parameters of the request"),
    ];
    if let Some((old, new)) = renamed.into_iter().find(|(old, _)| query.get(old).is_some()) {
        return Err(RequestError::Renamed(old, new));
    }
    let kinds: Vec<&str> = query.all("kinds").collect();
    if kinds.len() > KINDS_MAX {
        return Err(RequestError::TooManyKinds);
    }
    let topic = |name: &&str| Topic::from_name(name).ok_or_else(|| RequestError::Kind((*name).to_owned()));
    let topics: Vec<Topic> = kinds.iter().map(topic).collect::<Result<_, _>>()?;
    let kinds = if topics.is_empty() { KindSet::default() } else { KindSet::only(topics) };
    if query.all("collections").count() > crate::filter::COLLECTIONS_MAX {
        return Err(FilterError::TooManyCollections.into());
    }
    if query.all("dids").count() > crate::filter::DIDS_MAX {
        return Err(FilterError::TooManyDids.into());
    }
    let collections = Collections::parse(query.all("collections"), Prefixes::OfNsids)?;
    if !collections.is_empty() && !kinds.has_commits() {
        return Err(RequestError::CollectionsWithoutCommits);
    }
    let mut lengths = query.all("maxMessageSizeBytes");
    let message_bytes_max = match (lengths.next(), lengths.next()) {
        (None, _) => 0,
        (Some(text), None) => text.parse().map_err(|_| RequestError::MessageBytes)?,
        (Some(_), Some(_)) => return Err(RequestError::MessageBytes),
    };
    Ok(Filter { kinds, dids: parse_dids(query.all("dids"))?, collections, message_bytes_max })
}

#[cfg(test)]
mod tests {
    use alluvium_jss::Kind;

    use super::*;

    const KNOWN: Known<'_> = Known { ids: &[7, 9], current: 9 };

    fn parse(wire: Wire, query: &str) -> Result<Subscription, RequestError> {
        Subscription::parse(wire, query, None, KNOWN)
    }

    #[test]
    fn an_empty_request_wants_everything_from_now_on() {
        let wanted = parse(Wire::V1, "").expect("a request");
        assert_eq!((wanted.filter, wanted.cursor), (Filter::default(), None));
        assert_eq!((wanted.compression, wanted.require_hello), (Compression::Socket, false));
    }

    #[test]
    fn switches_are_true_in_one_way_only() {
        for text in ["TRUE", "1", "", "yes"] {
            let wanted = parse(Wire::V1, &format!("compress={text}&requireHello={text}")).expect("a request");
            assert_eq!((wanted.compression, wanted.require_hello), (Compression::Socket, false), "{text}");
        }
        let wanted = parse(Wire::V1, "compress=true&requireHello=true").expect("a request");
        assert_eq!((wanted.compression, wanted.require_hello), (Compression::Zstd(9), true));
        let wanted = Subscription::parse(Wire::V1, "", Some("gzip, zstd"), KNOWN).expect("a request");
        assert_eq!(wanted.compression, Compression::Zstd(9));
    }

    #[test]
    fn a_length_that_is_none_is_no_limit_on_the_old_wires() {
        for (text, limit) in
            [("", 0), ("x", 0), ("-1", 0), ("4294967296", 0), ("4294967295", u32::MAX), ("7", 7)]
        {
            let wanted = parse(Wire::V1, &format!("maxMessageSizeBytes={text}")).expect("a request");
            assert_eq!(wanted.filter.message_bytes_max, limit, "{text}");
        }
        for query in
            ["maxMessageSizeBytes=x", "maxMessageSizeBytes=1&maxMessageSizeBytes=1", "maxMessageSizeBytes=-1"]
        {
            assert_eq!(parse(Wire::Events, query), Err(RequestError::MessageBytes), "{query}");
        }
    }

    #[test]
    fn dictionaries_are_asked_for_by_id() {
        for (query, refused) in [
            ("zstdDictionary=x", RequestError::DictionaryId),
            ("zstdDictionary=0", RequestError::DictionaryId),
            ("zstdDictionary=-1", RequestError::DictionaryId),
            ("zstdDictionary=8", RequestError::UnknownDictionary { id: 8, current: 9 }),
            ("compress=true", RequestError::Renamed("compress", "zstdDictionary")),
        ] {
            assert_eq!(parse(Wire::V2, query), Err(refused.clone()));
            assert_eq!(parse(Wire::Events, query), Err(refused));
        }
        let unknown = RequestError::UnknownDictionary { id: 8, current: 9 }.to_string();
        assert!(unknown.starts_with("unknown zstd dictionary id 8; current dictionary id is 9"));
        for id in KNOWN.ids {
            let wanted = parse(Wire::V2, &format!("zstdDictionary={id}")).expect("a request");
            assert_eq!(wanted.compression, Compression::Zstd(*id));
        }
        assert_eq!(parse(Wire::V2, "").map(|wanted| wanted.compression), Ok(Compression::None));
    }

    #[test]
    fn events_are_asked_for_by_kinds_dids_and_collections() {
        let wanted = parse(
            Wire::Events,
            "kinds=commit&kinds=sync&dids=did:web:a&collections=app.bsky.*&cursor=5&odd=1",
        )
        .expect("a request");
        assert_eq!(wanted.cursor, Some(Cursor::Seq(5)));
        assert!(wanted.filter.kinds.has(Kind::Sync) && !wanted.filter.kinds.has(Kind::Account));
        for (query, refused) in [
            ("wantedDids=did:web:a", RequestError::Renamed("wantedDids", "dids")),
            ("wantedCollections=", RequestError::Renamed("wantedCollections", "collections")),
            ("kinds=other", RequestError::Kind("other".to_owned())),
            ("kinds=sync&kinds=sync&kinds=sync&kinds=sync&kinds=sync", RequestError::TooManyKinds),
            ("kinds=sync&collections=app.bsky.*", RequestError::CollectionsWithoutCommits),
            ("collections=x.*", FilterError::Collection("x.*".to_owned()).into()),
            ("cursor=x", InvalidCursor.into()),
        ] {
            assert_eq!(parse(Wire::Events, query), Err(refused), "{query}");
        }
        assert!(matches!(
            parse(Wire::Events, "requireHello=true"),
            Err(RequestError::Renamed("requireHello", _))
        ));
    }
}
