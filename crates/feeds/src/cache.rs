//! The spaces that are open: each at most once, and not more than a bounded number of them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_env::Env;
use alluvium_feed_protocol::{ErrorCode, Id};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::options::Options;
use crate::space::Space;

/// Digits of a space's folder name.
const FOLDER_DIGITS: usize = 40;

#[derive(Debug, Default)]
struct Open {
    spaces: HashMap<Id, (Arc<Space>, u64)>,
    uses: u64,
}

/// The open spaces of a folder.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    env: Env,
    options: Arc<Options>,
    open: Mutex<Open>,
}

impl Cache {
    pub(crate) fn new(folder: &Path, env: Env, options: Arc<Options>) -> Self {
        Self { folder: folder.to_owned(), env, options, open: Mutex::default() }
    }

    /// The space, opened if it is not. A space is opened under the lock: there is never a second writer of one.
    pub(crate) fn get(&self, id: &Id, creates: bool) -> Result<Arc<Space>, Failure> {
        let mut open = self.open.lock();
        open.uses += 1;
        let uses = open.uses;
        if let Some((space, used)) = open.spaces.get_mut(id) {
            *used = uses;
            return Ok(Arc::clone(space));
        }
        let folder = self.folder_of(id);
        let exists = self.env.disk.exists(&folder.join("space.sqlite")).unwrap_or(false);
        if !exists && !creates {
            return Err(Failure::refused(ErrorCode::SpaceNotFound, "no such space"));
        }
        if open.spaces.len() >= self.options.open_spaces_max {
            close_one(&mut open)?;
        }
        let space = Arc::new(Space::open(&folder, id, &self.env, &self.options)?);
        open.spaces.insert(id.clone(), (Arc::clone(&space), uses));
        Ok(space)
    }

    /// Every open space.
    pub(crate) fn all(&self) -> Vec<Arc<Space>> {
        self.open.lock().spaces.values().map(|(space, _)| Arc::clone(space)).collect()
    }

    /// A space's name may have any characters and any case, so its folder is called by its hash; the name itself is
    /// in the database.
    fn folder_of(&self, id: &Id) -> PathBuf {
        let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
        let digest = Sha256::digest(id.as_str());
        let name: String = digest.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
        self.folder.join(&name[..FOLDER_DIGITS])
    }
}

/// Closes the space that was unused for longest, of those that nobody holds.
fn close_one(open: &mut Open) -> Result<(), Failure> {
    let is_free = |space: &Arc<Space>| Arc::strong_count(space) == 1 && space.is_idle();
    let oldest =
        open.spaces.iter().filter(|(_, (space, _))| is_free(space)).min_by_key(|(_, (_, used))| *used);
    let Some(id) = oldest.map(|(id, _)| id.clone()) else {
        return Err(Failure::refused(ErrorCode::Overloaded, "too many spaces are open"));
    };
    if let Some((space, _)) = open.spaces.remove(&id) {
        space.note_now()?;
    }
    Ok(())
}
