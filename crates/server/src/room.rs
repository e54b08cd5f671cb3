//! Looks at the disks that data goes to, once a second, and tells those who store it whether there is room.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use alluvium_env::{Disk, Env, Level, Room, RoomLimits};
use alluvium_metrics::Page;

use crate::metrics;
use crate::sight::{Sight, Unready};

/// How often the disks are looked at. What is written in between is not held back.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A disk, by what of the server is on it.
#[derive(Clone, Debug)]
struct Watched {
    what: &'static str,
    path: PathBuf,
    room: Room,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct RoomKeeper {
    disk: Arc<dyn Disk>,
    limits: RoomLimits,
    watched: Vec<Watched>,
}

impl RoomKeeper {
    /// Nothing is looked at yet.
    pub fn new(env: &Env, limits: RoomLimits) -> Self {
        Self { disk: Arc::clone(&env.disk), limits, watched: Vec::new() }
    }

    /// Has the disk with `path` looked at, which must exist by the first look, and `room` told. `what` names it in the log
    /// and in the metrics.
    #[must_use]
    pub fn and(mut self, what: &'static str, path: PathBuf, room: Room) -> Self {
        self.watched.push(Watched { what, path, room });
        self
    }

    /// Looks now, and says what has changed. May wait for a device.
    pub fn look(&self) {
        for watched in &self.watched {
            match self.disk.space(&watched.path) {
                Ok(Some(space)) => {
                    let (before, now) = watched.room.observe(&self.limits, space);
                    watched.tell(before, now);
                }
                // Nothing says how large it is, so writing has to tell.
                Ok(None) => {}
                Err(error) => {
                    let (what, path) = (watched.what, watched.path.display());
                    tracing::debug!(what, %path, %error, "cannot look how much of the disk is free");
                }
            }
        }
    }

    /// Looks once a second, until it is dropped.
    pub async fn keep(self) {
        let mut keeper = self;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // A disk on a network may not answer for a long time; nothing else is to wait for it.
            let looked = tokio::task::spawn_blocking(move || {
                keeper.look();
                keeper
            });
            match looked.await {
                Ok(same) => keeper = same,
                // The runtime ends.
                Err(_) => return std::future::pending().await,
            }
        }
    }

    /// Has shown how the disks stand, also where it is asked whether the server is ready.
    pub fn show(&self, sight: &Sight) {
        let watched = self.watched.clone();
        sight.add(move |page: &mut Page| {
            for watched in &watched {
                metrics::disk(page, watched.what, &watched.room.standing());
            }
        });
        let watched = self.watched.clone();
        sight.health().watch(move || {
            watched.iter().any(|watched| watched.room.is_short()).then_some(Unready::DiskShort)
        });
    }
}

impl Watched {
    fn tell(&self, before: Level, now: Level) {
        if before == now {
            return;
        }
        let (what, path, free_bytes) = (self.what, self.path.display(), self.room.standing().free);
        match now {
            Level::Short => tracing::error!(
                what, %path, free_bytes,
                "the disk has less room than `disk-free-min`: what adds data is refused until there is more"
            ),
            Level::Low if before == Level::Short => tracing::warn!(
                what, %path, free_bytes,
                "there is room on the disk again: data is taken, but there is less room than `disk-free-warn`"
            ),
            Level::Low => {
                tracing::warn!(what, %path, free_bytes, "the disk has less room than `disk-free-warn`");
            }
            Level::Enough => tracing::info!(what, %path, free_bytes, "the disk has enough room again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use alluvium_env::sim::SimDisk;
    use alluvium_env::{OpenMode, Share};

    use super::*;

    #[test]
    fn each_disk_is_told_of_its_own_room() {
        let disk = SimDisk::new(1);
        disk.set_capacity(Some(1000));
        let env = Env { disk: Arc::new(disk.clone()), ..Env::real() };
        let limits = RoomLimits { warn: None, min: Some(Share::Bytes(100)) };
        let (room, unknown) = (Room::default(), Room::default());
        let keeper = RoomKeeper::new(&env, limits).and("data", PathBuf::from("/d"), room.clone());
        let real = RoomKeeper::new(&Env::real(), limits).and(
            "data",
            PathBuf::from("/there is no such folder"),
            unknown.clone(),
        );
        keeper.look();
        real.look();
        assert_eq!((room.standing().free, room.is_short()), (1000, false));
        assert!(!unknown.is_short(), "a disk that does not tell has no limit");
        let file = disk.open(Path::new("/d"), OpenMode::CreateNew).expect("a file");
        file.write_all_at(&[&[1; 950]], 0).expect("there is room");
        keeper.look();
        assert_eq!((room.standing().free, room.is_short()), (50, true));
        disk.set_capacity(None);
        keeper.look();
        assert!(room.is_short(), "what was known stays");
        disk.set_capacity(Some(2000));
        keeper.look();
        assert!(!room.is_short());
    }
}
