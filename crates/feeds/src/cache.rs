//! The spaces that are open: each at most once, and not more than a bounded number of them.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use alluvium_env::Env;
use alluvium_feed_protocol::{ErrorCode, Id};
use parking_lot::Mutex;

use crate::counters::Counters;
use crate::failure::Failure;
use crate::ground::Ground;
use crate::options::Options;
use crate::space::Space;
use crate::survey::SurveyedSpace;

#[derive(Debug, Default)]
struct Open {
    spaces: HashMap<Id, (Arc<Space>, u64)>,
    uses: u64,
}

/// The open spaces of a folder.
#[derive(Debug)]
pub(crate) struct Cache {
    ground: Arc<Ground>,
    env: Env,
    options: Arc<Options>,
    open: Mutex<Open>,
    counts: Arc<Counters>,
}

impl Cache {
    pub(crate) fn new(
        folder: &Path,
        env: Env,
        options: Arc<Options>,
        counts: Arc<Counters>,
    ) -> io::Result<Self> {
        let ground = Arc::new(Ground::new(folder, &env, options.spaces_max)?);
        Ok(Self { ground, env, options, open: Mutex::default(), counts })
    }

    /// A space that is there.
    pub(crate) fn existing(&self, id: &Id) -> Result<Arc<Space>, Failure> {
        if !self.ground.has(self.env.disk.as_ref(), id) {
            return Err(Failure::refused(ErrorCode::SpaceNotFound, "no such space"));
        }
        self.get(id)
    }

    /// The space, opened if it is not. A space is opened under the lock: there is never a second writer of one. One that
    /// isn't there is empty to its readers.
    pub(crate) fn get(&self, id: &Id) -> Result<Arc<Space>, Failure> {
        self.open(id, false)
    }

    /// The space, for one who may make it.
    pub(crate) fn get_to_append(&self, id: &Id) -> Result<Arc<Space>, Failure> {
        self.open(id, true)
    }

    fn open(&self, id: &Id, may_make: bool) -> Result<Arc<Space>, Failure> {
        let mut open = self.open.lock();
        open.uses += 1;
        let uses = open.uses;
        if let Some((space, used)) = open.spaces.get_mut(id) {
            *used = uses;
            return Ok(Arc::clone(space));
        }
        let is_there = self.ground.has(self.env.disk.as_ref(), id);
        if !self.options.creates_spaces && !is_there {
            return Err(Failure::refused(ErrorCode::SpaceNotFound, "no such space"));
        }
        // Spaces that aren't there have places of their own: asking for many keeps nobody from one that is.
        let has_place = make_place(&mut open, is_there || may_make, self.options.open_spaces_max.max(1))?;
        if !has_place && (is_there || may_make) {
            return Err(Failure::refused(ErrorCode::Overloaded, "too many spaces are open"));
        }
        let space = Arc::new(Space::open(&self.ground, id, &self.env, &self.options, &self.counts)?);
        // One that isn't kept is as empty as one that is; who waits at it only isn't woken.
        if has_place {
            open.spaces.insert(id.clone(), (Arc::clone(&space), uses));
        }
        Ok(space)
    }

    /// Removes what has expired of what is kept for spaces that aren't there.
    pub(crate) fn sweep_ground(&self) -> Result<(), Failure> {
        self.ground.sweep(self.env.clock.now_ms())
    }

    /// What all spaces take, the largest first.
    pub(crate) fn survey(&self) -> io::Result<Vec<SurveyedSpace>> {
        self.ground.survey(self.env.disk.as_ref())
    }

    /// The name of the space in a folder.
    pub(crate) fn name_of(&self, folder: &str) -> Option<Id> {
        self.ground.name_of(folder)
    }

    /// How many spaces are open. Does not wait: while one is opened, nobody knows.
    pub(crate) fn open_now(&self) -> Option<usize> {
        self.open.try_lock().map(|open| open.spaces.len())
    }

    /// Every open space.
    pub(crate) fn all(&self) -> Vec<Arc<Space>> {
        self.open.lock().spaces.values().map(|(space, _)| Arc::clone(space)).collect()
    }
}

/// Sees that there is a place for one more space among those that are there, or among those that aren't: closes the one
/// that was unused for longest, of those that nobody holds. Whether there is a place then.
fn make_place(open: &mut Open, is_there: bool, places: usize) -> Result<bool, Failure> {
    let is_free = |space: &Arc<Space>| Arc::strong_count(space) == 1 && space.is_idle();
    let alike = || open.spaces.iter().filter(|(_, (space, _))| space.exists() == is_there);
    if alike().count() < places {
        return Ok(true);
    }
    let oldest = alike().filter(|(_, (space, _))| is_free(space)).min_by_key(|(_, (_, used))| *used);
    let Some(id) = oldest.map(|(id, _)| id.clone()) else { return Ok(false) };
    if let Some((space, _)) = open.spaces.remove(&id) {
        space.note_now()?;
    }
    Ok(true)
}
