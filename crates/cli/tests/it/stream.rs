//! `alluvium stream` against `alluvium serve`: what goes in comes out, once, over restarts too.

use std::io::{BufRead, BufReader, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Cli, Ended, Server, json_lines, signal};

/// Numbers followed between two kills of the server.
const ROUND: u32 = 5_000;

#[test]
fn bytes_come_out_as_they_went_in() {
    let server = Server::start();
    let bytes: Vec<u8> = (0..5_000_003_u32).map(|index| (index * 31 % 251) as u8).collect();
    let appended = server.stream("append blob --create").run_with(&bytes);
    let read = server.stream("read blob").run();
    assert!(read.stdout == bytes, "{} of {} bytes", read.stdout.len(), bytes.len());
    assert_eq!(read.next_offset(), appended.next_offset());
}

#[test]
fn a_read_goes_on_from_the_offset_that_the_last_one_printed() {
    let server = Server::start();
    server.stream("append log --create --content-type text/plain").run_with(b"one\n").ok();
    let first = server.stream("read log").run();
    let offset = first.next_offset();
    assert_eq!(first.ok(), "one\n");
    server.stream("append log --lines").run_with(b"two\nthree\n").ok();
    let second = server.stream("read log --offset").arg(&offset).run();
    assert_ne!(second.next_offset(), offset);
    assert_eq!(second.ok(), "two\nthree\n");
    assert_eq!(server.stream("read log --offset now").run().ok(), "");
}

#[test]
fn json_messages_stay_apart() {
    let server = Server::start();
    server.stream("create j --content-type application/json").run().ok();
    server.stream("append j --lines").run_with(b"{\"a\":1}\n\n[1,2]\n").ok();
    server.stream("append j").run_with(b"[3,{\"b\":4}] \"x\"").ok();
    server.stream("append j --message 5 -m [6,7]").run().ok();
    assert_eq!(server.stream("read j").run().ok(), "[{\"a\":1},[1,2],3,{\"b\":4},\"x\",5,6,7]\n");
    let lines = server.stream("read j --json-lines -q").run();
    assert_eq!(lines.stderr, "");
    assert_eq!(lines.ok(), "{\"a\":1}\n[1,2]\n3\n{\"b\":4}\n\"x\"\n5\n6\n7\n");
    let bad = server.stream("append j --lines").run_with(b"8\n9,10\n");
    let (offset, shown) = (bad.next_offset(), bad.fails_with(1));
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "appended: 1 line of the input");
    assert_eq!(lines[1], format!("next offset: {offset} (reached before the error below)"));
    assert!(lines[2].starts_with("error: standard input: line 2, column 2: not one JSON value"), "{shown}");
    assert_eq!(offset, server.stream("read j").run().next_offset());
    assert!(server.stream("read j").run().ok().ends_with(",7,8]\n"));
}

#[test]
fn a_pipe_is_appended_and_followed_live_until_it_closes() {
    let server = Server::start();
    for mode in ["", " --long-poll"] {
        server.stream("rm -f chat").run().ok();
        server.stream("create chat --content-type text/plain").run().ok();
        let mut append = server.stream("append chat --close").spawn();
        let mut stdin = append.stdin.take().unwrap();
        let mut tail = server.stream(&format!("tail chat --offset -1{mode}")).spawn();
        let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
        for line in ["first", "second", "third"] {
            writeln!(stdin, "{line}").unwrap();
            // The next is written only once this one has come all the way round.
            assert_eq!(lines.next().unwrap().unwrap(), line);
        }
        drop(stdin);
        assert!(append.wait().unwrap().success());
        assert!(lines.next().is_none());
        assert!(tail.wait().unwrap().success());
    }
}

#[test]
fn a_tail_that_is_stopped_says_where_to_go_on() {
    let server = Server::start();
    server.stream("create chat --content-type text/plain").run().ok();
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        for mode in ["", " --long-poll"] {
            let from = server.stream("read chat").run().next_offset();
            let mut tail = server.stream(&format!("tail chat{mode} --offset")).arg(&from).spawn();
            server.stream("append chat").run_with(b"seen\n").ok();
            let mut line = [0; 5];
            std::io::Read::read_exact(tail.stdout.as_mut().unwrap(), &mut line).unwrap();
            signal(&tail, name);
            let ended = Ended::of(tail);
            assert_eq!((ended.code, ended.stdout.as_slice()), (Some(code), &b""[..]), "{}", ended.stderr);
            server.stream("append chat").run_with(b"unseen\n").ok();
            let rest = server.stream("read chat --offset").arg(&ended.next_offset()).run();
            assert_eq!(rest.ok(), "unseen\n", "{name}{mode}");
        }
    }
}

