//! What happens by request: each kind of event, on a chosen account.

use std::sync::Arc;

use alluvium_atproto::{cbor, json};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::live::{gate_of, small_record};
use super::{World, WorldError};
use crate::event::{Emitted, Event, Flaw, Status};
use crate::frame;
use crate::identity::handle;
use crate::record::{Subject, collection, record};
use crate::repo::{Gate, Write};

/// The most steps, commits or operations of one request.
const COUNT_MAX: u32 = 100_000;
/// The longest frame that a consumer must take, in bytes.
pub const FRAME_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The longest frame that can be asked for, in bytes.
const SIZED_FRAME_MAX: usize = 4 * FRAME_BYTES_MAX;

/// Something to do. Accounts are numbered from zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Act {
    /// That many events as they come by themselves.
    Step {
        /// How many.
        count: u32,
    },
    /// Operations of one commit, chosen or drawn.
    Write {
        /// Whose.
        account: u32,
        /// What.
        operations: Vec<Operation>,
        /// Whether nobody is told: the next commit then does not follow the last one that was seen.
        #[serde(default)]
        silent: bool,
        /// The number of an operation whose record is left out of the blocks.
        #[serde(default)]
        missing_block: Option<usize>,
    },
    /// That many commits by one account, without time between them.
    Burst {
        /// Whose.
        account: u32,
        /// How many.
        commits: u32,
    },
    /// `#sync`, with a new revision of the repository as it is.
    Sync {
        /// Whose.
        account: u32,
    },
    /// `#account`. A deletion empties the repository; an account that comes back from it says so by a `#sync`.
    Account {
        /// Whose.
        account: u32,
        /// What it becomes.
        status: Status,
    },
    /// Deletes an account and has the directory say that the DID was given up.
    Tombstone {
        /// Whose.
        account: u32,
    },
    /// `#identity`.
    Identity {
        /// Whose.
        account: u32,
        /// Whether it gets another handle.
        #[serde(default)]
        rename: bool,
        /// Whether the frame says the handle.
        #[serde(default)]
        says_handle: bool,
    },
    /// `#identity` of something that is not a DID.
    MalformedIdentity {
        /// What stands for the DID.
        did: String,
    },
    /// Another signing key.
    Rotate {
        /// Whose.
        account: u32,
        /// Whether `#identity` tells.
        announce: bool,
    },
    /// Another host.
    Migrate {
        /// Whose.
        account: u32,
        /// Where to.
        host: u32,
        /// Whether `#identity` and `#account` tell.
        announce: bool,
    },
    /// Leaves an account out of lists of repositories, or puts it back.
    Hide {
        /// Whose.
        account: u32,
        /// Whether it is left out.
        hidden: bool,
    },
    /// A record in the repository, under a key that is not text: only `getRepo` shows it.
    HiddenRecord {
        /// Whose.
        account: u32,
    },
    /// A frame with something wrong.
    Lie {
        /// Whose.
        account: u32,
        /// What.
        flaw: Flaw,
    },
    /// `#sync` with something wrong: a bad signature, another account or revision, no commit.
    LyingSync {
        /// Whose.
        account: u32,
        /// What.
        flaw: Flaw,
    },
    /// `#identity` of exactly so many bytes.
    SizedFrame {
        /// Whose.
        account: u32,
        /// The length of the whole frame.
        bytes: usize,
    },
    /// A frame of a kind that nobody knows.
    UnknownFrame,
    /// Bytes that are no frame, with the sequence number of the one before.
    Garbage {
        /// How many.
        bytes: usize,
    },
    /// The relay forgets its newest frames, ends its connections, and gives the same sequence numbers again.
    RestoreRelay {
        /// How many it forgets.
        frames: usize,
    },
    /// Moves the world's clock forward.
    Advance {
        /// By how much.
        micros: u64,
    },
}

/// An operation of [`Act::Write`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase", deny_unknown_fields)]
pub enum Operation {
    /// Creates or replaces. A path that is not one is signed all the same.
    Put {
        /// Collection and record key; they need not be valid.
        path: String,
        /// The record in JSON; one is drawn if it is missing.
        #[serde(default)]
        record: Option<serde_json::Value>,
    },
    /// Deletes.
    Delete {
        /// Collection and record key.
        path: String,
    },
}

