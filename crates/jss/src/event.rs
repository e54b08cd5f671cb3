//! What a segment stores: events of the network, and rows, which are events with their place in the archive.

use std::fmt;

use alluvium_atproto::{Cid, Codec};
use bytes::Bytes;

use crate::error::{Field, Refused};

/// What happened. The numbers are the format's.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Kind {
    /// A record was created.
    Create,
    /// A record was replaced.
    Update,
    /// A record was deleted; there is no payload.
    Delete,
    /// `#identity`: the payload is the event's body.
    Identity,
    /// `#account`: the payload is the event's body.
    Account,
    /// `#sync`: the payload is the event's body. What the account had before it is void.
    Sync,
    /// A record as of the replacement of a whole repository; for a client that folds the stream a create.
    CreateResync,
    /// A kind that this version does not know. It is read, so that a later kind does not make old readers fail, and
    /// never written.
    Unknown(u8),
}

impl Kind {
    /// The kind with this number.
    pub const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Create,
            2 => Self::Update,
            3 => Self::Delete,
            4 => Self::Identity,
            5 => Self::Account,
            6 => Self::Sync,
            7 => Self::CreateResync,
            other => Self::Unknown(other),
        }
    }

    /// The number in a file.
    pub const fn number(self) -> u8 {
        match self {
            Self::Create => 1,
            Self::Update => 2,
            Self::Delete => 3,
            Self::Identity => 4,
            Self::Account => 5,
            Self::Sync => 6,
            Self::CreateResync => 7,
            Self::Unknown(number) => number,
        }
    }

    /// Whether it is a change of one record, and so has a collection and a record key.
    pub const fn is_commit(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::Delete | Self::CreateResync)
    }

    /// Whether it carries a record, which a later event can make obsolete.
    pub const fn is_record(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::CreateResync)
    }

    /// The entry of the collection index under which blocks with this kind are found; none for changes of records.
    /// No collection can be named so, because `$` is not legal in an NSID.
    pub const fn sentinel(self) -> Option<&'static str> {
        match self {
            Self::Identity => Some("$identity"),
            Self::Account => Some("$account"),
            Self::Sync => Some("$sync"),
            _ => None,
        }
    }

    /// Its name, as tools print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Identity => "identity",
            Self::Account => "account",
            Self::Sync => "sync",
            Self::CreateResync => "create_resync",
            Self::Unknown(_) => "unknown",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(number) => write!(f, "unknown {number}"),
            known => f.write_str(known.name()),
        }
    }
}

/// One event, not yet in an archive.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Event {
    /// When this server saw it, in microseconds since the Unix epoch. All rows of one event of a relay have one value.
    pub witnessed_at: i64,
    /// A time that an import gave it, in microseconds since the Unix epoch; 0 when none did.
    pub indexed_at: i64,
    /// What happened.
    pub kind: Kind,
    /// The account; at most [`Field::Did`]'s limit.
    pub did: String,
    /// The collection of the record; empty for what is no change of a record.
    pub collection: String,
    /// The key of the record within its collection; empty for what is no change of a record.
    pub rkey: String,
    /// The revision of the repository; empty for identities and accounts.
    pub rev: String,
    /// The record's bytes as they were in the commit, or the body of the event re-encoded canonically; DAG-CBOR.
    pub payload: Bytes,
}

impl Event {
    /// Whether a segment can store it.
    pub fn check(&self) -> Result<(), Refused> {
        if let Kind::Unknown(number) = self.kind {
            return Err(Refused::Kind(number));
        }
        let fields = [
            (Field::Did, self.did.len()),
            (Field::Collection, self.collection.len()),
            (Field::Rkey, self.rkey.len()),
            (Field::Rev, self.rev.len()),
            (Field::Payload, self.payload.len()),
        ];
        match fields.into_iter().find(|(field, len)| *len > field.bytes_max()) {
            Some((field, len)) => Err(Refused::TooLong { field, len }),
            None => Ok(()),
        }
    }

    /// The time to show: the imported one, else when it was seen. Microseconds since the Unix epoch.
    pub const fn display_time(&self) -> i64 {
        if self.indexed_at == 0 { self.witnessed_at } else { self.indexed_at }
    }

    /// The identifier of the record; none where there is no record. It is not stored: it follows from the bytes.
    pub fn cid(&self) -> Option<Cid> {
        self.kind.is_record().then(|| Cid::of(Codec::DagCbor, &self.payload))
    }

    /// The bytes that its variable parts take in a block.
    pub fn variable_bytes(&self) -> usize {
        self.did.len() + self.collection.len() + self.rkey.len() + self.rev.len() + self.payload.len()
    }
}

/// An event with its place in the archive.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Row {
    /// Its sequence number: at least 1, unique and ascending over the whole archive, with gaps where rows were dropped.
    pub seq: u64,
    /// The event.
    pub event: Event,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_keep_their_numbers() {
        for number in 0..=u8::MAX {
            assert_eq!(Kind::from_number(number).number(), number);
        }
        assert_eq!(Kind::from_number(7), Kind::CreateResync);
        assert_eq!(Kind::from_number(8), Kind::Unknown(8));
    }

    #[test]
    fn fields_up_to_their_limits_are_stored() {
        let event = |did: usize, rkey: usize, kind| Event {
            witnessed_at: 1,
            indexed_at: 0,
            kind,
            did: "d".repeat(did),
            collection: "c".repeat(255),
            rkey: "r".repeat(rkey),
            rev: String::new(),
            payload: Bytes::new(),
        };
        assert_eq!(event(65_535, 255, Kind::Create).check(), Ok(()));
        assert_eq!(
            event(65_536, 255, Kind::Create).check(),
            Err(Refused::TooLong { field: Field::Did, len: 65_536 })
        );
        assert_eq!(
            event(1, 256, Kind::Create).check(),
            Err(Refused::TooLong { field: Field::Rkey, len: 256 })
        );
        assert_eq!(event(1, 1, Kind::Unknown(0)).check(), Err(Refused::Kind(0)));
    }
}
