//! Where webhooks may go, over real sockets: private addresses in all spellings, names that change, redirects, answers
//! that never end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use alluvium_subscriptions::{
    Delivery, Failure, HttpTransport, Names, Outcome, TargetError, Transport as _, check_target,
};

#[test]
fn what_a_url_says_decides_before_anything_is_looked_up() {
    use TargetError::{Address, Loopback, Scheme, Url, User};
    for (url, without_flag, with_flag) in [
        ("https://worker.example/hooks", Ok(()), Ok(())),
        ("https://worker.example:8443/hooks?a=b", Ok(()), Ok(())),
        ("https://8.8.8.8/", Ok(()), Ok(())),
        ("https://[2606:4700:4700::1111]/", Ok(()), Ok(())),
        ("http://worker.example/hooks", Err(Scheme), Err(Scheme)),
        ("http://8.8.8.8/", Err(Scheme), Err(Scheme)),
        ("ftp://worker.example/", Err(Scheme), Err(Scheme)),
        ("file:///etc/passwd", Err(Url), Err(Url)),
        ("worker.example/hooks", Err(Url), Err(Url)),
        ("/hooks", Err(Url), Err(Url)),
        ("", Err(Url), Err(Url)),
        ("https://", Err(Url), Err(Url)),
        ("https:///hooks", Err(Url), Err(Url)),
        ("https://worker.example/a b", Err(Url), Err(Url)),
        ("https://user@worker.example/", Err(User), Err(User)),
        ("https://user:pass@127.0.0.1/", Err(User), Err(User)),
        ("http://localhost/h", Err(Loopback), Ok(())),
        ("http://LOCALHOST:80/h", Err(Loopback), Ok(())),
        ("http://localhost./h", Err(Loopback), Ok(())),
        ("http://a.localhost/h", Err(Loopback), Ok(())),
        ("https://localhost/h", Err(Loopback), Ok(())),
        ("http://127.0.0.1:9/h", Err(Loopback), Ok(())),
        ("http://127.9.9.9/h", Err(Loopback), Ok(())),
        ("http://[::1]/h", Err(Loopback), Ok(())),
        ("http://[::ffff:127.0.0.1]/h", Err(Loopback), Ok(())),
        ("http://10.0.0.1/hook", Err(Address), Err(Address)),
        ("https://10.0.0.1/hook", Err(Address), Err(Address)),
        ("https://172.16.0.1/", Err(Address), Err(Address)),
        ("https://192.168.1.1/", Err(Address), Err(Address)),
        ("https://100.64.0.1/", Err(Address), Err(Address)),
        ("https://169.254.169.254/latest/meta-data/", Err(Address), Err(Address)),
        ("https://0.0.0.0/", Err(Address), Err(Address)),
        ("https://224.0.0.1/", Err(Address), Err(Address)),
        ("https://[fd00:ec2::254]/", Err(Address), Err(Address)),
        ("https://[fe80::1]/", Err(Address), Err(Address)),
        ("https://[ff02::1]/", Err(Address), Err(Address)),
        ("https://[::]/", Err(Address), Err(Address)),
        ("https://[::ffff:10.0.0.1]/", Err(Address), Err(Address)),
        ("https://[64:ff9b::10.0.0.1]/", Err(Address), Err(Address)),
        ("https://[2002:a00:1::]/", Err(Address), Err(Address)),
    ] {
        assert_eq!(check_target(url, false), without_flag, "{url}");
        assert_eq!(check_target(url, true), with_flag, "{url} with --webhook-loopback");
    }
}

/// Names that lead where the test says, one answer after the other; the last one stays.
#[derive(Debug)]
struct Told {
    answers: Vec<Vec<IpAddr>>,
    asked: AtomicUsize,
}

impl Told {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let parse = |text: &&str| text.parse().unwrap();
        let answers = answers.iter().map(|answer| answer.iter().map(parse).collect()).collect();
        Arc::new(Self { answers, asked: AtomicUsize::new(0) })
    }
}

impl Names for Told {
    fn look_up(&self, _host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
        let at = self.asked.fetch_add(1, Ordering::SeqCst).min(self.answers.len() - 1);
        Ok(self.answers[at].iter().map(|address| SocketAddr::new(*address, port)).collect())
    }
}

/// A server that answers each connection with the next of these, its port, and the bodies that it was sent.
fn server(answers: Vec<Vec<u8>>) -> (u16, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, received) = channel();
    thread::spawn(move || {
        for answer in answers {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                    break;
                }
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            if reader.read_exact(&mut body).is_err() {
                continue;
            }
            drop(sender.send((head, body)));
            drop(stream.write_all(&answer));
        }
    });
    (port, received)
}

fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
        .into()
}

fn webhook(url: &str) -> Delivery {
    Delivery::to(url, Duration::from_secs(5))
}