#[test]
fn a_tail_whose_reader_has_gone_ends_though_nothing_comes() {
    let server = Server::start();
    server.stream("append chat --create --content-type text/plain").run_with(b"first\n").ok();
    let mut tail = server.stream("tail chat --offset -1").spawn();
    let mut line = [0; 6];
    std::io::Read::read_exact(tail.stdout.as_mut().unwrap(), &mut line).unwrap();
    drop(tail.stdout.take());
    let ended = Ended::of(tail);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
}

#[test]
fn an_append_that_is_stopped_says_how_far_it_came() {
    let server = Server::start();
    server.stream("create log --content-type text/plain").run().ok();
    let mut append = server.stream("append log --lines").spawn();
    let mut stdin = append.stdin.take().unwrap();
    let mut tail = server.stream("tail log --offset -1").spawn();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    for line in ["first", "second"] {
        writeln!(stdin, "{line}").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), line);
    }
    write!(stdin, "unfinished").unwrap();
    signal(&append, "INT");
    let ended = Ended::of(append);
    assert_eq!(ended.code, Some(130));
    assert!(ended.stderr.starts_with("appended: 2 lines of the input\nnext offset: "), "{}", ended.stderr);
    assert_eq!(ended.next_offset(), server.stream("read log").run().next_offset());
    signal(&tail, "INT");
    tail.wait().unwrap();
}

#[test]
fn what_is_stopped_before_anything_has_come_says_where_to_go_on_too() {
    let server = Server::start();
    server.stream("append log --create --content-type text/plain").run_with(b"before\n").ok();
    let tail = server.stream("read log").run().next_offset();
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let append = server.stream("append log").spawn();
        // Its input stays open, and has nothing. It has asked where the stream ends once it says that.
        let ended = interrupted_when_waiting(append, name);
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        assert_eq!(ended.next_offset(), tail, "{}", ended.stderr);
    }
    // A server that cannot be reached: the offset that was asked for is as good as any.
    for command in ["tail", "read"] {
        let lost = Cli::stream("http://127.0.0.1:1", &format!("{command} log --offset")).arg(&tail).spawn();
        let ended = interrupted_when_waiting(lost, "INT");
        assert_eq!((ended.code, ended.next_offset()), (Some(130), tail.clone()), "{}", ended.stderr);
    }
    let empty = server.stream("append log").run_with(b"");
    assert!(empty.stderr.contains("nothing appended"), "{}", empty.stderr);
    assert!(!empty.stderr.contains("next offset"), "{}", empty.stderr);
    empty.ok();
}

/// Stops a command that waits: signals it again and again until it has been ready for one and ends.
fn interrupted_when_waiting(mut command: std::process::Child, name: &str) -> Ended {
    // Open to its end.
    let _stdin = command.stdin.take();
    let pid = command.id();
    // Once it catches the signal it is past its start; before that, the signal would end it without a word.
    let mask = if name == "INT" { 1_u64 << 1 } else { 1 << 14 };
    loop {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        if u64::from_str_radix(caught.trim(), 16).unwrap() & mask != 0 {
            break;
        }
        std::thread::yield_now();
    }
    signal(&command, name);
    Ended::of(command)
}

#[test]
fn kills_in_the_middle_of_a_piped_append_leave_each_message_exactly_once() {
    let mut server = Server::start();
    server.stream("create n --content-type application/json").run().ok();
    let mut append = server.stream("append n --lines --close").spawn();
    let mut tail = server.stream("tail n --offset -1").spawn();
    let mut stdin = append.stdin.take().unwrap();
    let enough = AtomicBool::new(false);
    let url = server.url();
    let written = std::thread::scope(|scope| {
        // Writes without a pause, so that an append is on its way whenever the server dies.
        let writer = scope.spawn(|| {
            let mut written = 0;
            while !enough.load(Ordering::Relaxed) {
                if stdin.write_all(json_lines(written..written + ROUND).as_bytes()).is_err() {
                    // The command has failed. The end of the stream fails the test, where silence hangs it.
                    Cli::stream(&url, "close n").run().ok();
                    break;
                }
                written += ROUND;
            }
            drop(stdin);
            written
        });
        let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
        let mut seen = 0;
        for kill in 1..=3 {
            while seen < kill * ROUND {
                assert_eq!(lines.next().unwrap().unwrap(), seen.to_string());
                seen += 1;
            }
            server.kill();
            server.restart();
        }
        enough.store(true, Ordering::Relaxed);
        for line in lines {
            assert_eq!(line.unwrap(), seen.to_string());
            seen += 1;
        }
        assert_eq!(writer.join().unwrap(), seen);
        seen
    });
    assert!(append.wait().unwrap().success());
    assert!(tail.wait().unwrap().success());
    let read = server.stream("read n --json-lines").run().ok();
    assert!(read == json_lines(0..written));
}

