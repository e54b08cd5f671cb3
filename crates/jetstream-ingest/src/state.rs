//! What is remembered of an account, and how it is written down. Every change belongs to the rows that it came with:
//! both become durable together, or neither.

use alluvium_atproto::{Cid, Tid};
use bytes::Bytes;
use thiserror::Error;

/// A stored value that cannot be read. Only this program writes them, so it is damage or another version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a stored {0} cannot be read")]
pub struct InvalidState(pub &'static str);

/// The version at the head of each value.
const VERSION: u8 = 1;
/// The longest status, time or reason that is kept, in bytes.
const MAX_TEXT: usize = 1024;

/// How far a repository is known: everything up to `rev` was verified and archived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The revision, a TID.
    pub rev: String,
    /// The root of its tree.
    pub data: Cid,
}

/// What `#account` said last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosting {
    /// Whether the repository can be had.
    pub active: bool,
    /// Why not.
    pub status: String,
    /// The relay's number of the event.
    pub seq: u64,
    /// When, as the server says.
    pub time: String,
}

/// Why a repository is fetched whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Events of the account were dropped: too many waited, or the first ones that came could not be verified.
    Dropped,
    /// A commit does not follow the one before it, or its proof does not hold.
    Chain,
    /// A `#sync` told another tree than the known one, or of an unknown account.
    Sync,
    /// The account's key could not be found out, so its commits wait.
    Unresolved,
    /// The account is there again behind its deletion, at which whoever keeps records has dropped them.
    Deleted,
}

impl Cause {
    const ALL: [Self; 5] = [Self::Dropped, Self::Chain, Self::Sync, Self::Unresolved, Self::Deleted];

    /// The cause as a label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Chain => "chain",
            Self::Sync => "sync",
            Self::Unresolved => "unresolved",
            Self::Deleted => "deleted",
        }
    }
}

/// What else is to be found out of an account of which events were dropped, since no repository tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asks {
    /// Whether it is hosted: an `#account` was dropped.
    pub account: bool,
    /// Who it is: an `#identity` was dropped.
    pub identity: bool,
}

impl Asks {
    /// Whether there is something to be found out.
    pub const fn any(self) -> bool {
        self.account || self.identity
    }

    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { account: self.account || other.account, identity: self.identity || other.identity }
    }

    fn to_byte(self) -> u8 {
        u8::from(self.account) | u8::from(self.identity) << 1
    }

    const fn from_byte(byte: u8) -> Self {
        Self { account: byte & 1 != 0, identity: byte & 2 != 0 }
    }
}

/// A `#sync` that is archived before the repository that it told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldSync {
    /// Its revision.
    pub rev: String,
    /// Its body, as it is archived.
    pub body: Bytes,
}

/// The longest body of a `#sync` that is stored, in bytes; those of the network have 10,000 bytes of blocks. A longer one
/// is forgotten at a restart: one that was made up takes its place.
const TOLD_BYTES_MAX: usize = 16 * 1024;

/// A repository that must be fetched whole. It stays until that has happened, over restarts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// Why.
    pub cause: Cause,
    /// The highest revision that is known to be missing; empty if none is known.
    pub target: String,
    /// How often it was tried without success.
    pub attempts: u32,
    /// How often what was fetched was older than `target`.
    pub stale: u32,
    /// Not before, in milliseconds since 1970.
    pub due_ms: u64,
    /// What else is to be found out.
    pub asks: Asks,
    /// Nothing that is archived of the repository counts any more: it is archived anew, also if it is the known one.
    pub anew: bool,
}

/// The bit beside those of [`Asks`] that says [`Repair::anew`].
const ANEW: u8 = 4;

/// A change of what is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The repository is known up to here.
    Chain(String, Chain),
    /// The account is hosted like this.
    Hosting(String, Hosting),
    /// The highest relay number of an archived `#account`.
    AccountSeq(String, u64),
    /// The highest relay number of an archived `#identity`.
    IdentitySeq(String, u64),
    /// The repository must be fetched, or no longer.
    Repair(String, Option<Repair>),
    /// The `#sync` that waits for the repository, or none any more.
    Told(String, Option<ToldSync>),
    /// Who signs for the account and where it lives, encoded by [`crate::identity`]; or no longer known.
    Identity(String, Option<Vec<u8>>),
}