impl World {
    /// Lets something happen and returns what the relay emitted, in its order.
    pub fn act(&mut self, act: Act) -> Result<Vec<Arc<Emitted>>, WorldError> {
        match act {
            Act::Step { count } => {
                within(count)?;
                Ok(self.run(count as usize))
            }
            Act::Write { account, operations, silent, missing_block } => {
                self.advance(1);
                let mut writes = self.writes(operations)?;
                if let Some(write) = missing_block.and_then(|at| writes.get_mut(at)) {
                    write.gate = write.gate.or(write.block.as_ref().map(|_| Gate::MissingBlock));
                }
                self.fits(account, &writes)?;
                if silent {
                    self.commit_in_silence(account, writes)?;
                    return Ok(Vec::new());
                }
                Ok(vec![self.commit(account, writes)?])
            }
            Act::Burst { account, commits } => self.burst(account, commits),
            Act::Sync { account } => {
                self.advance(1);
                self.sync_as_it_is(account)
            }
            Act::Account { account, status } => self.set_status(account, status),
            Act::Tombstone { account } => {
                let frames = self.set_status(account, Status::Deleted)?;
                self.change(account, |account| account.is_tombstoned = true)?;
                Ok(frames)
            }
            Act::Identity { account, rename, says_handle } => {
                if rename {
                    self.rename(account)?;
                }
                self.identity(account, says_handle)
            }
            Act::MalformedIdentity { did } => {
                Ok(vec![self.emit(&did, Event::Identity { handle: None }, None, |seq, micros| {
                    frame::identity(seq, micros, &did, None, None)
                })])
            }
            Act::Rotate { account, announce } => self.rotate(account, announce),
            Act::Migrate { account, host, announce } => self.migrate(account, host, announce),
            Act::Hide { account, hidden } => {
                self.change(account, |account| account.is_hidden = hidden)?;
                Ok(Vec::new())
            }
            Act::HiddenRecord { account } => self.hidden_record(account),
            Act::Lie { account, flaw } => self.lie(account, flaw),
            Act::LyingSync { account, flaw } => self.lying_sync(account, flaw),
            Act::SizedFrame { account, bytes } => self.sized_frame(account, bytes),
            Act::UnknownFrame => Ok(vec![self.emit("", Event::Unknown, None, frame::unknown)]),
            Act::Garbage { bytes } => self.garbage(bytes),
            Act::RestoreRelay { frames } => {
                let forgotten = self.history.forget_newest(frames);
                self.next_seq = self.history.newest().map_or(1, |newest| newest.seq + 1);
                self.epoch += u64::from(forgotten > 0);
                Ok(Vec::new())
            }
            Act::Advance { micros } => {
                self.advance(micros);
                Ok(Vec::new())
            }
        }
    }

    fn change<T>(
        &mut self,
        account: u32,
        change: impl FnOnce(&mut super::Account) -> T,
    ) -> Result<T, WorldError> {
        self.accounts.get_mut(account as usize).map(change).ok_or(WorldError::Account(account))
    }

    fn writes(&mut self, operations: Vec<Operation>) -> Result<Vec<Write>, WorldError> {
        within(u32::try_from(operations.len()).unwrap_or(u32::MAX))?;
        let mut writes = Vec::with_capacity(operations.len());
        for operation in operations {
            writes.push(match operation {
                Operation::Put { path, record } => {
                    let collection = path.split_once('/').map_or("", |(collection, _)| collection);
                    let block = match record {
                        Some(record) => from_json(&record)?,
                        None => self.draw_chosen(collection),
                    };
                    Write { gate: gate_of(&path), path: path.into_bytes(), block: Some(block) }
                }
                Operation::Delete { path } => {
                    Write { gate: gate_of(&path), path: path.into_bytes(), block: None }
                }
            });
        }
        Ok(writes)
    }

    fn draw_chosen(&mut self, collection: &str) -> Bytes {
        let subject = Subject::invented(&mut self.live, "did:plc:nobody", "2222222222222");
        record(&mut self.live, collection, self.micros, &subject, "did:plc:nobody").into()
    }

    /// Whether every operation changes something, and none a path that another does.
    fn fits(&self, account: u32, writes: &[Write]) -> Result<(), WorldError> {
        let account = self.account(account)?;
        let records = self.repo(account).records();
        for (at, write) in writes.iter().enumerate() {
            let is_there = records.contains_key(&write.path);
            let is_repeated = writes[..at].iter().any(|earlier| earlier.path == write.path);
            let is_key = (1..=alluvium_atproto::mst::MAX_KEY_LEN).contains(&write.path.len());
            if is_repeated || !is_key || (write.block.is_none() && !is_there) {
                return Err(WorldError::Operation(String::from_utf8_lossy(&write.path).into_owned()));
            }
        }
        Ok(())
    }

    fn burst(&mut self, account: u32, commits: u32) -> Result<Vec<Arc<Emitted>>, WorldError> {
        within(commits)?;
        let mut frames = Vec::with_capacity(commits as usize);
        for number in 0..commits {
            self.advance(1);
            let collection = collection(&mut self.live);
            let path = format!("{collection}/burst-{}-{number}", self.next_seq);
            let block = small_record(collection, number.into());
            let write = Write { path: path.into_bytes(), block: Some(block), gate: None };
            frames.push(self.commit(account, vec![write])?);
        }
        Ok(frames)
    }

