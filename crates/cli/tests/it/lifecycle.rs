//! Starting, refusing to start, and stopping.

use std::time::Duration;

use super::support::{Cli, Events, Server, call, signal};

const TEXT: &str = "content-type: text/plain";

fn serve(address: &str, data: &std::path::Path) -> Cli {
    Cli::new("serve --listen").arg(address).arg("--data-dir").arg(data.to_str().unwrap())
}

#[test]
fn a_stop_ends_live_readers_cleanly_and_keeps_the_data() {
    let mut server = Server::start();
    call(server.address(), "PUT", "/v1/stream/s", &[TEXT], b"kept");
    let (_, mut events) = Events::subscribe(server.address(), "/v1/stream/s?offset=-1&live=sse");
    assert_eq!(events.next().unwrap().1, "kept");
    assert_eq!(events.next().unwrap().0, "control");
    std::thread::scope(|scope| {
        let poll = "/v1/stream/s?offset=now&live=long-poll";
        let (_, mut other) = Events::subscribe(server.address(), "/v1/stream/s?offset=now&live=sse");
        assert_eq!(other.next().unwrap().0, "control");
        let address = server.address().to_owned();
        let waiting = scope.spawn(move || std::panic::catch_unwind(|| call(&address, "GET", poll, &[], b"")));
        server.terminate();
        assert_eq!(events.next(), None);
        assert_eq!(other.next(), None);
        // The poll may have come too late to be accepted; if it was, it is answered.
        if let Ok(answer) = waiting.join().unwrap() {
            assert_eq!(answer.status, 204);
        }
    });
    assert_eq!(server.ended(), Some(0));
    server.restart();
    assert_eq!(call(server.address(), "GET", "/v1/stream/s", &[], b"").text(), "kept");
}

#[test]
fn a_start_says_what_it_found() {
    let mut server = Server::start_with("--shards 2");
    assert!(
        server.announced().contains("\nrecovered      0 streams (0 tables, 2 journal segments replayed) in ")
    );
    for stream in ["one", "two", "three"] {
        call(server.address(), "PUT", &format!("/v1/stream/{stream}"), &[TEXT], b"kept");
    }
    server.kill();
    server.restart();
    let announced = server.announced();
    assert!(
        announced.contains("\nrecovered      3 streams (0 tables, 2 journal segments replayed) in "),
        "{announced}"
    );
    assert!(announced.contains("\ndurability     fsync "), "{announced}");
    server.kill();
    server.restart_with("--durability os");
    assert!(server.announced().contains("\ndurability     os "));
}

#[test]
fn a_reader_that_does_not_finish_is_cut_at_the_deadline() {
    let mut server = Server::start_with("--shutdown-timeout 100ms");
    let mut unfinished = std::net::TcpStream::connect(server.address()).unwrap();
    std::io::Write::write_all(
        &mut unfinished,
        b"PUT /v1/stream/s HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\nexpect: 100-continue\r\n\r\n",
    )
    .unwrap();
    unfinished.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut proceed = [0; 12];
    std::io::Read::read_exact(&mut unfinished, &mut proceed).unwrap();
    assert_eq!(&proceed, b"HTTP/1.1 100");
    server.terminate();
    assert_eq!(server.ended(), Some(0));
}

#[test]
fn a_server_whose_announcement_nobody_reads_serves_all_the_same() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let data = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut server = serve(&address, data.path()).spawn_into(writer);
    Cli::stream(&format!("http://{address}"), "create a").run().ok();
    signal(&server, "TERM");
    assert!(server.wait().unwrap().success());
}

#[test]
fn a_port_in_use_is_told_with_its_own_exit_code() {
    let server = Server::start();
    let data = tempfile::tempdir().unwrap();
    let ended = serve(server.address(), data.path()).run();
    assert_eq!(ended.code, Some(69));
    assert!(ended.stderr.contains("is already in use"), "{}", ended.stderr);
    assert!(ended.stderr.contains("hint: "), "{}", ended.stderr);
    assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 0);
}

#[test]
fn a_data_directory_in_use_is_told_with_its_own_exit_code() {
    let server = Server::start();
    let ended = serve("127.0.0.1:0", server.data()).run();
    assert_eq!(ended.code, Some(75));
    assert!(ended.stderr.contains("in use by another process"), "{}", ended.stderr);
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let data = tempfile::tempdir().unwrap();
    std::fs::create_dir(data.path().join("photos")).unwrap();
    let ended = serve("127.0.0.1:0", data.path()).run();
    assert_eq!(ended.code, Some(65));
    assert!(ended.stderr.contains("not a data directory"), "{}", ended.stderr);
    assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 1);
}

/// What an older program says to a directory that a newer one has written: which version it would need, and it changes
/// nothing.
#[test]
#[expect(clippy::disallowed_methods, reason = "what a newer program would have written")]
fn a_directory_of_a_newer_version_is_refused_and_left_as_it_is() {
    let mut server = Server::start();
    call(server.address(), "PUT", "/v1/stream/s", &[TEXT], b"kept");
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    let format = server.data().join("FORMAT");
    let present = std::fs::read_to_string(&format).unwrap();
    assert!(present.contains("\nversion 1\n"), "{present}");
    let newer = present.replace("version 1\n", "version 2\nsomething that comes with it\n");
    std::fs::write(&format, &newer).unwrap();
    let names = |dir: &std::path::Path| {
        let mut names: Vec<_> =
            std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names(server.data());
    let ended = serve("127.0.0.1:0", server.data()).run();
    assert_eq!(ended.code, Some(65));
    assert!(ended.stderr.contains("has format version 2; this program knows version 1"), "{}", ended.stderr);
    assert_eq!(std::fs::read_to_string(&format).unwrap(), newer);
    assert_eq!(names(server.data()), before);
    // Back with what wrote it, everything is there.
    std::fs::write(&format, present).unwrap();
    server.restart();
    assert_eq!(call(server.address(), "GET", "/v1/stream/s?offset=-1", &[], b"").text(), "kept");
}

#[test]
fn health_is_an_exit_code() {
    let mut server = Server::start();
    let health = || Cli::new("health --url").arg(&format!("http://{}", server.address())).run();
    let ready = health();
    assert_eq!((ready.code, String::from_utf8_lossy(&ready.stdout).trim()), (Some(0), "ready"));
    server.terminate();
    assert_eq!(server.ended(), Some(0));
    let health = Cli::new("health --url").arg(&format!("http://{}", server.address())).run();
    assert_eq!(health.code, Some(7));
    assert!(health.stderr.contains("/readyz"), "{}", health.stderr);
}