/// The parts of the state, each under its prefix.
pub mod prefix {
    /// [`super::Chain`].
    pub const CHAIN: &str = "sync/chain/";
    /// [`super::Hosting`].
    pub const HOSTING: &str = "sync/host/";
    /// The highest number of `#account`.
    pub const ACCOUNT: &str = "sync/acct/";
    /// The highest number of `#identity`.
    pub const IDENTITY_SEQ: &str = "sync/ident/";
    /// [`super::Repair`].
    pub const REPAIR: &str = "sync/repair/";
    /// [`super::ToldSync`].
    pub const TOLD: &str = "sync/told/";
    /// Key and server.
    pub const IDENTITY: &str = "sync/identity/";
}

impl Change {
    /// Where it is stored.
    pub fn key(&self) -> String {
        let (prefix, did) = match self {
            Self::Chain(did, _) => (prefix::CHAIN, did),
            Self::Hosting(did, _) => (prefix::HOSTING, did),
            Self::AccountSeq(did, _) => (prefix::ACCOUNT, did),
            Self::IdentitySeq(did, _) => (prefix::IDENTITY_SEQ, did),
            Self::Repair(did, _) => (prefix::REPAIR, did),
            Self::Told(did, _) => (prefix::TOLD, did),
            Self::Identity(did, _) => (prefix::IDENTITY, did),
        };
        format!("{prefix}{did}")
    }

    /// What is stored there; nothing if it is taken away.
    pub fn value(&self) -> Option<Vec<u8>> {
        match self {
            Self::Chain(_, chain) => Some(chain.encode()),
            Self::Hosting(_, hosting) => Some(hosting.encode()),
            Self::AccountSeq(_, seq) | Self::IdentitySeq(_, seq) => Some(encode_seq(*seq)),
            Self::Repair(_, repair) => repair.as_ref().map(Repair::encode),
            Self::Told(_, told) => {
                told.as_ref().filter(|told| told.body.len() <= TOLD_BYTES_MAX).map(ToldSync::encode)
            }
            Self::Identity(_, identity) => identity.clone(),
        }
    }
}

/// A relay's number: the version, then 64 bits, the highest first.
pub fn encode_seq(seq: u64) -> Vec<u8> {
    [&[VERSION][..], &seq.to_be_bytes()].concat()
}

/// Reads what [`encode_seq`] wrote; numbers beyond 63 bits are damage.
pub fn decode_seq(value: &[u8]) -> Result<u64, InvalidState> {
    let invalid = InvalidState("number");
    let mut reader = Parts::new(value, "number")?;
    let seq = u64::from_be_bytes(reader.take()?);
    reader.finish()?;
    if i64::try_from(seq).is_ok() { Ok(seq) } else { Err(invalid) }
}

/// Where the relay's number to go on from is stored.
pub const CURSOR: &str = "relay/cursor";

/// The relay's number to go on from: the version, then 64 bits, the lowest first.
pub fn encode_cursor(cursor: u64) -> Vec<u8> {
    [&[VERSION][..], &cursor.to_le_bytes()].concat()
}

/// Reads what [`encode_cursor`] wrote; numbers beyond 63 bits are damage.
pub fn decode_cursor(value: &[u8]) -> Result<u64, InvalidState> {
    let mut parts = Parts::new(value, "cursor")?;
    let cursor = u64::from_le_bytes(parts.take()?);
    parts.finish()?;
    if i64::try_from(cursor).is_ok() { Ok(cursor) } else { Err(InvalidState("cursor")) }
}

impl Chain {
    /// The stored value.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = vec![VERSION];
        push_text(&mut value, &self.rev);
        value.extend_from_slice(self.data.as_bytes());
        value
    }

    /// Reads a stored value.
    pub fn decode(value: &[u8]) -> Result<Self, InvalidState> {
        let mut parts = Parts::new(value, "revision")?;
        let rev = parts.text()?;
        let data = Cid::from_bytes(&parts.take::<{ Cid::LEN }>()?).map_err(|_| parts.invalid())?;
        parts.finish()?;
        if Tid::is_valid(&rev) { Ok(Self { rev, data }) } else { Err(InvalidState("revision")) }
    }
}

