//! What happens to a space's files, and how it is noticed.

use std::fs;
use std::path::PathBuf;

use alluvium_feed_protocol::{Request, Response};

use crate::support::{Authority, append, block};

/// The folder of the only space.
pub(crate) fn folder(authority: &Authority) -> PathBuf {
    let entries = fs::read_dir(authority.folder.path()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect::<Vec<_>>().pop().expect("a space")
}

pub(crate) fn files(authority: &Authority) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = fs::read_dir(folder(authority)).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

pub(crate) fn put(files: &[(PathBuf, Vec<u8>)], wanted: &str) {
    for (path, bytes) in files.iter().filter(|(path, _)| path.to_str().unwrap().contains(wanted)) {
        #[expect(
            clippy::disallowed_methods,
            reason = "files are changed behind the back of the code under test"
        )]
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn a_clean_restart_keeps_token_and_positions() {
    let mut authority = Authority::new();
    let before = authority.append(append(vec![block("f", "a", 0, "x")]));
    authority.restart();
    let after = authority.append(append(vec![block("f", "a", 1, "x")]));
    assert_eq!((&after.server_token, &after.positions), (&before.server_token, &vec![2]));
}

#[test]
fn a_database_that_was_set_back_gets_a_new_token() {
    let mut authority = Authority::new();
    let before = authority.append(append(vec![block("f", "a", 0, "x")]));
    authority.restart();
    authority.after(0);
    authority.service().close();
    authority.service = None;
    let old = files(&authority);
    authority.start();
    authority.append(append(vec![block("f", "a", 1, "lost")]));
    authority.service().close();
    authority.service = None;
    put(&old, "space.sqlite");
    authority.start();
    let page = authority.after(0);
    assert_eq!(page.blocks.len(), 1);
    assert_ne!(page.server_token, before.server_token);
    let token = page.server_token;
    authority.restart();
    assert_eq!(authority.after(0).server_token, token);
}

#[test]
fn a_database_without_its_guard_counts_as_set_back() {
    let mut authority = Authority::new();
    let before = authority.append(append(vec![block("f", "a", 0, "x")]));
    authority.service().close();
    authority.service = None;
    #[expect(
        clippy::disallowed_methods,
        reason = "files are changed behind the back of the code under test"
    )]
    fs::remove_file(folder(&authority).join("guard")).unwrap();
    authority.start();
    assert_ne!(authority.after(0).server_token, before.server_token);
}

#[test]
fn a_folder_is_used_by_one_service_at_a_time() {
    let authority = Authority::new();
    let second = alluvium_feeds::Service::open(
        authority.folder.path(),
        alluvium_env::Env::real(),
        authority.options.clone(),
    );
    assert!(matches!(second, Err(alluvium_feeds::OpenError::Locked)));
}

#[test]
fn more_spaces_than_may_be_open_take_turns() {
    let mut options = Authority::new().options.clone();
    options.open_spaces_max = 2;
    let authority = Authority::with(options);
    let anyone = alluvium_feeds::Principal::anyone();
    let mut tokens = Vec::new();
    for round in 0..3 {
        for space in 0..5 {
            let space = crate::support::id(&format!("Space/{space}"));
            let request = Request::Append(append(vec![block("f", "a", round, "x")]));
            let answer = authority.service().handle_blocking(&anyone, &space, request, None);
            let Response::Append(response) = answer else { panic!("{answer:?}") };
            assert_eq!(response.positions, [round + 1]);
            tokens.push(response.server_token);
        }
    }
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), 5);
}

#[test]
fn a_guard_that_cannot_be_written_keeps_nobody_from_reading() {
    let mut authority = Authority::new();
    let before = authority.append(append(vec![block("f", "a", 0, "x")]));
    authority.service().close();
    authority.service = None;
    // What is written first when a guard is replaced, and can't be.
    let in_the_way = folder(&authority).join("guard.new");
    fs::create_dir(&in_the_way).unwrap();
    authority.start();
    assert_eq!(authority.after(0).server_token, before.server_token);
    // Appends go on too: the blocks themselves are safe.
    assert_eq!(authority.append(append(vec![block("f", "a", 1, "x")])).positions, [2]);
    authority.restart();
    assert_eq!(authority.after(0).blocks.len(), 2);
}
