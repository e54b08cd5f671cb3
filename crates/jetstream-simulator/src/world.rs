//! The world: accounts, hosts, a clock of its own, and the relay's window of what has happened.
//!
//! Nothing here does I/O. The same [`Config`] and the same calls give the same world, to the byte of every frame.

mod account;
mod act;
mod lie;
mod live;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use alluvium_atproto::mst::MstError;
use alluvium_atproto::{Cid, Tid};
use thiserror::Error;

pub use account::Account;
pub use act::{Act, FRAME_BYTES_MAX, Operation};

use crate::config::{Config, ConfigError};
use crate::event::{Emitted, Event, Flaw, Status};
use crate::history::History;
use crate::identity::{DOMAIN, Document};
use crate::random::Random;
use crate::record::Subject;
use crate::repo::Repo;

/// Posts of late that new records refer to.
const RECENT_POSTS: usize = 64;
/// The most lies that are remembered.
const LEDGER_MAX: usize = 100_000;

/// Why something cannot be done.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WorldError {
    /// There is no such account.
    #[error("there is no account {0}")]
    Account(u32),
    /// There is no such host.
    #[error("there is no host {0}")]
    Host(u32),
    /// The account is not active, and this needs one that is.
    #[error("the account is {0:?}")]
    Status(Status),
    /// An operation that the repository has no room for.
    #[error(
        "the operation on `{0}` does not fit: no record to delete, a path twice, or one that is too long"
    )]
    Operation(String),
    /// A request that is larger or smaller than allowed.
    #[error("{0}")]
    Limit(&'static str),
    /// A record that cannot be read as JSON of the data model.
    #[error("the record is not of the data model: {0}")]
    Record(String),
    /// The tree of a repository.
    #[error("{0}")]
    Tree(#[from] MstError),
}

/// A host.
#[derive(Debug, Clone)]
pub struct Host {
    /// As `listHosts` names it.
    pub name: String,
    /// Scheme, host and port, as DID documents have it.
    pub endpoint: String,
}

/// A frame that is not what honest servers send, for tests that count drops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lie {
    /// The relay's sequence number of the frame; zero if it is only in a repository.
    pub seq: u64,
    /// Whose.
    pub did: String,
    /// What is wrong with the whole event, if the whole is.
    pub flaw: Option<Flaw>,
    /// The path and the label of the drop, if only one operation is.
    pub operation: Option<(String, &'static str)>,
}

/// The world.
#[derive(Debug)]
pub struct World {
    config: Config,
    hosts: Vec<Host>,
    accounts: Vec<Account>,
    by_did: BTreeMap<String, u32>,
    /// How often accounts write: the sums of weights up to each.
    authors: Vec<u64>,
    live: Random,
    micros: u64,
    next_seq: u64,
    history: History,
    /// Counts how often the relay was set back.
    epoch: u64,
    recent: VecDeque<Subject>,
    ledger: Vec<Lie>,
}

impl World {
    /// Makes the world. Repositories are made when they are first looked at.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let accounts: Vec<Account> =
            (0..config.accounts).filter_map(|index| Account::new(&config, index)).collect();
        let by_did =
            accounts.iter().map(|account| (account.did().as_str().to_owned(), account.index())).collect();
        let hosts = (0..config.hosts).map(|host| {
            let name = format!("pds{host}.{DOMAIN}");
            Host { endpoint: format!("https://{name}"), name }
        });
        let mut sum = 0;
        let authors = (0..u64::from(config.accounts)).map(|index| {
            sum += (1 << 32) / (index + 1);
            sum
        });
        Ok(Self {
            hosts: hosts.collect(),
            accounts,
            by_did,
            authors: authors.collect(),
            live: Random::new(config.seed, "live", 0),
            micros: config.start_micros,
            next_seq: 1,
            history: History::new(config.history_frames, config.history_bytes),
            epoch: 0,
            recent: VecDeque::new(),
            ledger: Vec::new(),
            config,
        })
    }

    /// What the world was made of.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// All hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Gives a host another name and address, as it gets them by listening.
    pub fn set_host(&mut self, host: u32, name: String, endpoint: String) -> Result<(), WorldError> {
        let found = self.hosts.get_mut(host as usize).ok_or(WorldError::Host(host))?;
        *found = Host { name, endpoint };
        Ok(())
    }

    /// All accounts.
    pub fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// An account.
    pub fn account(&self, index: u32) -> Result<&Account, WorldError> {
        self.accounts.get(index as usize).ok_or(WorldError::Account(index))
    }

    /// The account with this DID.
    pub fn find(&self, did: &str) -> Option<&Account> {
        self.accounts.get(*self.by_did.get(did)? as usize)
    }

    /// The repository of an account, as it truly is; whether it is served is another question.
    pub fn repo<'a>(&self, account: &'a Account) -> &'a Repo {
        account.repo(&self.config)
    }

    /// The DID document of an account; `None` once the DID was given up.
    pub fn document(&self, account: &Account) -> Option<String> {
        let endpoint = self.hosts.get(account.host as usize).map(|host| host.endpoint.as_str());
        self.document_with(account, &account.handle, endpoint)
    }

    pub(crate) fn document_with(
        &self,
        account: &Account,
        handle: &str,
        endpoint: Option<&str>,
    ) -> Option<String> {
        let key = account.key(self.config.seed).public_key();
        let did = account.did().as_str();
        (!account.is_tombstoned).then(|| Document { did, handle, key, endpoint }.to_json())
    }

    /// The records of an account that an archive may hold: all of them but those whose path is not one.
    pub fn truth(&self, account: &Account) -> BTreeMap<String, Cid> {
        let records = self.repo(account).records().iter();
        let kept = records.filter(|(_, record)| record.gate.is_none());
        kept.filter_map(|(path, record)| Some((String::from_utf8(path.clone()).ok()?, record.cid))).collect()
    }

    /// The relay's window.
    pub const fn history(&self) -> &History {
        &self.history
    }

    /// The sequence number of the newest frame; zero before the first.
    pub const fn tip(&self) -> u64 {
        self.next_seq - 1
    }

    /// Changes whenever the relay is set back, which ends its connections.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The world's clock, in microseconds since 1970.
    pub const fn micros(&self) -> u64 {
        self.micros
    }

    /// Everything untrue that was emitted, the oldest first; at most a hundred thousand.
    pub fn ledger(&self) -> &[Lie] {
        &self.ledger
    }

    /// Moves the clock forward.
    pub const fn advance(&mut self, micros: u64) {
        self.micros = self.micros.saturating_add(micros);
    }

    /// The next revision of an account: of this moment, or just behind the one before.
    fn next_rev(&self, account: &Account) -> Tid {
        let last = account.repo(&self.config).rev();
        let now = Tid::new(self.micros, account.clock());
        if now > last { now } else { Tid::new(last.micros() + 1, account.clock()) }
    }

    fn remember(&mut self, subject: Subject) {
        if self.recent.len() == RECENT_POSTS {
            self.recent.pop_front();
        }
        self.recent.push_back(subject);
    }

    /// Puts a frame on the wire that `encode` makes of its sequence number and time.
    fn emit(
        &mut self,
        did: &str,
        event: Event,
        flaw: Option<Flaw>,
        encode: impl FnOnce(u64, u64) -> bytes::Bytes,
    ) -> Arc<Emitted> {
        let seq = self.next_seq;
        self.next_seq += 1;
        let frame = encode(seq, self.micros);
        let emitted = Emitted { seq, micros: self.micros, did: did.to_owned(), frame, event, flaw };
        self.log(emitted)
    }

    fn log(&mut self, emitted: Emitted) -> Arc<Emitted> {
        self.note_lies(&emitted);
        let emitted = Arc::new(emitted);
        self.history.push(Arc::clone(&emitted));
        emitted
    }

    fn note_lies(&mut self, emitted: &Emitted) {
        let (seq, did) = (emitted.seq, &emitted.did);
        let whole = emitted.flaw.map(|flaw| Lie { seq, did: did.clone(), flaw: Some(flaw), operation: None });
        let ops = if let Event::Commit { ops, .. } = &emitted.event { ops.as_slice() } else { &[] };
        let gated = ops.iter().filter_map(|op| {
            let operation = Some((op.path.clone(), op.gate?.label()));
            Some(Lie { seq, did: did.clone(), flaw: None, operation })
        });
        let room = LEDGER_MAX - self.ledger.len();
        self.ledger.extend(whole.into_iter().chain(gated).take(room));
    }
}
