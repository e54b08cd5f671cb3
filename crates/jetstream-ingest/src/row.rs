//! What is archived: one row for each record that changed, and for each event about an account.

use bytes::Bytes;

/// What a row tells. The numbers are those of the segment format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A record is new.
    Create = 1,
    /// A record has another content.
    Update = 2,
    /// A record is gone.
    Delete = 3,
    /// `#identity`.
    Identity = 4,
    /// `#account`.
    Account = 5,
    /// `#sync`: what was known of the repository no longer holds; what it holds now follows.
    Sync = 6,
    /// A record of a repository that was fetched whole.
    CreateResync = 7,
}

/// A row before it has a sequence number and a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// What it tells.
    pub kind: Kind,
    /// The account.
    pub did: String,
    /// The collection; empty for markers.
    pub collection: String,
    /// The record key; empty for markers.
    pub rkey: String,
    /// The revision; empty for `#identity` and `#account`.
    pub rev: String,
    /// The record as it came, byte for byte; or the body of a marker, in canonical form.
    pub payload: Bytes,
}

impl Row {
    /// The longest account, in bytes.
    pub const MAX_DID: usize = 65_535;
    /// The longest collection, record key or revision, in bytes.
    pub const MAX_TEXT: usize = 255;

    /// Whether every field fits its column.
    pub fn fits(&self) -> bool {
        self.did.len() <= Self::MAX_DID
            && [&self.collection, &self.rkey, &self.rev].iter().all(|text| text.len() <= Self::MAX_TEXT)
            && u32::try_from(self.payload.len()).is_ok()
    }
}
