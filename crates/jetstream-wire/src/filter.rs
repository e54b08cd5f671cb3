//! Which events a subscriber gets.

use std::collections::{BTreeSet, HashSet};

use alluvium_atproto::{Did, Nsid};
use alluvium_jss::{Kind, RowRef};
use thiserror::Error;

/// Most distinct collections in one filter.
pub const COLLECTIONS_MAX: usize = 100;
/// Most distinct accounts in one filter.
pub const DIDS_MAX: usize = 10_000;
/// Most collections that are looked at before doubles are taken out.
pub const COLLECTIONS_RAW_MAX: usize = 10_000;
/// Most accounts that are looked at before doubles are taken out.
pub const DIDS_RAW_MAX: usize = 1_000_000;

/// What an event is about, as feeds tell it apart.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Topic {
    /// A change of one record.
    Commit,
    /// A change of an identity.
    Identity,
    /// A change of an account's status.
    Account,
    /// A replacement of a repository.
    Sync,
}

impl Topic {
    /// The topic of a kind; none for kinds that this version does not know.
    pub const fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Create | Kind::Update | Kind::Delete | Kind::CreateResync => Some(Self::Commit),
            Kind::Identity => Some(Self::Identity),
            Kind::Account => Some(Self::Account),
            Kind::Sync => Some(Self::Sync),
            Kind::Unknown(_) => None,
        }
    }

    /// The topic with this name on the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "commit" => Some(Self::Commit),
            "identity" => Some(Self::Identity),
            "account" => Some(Self::Account),
            "sync" => Some(Self::Sync),
            _ => None,
        }
    }
}

/// A set of topics; without one, every topic passes, and later ones too.
#[derive(Clone, Default, Eq, PartialEq, Debug)]
pub struct KindSet(Option<BTreeSet<Topic>>);

impl KindSet {
    /// The named topics only.
    pub fn only(topics: impl IntoIterator<Item = Topic>) -> Self {
        Self(Some(topics.into_iter().collect()))
    }

    /// Whether an event of this kind passes.
    pub fn has(&self, kind: Kind) -> bool {
        match (&self.0, Topic::of(kind)) {
            (None, _) => true,
            (Some(topics), Some(topic)) => topics.contains(&topic),
            (Some(_), None) => false,
        }
    }

    /// Whether events of this topic pass.
    pub fn has_topic(&self, topic: Topic) -> bool {
        self.0.as_ref().is_none_or(|topics| topics.contains(&topic))
    }

    /// Whether changes of records pass.
    pub fn has_commits(&self) -> bool {
        self.has_topic(Topic::Commit)
    }
}

/// What is wrong with a filter. The text is for the client.
#[derive(Clone, Eq, PartialEq, Debug, Error)]
pub enum FilterError {
    /// A collection that is neither an NSID nor a prefix.
    #[error("invalid collection: {0}")]
    Collection(String),
    /// An account that is no DID.
    #[error("invalid did: {0}")]
    Did(String),
    /// More collections than a filter may have.
    #[error("too many wanted collections: at most {COLLECTIONS_MAX}")]
    TooManyCollections,
    /// More accounts than a filter may have.
    #[error("too many wanted DIDs: at most {DIDS_MAX}")]
    TooManyDids,
}

/// Collections by name and by prefix; empty, every collection passes.
#[derive(Clone, Default, Eq, PartialEq, Debug)]
pub struct Collections {
    names: HashSet<Box<str>>,
    /// Up to and with the last dot.
    prefixes: BTreeSet<Box<str>>,
}

/// What may stand before `.*`.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Prefixes {
    /// Anything, as `/subscribe` takes it.
    Any,
    /// What would be an NSID with one more part.
    OfNsids,
}

