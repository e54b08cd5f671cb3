//! A fuzz body for the guard of a space of feeds: the file that tells when the database beside it was set back.

use std::path::Path;

use alluvium_env::sim::SimDisk;
use alluvium_env::{Disk as _, OpenMode};
use alluvium_feed_protocol::Token;

#[path = "../../crates/feeds/src/guard.rs"]
mod file;

use file::{Guard, Note};

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 1] = [("feeds_guard", guard)];

/// The input is the file. One that does not read counts as missing, and then every database with blocks was set back; what is
/// written over it reads as what was written.
pub fn guard(input: &[u8]) {
    let (disk, folder) = (SimDisk::new(1), Path::new("/space"));
    disk.create_dir_all(folder).expect("a folder of a disk in memory");
    let path = folder.join(file::FILE);
    let file = disk.open(&path, OpenMode::CreateNew).expect("a file of a disk in memory");
    file.write_all_at(&[input], 0).expect("a disk in memory has room");
    let mut guard = Guard::read(&disk, folder).expect("a disk in memory is read");
    let token = Token::parse("t").expect("a token");
    if guard.is_missing() {
        assert!(guard.was_set_back(&token, 0, 1) && !guard.was_set_back(&token, 0, 0));
    } else {
        // Nobody has come further than there are positions.
        let is_behind = guard.was_set_back(&token, 7, u64::MAX);
        assert!(is_behind || guard.was_set_back(&token, 8, u64::MAX));
    }
    let note = Note { token: token.clone(), epoch: 3, position: 9 };
    guard.refresh(&disk, note, 1_000_000, 10).expect("a disk in memory has room");
    let guard = Guard::read(&disk, folder).expect("a disk in memory is read");
    assert!(!guard.is_missing() && !guard.was_set_back(&token, 3, 9));
    assert!(guard.was_set_back(&token, 3, 8) && guard.was_set_back(&token, 4, 9));
}
