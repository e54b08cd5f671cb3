//! What all spaces of a folder share: where each lies, how many there are, and what one looks like that isn't there.
//!
//! Reading makes nothing: a space that nobody has written to is answered for as an empty one. It comes into being with
//! its first append, under the token that readers were told before. Who subscribes to it until then writes nothing to
//! the disk either: a caller that may only read must not use up the spaces that a server may have. Such subscriptions
//! are kept in memory, of all these spaces a bounded number together, and move into the space when that is made.

use std::fmt;
use std::path::{Path, PathBuf};

use alluvium_env::{Disk, Env};
use alluvium_feed_protocol::{Check, ErrorCode, Id, Token};
use alluvium_feed_store::rusqlite::{Connection, types::Value};
use alluvium_feed_store::{empty, spaces};
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::guard;
use crate::subscribe;

/// Digits of a space's folder name.
const FOLDER_DIGITS: usize = 40;
/// The database of a space, in its folder.
pub(crate) const DATABASE: &str = "space.sqlite";

/// What a space's folder is called. Its own name may have any characters and any case, so it is the hash of that; the name
/// itself is in the database.
pub(crate) fn name_of_folder(id: &Id) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    let digest = Sha256::digest(id.as_str());
    let digits = digest.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    digits.take(FOLDER_DIGITS).collect()
}

/// Whether the folder of a space may be called so.
pub(crate) fn is_folder_name(name: &str) -> bool {
    name.len() == FOLDER_DIGITS && name.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// A folder of spaces.
pub(crate) struct Ground {
    folder: PathBuf,
    /// From which, with its name, the token of a space is made. New with each start: a space that isn't there loses
    /// nothing by another token, and one that was removed by hand doesn't come back under the one it had.
    secret: u128,
    /// How many spaces there are. Held while one is made.
    count: Mutex<usize>,
    count_max: usize,
    /// Tables in memory, made when first asked for, with the subscriptions to spaces that aren't there and nothing else.
    nothing: Mutex<Option<Connection>>,
}

impl fmt::Debug for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ground").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// The right to make one more space.
pub(crate) struct Plot<'a>(MutexGuard<'a, usize>);

impl Plot<'_> {
    /// The space is made.
    pub(crate) fn taken(mut self) {
        *self.0 += 1;
    }
}

impl Ground {
    pub(crate) fn new(folder: &Path, env: &Env, count_max: usize) -> std::io::Result<Self> {
        let count = env.disk.list(folder)?.iter().filter(|name| is_folder_name(name)).count();
        Ok(Self {
            folder: folder.to_owned(),
            secret: env.random.next_u128(),
            count: Mutex::new(count),
            count_max,
            nothing: Mutex::default(),
        })
    }

    /// The names of the folders of all spaces.
    pub(crate) fn folders(&self, disk: &dyn Disk) -> std::io::Result<Vec<String>> {
        let mut names = disk.list(&self.folder)?;
        names.retain(|name| is_folder_name(name));
        Ok(names)
    }

    /// Where a folder of this name is.
    pub(crate) fn folder_named(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The folder of a space.
    pub(crate) fn folder_of(&self, id: &Id) -> PathBuf {
        self.folder.join(name_of_folder(id))
    }

    /// Whether a space is there, or something of it.
    pub(crate) fn has(&self, disk: &dyn Disk, id: &Id) -> bool {
        let folder = self.folder_of(id);
        [DATABASE, guard::FILE].iter().any(|file| disk.exists(&folder.join(file)).unwrap_or(false))
    }

    /// Room for one more space. Others wait until the caller is done.
    pub(crate) fn plot(&self) -> Result<Plot<'_>, Failure> {
        let count = self.count.lock();
        if *count >= self.count_max {
            let message = format!("this server has {} spaces, and makes no more", *count);
            return Err(Failure::refused(ErrorCode::SpacesFull, message));
        }
        Ok(Plot(count))
    }

    /// The token that a space has from its beginning.
    pub(crate) fn first_token(&self, id: &Id) -> Token {
        let digest =
            Sha256::new().chain_update(self.secret.to_be_bytes()).chain_update(id.as_str()).finalize();
        let bits = digest.iter().take(16).fold(0, |bits, byte| (bits << 8) | u128::from(*byte));
        Token::from_random(bits)
    }

    /// Looks at a space that isn't there.
    pub(crate) fn look_at_nothing<T>(
        &self,
        id: &Id,
        look: impl FnOnce(&Connection, &spaces::Space) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.with_nothing(|connection| look(connection, &self.unmade(id)))
    }

    /// Changes the subscriptions to a space that isn't there.
    pub(crate) fn change_nothing<T>(
        &self,
        id: &Id,
        change: impl FnOnce(&Connection, &spaces::Space) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.with_nothing(|connection| {
            let transaction = connection.transaction()?;
            let changed = change(&transaction, &self.unmade(id))?;
            transaction.commit()?;
            Ok(changed)
        })
    }

    /// Tries what an append to a space would come to that isn't there; of it nothing stays.
    pub(crate) fn try_in_nothing<T>(
        &self,
        id: &Id,
        attempt: impl FnOnce(&Connection, &spaces::Space) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.with_nothing(|connection| {
            let transaction = connection.transaction()?;
            let tried = attempt(&transaction, &self.unmade(id));
            transaction.rollback()?;
            tried
        })
    }

    /// The subscriptions to a space that is being made.
    pub(crate) fn early(&self, id: &Id) -> Result<Vec<Vec<Value>>, Failure> {
        if self.nothing.lock().is_none() {
            return Ok(Vec::new());
        }
        self.with_nothing(|connection| subscribe::all(connection, id))
    }

    /// Forgets them, once they are kept elsewhere.
    pub(crate) fn forget_early(&self, id: &Id) -> Result<(), Failure> {
        self.with_nothing(|connection| subscribe::clear(connection, id))
    }

    /// Removes those that have expired.
    pub(crate) fn sweep(&self, now_ms: u64) -> Result<(), Failure> {
        match self.nothing.lock().as_ref() {
            Some(connection) => subscribe::sweep(connection, now_ms).map(drop),
            None => Ok(()),
        }
    }

    fn with_nothing<T>(&self, act: impl FnOnce(&mut Connection) -> Result<T, Failure>) -> Result<T, Failure> {
        let mut nothing = self.nothing.lock();
        let connection = match nothing.take() {
            Some(connection) => nothing.insert(connection),
            None => nothing.insert(empty()?),
        };
        act(connection)
    }

    /// A space as it will be when it is made.
    fn unmade(&self, id: &Id) -> spaces::Space {
        spaces::Space {
            key: 0,
            id: id.clone(),
            next_position: 1,
            check: Check::START,
            token: Some(self.first_token(id)),
            epoch: 0,
            deleted_at: None,
        }
    }
}
