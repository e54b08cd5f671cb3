//! Keys of a URL, over a server that fails when told.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use alluvium_env::sim::ManualClock;
use alluvium_env::{OsRandom, RealDisk};

use super::*;
use crate::refusal::Rejected;
use crate::routes::{Asked, Need};
use crate::{Access, Doors, Options, Scope};

const SET: &str = include_str!("../../../../fuzz/seeds/access_keys/set.json");
const EDDSA: &str = include_str!("../../../../fuzz/seeds/access_jwt/eddsa");

/// Answers each connection with the next of some answers, and the last one again and again.
fn serve(answers: Vec<String>) -> (String, Arc<Mutex<usize>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut head = [0; 4096];
            let _ = connection.read(&mut head).unwrap();
            let mut asked = count.lock();
            let answer = &answers[(*asked).min(answers.len() - 1)];
            *asked += 1;
            connection.write_all(answer.as_bytes()).unwrap();
        }
    });
    (url, asked)
}

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

fn ok(body: &str) -> String {
    answer("200 OK", body)
}

fn fetched(url: String) -> Result<KeySet, FetchError> {
    fetch(&RealDisk, &KeyUrl { url, authority: None }, Duration::from_secs(KEYS_TIMEOUT_S))
}

#[test]
fn keys_are_fetched_as_they_are_or_not_at_all() {
    assert_eq!(fetched(serve(vec![ok(SET)]).0).unwrap().len(), 3);
    let moved = answer("302 Found\r\nlocation: http://127.0.0.1:1/", "");
    let long = ok(&format!("{{\"keys\":[{}", " ".repeat(usize::try_from(KEYS_BYTES_MAX).unwrap())));
    for bad in [answer("404 Not Found", SET), answer("500 Oh", SET), moved, ok("{}"), ok("<html>"), long] {
        fetched(serve(vec![bad.clone()]).0).expect_err(&bad[..60.min(bad.len())]);
    }
    fetched("http://127.0.0.1:1/".to_owned()).unwrap_err();
}

/// Who is let in by keys of this URL, with a thread that keeps up with them.
fn access(url: &str) -> (Access, Arc<ManualClock>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.toml");
    let text = format!(
        "[[issuer]]\nissuer = \"https://id.example\"\naudience = \"alluvium\"\nkeys = \"{url}\"\nscopes = [\"read\"]\n"
    );
    #[expect(clippy::disallowed_methods, reason = "what an operator does by other means")]
    std::fs::write(&path, text).unwrap();
    let clock = Arc::new(ManualClock::new(1_800_000_000_000));
    let env = Env { clock: clock.clone(), random: Arc::new(OsRandom), disk: Arc::new(RealDisk) };
    let options = Options { file: Some(path), is_open: false, ..Options::open(Doors::Server) };
    (Access::start(options, env).unwrap(), clock, folder)
}

fn decided(access: &Access) -> Result<(), crate::refusal::Refusal> {
    let need = Need { asked: Asked::Scope(Scope::Read), place: "/x".to_owned(), reads: None };
    access.decide(Some(EDDSA), &need).map(drop)
}

fn until(what: impl Fn() -> bool) {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    for _ in 0..2000 {
        if what() {
            return;
        }
        // A pause that nothing ends.
        let _ = receiver.recv_timeout(Duration::from_millis(5));
    }
    drop(sender);
    panic!("it did not come to that");
}

#[test]
fn a_request_waits_for_no_fetch_and_keys_that_cannot_be_fetched_again_stay() {
    let (url, asked) = serve(vec![answer("500 Oh", ""), ok(SET), answer("500 Oh", ""), ok("{\"keys\":[]}")]);
    let (access, clock, _folder) = access(&url);
    // The first fetch fails. Until the next may begin, more questions are not worth waiting for.
    until(|| access.counts().key_failures == 1);
    until(|| decided(&access) == Err(Rejected::Jwt(crate::jwt::InvalidJwt::UnknownKey).into()));
    assert_eq!(*asked.lock(), 1);
    // Then one question has it fetched, and is told to come again.
    clock.advance_ms(KEYS_RETRY_S * 1000);
    assert_eq!(decided(&access), Err(Rejected::KeysPending.into()));
    until(|| decided(&access).is_ok());
    assert_eq!(*asked.lock(), 2);
    // What fails afterwards changes nothing.
    for failures in [2, 3] {
        clock.advance_ms(KEYS_RETRY_S * 1000);
        let _ = access.inner().ask_for_keys(&KeySource::Url(KeyUrl { url: url.clone(), authority: None }));
        until(|| access.counts().key_failures == failures);
        assert_eq!(decided(&access), Ok(()));
    }
    assert_eq!((access.counts().key_loads, *asked.lock()), (1, 4));
}

#[test]
fn keys_that_could_not_be_fetched_for_a_day_are_not_used_any_more() {
    let (url, _) = serve(vec![ok(SET), answer("500 Oh", "")]);
    let (access, _clock, _folder) = access(&url);
    until(|| decided(&access).is_ok());
    let inner = access.inner();
    let (sender, _messages) = std::sync::mpsc::channel();
    let mut keeper = Keeper::new(Weak::new(), sender);
    for _ in 0..KEYS_STALE_S {
        keeper.look(inner);
    }
    assert_eq!(decided(&access), Ok(()));
    keeper.look(inner);
    assert!(decided(&access).is_err());
}

#[test]
fn a_file_is_taken_over_once_it_is_the_same_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    #[expect(clippy::disallowed_methods, reason = "what an operator does by other means")]
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    let mut watched = Watched::default();
    let mut look = || watched.look(&RealDisk, &path, 10);
    assert_eq!(look(), None, "it is not there");
    write("one");
    assert_eq!((look(), look(), look()), (None, Some(b"one".to_vec()), None));
    write("two");
    assert_eq!(look(), None);
    write("three");
    assert_eq!((look(), look()), (None, Some(b"three".to_vec())));
    write("longer than that");
    assert_eq!((look(), look()), (None, None));
    write("three");
    assert_eq!((look(), look()), (None, None), "nothing has changed");
}