    pub(super) fn set_status(&mut self, index: u32, status: Status) -> Result<Vec<Arc<Emitted>>, WorldError> {
        self.advance(1);
        let before = self.account(index)?.status;
        let rev = self.next_rev(self.account(index)?);
        let account = self.accounts.get_mut(index as usize).ok_or(WorldError::Account(index))?;
        account.status = status;
        account.is_tombstoned &= !status.is_active();
        if status == Status::Deleted {
            account.empty(&self.config, rev);
        }
        let did = account.did().as_str().to_owned();
        let frame = self.emit(&did, Event::Account { status }, None, |seq, micros| {
            frame::account(seq, micros, &did, status)
        });
        let mut frames = vec![frame];
        if before == Status::Deleted && status.is_active() {
            frames.extend(self.sync_as_it_is(index)?);
        }
        Ok(frames)
    }

    pub(super) fn rename(&mut self, index: u32) -> Result<(), WorldError> {
        self.change(index, |account| {
            account.handle_changes += 1;
            account.handle = handle(account.index(), account.handle_changes);
        })
    }

    pub(super) fn rotate(&mut self, index: u32, announce: bool) -> Result<Vec<Arc<Emitted>>, WorldError> {
        let seed = self.config.seed;
        self.advance(1);
        let rev = self.next_rev(self.account(index)?);
        let account = self.accounts.get_mut(index as usize).ok_or(WorldError::Account(index))?;
        account.rotations += 1;
        let key = account.key(seed);
        let repo = account.repo_mut(&self.config);
        // What is fetched from now on verifies with the new key; the revision says that it was signed again.
        repo.sign(rev, &key);
        if announce { self.identity(index, false) } else { Ok(Vec::new()) }
    }

    pub(super) fn migrate(
        &mut self,
        index: u32,
        host: u32,
        announce: bool,
    ) -> Result<Vec<Arc<Emitted>>, WorldError> {
        if host >= self.config.hosts {
            return Err(WorldError::Host(host));
        }
        self.change(index, |account| account.host = host)?;
        if !announce {
            return Ok(Vec::new());
        }
        let mut frames = self.identity(index, false)?;
        let account = self.account(index)?;
        let (did, status) = (account.did().as_str().to_owned(), account.status);
        frames.push(self.emit(&did, Event::Account { status }, None, |seq, micros| {
            frame::account(seq, micros, &did, status)
        }));
        Ok(frames)
    }

    fn hidden_record(&mut self, index: u32) -> Result<Vec<Arc<Emitted>>, WorldError> {
        self.advance(1);
        let path =
            [b"app.bsky.feed.post/".as_slice(), &[0xff, 0xfe], self.micros.to_string().as_bytes()].concat();
        let block = Some(small_record("app.bsky.feed.post", self.micros));
        let write = Write { path, block, gate: Some(Gate::RecordKey) };
        self.commit_in_silence(index, vec![write])?;
        Ok(Vec::new())
    }

    fn sized_frame(&mut self, index: u32, bytes: usize) -> Result<Vec<Arc<Emitted>>, WorldError> {
        let did = self.account(index)?.did().as_str().to_owned();
        let len = |padding| frame::identity(self.next_seq, self.micros, &did, None, Some(padding)).len();
        if bytes > SIZED_FRAME_MAX || bytes < len(0) {
            return Err(WorldError::Limit("a frame of this length cannot be made"));
        }
        // The length of a length changes by a few bytes, so a guess and a few corrections do.
        let mut padding = bytes - len(0);
        while len(padding) > bytes {
            padding -= len(padding) - bytes;
        }
        if len(padding) != bytes {
            return Err(WorldError::Limit("a frame of this length cannot be made"));
        }
        let flaw = (bytes > FRAME_BYTES_MAX).then_some(Flaw::TooLong);
        let event = Event::Identity { handle: None };
        Ok(vec![
            self.emit(&did, event, flaw, |seq, micros| {
                frame::identity(seq, micros, &did, None, Some(padding))
            }),
        ])
    }

    fn garbage(&mut self, bytes: usize) -> Result<Vec<Arc<Emitted>>, WorldError> {
        if bytes > SIZED_FRAME_MAX {
            return Err(WorldError::Limit("a frame of this length cannot be made"));
        }
        // 0xff is a break outside of anything, with which nothing in CBOR begins.
        let frame = std::iter::once(0xff).chain(std::iter::repeat_with(|| self.live.bits().to_be_bytes()[0]));
        let frame: Bytes = frame.take(bytes).collect();
        let (seq, micros) = (self.tip(), self.micros);
        let emitted = Emitted { seq, micros, did: String::new(), frame, event: Event::Garbage, flaw: None };
        Ok(vec![self.log(emitted)])
    }
}

fn within(count: u32) -> Result<(), WorldError> {
    if count <= COUNT_MAX { Ok(()) } else { Err(WorldError::Limit("at most 100,000 at a time")) }
}

fn from_json(record: &serde_json::Value) -> Result<Bytes, WorldError> {
    let value = json::from_json(record.to_string().as_bytes())
        .map_err(|error| WorldError::Record(error.to_string()))?;
    Ok(cbor::encode(&value).into())
}