impl Collections {
    /// Checks and takes in what a client asked for.
    pub fn parse<'a>(
        texts: impl IntoIterator<Item = &'a str>,
        prefixes: Prefixes,
    ) -> Result<Self, FilterError> {
        let mut parsed = Self::default();
        for (count, text) in texts.into_iter().enumerate() {
            if count >= COLLECTIONS_RAW_MAX {
                return Err(FilterError::TooManyCollections);
            }
            if let Some(head) = text.strip_suffix('*').filter(|head| head.ends_with('.')) {
                let fits = match prefixes {
                    Prefixes::Any => true,
                    Prefixes::OfNsids => Nsid::is_valid(&format!("{head}x")),
                };
                if !fits {
                    return Err(FilterError::Collection(text.to_owned()));
                }
                parsed.prefixes.insert(head.into());
            } else if Nsid::is_valid(text) {
                parsed.names.insert(text.into());
            } else {
                return Err(FilterError::Collection(text.to_owned()));
            }
        }
        if parsed.names.len() + parsed.prefixes.len() > COLLECTIONS_MAX {
            return Err(FilterError::TooManyCollections);
        }
        Ok(parsed)
    }

    /// Whether every collection passes.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.prefixes.is_empty()
    }

    /// The collections that were named whole.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// The beginnings of collections, each with the dot at its end.
    pub fn prefixes(&self) -> impl Iterator<Item = &str> {
        self.prefixes.iter().map(|prefix| &**prefix)
    }

    /// Whether a collection passes. The empty one, of a change without a record, always does.
    pub fn has(&self, collection: &str) -> bool {
        self.is_empty()
            || collection.is_empty()
            || self.names.contains(collection)
            || self.prefixes.iter().any(|prefix| collection.starts_with(&**prefix))
    }
}

/// The accounts that a filter names; empty, every account passes.
pub fn parse_dids<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<HashSet<Box<str>>, FilterError> {
    let mut dids = HashSet::new();
    for (count, text) in texts.into_iter().enumerate() {
        if count >= DIDS_RAW_MAX {
            return Err(FilterError::TooManyDids);
        }
        if !Did::is_valid(text) {
            return Err(FilterError::Did(text.to_owned()));
        }
        if !dids.contains(text) && dids.len() == DIDS_MAX {
            return Err(FilterError::TooManyDids);
        }
        dids.insert(text.into());
    }
    Ok(dids)
}

/// What passes: the kinds, and the accounts, and of changes of records the collections.
#[derive(Clone, Default, Eq, PartialEq, Debug)]
pub struct Filter {
    /// The kinds that pass.
    pub kinds: KindSet,
    /// The accounts that pass; empty for all.
    pub dids: HashSet<Box<str>>,
    /// The collections that pass. Events that are no change of a record pass whatever this says.
    pub collections: Collections,
    /// Longer events are left out, by the bytes of their uncompressed JSON; 0 for no limit.
    pub message_bytes_max: u32,
}

impl Filter {
    /// Whether a row passes, its length aside.
    pub fn has(&self, row: &RowRef<'_>) -> bool {
        self.kinds.has(row.kind)
            && (self.dids.is_empty() || self.dids.contains(row.did))
            && (!row.kind.is_commit() || self.collections.has(row.collection))
    }

    /// Whether a message of this many bytes passes.
    pub const fn has_length(&self, bytes: usize) -> bool {
        self.message_bytes_max == 0 || bytes <= self.message_bytes_max as usize
    }
}

#[cfg(test)]
mod tests {
    use alluvium_jss::Event;
    use bytes::Bytes;

    use super::*;

    fn event(kind: Kind, did: &str, collection: &str) -> Event {
        Event {
            witnessed_at: 1,
            indexed_at: 0,
            kind,
            did: did.to_owned(),
            collection: collection.to_owned(),
            rkey: String::new(),
            rev: String::new(),
            payload: Bytes::new(),
        }
    }

    fn collections(texts: &[&str]) -> Collections {
        Collections::parse(texts.iter().copied(), Prefixes::Any).expect("collections")
    }

