//! Reading every subscription again, as it was when its last decision became durable.

use std::collections::{BTreeSet, HashMap};

use alluvium_engine::{BootstrapLimits, Engine, LookupError, ReadError, ReadFault, StreamReader};
use alluvium_env::Env;
use alluvium_protocol::subscription::State;
use alluvium_protocol::{Offset, StreamPath};

use crate::book::Link;
use crate::core::Core;
use crate::keys::Keys;
use crate::options::Options;
use crate::record::{Created, Entry, Record, StoredLink, VERSION};
use crate::subscription::{History, Stage, id_of};
use crate::wakes::holds_lease;
use crate::write::keys_path;

/// Why subscriptions cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The stream with the decisions cannot be read.
    #[error("cannot read the subscription at {path}: {source}")]
    Read {
        /// Its path.
        path: StreamPath,
        /// Why not.
        source: ReadError,
    },
    /// What was read is no decision.
    #[error("the subscription at {path} has a record that is none: {source}")]
    Record {
        /// Its path.
        path: StreamPath,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// It was written by a later version.
    #[error("the subscription at {path} has a record of version {version}, which this server does not know")]
    Version {
        /// Its path.
        path: StreamPath,
        /// The version.
        version: u8,
    },
}

/// What a history comes to.
#[derive(Default)]
struct Read {
    created: Option<Created>,
    state: State,
    links: HashMap<StreamPath, Link>,
}

impl Core {
    /// Reads all subscriptions of an engine. Blocks on the disk.
    pub fn open(engine: Engine, env: Env, options: Options) -> Result<Self, LoadError> {
        let mut core = Self::new(engine, env, options);
        let mut paths = Vec::new();
        core.engine.for_each_stream(|path, _| {
            if path.is_internal() {
                paths.push(path.clone());
            }
        });
        for path in paths {
            if path == keys_path() {
                core.keys = core.load_keys()?;
            } else if id_of(&path).is_some() {
                core.load(&path)?;
            }
        }
        // What has come since, and what follows from it.
        let mut concerned = BTreeSet::new();
        core.look_at_all(&mut concerned);
        let all: Vec<u32> = core.by_id.values().copied().collect();
        for place in all {
            core.pump(place);
        }
        Ok(core)
    }

    fn load_keys(&self) -> Result<Keys, LoadError> {
        let path = keys_path();
        let (bodies, _) = bodies(&self.engine, &path)?;
        match bodies.last() {
            // Its creation was all that became durable.
            None => Ok(Keys::default()),
            Some(body) => serde_json::from_slice(body).map_err(|source| LoadError::Record { path, source }),
        }
    }

    fn load(&mut self, path: &StreamPath) -> Result<(), LoadError> {
        let (bodies, history) = bodies(&self.engine, path)?;
        let mut read = Read::default();
        for body in &bodies {
            let record: Record = serde_json::from_slice(body)
                .map_err(|source| LoadError::Record { path: path.clone(), source })?;
            if record.v != VERSION {
                return Err(LoadError::Version { path: path.clone(), version: record.v });
            }
            record.e.into_iter().for_each(|entry| read.take_in(entry));
        }
        // Without that, its creation was never answered.
        let Some(created) = read.created.filter(|created| id_of(path) == Some(&created.id)) else {
            return Ok(());
        };
        let place = self.insert(created, history);
        for (path, mut link) in read.links {
            let end = self.engine.end_of(&path);
            let Some((subscription, book)) = self.with_book(place) else { continue };
            link.glob = subscription.is_meant(&path);
            if link.glob || link.explicit {
                let stream = book.link((place, &mut subscription.links), &path, end, link, |_| {});
                // A worker may have been told before this start.
                subscription.links.tell(&[stream]);
            }
        }
        let Some(subscription) = self.at_mut(place) else { return Ok(()) };
        (subscription.state, subscription.stage) = (read.state, Stage::Installed);
        if holds_lease(&subscription.state.phase) {
            crate::counters::add(&self.counters.leases);
        }
        Ok(())
    }
}

impl Read {
    fn take_in(&mut self, entry: Entry) {
        match entry {
            Entry::Created(created) => self.created = Some(*created),
            Entry::Event(event) => self.state.apply(&event),
            Entry::State(state) => self.state = state,
            Entry::Links(links) => {
                for stored in links {
                    let Some(path) = stored.path() else { continue };
                    let link = self.links.entry(path).or_default();
                    move_on(link, &stored);
                    link.explicit |= stored.explicit;
                }
            }
            Entry::Acked(cursors) => {
                for stored in cursors {
                    let Some(path) = stored.path() else { continue };
                    move_on(self.links.entry(path).or_default(), &stored);
                }
            }
            Entry::Unlinked(key) => {
                let link = StreamPath::from_key(&key).and_then(|path| self.links.get_mut(&path));
                if let Some(link) = link {
                    link.explicit = false;
                }
            }
        }
    }
}

/// Moves a cursor on, or begins it anew where another stream was at the path.
fn move_on(link: &mut Link, stored: &StoredLink) {
    let (incarnation, offset) = (stored.incarnation(), stored.offset());
    if link.incarnation == incarnation {
        link.acked = link.acked.max(offset);
    } else {
        (link.incarnation, link.acked) = (incarnation, offset);
    }
}

/// The records of a history, the snapshot that begins it included, and where it ends.
fn bodies(engine: &Engine, path: &StreamPath) -> Result<(Vec<Vec<u8>>, History), LoadError> {
    let failed = |source: ReadError| LoadError::Read { path: path.clone(), source };
    let fault = |source: ReadFault| failed(source.into());
    let mut cut = engine.look_at_bootstrap(path, BootstrapLimits::NONE).map_err(failed)?;
    let mut bodies = Vec::new();
    let mut snapshot_bytes = 0;
    if let Some(snapshot) = &cut.snapshot {
        let body = whole(&snapshot.body).map_err(failed)?;
        snapshot_bytes = body.len() as u64;
        bodies.push(body);
    }
    let mut bytes = 0;
    while let Some(messages) = cut.next_messages() {
        for message in messages.map_err(fault)? {
            let body = message.body.whole().map_err(fault)?;
            bytes += body.len() as u64;
            bodies.push(body.to_vec());
        }
    }
    let end = engine.end_of(path).ok_or_else(|| failed(LookupError::NotFound.into()))?;
    let history = History { incarnation: end.incarnation, tail: end.tail, bytes, snapshot_bytes };
    Ok((bodies, history))
}

fn whole(reader: &StreamReader) -> Result<Vec<u8>, ReadError> {
    let mut plan = reader.read(Offset::ZERO, u64::MAX)?;
    let mut body = Vec::new();
    while let Some(pieces) = plan.fetch() {
        pieces?.iter().for_each(|piece| body.extend_from_slice(piece));
    }
    Ok(body)
}