#[test]
fn states_have_their_exit_codes() {
    let server = Server::start();
    server.stream("read a").run().fails_with(3);
    let missing = format!("{}/v1/stream/a: 404 Not Found: no such stream", server.url());
    assert!(server.stream("head a").run().fails_with(3).contains(&missing));
    let shown = server.stream("append a -m x").run().fails_with(3);
    assert!(shown.contains(&missing) && shown.contains("--create"), "{shown}");
    server.stream("create a --content-type text/plain").run().ok();
    server.stream("create a --content-type text/plain").run().ok();
    server.stream("create a --content-type text/html").run().fails_with(4);
    server.stream("append a -m x --content-type text/html").run().fails_with(4);
    server.stream("read a --offset nonsense").run().fails_with(1);
    server.stream("fork a b").run().ok();
    server.stream("close a").run().ok();
    server.stream("close a").run().ok();
    assert!(server.stream("append a -m x").run().fails_with(4).contains("closed"));
    server.stream("rm a").run().ok();
    server.stream("read a").run().fails_with(5);
    server.stream("rm a").run().fails_with(5);
    server.stream("rm --force a b").run().ok();
    server.stream("rm b").run().fails_with(3);
    server.stream("read").run().fails_with(2);
    server.stream("read a --url nonsense").run().fails_with(2);
}

#[test]
fn a_producer_with_a_name_is_recognised_and_fenced() {
    let server = Server::start();
    server.stream("create p --content-type text/plain").run().ok();
    server.stream("append p --producer-id job -m a -m b").run().ok();
    let again = server.stream("append p --producer-id job -m a -m b -m c").run();
    for (message, told) in [(1, true), (2, true), (3, false)] {
        let note = format!("message {message} already appended: nothing written\n");
        assert_eq!(again.stderr.contains(&note), told, "{}", again.stderr);
    }
    assert!(again.stderr.contains("2 of 3 messages already appended: producer `job`"), "{}", again.stderr);
    again.ok();
    let shown = server.stream("append p --producer-id job").run_with(b"x").fails_with(4);
    assert!(shown.contains("nothing written") && shown.contains("higher --epoch"), "{shown}");
    server.stream("append p --producer-id job --epoch 1 -m d").run().ok();
    server.stream("append p --producer-id job -m e").run().fails_with(6);
    server.stream("append p --no-producer -m f").run().ok();
    assert_eq!(server.stream("read p").run().ok(), "abcdf");
}

#[test]
fn a_fork_shares_what_was_before_its_offset() {
    let server = Server::start();
    server.stream("append a --create --content-type application/json -m 1").run().ok();
    let offset = server.stream("read a").run().next_offset();
    server.stream("append a -m 2 -m 3").run().ok();
    server.stream("fork a whole").run().ok();
    server.stream("fork a early --offset").arg(&offset).run().ok();
    server.stream("fork a between --sub-offset 1 --offset").arg(&offset).run().ok();
    server.stream("append early -m 9").run().ok();
    for (stream, expected) in
        [("a", "[1,2,3]\n"), ("whole", "[1,2,3]\n"), ("early", "[1,9]\n"), ("between", "[1,2]\n")]
    {
        assert_eq!(server.stream("read").arg(stream).run().ok(), expected, "{stream}");
    }
}

#[test]
fn head_tells_what_create_asked_for() {
    let server = Server::start();
    server.stream("create a --content-type text/plain --ttl 1h --closed").run().ok();
    let head = server.stream("head a").run().ok();
    assert!(head.contains("closed:       yes") && head.contains("ttl:          3600 s"), "{head}");
    let json: serde_json::Value = serde_json::from_str(&server.stream("head a --json").run().ok()).unwrap();
    assert_eq!(json["content_type"], "text/plain");
    assert_eq!(json["closed"], true);
    assert_eq!(json["ttl_seconds"], 3600);
    assert_eq!(json["url"], format!("{}/v1/stream/a", server.url()));
    let by_url = Cli::stream("http://127.0.0.1:1", "head").arg(json["url"].as_str().unwrap()).run();
    assert_eq!(by_url.ok(), head);
}

