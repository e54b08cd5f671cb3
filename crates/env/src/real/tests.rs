//! The real disk in a temporary directory.

use super::*;

#[test]
fn many_buffers_land_one_after_another() {
    let dir = tempfile::tempdir().unwrap();
    let file = RealDisk.open(&dir.path().join("a"), OpenMode::CreateNew).unwrap();
    let pieces: Vec<Vec<u8>> = (0..3000u32).map(|n| n.to_le_bytes()[..(n % 4) as usize].to_vec()).collect();
    let bufs: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
    file.write_all_at(&bufs, 7).unwrap();
    let expected = pieces.concat();
    assert_eq!(file.len().unwrap(), 7 + expected.len() as u64);
    let mut found = vec![0; expected.len()];
    file.read_exact_at(&mut found, 7).unwrap();
    assert_eq!(found, expected);
}

#[test]
fn filling_leaves_zeros_of_the_exact_length() {
    let dir = tempfile::tempdir().unwrap();
    let file = RealDisk.open(&dir.path().join("a"), OpenMode::CreateNew).unwrap();
    let len = ZERO_PIECE_BYTES as u64 + 13;
    file.write_all_at(&[b"old"], 5).unwrap();
    file.fill_zero(len).unwrap();
    assert_eq!(file.len().unwrap(), len);
    let mut head = [1; 16];
    file.read_exact_at(&mut head, 0).unwrap();
    assert_eq!(head, [0; 16]);
}

#[test]
fn a_read_past_the_end_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = RealDisk.open(&dir.path().join("a"), OpenMode::CreateNew).unwrap();
    let error = file.read_exact_at(&mut [0; 4], 0).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_lock_is_exclusive_until_it_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let first = RealDisk.lock(&path).unwrap();
    assert!(first.is_some());
    assert!(RealDisk.lock(&path).unwrap().is_none());
    drop(first);
    assert!(RealDisk.lock(&path).unwrap().is_some());
}

#[test]
fn folders_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let given = dir.path().join("given");
    fs::create_dir(&given).unwrap();
    fs::set_permissions(&given, fs::Permissions::from_mode(0o750)).unwrap();
    RealDisk.create_dir_all(&given.join("x/y")).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode(&given.join("x")), mode(&given.join("x/y"))], [0o700, 0o700]);
    // What somebody else has made is as that wants it.
    assert_eq!(mode(&given), 0o750);
}

#[test]
fn names_are_created_listed_renamed_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("x/y");
    RealDisk.create_dir_all(&deep).unwrap();
    RealDisk.create_dir_all(&deep).unwrap();
    for name in ["b", "a"] {
        RealDisk.open(&deep.join(name), OpenMode::CreateNew).unwrap();
    }
    assert_eq!(RealDisk.list(&deep).unwrap(), ["a", "b"]);
    RealDisk.rename(&deep.join("b"), &deep.join("c")).unwrap();
    RealDisk.remove(&deep.join("a")).unwrap();
    RealDisk.sync_dir(&deep).unwrap();
    assert_eq!(RealDisk.list(&deep).unwrap(), ["c"]);
    assert!(!RealDisk.exists(&deep.join("b")).unwrap());
    let taken = RealDisk.open(&deep.join("c"), OpenMode::CreateNew).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
}

#[test]
fn the_space_of_a_disk_is_told_and_that_of_nothing_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let space = RealDisk.space(dir.path()).unwrap().unwrap();
    assert!(space.free <= space.total && space.total > 0, "{space:?}");
    RealDisk.space(&dir.path().join("missing")).unwrap_err();
}

#[test]
fn what_is_no_regular_file_is_never_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (fifo, socket) = (dir.path().join("fifo"), dir.path().join("socket"));
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let linked = dir.path().join("link");
    std::os::unix::fs::symlink(&fifo, &linked).unwrap();
    for path in [&fifo, &socket, &linked, dir.path(), Path::new("/dev/zero")] {
        for mode in [OpenMode::Read, OpenMode::ReadWrite] {
            let refused = RealDisk.open(path, mode).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{} {mode:?}", path.display());
        }
        let refused = RealDisk.lock(path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{}", path.display());
    }
    // A second name of a file of ours is one.
    let file = dir.path().join("file");
    RealDisk.open(&file, OpenMode::CreateNew).unwrap();
    let linked = dir.path().join("linked-file");
    std::os::unix::fs::symlink(&file, &linked).unwrap();
    assert!(RealDisk.open(&linked, OpenMode::Read).is_ok());
}
