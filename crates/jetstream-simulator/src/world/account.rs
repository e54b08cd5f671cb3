//! An account: who it is, where it lives, and its repository, which is made when it is first looked at.

use std::sync::OnceLock;

use alluvium_atproto::{Curve, Did, SecretKey, Tid};
use bytes::Bytes;

use crate::config::Config;
use crate::event::Status;
use crate::identity::{Identity, handle, signing_key};
use crate::random::Random;
use crate::record::{PROFILE, Subject, collection, record};
use crate::repo::{Repo, Write};

/// The time between two records that an account begins with, in microseconds.
const STEP_MICROS: u64 = 61_000_003;

/// An account.
#[derive(Debug)]
pub struct Account {
    index: u32,
    did: Did,
    curve: Curve,
    pub(super) host: u32,
    pub(super) handle_changes: u32,
    pub(super) handle: String,
    pub(super) rotations: u32,
    pub(super) status: Status,
    /// Whether the directory says that the DID was given up.
    pub(super) is_tombstoned: bool,
    /// Whether `listRepos` leaves it out although it can be fetched.
    pub(super) is_hidden: bool,
    repo: OnceLock<Box<Repo>>,
}

impl Account {
    pub(super) fn new(config: &Config, index: u32) -> Option<Self> {
        let Identity { did, curve, host } = Identity::new(config, index)?;
        Some(Self {
            index,
            did,
            curve,
            host,
            handle_changes: 0,
            handle: handle(index, 0),
            rotations: 0,
            status: Status::Active,
            is_tombstoned: false,
            is_hidden: false,
            repo: OnceLock::new(),
        })
    }

    /// Its number.
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Its DID.
    pub const fn did(&self) -> &Did {
        &self.did
    }

    /// The curve of its keys.
    pub const fn curve(&self) -> Curve {
        self.curve
    }

    /// The number of the host that it lives on.
    pub const fn host(&self) -> u32 {
        self.host
    }

    /// Its handle.
    pub fn handle(&self) -> &str {
        &self.handle
    }

    /// Its status.
    pub const fn status(&self) -> Status {
        self.status
    }

    /// Whether the directory says that the DID was given up.
    pub const fn is_tombstoned(&self) -> bool {
        self.is_tombstoned
    }

    /// Whether lists of repositories leave it out.
    pub const fn is_hidden(&self) -> bool {
        self.is_hidden
    }

    /// Whether the relay's own list of repositories has it: a third is missing there, so that whoever believes it can
    /// be told from who does not.
    pub const fn is_known_to_relay(&self) -> bool {
        !self.index.is_multiple_of(3) && !self.is_hidden
    }

    /// The key that signs its commits.
    pub fn key(&self, seed: u64) -> SecretKey {
        signing_key(seed, self.index, self.curve, self.rotations)
    }

    /// The key before that; the same if there was none.
    pub(super) fn old_key(&self, seed: u64) -> SecretKey {
        signing_key(seed, self.index, self.curve, self.rotations.saturating_sub(1))
    }

    pub(super) fn repo(&self, config: &Config) -> &Repo {
        self.repo.get_or_init(|| Box::new(self.first_repo(config)))
    }

    pub(super) fn repo_mut(&mut self, config: &Config) -> &mut Repo {
        if self.repo.get().is_none() {
            self.repo = OnceLock::from(Box::new(self.first_repo(config)));
        }
        // Just filled; the alternative is never run.
        match self.repo.get_mut() {
            Some(repo) => repo,
            None => unreachable!("the repository was just made"),
        }
    }

    /// Empties the repository, as a deletion does.
    pub(super) fn empty(&mut self, config: &Config, rev: Tid) {
        let repo = empty_repo(&self.did, rev, &self.key(config.seed));
        self.repo = OnceLock::from(Box::new(repo));
    }

    /// The identity of the clock that its TIDs carry.
    pub(super) const fn clock(&self) -> u16 {
        (self.index & 0x3ff) as u16
    }

    /// Depends on the seed and the index alone, so it does not matter when it is made.
    fn first_repo(&self, config: &Config) -> Repo {
        let mut random = Random::new(config.seed, "first records", self.index.into());
        let wanted = match random.weighted(&[30, 40, 25, 5]) {
            0 => 0,
            1 => random.between(1, 10),
            2 => random.between(10, 100),
            _ => random.between(100, 1000),
        };
        let wanted = wanted.min(config.initial_records_max.into());
        let mut micros = config.start_micros - (wanted + 1) * STEP_MICROS;
        let mut writes: Vec<Write> = Vec::new();
        let mut has_profile = false;
        for _ in 0..wanted {
            micros += STEP_MICROS - random.below(1_000_000);
            let collection = collection(&mut random);
            let rkey = Tid::new(micros, self.clock()).to_string();
            let rkey = match collection {
                PROFILE if has_profile => continue,
                PROFILE => {
                    has_profile = true;
                    "self"
                }
                _ => &rkey,
            };
            let other = u32::try_from(random.below(config.accounts.into())).unwrap_or(0);
            let other = Identity::new(config, other);
            let who = other.map_or_else(|| self.did.clone(), |other| other.did);
            let then = Tid::new(micros - random.below(STEP_MICROS * 100), 7).to_string();
            let subject = Subject::invented(&mut random, who.as_str(), &then);
            let block = record(&mut random, collection, micros, &subject, who.as_str());
            let path = format!("{collection}/{rkey}").into_bytes();
            writes.push(Write { path, block: Some(Bytes::from(block)), gate: None });
        }
        let rev = Tid::new(micros + 1, self.clock());
        let key = self.key(config.seed);
        Repo::new(&self.did, rev, &key, writes).unwrap_or_else(|_| empty_repo(&self.did, rev, &key))
    }
}

fn empty_repo(did: &Did, rev: Tid, key: &SecretKey) -> Repo {
    match Repo::new(did, rev, key, Vec::new()) {
        Ok(repo) => repo,
        Err(error) => unreachable!("a tree without entries: {error}"),
    }
}