#[test]
fn a_name_that_leads_to_a_private_address_is_refused_at_the_connection() {
    let (port, received) = server(vec![answer("200 OK", "", "{}")]);
    for private in [
        "127.0.0.1",
        "10.0.0.1",
        "192.168.0.1",
        "172.20.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fd00:ec2::254",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b::169.254.169.254",
        "2002:7f00:1::",
    ] {
        for answers in [&[private][..], &["8.8.8.8", private], &[private, "8.8.8.8"]] {
            for allow_loopback in [false, true] {
                let transport = HttpTransport::with_names(allow_loopback, Told::new(&[answers]));
                let outcome = transport.send(&webhook(&format!("https://worker.example:{port}/")));
                assert_eq!(outcome, Outcome::Failed(Failure::Address), "{answers:?} {allow_loopback}");
            }
        }
    }
    assert!(received.try_recv().is_err(), "nobody was connected to");
}

#[test]
fn a_name_is_looked_up_for_each_connection_and_the_one_that_was_checked_is_used() {
    // A name that is public when it is looked at, and private when it counts: there is one look, which counts.
    let names = Told::new(&[&["192.0.2.1"], &["127.0.0.1"]]);
    let transport = HttpTransport::with_names(true, names.clone());
    for asked in 1..=3 {
        let outcome = transport.send(&webhook("https://rebinding.example/"));
        assert_eq!(outcome, Outcome::Failed(Failure::Address));
        assert_eq!(names.asked.load(Ordering::SeqCst), asked);
    }
    // The name of this machine leads to this machine only.
    let (port, received) = server(vec![answer("200 OK", "", "{}")]);
    let elsewhere = HttpTransport::with_names(true, Told::new(&[&["10.0.0.1"]]));
    let url = format!("http://localhost:{port}/");
    assert_eq!(elsewhere.send(&webhook(&url)), Outcome::Failed(Failure::Address));
    let here = HttpTransport::with_names(true, Told::new(&[&["127.0.0.1"]]));
    assert_eq!(here.send(&webhook(&url)), Outcome::Accepted { done: false });
    assert!(received.try_recv().is_ok());
}

#[test]
fn without_the_flag_nothing_on_this_machine_is_reached() {
    let (port, received) = server(vec![answer("200 OK", "", "{}")]);
    let transport = HttpTransport::new(false);
    for host in
        ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "127.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"]
    {
        for scheme in ["http", "https"] {
            let outcome = transport.send(&webhook(&format!("{scheme}://{host}:{port}/")));
            assert!(matches!(outcome, Outcome::Failed(_)), "{scheme}://{host}: {outcome:?}");
        }
    }
    // With it, spellings of addresses that only a resolver understands are not this machine's name.
    let transport = HttpTransport::new(true);
    for host in ["127.1", "2130706433", "0x7f.1", "0.0.0.0"] {
        let outcome = transport.send(&webhook(&format!("https://{host}:{port}/")));
        assert!(matches!(outcome, Outcome::Failed(_)), "{host}: {outcome:?}");
    }
    assert!(received.try_recv().is_err());
}

#[test]
fn redirects_are_not_followed() {
    let (inner, reached) = server(vec![answer("200 OK", "", "{}")]);
    for status in
        ["301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"]
    {
        let location = format!("location: http://127.0.0.1:{inner}/\r\n");
        let (port, _received) = server(vec![answer(status, &location, "")]);
        let outcome = HttpTransport::new(true).send(&webhook(&format!("http://127.0.0.1:{port}/")));
        assert_eq!(outcome, Outcome::Failed(Failure::Redirect), "{status}");
    }
    assert!(reached.try_recv().is_err());
}

#[test]
fn answers_are_told_apart() {
    let long = "x".repeat(70_000);
    for (answer, expected) in [
        (answer("200 OK", "", r#"{"done":true}"#), Outcome::Accepted { done: true }),
        (answer("200 OK", "", r#"{"done":"true"}"#), Outcome::Accepted { done: false }),
        (answer("204 No Content", "", ""), Outcome::Accepted { done: false }),
        (answer("202 Accepted", "", "thanks"), Outcome::Accepted { done: false }),
        (answer("400 Bad Request", "", ""), Outcome::Failed(Failure::Refused)),
        (answer("410 Gone", "", ""), Outcome::Failed(Failure::Refused)),
        (answer("500 Internal Server Error", "", r#"{"done":true}"#), Outcome::Failed(Failure::Error)),
        (answer("200 OK", "", &long), Outcome::Failed(Failure::Answer)),
        (b"nonsense\r\n\r\n".to_vec(), Outcome::Failed(Failure::Answer)),
    ] {
        let (port, received) = server(vec![answer.clone()]);
        let outcome = HttpTransport::new(true).send(&webhook(&format!("http://127.0.0.1:{port}/h?x=1")));
        assert_eq!(outcome, expected, "{}", String::from_utf8_lossy(&answer[..answer.len().min(80)]));
        let (head, body) = received.recv().unwrap();
        assert!(head.starts_with("POST /h?x=1 HTTP/1.1"), "{head}");
        assert!(head.to_ascii_lowercase().contains("webhook-signature: t=1,kid=ds_x,ed25519=y"), "{head}");
        assert_eq!(body, b"{}");
    }
}

#[test]
fn a_receiver_that_does_not_answer_is_given_up_on_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let delivery = Delivery::to(&url, Duration::from_millis(100));
    assert_eq!(HttpTransport::new(true).send(&delivery), Outcome::Failed(Failure::Timeout));
    drop(listener);
    assert_eq!(HttpTransport::new(true).send(&delivery), Outcome::Failed(Failure::Connection));
}
