//! Fuzz bodies for what keeps data: the manifest of a backup, and the write-ahead log of a database.

use std::path::Path;

use alluvium_env::sim::SimDisk;
use alluvium_env::{Disk as _, OpenMode};
use alluvium_feed_store::keep::{LogEnd, log_end};
use alluvium_server::keep::Manifest;

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 2] = [("keep_manifest", manifest), ("keep_log", log)];

/// The input is the file. What is read is written down in the same way, and names no file outside of the backup.
pub fn manifest(input: &[u8]) {
    let Ok(manifest) = Manifest::decode(input) else { return };
    assert_eq!(manifest.encode().as_bytes(), input);
    for file in &manifest.files {
        let leads_away = file.path.split('/').any(|part| part.is_empty() || part == "..");
        assert!(!leads_away, "{}", file.path);
    }
}

/// The input is the log. Its end is in it.
pub fn log(input: &[u8]) {
    let disk = SimDisk::new(1);
    let file = disk.open(Path::new("/log"), OpenMode::CreateNew).expect("a file of a disk in memory");
    file.write_all_at(&[input], 0).expect("a disk in memory has room");
    match log_end(file.as_ref()).expect("a disk in memory is read") {
        LogEnd::Whole => {}
        LogEnd::Torn(at) | LogEnd::Damaged(at) => assert!(at < input.len() as u64),
    }
}
