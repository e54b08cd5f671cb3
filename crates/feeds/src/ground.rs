//! What all spaces of a folder share: where each lies, how many there are, and what one looks like that isn't there.
//!
//! Reading makes nothing: a space that nobody has written to is answered for as an empty one. It comes into being with
//! its first append or subscription, under the token that readers were told before.

use std::fmt;
use std::path::{Path, PathBuf};

use alluvium_env::{Disk, Env};
use alluvium_feed_protocol::{Check, ErrorCode, Id, Token};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::{empty, spaces};
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::guard;

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
    /// Tables without rows, made when first asked for.
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
        let mut nothing = self.nothing.lock();
        if nothing.is_none() {
            *nothing = Some(empty()?);
        }
        let space = spaces::Space {
            key: 0,
            id: id.clone(),
            next_position: 1,
            check: Check::START,
            token: Some(self.first_token(id)),
            epoch: 0,
            deleted_at: None,
        };
        match nothing.as_ref() {
            Some(connection) => look(connection, &space),
            None => Err(Failure::refused(ErrorCode::Internal, "no tables")),
        }
    }
}
