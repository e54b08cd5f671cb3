//! Commit objects: what an account signs (<https://atproto.com/specs/repository#commit-objects>).
//!
//! What is signed is the object without `sig`, encoded again. Fields that are not known here are kept, so that a commit
//! with one still verifies. Whether the fields are what was expected is a second question ([`Commit::check`]), because
//! the answers lead to different ends: a commit that cannot be read may be repaired, one for another account is refused.

use thiserror::Error;

use crate::cbor::{self, CborError, Map, Value};
use crate::cid::{Cid, Codec};
use crate::key::{KeyError, PublicKey, SecretKey};
use crate::syntax::{Did, Tid};

/// The version of repositories that is spoken here.
pub(crate) const VERSION: i64 = 3;
/// The longest commit object, in bytes: a DID of the greatest length and room for more.
pub(crate) const MAX_LEN: usize = 8192;

/// Why a commit was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CommitError {
    /// Longer than [`MAX_LEN`].
    #[error("the commit is too long")]
    TooLong,
    /// Not DAG-CBOR.
    #[error("the commit is no DAG-CBOR, {0}")]
    Cbor(#[from] CborError),
    /// A field is missing or of another kind.
    #[error("the commit has no valid `{0}`")]
    Field(&'static str),
    /// A field is not what was expected.
    #[error("the commit has another `{0}` than expected")]
    Other(&'static str),
    /// The signature was refused.
    #[error("{0}")]
    Signature(#[from] KeyError),
}

/// A signed commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Whose repository it is, as written.
    pub did: String,
    /// The version of the repository.
    pub version: i64,
    /// The revision, as written.
    pub rev: String,
    /// The root of the tree.
    pub data: Cid,
    /// The commit before it; hardly any commit says so.
    pub prev: Option<Cid>,
    /// The signature.
    pub sig: Vec<u8>,
    /// All fields but the signature.
    unsigned: Map,
}

impl Commit {
    /// Reads a commit object; it encodes to the same block again.
    pub fn decode(block: &[u8]) -> Result<Self, CommitError> {
        if block.len() > MAX_LEN {
            return Err(CommitError::TooLong);
        }
        let Value::Map(mut fields) = cbor::decode(block)? else {
            return Err(CommitError::Field("did"));
        };
        let Some(Value::Bytes(sig)) = fields.remove("sig") else {
            return Err(CommitError::Field("sig"));
        };
        let text =
            |key| fields.get(key).and_then(Value::as_text).map(str::to_owned).ok_or(CommitError::Field(key));
        let prev = match fields.get("prev") {
            None | Some(Value::Null) => None,
            Some(Value::Link(cid)) => Some(*cid),
            Some(_) => return Err(CommitError::Field("prev")),
        };
        Ok(Self {
            did: text("did")?,
            version: fields
                .get("version")
                .and_then(Value::as_integer)
                .ok_or(CommitError::Field("version"))?,
            rev: text("rev")?,
            data: fields.get("data").and_then(Value::as_link).ok_or(CommitError::Field("data"))?,
            prev,
            sig,
            unsigned: fields,
        })
    }

    /// Makes and signs a commit.
    pub fn sign(did: &Did, rev: Tid, data: Cid, key: &SecretKey) -> Self {
        let mut unsigned = Map::new();
        unsigned.insert("did", Value::from(did.as_str()));
        unsigned.insert("version", Value::Integer(VERSION));
        unsigned.insert("rev", Value::Text(rev.to_string()));
        unsigned.insert("data", Value::Link(data));
        unsigned.insert("prev", Value::Null);
        let sig = key.sign(&cbor::encode(&Value::Map(unsigned.clone())));
        let (did, rev) = (did.as_str().to_owned(), rev.to_string());
        Self { did, version: VERSION, rev, data, prev: None, sig, unsigned }
    }

    /// The bytes that are signed.
    pub fn unsigned_bytes(&self) -> Vec<u8> {
        cbor::encode(&Value::Map(self.unsigned.clone()))
    }

    /// The block, with its name.
    pub fn encode(&self) -> (Cid, Vec<u8>) {
        let mut fields = self.unsigned.clone();
        fields.insert("sig", Value::Bytes(self.sig.clone()));
        let block = cbor::encode(&Value::Map(fields));
        (Cid::of(Codec::DagCbor, &block), block)
    }

    /// Checks that the commit is one of this version, account and, if given, revision.
    pub fn check(&self, did: &str, rev: Option<&str>) -> Result<(), CommitError> {
        if self.version != VERSION {
            return Err(CommitError::Other("version"));
        }
        if self.did != did || !Did::is_valid(did) {
            return Err(CommitError::Other("did"));
        }
        if rev.is_some_and(|rev| rev != self.rev) || !Tid::is_valid(&self.rev) {
            return Err(CommitError::Other("rev"));
        }
        Ok(())
    }

    /// Checks the signature.
    pub fn verify(&self, key: &PublicKey) -> Result<(), CommitError> {
        Ok(key.verify(&self.unsigned_bytes(), &self.sig)?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::Curve;

    fn did() -> Did {
        "did:plc:abc".parse().expect("a DID")
    }

    fn key(curve: Curve) -> SecretKey {
        SecretKey::from_bytes(curve, &[5; 32]).expect("a key")
    }

    fn commit(curve: Curve) -> Commit {
        Commit::sign(&did(), Tid::new(1_000_000, 1), Cid::of(Codec::DagCbor, b"root"), &key(curve))
    }

    /// The fields of a commit, to spoil one.
    fn fields() -> Map {
        let (_, block) = commit(Curve::K256).encode();
        cbor::decode(&block).expect("a commit").as_map().expect("a map").clone()
    }

    #[test]
    fn a_commit_comes_back_and_verifies_with_both_curves() {
        for curve in [Curve::K256, Curve::P256] {
            let commit = commit(curve);
            let (cid, block) = commit.encode();
            assert!(cid.names(&block));
            assert_eq!(Commit::decode(&block), Ok(commit.clone()));
            let public = key(curve).public_key();
            assert_eq!(commit.verify(&public), Ok(()));
            assert_eq!(commit.check("did:plc:abc", Some(&commit.rev)), Ok(()));
            let mut forged = commit;
            forged.sig[40] ^= 1;
            assert!(matches!(forged.verify(&public), Err(CommitError::Signature(_))));
        }
    }

    #[test]
    fn the_signed_fields_are_in_the_order_of_the_encoding() {
        let unsigned = commit(Curve::K256).unsigned_bytes();
        let keys: Vec<String> = match cbor::decode(&unsigned) {
            Ok(Value::Map(map)) => map.iter().map(|(key, _)| key.to_owned()).collect(),
            other => panic!("{other:?}"),
        };
        assert_eq!(keys, ["did", "rev", "data", "prev", "version"]);
    }

    #[test]
    fn a_field_that_is_not_known_is_signed_with_the_others() {
        let mut fields = fields();
        fields.remove("sig");
        fields.insert("future", Value::Integer(1));
        let key = key(Curve::K256);
        let sig = key.sign(&cbor::encode(&Value::Map(fields.clone())));
        fields.insert("sig", Value::Bytes(sig));
        let commit = Commit::decode(&cbor::encode(&Value::Map(fields.clone()))).expect("readable");
        assert_eq!(commit.verify(&key.public_key()), Ok(()));
        fields.insert("future", Value::Integer(2));
        let commit = Commit::decode(&cbor::encode(&Value::Map(fields))).expect("readable");
        assert_eq!(commit.verify(&key.public_key()), Err(CommitError::Signature(KeyError::Wrong)));
    }

    #[test]
    fn missing_and_wrong_fields_are_refused_by_name() {
        for field in ["did", "version", "rev", "data", "sig"] {
            let mut without = fields();
            without.remove(field);
            let mut wrong = fields();
            wrong.insert(field, Value::Bool(true));
            for fields in [without, wrong] {
                let block = cbor::encode(&Value::Map(fields));
                assert_eq!(Commit::decode(&block), Err(CommitError::Field(field)));
            }
        }
        let mut wrong = fields();
        wrong.insert("prev", Value::Integer(0));
        assert_eq!(Commit::decode(&cbor::encode(&Value::Map(wrong))), Err(CommitError::Field("prev")));
        let mut without = fields();
        without.remove("prev");
        assert!(Commit::decode(&cbor::encode(&Value::Map(without))).is_ok(), "older commits leave it out");
        assert_eq!(Commit::decode(&[0; MAX_LEN + 1]), Err(CommitError::TooLong));
        assert!(matches!(Commit::decode(b""), Err(CommitError::Cbor(_))));
    }

    #[test]
    fn what_was_not_expected_is_named() {
        let commit = commit(Curve::P256);
        assert_eq!(commit.check("did:plc:abd", None), Err(CommitError::Other("did")));
        assert_eq!(commit.check("did:plc:abc", Some("2222222222222")), Err(CommitError::Other("rev")));
        let spoiled = |spoil: fn(&mut Commit)| {
            let mut commit = commit.clone();
            spoil(&mut commit);
            commit
        };
        assert_eq!(
            spoiled(|commit| commit.version = 2).check("did:plc:abc", None),
            Err(CommitError::Other("version"))
        );
        assert_eq!(
            spoiled(|commit| commit.rev = "x".into()).check("did:plc:abc", Some("x")),
            Err(CommitError::Other("rev"))
        );
        assert_eq!(
            spoiled(|commit| commit.did = "x".into()).check("x", None),
            Err(CommitError::Other("did"))
        );
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_as_it_was(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let (_, mut block) = commit(Curve::K256).encode();
            let at = at.index(block.len());
            block[at] = byte;
            if let Ok(commit) = Commit::decode(&block) {
                prop_assert_eq!(commit.encode().1, block);
            }
        }
    }
}