impl Hosting {
    /// The stored value. Longer texts are cut: they are a server's words and only shown.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = vec![VERSION, u8::from(self.active)];
        push_text(&mut value, cut(&self.status));
        value.extend_from_slice(&self.seq.to_be_bytes());
        push_text(&mut value, cut(&self.time));
        value
    }

    /// Reads a stored value.
    pub fn decode(value: &[u8]) -> Result<Self, InvalidState> {
        let mut parts = Parts::new(value, "account")?;
        let [active] = parts.take()?;
        let (status, seq) = (parts.text()?, u64::from_be_bytes(parts.take()?));
        let time = parts.text()?;
        parts.finish()?;
        if active > 1 {
            return Err(InvalidState("account"));
        }
        Ok(Self { active: active == 1, status, seq, time })
    }
}

impl Repair {
    /// The stored value.
    pub fn encode(&self) -> Vec<u8> {
        let cause = Cause::ALL.iter().position(|cause| *cause == self.cause).unwrap_or_default();
        let mut value = vec![VERSION, u8::try_from(cause).unwrap_or_default()];
        value.extend_from_slice(&self.attempts.to_be_bytes());
        value.extend_from_slice(&self.stale.to_be_bytes());
        value.extend_from_slice(&self.due_ms.to_be_bytes());
        push_text(&mut value, cut(&self.target));
        let more = self.asks.to_byte() | if self.anew { ANEW } else { 0 };
        value.extend((more != 0).then_some(more));
        value
    }

    /// Reads a stored value.
    pub fn decode(value: &[u8]) -> Result<Self, InvalidState> {
        let mut parts = Parts::new(value, "repair")?;
        let [cause] = parts.take()?;
        let cause = *Cause::ALL.get(usize::from(cause)).ok_or(parts.invalid())?;
        let attempts = u32::from_be_bytes(parts.take()?);
        let stale = u32::from_be_bytes(parts.take()?);
        let due_ms = u64::from_be_bytes(parts.take()?);
        let target = parts.text()?;
        let more = match parts.rest {
            [] => 0,
            [more @ 1..=7] => *more,
            _ => return Err(parts.invalid()),
        };
        let (asks, anew) = (Asks::from_byte(more), more & ANEW != 0);
        Ok(Self { cause, target, attempts, stale, due_ms, asks, anew })
    }
}

impl ToldSync {
    /// The stored value.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = vec![VERSION];
        push_text(&mut value, cut(&self.rev));
        value.extend_from_slice(&self.body);
        value
    }

    /// Reads a stored value.
    pub fn decode(value: &[u8]) -> Result<Self, InvalidState> {
        let mut parts = Parts::new(value, "sync")?;
        let rev = parts.text()?;
        if !Tid::is_valid(&rev) || parts.rest.len() > TOLD_BYTES_MAX {
            return Err(parts.invalid());
        }
        Ok(Self { rev, body: Bytes::copy_from_slice(parts.rest) })
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

/// A length as an unsigned varint, and the text.
fn push_text(value: &mut Vec<u8>, text: &str) {
    let mut len = text.len();
    while len >= 0x80 {
        value.push(len.to_le_bytes()[0] | 0x80);
        len >>= 7;
    }
    value.push(len.to_le_bytes()[0]);
    value.extend_from_slice(text.as_bytes());
}

/// The parts of a value behind its version.
struct Parts<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Parts<'a> {
    fn new(value: &'a [u8], what: &'static str) -> Result<Self, InvalidState> {
        match value.split_first() {
            Some((&VERSION, rest)) => Ok(Self { rest, what }),
            _ => Err(InvalidState(what)),
        }
    }

    const fn invalid(&self) -> InvalidState {
        InvalidState(self.what)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], InvalidState> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(self.invalid())?;
        self.rest = rest;
        Ok(*taken)
    }

    fn text(&mut self) -> Result<String, InvalidState> {
        let mut len = 0_usize;
        // Three bytes hold more than the longest text.
        for shift in [0, 7, 14] {
            let [byte] = self.take()?;
            len |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let (text, rest) = self.rest.split_at_checked(len).ok_or(self.invalid())?;
                self.rest = rest;
                return String::from_utf8(text.to_vec()).map_err(|_| self.invalid());
            }
        }
        Err(self.invalid())
    }

    const fn finish(&self) -> Result<(), InvalidState> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.invalid()) }
    }
}

