//! The archive on a simulated disk.
#![expect(clippy::unwrap_used, reason = "what is shared by tests fails as they do")]

mod backups;
mod crashes;
mod model;
mod planning;
mod reading;
mod times;
mod world;
