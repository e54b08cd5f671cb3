//! Whose directory it is.

use std::fs;

use super::*;

/// What is in a directory, as paths that end with `/` or are files, and what of it is in the way.
const TABLE: &[(&[&str], Option<&str>)] = &[
    (&[], None),
    (&["lost+found/"], None),
    (&["x"], Some("")),
    (&["other/"], Some("")),
    (&["lost+found/", ".hidden"], Some("")),
    // Whatever a signal or the end of power left of a beginning.
    (&["meta/"], None),
    (&["segments/"], None),
    (&["meta.unfinished", "meta/"], None),
    (&["meta.unfinished", "meta/lock", "meta/0.jnl"], None),
    (&["meta/version", "meta/keyspaces/0/x", "segments/"], None),
    (&["meta/version", "segments/LOCK"], None),
    // One of every age, with a note of its operator.
    (&["meta/lock", "meta/version", "segments/LOCK", "segments/seg_0000000000.jss"], None),
    (&["meta/lock", "segments/pending.log", "segments/note", "meta/note", "note"], None),
    (&["segments/seg_0000000001.jss"], None),
    (&["segments/foo"], Some("segments")),
    (&["segments/seg_1.jss"], Some("segments")),
    (&["segments/segments/LOCK"], Some("segments")),
    (&["meta/foo"], Some("meta")),
    (&["meta/foo", "segments/LOCK"], Some("meta")),
    (&["meta/lock", "segments/foo"], Some("segments")),
    (&["meta/", "segments/foo"], Some("segments")),
];

#[test]
#[expect(clippy::disallowed_methods, reason = "it makes what a stranger could have made")]
fn a_directory_is_taken_if_it_is_empty_or_has_something_of_a_jetstream_in_each_of_its_folders() {
    let env = Env::real();
    let temporary = tempfile::tempdir().expect("a directory");
    let root = temporary.path();
    for (number, (paths, in_the_way)) in TABLE.iter().enumerate() {
        let dir = root.join(number.to_string());
        fs::create_dir_all(&dir).expect("a directory");
        for path in *paths {
            let path = dir.join(path);
            if path.to_string_lossy().ends_with('/') {
                fs::create_dir_all(path).expect("a directory");
            } else {
                fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
                fs::write(path, "x").expect("a file");
            }
        }
        let found = match check_own(&env, &dir) {
            Ok(()) => None,
            Err(StartError::Foreign(path) | StartError::ForeignPart(path)) => Some(path),
            Err(error) => panic!("{paths:?}: {error}"),
        };
        let expected = in_the_way.map(|part| if part.is_empty() { dir.clone() } else { dir.join(part) });
        assert_eq!(found, expected, "{paths:?}");
    }
    check_own(&env, &root.join("none")).expect("it is made");
    let file = root.join("file");
    fs::create_dir_all(&file).expect("a directory");
    fs::write(file.join("meta"), "x").expect("a file");
    assert!(matches!(check_own(&env, &file), Err(StartError::Directory { .. })));
}