    #[test]
    fn a_prefix_keeps_its_dot() {
        let wanted = collections(&["app.bsky.feed.*"]);
        assert!(wanted.has("app.bsky.feed.post"));
        assert!(!wanted.has("app.bsky.feedback.post"));
        assert!(!wanted.has("app.bsky.feed"));
        assert!(collections(&["x.*"]).has("x.y"));
    }

    #[test]
    fn what_is_no_nsid_is_refused() {
        for text in ["app.bsky.fo*", "*", "", "post", "app..bsky"] {
            let refused = Collections::parse([text], Prefixes::Any);
            assert_eq!(refused, Err(FilterError::Collection(text.to_owned())));
        }
        assert!(Collections::parse(["x.*"], Prefixes::OfNsids).is_err());
        assert!(Collections::parse(["app.bsky.*"], Prefixes::OfNsids).is_ok());
    }

    #[test]
    fn bounds_are_on_distinct_entries_and_on_all_of_them() {
        let many: Vec<String> = (0..=COLLECTIONS_MAX).map(|n| format!("app.bsky.c{n}")).collect();
        let parse = |texts: &[String]| Collections::parse(texts.iter().map(String::as_str), Prefixes::Any);
        assert!(parse(&many[1..]).is_ok());
        assert_eq!(parse(&many), Err(FilterError::TooManyCollections));
        let same = vec!["app.bsky.same".to_owned(); COLLECTIONS_RAW_MAX];
        assert!(parse(&same).is_ok());
        assert_eq!(
            parse(&[same, vec!["app.bsky.same".to_owned()]].concat()),
            Err(FilterError::TooManyCollections)
        );
        let dids: Vec<String> = (0..=DIDS_MAX).map(|n| format!("did:plc:a{n}")).collect();
        assert_eq!(parse_dids(dids.iter().map(String::as_str)), Err(FilterError::TooManyDids));
        assert_eq!(parse_dids(dids[1..].iter().map(String::as_str)).map(|dids| dids.len()), Ok(DIDS_MAX));
        let same = std::iter::repeat_n("did:web:a.example", DIDS_RAW_MAX);
        assert_eq!(parse_dids(same.clone()).map(|dids| dids.len()), Ok(1));
        assert_eq!(parse_dids(same.chain(["did:web:a.example"])), Err(FilterError::TooManyDids));
        assert_eq!(parse_dids(["did:"]), Err(FilterError::Did("did:".to_owned())));
    }

    #[test]
    fn collections_are_asked_of_changes_only_and_accounts_of_everything() {
        let filter = Filter {
            dids: parse_dids(["did:web:a"]).expect("a DID"),
            collections: collections(&["app.bsky.feed.post"]),
            ..Filter::default()
        };
        let has = |kind, did, collection| filter.has(&event(kind, did, collection).at(1));
        assert!(has(Kind::Create, "did:web:a", "app.bsky.feed.post"));
        assert!(!has(Kind::Delete, "did:web:a", "app.bsky.feed.like"));
        assert!(has(Kind::Delete, "did:web:a", ""));
        assert!(!has(Kind::Create, "did:web:b", "app.bsky.feed.post"));
        assert!(has(Kind::Account, "did:web:a", ""));
        assert!(has(Kind::Sync, "did:web:a", ""));
        assert!(!has(Kind::Identity, "did:web:b", ""));
    }

    #[test]
    fn later_kinds_pass_only_where_no_kind_was_asked_for() {
        assert!(KindSet::default().has(Kind::Unknown(9)));
        let only = KindSet::only([Topic::Commit]);
        assert!(only.has(Kind::CreateResync));
        assert!(!only.has(Kind::Sync));
        assert!(!only.has(Kind::Unknown(9)));
        assert!(!KindSet::only([Topic::Sync]).has_commits());
    }

    #[test]
    fn no_length_is_no_limit() {
        let filter = Filter { message_bytes_max: 3, ..Filter::default() };
        assert!(filter.has_length(3) && !filter.has_length(4));
        assert!(Filter::default().has_length(usize::MAX));
    }
}
