//! The spaces that are open: each at most once, and not more than a bounded number of them.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use alluvium_env::Env;
use alluvium_feed_protocol::{ErrorCode, Id};
use alluvium_feed_store::ListedSpace;
use parking_lot::{Condvar, Mutex};

use crate::counters::Counters;
use crate::failure::Failure;
use crate::ground::Ground;
use crate::options::Options;
use crate::space::Space;
use crate::survey::SurveyedSpace;

#[derive(Debug, Default)]
struct Open {
    spaces: HashMap<Id, (Arc<Space>, u64)>,
    /// Those that are being opened and have a place, and whether it is among those that are there.
    opening: HashMap<Id, bool>,
    uses: u64,
}

impl Open {
    fn find(&mut self, id: &Id) -> Option<Arc<Space>> {
        let (space, used) = self.spaces.get_mut(id)?;
        self.uses += 1;
        *used = self.uses;
        Some(Arc::clone(space))
    }
}

/// What there is for a space that is to be opened.
enum Place {
    /// A place, which is taken.
    Kept,
    /// None, and it needs none: it isn't there.
    Passing,
    /// Perhaps one, when another space has been opened.
    Wait,
}

/// The open spaces of a folder.
#[derive(Debug)]
pub(crate) struct Cache {
    ground: Arc<Ground>,
    env: Env,
    options: Arc<Options>,
    open: Mutex<Open>,
    /// Told whenever a space has been opened, or was not.
    opened: Condvar,
    counts: Arc<Counters>,
}

/// One that opens a space. Whatever comes of it, others may go on when this ends.
struct Opening<'a> {
    cache: &'a Cache,
    id: &'a Id,
    has_opened: Option<Arc<Space>>,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let mut open = self.cache.open.lock();
        open.opening.remove(self.id);
        if let Some(space) = self.has_opened.take() {
            open.uses += 1;
            let uses = open.uses;
            open.spaces.insert(self.id.clone(), (space, uses));
        }
        drop(open);
        self.cache.opened.notify_all();
    }
}

impl Cache {
    pub(crate) fn new(
        folder: &Path,
        env: Env,
        options: Arc<Options>,
        counts: Arc<Counters>,
    ) -> io::Result<Self> {
        let ground = Arc::new(Ground::new(folder, &env, options.spaces_max)?);
        Ok(Self { ground, env, options, open: Mutex::default(), opened: Condvar::new(), counts })
    }

    /// A space that is there.
    pub(crate) fn existing(&self, id: &Id) -> Result<Arc<Space>, Failure> {
        if !self.ground.has(self.env.disk.as_ref(), id) {
            return Err(Failure::refused(ErrorCode::SpaceNotFound, "no such space"));
        }
        self.get(id)
    }

    /// The space, opened if it is not. Who wants one that another is opening waits for that, however long it takes: there is
    /// never a second writer of one. Those who want others don't. One that isn't there is empty to its readers.
    pub(crate) fn get(&self, id: &Id) -> Result<Arc<Space>, Failure> {
        self.open(id, false)
    }

    /// The space, for one who may make it.
    pub(crate) fn get_to_append(&self, id: &Id) -> Result<Arc<Space>, Failure> {
        self.open(id, true)
    }

    fn open(&self, id: &Id, may_make: bool) -> Result<Arc<Space>, Failure> {
        let mut open = self.open.lock();
        loop {
            if let Some(space) = open.find(id) {
                return Ok(space);
            }
            if !open.opening.contains_key(id) {
                match self.place(&mut open, id, may_make)? {
                    Place::Wait => {}
                    Place::Kept => break,
                    // Under the lock: it must not come into being meanwhile. It is as empty as one that is kept; who waits at
                    // it only isn't woken.
                    Place::Passing => return self.load(id),
                }
            }
            self.opened.wait(&mut open);
        }
        drop(open);
        let mut opening = Opening { cache: self, id, has_opened: None };
        let space = self.load(id)?;
        opening.has_opened = Some(Arc::clone(&space));
        Ok(space)
    }

    fn load(&self, id: &Id) -> Result<Arc<Space>, Failure> {
        Ok(Arc::new(Space::open(&self.ground, id, &self.env, &self.options, &self.counts)?))
    }

    /// Finds a place for a space that is not open, or says that there is none.
    fn place(&self, open: &mut Open, id: &Id, may_make: bool) -> Result<Place, Failure> {
        let is_there = self.ground.has(self.env.disk.as_ref(), id);
        if !self.options.creates_spaces && !is_there {
            return Err(Failure::refused(ErrorCode::SpaceNotFound, "no such space"));
        }
        // Spaces that aren't there have places of their own: asking for many keeps nobody from one that is.
        let is_kept = is_there || may_make;
        if make_place(open, is_kept, self.options.open_spaces_max.max(1))? {
            open.opening.insert(id.clone(), is_kept);
            return Ok(Place::Kept);
        }
        match is_kept {
            false => Ok(Place::Passing),
            true if open.opening.is_empty() => {
                Err(Failure::refused(ErrorCode::Overloaded, "too many spaces are open"))
            }
            true => Ok(Place::Wait),
        }
    }

    /// Removes what has expired of what is kept for spaces that aren't there.
    pub(crate) fn sweep_ground(&self) -> Result<(), Failure> {
        self.ground.sweep(self.env.clock.now_ms())
    }

    /// What all spaces take, the largest first.
    pub(crate) fn survey(&self) -> io::Result<Vec<SurveyedSpace>> {
        self.ground.survey(self.env.disk.as_ref())
    }

    /// The space in a folder.
    pub(crate) fn space_in(&self, folder: &str) -> Option<ListedSpace> {
        self.ground.space_in(folder)
    }

    /// How many spaces are open, those that are being opened left out. Does not wait, and so may not know.
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
    let opening = open.opening.values().filter(|kind| **kind == is_there).count();
    if alike().count() + opening < places {
        return Ok(true);
    }
    let oldest = alike().filter(|(_, (space, _))| is_free(space)).min_by_key(|(_, (_, used))| *used);
    let Some(id) = oldest.map(|(id, _)| id.clone()) else { return Ok(false) };
    if let Some((space, _)) = open.spaces.remove(&id) {
        space.note_now()?;
    }
    Ok(true)
}
