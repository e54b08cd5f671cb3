//! Writes the golden files of format version 1: `cargo run -p alluvium-journal --example write_golden`.
//!
//! Once a version is released, its files never change again. A change of format gets a new version, a new folder and
//! new files; the old ones stay, for as long as the old version can be read.

#[path = "../tests/golden/content.rs"]
mod content;

use std::path::Path;

use alluvium_env::{Disk, OpenMode, RealDisk};

fn main() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1");
    let disk = RealDisk;
    disk.create_dir_all(&dir).expect("the folder of the golden files");
    for (name, bytes) in content::files() {
        let path = dir.join(name);
        if disk.exists(&path).expect("a readable folder") {
            disk.remove(&path).expect("a removed file");
        }
        let file = disk.open(&path, OpenMode::CreateNew).expect("a new file");
        file.write_all_at(&[&bytes], 0).expect("a written file");
    }
}