#[cfg(test)]
mod tests {
    use alluvium_atproto::Codec;
    use proptest::prelude::*;

    use super::*;

    fn repair() -> impl Strategy<Value = Repair> {
        let flags = any::<(bool, bool, bool)>();
        (0..5_usize, "[a-z2-7]{0,13}", any::<u32>(), any::<u32>(), any::<u64>(), flags).prop_map(
            |(cause, target, attempts, stale, due_ms, (account, identity, anew))| Repair {
                cause: Cause::ALL[cause],
                target,
                attempts,
                stale,
                due_ms,
                asks: Asks { account, identity },
                anew,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_stored_comes_back(
            number in 0..=u64::MAX >> 1, active in any::<bool>(), status in ".{0,200}", time in ".{0,200}", repair in repair(),
        ) {
            let chain = Chain { rev: Tid::from_number(number).to_string(), data: Cid::of(Codec::DagCbor, &number.to_be_bytes()) };
            prop_assert_eq!(Chain::decode(&chain.encode()), Ok(chain));
            let hosting = Hosting { active, status, seq: number, time };
            prop_assert_eq!(Hosting::decode(&hosting.encode()), Ok(hosting));
            prop_assert_eq!(decode_seq(&encode_seq(number)), Ok(number));
            prop_assert_eq!(Repair::decode(&repair.encode()), Ok(repair));
            let told = ToldSync { rev: Tid::from_number(number).to_string(), body: Bytes::from(number.to_be_bytes().to_vec()) };
            prop_assert_eq!(ToldSync::decode(&told.encode()), Ok(told));
        }

        #[test]
        fn a_cut_or_extended_value_is_refused(number in 0..=u64::MAX >> 1, cut in 0..20_usize) {
            let chain = Chain { rev: Tid::from_number(number).to_string(), data: Cid::of(Codec::DagCbor, b"") }.encode();
            prop_assert!(Chain::decode(&chain[..chain.len() - 1 - cut]).is_err());
            prop_assert!(Chain::decode(&[&chain[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn numbers_and_versions_that_nobody_writes_are_refused() {
        assert_eq!(decode_seq(&encode_seq(u64::MAX)), Err(InvalidState("number")));
        assert_eq!(decode_seq(&[2, 0, 0, 0, 0, 0, 0, 0, 1]), Err(InvalidState("number")));
        assert_eq!(decode_cursor(&encode_cursor(77)), Ok(77));
        assert_eq!(decode_cursor(&encode_cursor(u64::MAX)), Err(InvalidState("cursor")));
        assert_eq!(decode_cursor(&[2, 1, 0, 0, 0, 0, 0, 0, 0]), Err(InvalidState("cursor")));
        assert_eq!(decode_seq(&[]), Err(InvalidState("number")));
        assert_eq!(Hosting::decode(&[1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Err(InvalidState("account")));
    }

    /// What an earlier version stored has nothing of what else is to be found out.
    #[test]
    fn a_repair_without_further_questions_reads_as_before_and_unknown_ones_are_refused() {
        let repair = Repair {
            cause: Cause::Dropped,
            target: String::new(),
            attempts: 0,
            stale: 0,
            due_ms: 7,
            asks: Asks::default(),
            anew: false,
        };
        let stored = repair.encode();
        assert_eq!(stored, [&[VERSION, 0][..], &[0; 8], &7_u64.to_be_bytes(), &[0]].concat());
        for more in [&[0][..], &[8], &[255], &[1, 1]] {
            assert!(Repair::decode(&[&stored[..], more].concat()).is_err(), "{more:?}");
        }
    }

    #[test]
    fn a_sync_that_is_too_long_to_be_kept_is_taken_away() {
        let told = |len| ToldSync { rev: Tid::from_number(1).to_string(), body: vec![0; len].into() };
        let value = |len| Change::Told("did:plc:a".to_owned(), Some(told(len))).value();
        assert!(value(TOLD_BYTES_MAX).is_some() && value(TOLD_BYTES_MAX + 1).is_none());
    }

    #[test]
    fn long_words_of_a_server_are_cut_between_characters() {
        let hosting = Hosting { active: false, status: "ä".repeat(2000), seq: 1, time: String::new() };
        let stored = Hosting::decode(&hosting.encode()).expect("a value");
        assert_eq!(stored.status, "ä".repeat(512));
    }
}