#[test]
fn programs_get_each_outcome_as_json() {
    let server = Server::start();
    let outcome = |arguments: &str| -> serde_json::Value {
        serde_json::from_str(&server.stream(arguments).run().ok()).unwrap()
    };
    let made = outcome("create a --json --content-type text/plain");
    assert_eq!((&made["created"], &made["closed"]), (&true.into(), &false.into()));
    assert_eq!(made["url"], format!("{}/v1/stream/a", server.url()));
    assert_eq!(outcome("create a --json --content-type text/plain")["created"], false);
    let appended = outcome("append a --json --producer-id p -m x -m y");
    assert_eq!(appended["already_appended"], 0);
    assert_eq!(outcome("append a --json --producer-id p -m x -m y -m z")["already_appended"], 2);
    let forked = outcome("fork a b --json");
    let closed = outcome("close a --json");
    assert_eq!((&closed["next_offset"], &closed["closed"]), (&forked["next_offset"], &true.into()));
    let rest = server.stream("read a --offset").arg(appended["next_offset"].as_str().unwrap()).run();
    assert_eq!(rest.ok(), "z");
    let refused = server.stream("append a --json -m x").run();
    assert_eq!((refused.code, refused.stdout.as_slice()), (Some(4), &b""[..]));
}

#[test]
fn an_append_of_nothing_says_so() {
    let server = Server::start();
    server.stream("create a --content-type application/json").run().ok();
    let ended = server.stream("append a").run();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "standard input is empty: nothing appended\n"));
    let shown = server.stream("append a -m 1 -m [ -m 3").run().fails_with(1);
    assert!(shown.starts_with("appended: 1 message of the input\nnext offset: "), "{shown}");
    assert!(
        shown.contains("(reached before the error below)\nerror: ") && shown.contains("invalid_json"),
        "{shown}"
    );
    assert_eq!(server.stream("read a").run().ok(), "[1]\n");
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let server = Server::start();
    server.stream("append a --create").run_with(&vec![b'x'; 4_000_000]).ok();
    let mut read = server.stream("read a").spawn();
    drop(read.stdout.take());
    let output = read.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(!String::from_utf8(output.stderr).unwrap().contains("error"));
}

#[test]
fn the_help_of_a_command_says_how_it_cuts_prints_and_follows() {
    for (command, part) in [
        ("append", "a JSON stream, --lines"),
        ("append", "already appended: nothing written"),
        ("read", "The next offset is printed on standard error"),
        ("tail", "--long-poll delivers every byte as it was appended."),
    ] {
        let help = Cli::new(&format!("stream {command} --help")).run().ok();
        let words: Vec<&str> = help.split_whitespace().collect();
        let part: Vec<&str> = part.split_whitespace().collect();
        assert!(words.join(" ").contains(&part.join(" ")), "{part:?}: {help}");
        let (own, shared) = help.split_once("Options of every stream, bucket and feed command:").unwrap();
        assert!(shared.contains("--give-up-after") && !own.contains("--give-up-after"), "{help}");
    }
}

#[test]
fn the_exit_codes_are_in_the_help() {
    let help = Cli::new("stream --help").run().ok();
    for code in (0..=8).chain([130, 143]) {
        assert!(help.contains(&format!("\n{code:>5}  ")), "{code} is missing in {help}");
    }
}

#[test]
fn a_flag_that_is_no_offset_or_no_time_is_named() {
    let server = Server::start();
    server.stream("create a --content-type text/plain").run().ok();
    for (arguments, flag, code) in [
        ("fork a b --offset -1", "--offset", 2),
        ("fork a b --offset now", "--offset", 2),
        ("fork a b --offset nonsense", "--offset", 1),
        ("create b --expires-at tomorrow", "--expires-at", 2),
        ("create b --expires-at 2030-01-31T12:00:00", "--expires-at", 2),
    ] {
        let told = server.stream(arguments).run().fails_with(code);
        assert!(told.contains(flag), "{arguments}: {told}");
    }
    server.stream("create b --expires-at 2999-01-31T12:00:00+01:00").run().ok();
}
