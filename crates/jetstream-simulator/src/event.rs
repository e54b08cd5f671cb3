//! What the relay emits, with the truth about it.

use alluvium_atproto::Cid;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::repo::Gate;

/// A frame and what it is.
#[derive(Debug, Clone)]
pub struct Emitted {
    /// The relay's sequence number; zero for bytes that have none.
    pub seq: u64,
    /// The time that the frame says, in microseconds since 1970.
    pub micros: u64,
    /// Whose event it is, as the frame says; empty if it says nothing.
    pub did: String,
    /// The bytes of the WebSocket message.
    pub frame: Bytes,
    /// What it says.
    pub event: Event,
    /// What is wrong with it, if something is.
    pub flaw: Option<Flaw>,
}

/// What a frame says.
#[derive(Debug, Clone)]
pub enum Event {
    /// `#commit`.
    Commit {
        /// The revision.
        rev: String,
        /// The root of the tree after it.
        data: Cid,
        /// The root before it, as the frame says.
        prev_data: Option<Cid>,
        /// What it changes.
        ops: Vec<Op>,
    },
    /// `#sync`.
    Sync {
        /// The revision.
        rev: String,
        /// The root of the tree.
        data: Cid,
    },
    /// `#identity`.
    Identity {
        /// The handle, which production's frames hardly ever have.
        handle: Option<String>,
    },
    /// `#account`.
    Account {
        /// The new status.
        status: Status,
    },
    /// A frame of a kind that nobody knows.
    Unknown,
    /// Bytes that are no frame.
    Garbage,
}

/// An operation of a commit.
#[derive(Debug, Clone)]
pub struct Op {
    /// Collection and record key.
    pub path: String,
    /// The record after it; none if it was deleted.
    pub cid: Option<Cid>,
    /// The record before it; none if it was created.
    pub prev: Option<Cid>,
    /// The bytes of the record after it.
    pub block: Option<Bytes>,
    /// Why a consumer must drop this operation, if it must.
    pub gate: Option<Gate>,
}

/// What can be done to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// There was none.
    Create,
    /// There was another.
    Update,
    /// There is none any more.
    Delete,
}

impl Action {
    /// As frames write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

impl Op {
    /// What it does.
    pub const fn action(&self) -> Action {
        match (&self.cid, &self.prev) {
            (None, _) => Action::Delete,
            (Some(_), None) => Action::Create,
            (Some(_), Some(_)) => Action::Update,
        }
    }
}

/// The hosting status of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    /// Served.
    Active,
    /// By its owner, for a while.
    Deactivated,
    /// By its host, for a while.
    Suspended,
    /// By its host, for good.
    Takendown,
    /// Gone with all its records.
    Deleted,
}

impl Status {
    /// As frames write it; an active account has none.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Active => None,
            Self::Deactivated => Some("deactivated"),
            Self::Suspended => Some("suspended"),
            Self::Takendown => Some("takendown"),
            Self::Deleted => Some("deleted"),
        }
    }

    /// Whether it is served.
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Active)
    }

    /// The error with which its repository is refused.
    pub const fn refusal(self) -> Option<&'static str> {
        match self {
            Self::Active => None,
            Self::Deactivated => Some("RepoDeactivated"),
            Self::Suspended => Some("RepoSuspended"),
            Self::Takendown => Some("RepoTakendown"),
            Self::Deleted => Some("RepoNotFound"),
        }
    }
}

/// What is wrong with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Flaw {
    /// A signature of other bytes.
    BadSignature,
    /// The higher `s` of both.
    HighS,
    /// Signed with a key that was replaced.
    OldKey,
    /// The commit is of another account.
    OtherDid,
    /// The commit has another version than 3.
    OtherVersion,
    /// The commit has another revision than the frame.
    OtherRev,
    /// The revision is not a TID.
    InvalidRev,
    /// The revision is more than five minutes ahead.
    FutureRev,
    /// The account is not a DID.
    InvalidDid,
    /// More than 200 operations.
    TooManyOps,
    /// More than 2,000,000 bytes of blocks.
    TooManyBytes,
    /// The first root of the blocks is not the commit.
    OtherRoot,
    /// One path in two operations.
    RepeatedPath,
    /// The blocks are no CAR file.
    NotACar,
    /// The block of the commit is missing.
    NoCommit,
    /// An operation with another CID than the tree has.
    OtherCid,
    /// A node that is needed is missing.
    MissingNode,
    /// `prevData` that is not the root before it.
    OtherPrevData,
    /// An operation with another `prev` than there was, while `prevData` is right: such commits are taken.
    OtherPrev,
    /// No `prevData` and no `prev`, as older servers wrote commits: such commits are taken.
    Legacy,
    /// A revision that is not newer than the one before it.
    StaleRev,
    /// Longer than 2 MiB.
    TooLong,
}

/// What a verifying consumer must do about a [`Flaw`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Take it as if nothing were wrong.
    Accept,
    /// Drop it and change nothing.
    Reject,
    /// Deliver nothing of it, and fetch the whole repository.
    Resync,
    /// Drop it in silence, as something that was seen before.
    Replay,
}

impl Flaw {
    /// All of them that a commit can have.
    pub const OF_COMMITS: [Self; 21] = [
        Self::BadSignature,
        Self::HighS,
        Self::OldKey,
        Self::OtherDid,
        Self::OtherVersion,
        Self::OtherRev,
        Self::InvalidRev,
        Self::FutureRev,
        Self::InvalidDid,
        Self::TooManyOps,
        Self::TooManyBytes,
        Self::OtherRoot,
        Self::RepeatedPath,
        Self::NotACar,
        Self::NoCommit,
        Self::OtherCid,
        Self::MissingNode,
        Self::OtherPrevData,
        Self::OtherPrev,
        Self::Legacy,
        Self::StaleRev,
    ];

    /// Whether a consumer finds it before it compares the commit with what it knows of the account. One that is found
    /// behind that, in what is signed, does not hide a break.
    pub const fn is_found_first(self) -> bool {
        !matches!(
            self,
            Self::BadSignature
                | Self::HighS
                | Self::OldKey
                | Self::OtherDid
                | Self::OtherVersion
                | Self::OtherRev
        )
    }

    /// What a consumer must do that has seen a commit of the account before.
    pub const fn effect(self) -> Effect {
        match self {
            Self::OtherPrev | Self::Legacy => Effect::Accept,
            Self::StaleRev => Effect::Replay,
            Self::RepeatedPath
            | Self::NotACar
            | Self::NoCommit
            | Self::OtherCid
            | Self::MissingNode
            | Self::OtherPrevData => Effect::Resync,
            Self::BadSignature
            | Self::HighS
            | Self::OldKey
            | Self::OtherDid
            | Self::OtherVersion
            | Self::OtherRev
            | Self::InvalidRev
            | Self::FutureRev
            | Self::InvalidDid
            | Self::TooManyOps
            | Self::TooManyBytes
            | Self::OtherRoot
            | Self::TooLong => Effect::Reject,
        }
    }
}
