//! One request that brings a client up to date: what is in it, byte for byte, and while others write.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use super::api::{Api, BYTES, JSON, has, refused};
use super::cover::Suite;
use super::events::{Events, Subscription};
use super::multipart::{Bootstrap, Part};
use super::snapshots::ZERO;
use crate::random::Random;

/// Random messages of the long comparison.
const MESSAGES: usize = 1_000;
/// Bootstraps taken while others append and publish.
const CUTS: usize = 100;

pub(super) fn run(suite: &mut Suite<'_>, address: SocketAddr) {
    let mut api = Api::new(address);
    let Ok(bucket) = api.bucket("bootstraps") else {
        return suite.check("BS-1", "a bucket for the checks", || bail!("cannot be made"));
    };
    let mut check = |ids: &str, name: &str, body: fn(&mut Api, &str) -> Result<()>| {
        let path = format!("{bucket}/{}", ids.replace([' ', '#'], "_"));
        suite.check(ids, name, || body(&mut api, &path));
    };
    check("BS-1 BS-2 BS-3 BS-4 BS-5 #35 #45", "without a snapshot", without_snapshot);
    check("BS-3 BS-4 #36", "with a snapshot", with_snapshot);
    check("BS-6 #37", "live modes are refused, other parameters ignored", live);
    check("BS-12 #38", "an empty stream is one empty part, byte for byte", empty);
    check("BS-14 BS-16", "JSON messages come without array, separator or line end", json);
    check("BS-11 BS-12 #40", "no payload forges a part, boundaries are never the same twice", hostile);
    check("BS-15 #44", "a closed stream says so", closed);
    check("BS-1 #43", "without the stream", missing);
    check("BS-8", "where reads are gone, bootstrap covers the floor", covers);
    check("BS-9 #41", "continued over SSE while a writer runs, nothing is lost or repeated", continued);
    check("BS-9", "continued by long-poll", continued_by_long_poll);
    check("BS-10 #42", "bootstraps during appends and publications are consistent cuts", cuts);
    check("BS-13", "a long one ends early at a message, and reads go on from there", early_end);
    check("SSE-1", "binary SSE is plain base64, and says so", sse_encoding);
    check("#39", "1,000 random messages come back apart", random_messages);
}

fn without_snapshot(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc", b"de"])?;
    let response = api.get(&format!("{path}/bootstrap"))?.expect(&[200], "bootstrap")?;
    has(&response, "stream-snapshot-offset", Some("-1"))?;
    has(&response, "stream-next-offset", Some(&x[2]))?;
    has(&response, "stream-up-to-date", Some("true"))?;
    has(&response, "stream-closed", None)?;
    has(&response, "cache-control", Some("no-store"))?;
    let bootstrap = Bootstrap::parse(&response)?;
    ensure!(bootstrap.snapshot.header("content-type") == Some(BYTES), "the first part's type");
    ensure!(bootstrap.snapshot.body.is_empty(), "the first part's bytes");
    ensure!(bootstrap.bodies() == [&b"abc"[..], b"de"], "the messages");
    ensure!(bootstrap.messages.iter().all(|part| part.header("content-type") == Some(BYTES)), "types");
    let head = api.head(&format!("{path}/bootstrap"))?.expect(&[200], "head")?;
    has(&head, "stream-next-offset", Some(&x[2]))
}

fn with_snapshot(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc", b"de", b"fgh"])?;
    api.published(path, &x[1], b"superseded")?;
    api.publish(path, &x[2], &[("content-type", "text/x-fold")], b"abcde folded")?
        .expect(&[204], "publish")?;
    let bootstrap = api.bootstrap(path)?;
    ensure!(bootstrap.snapshot_offset == x[2] && bootstrap.next_offset == x[3], "the headers");
    ensure!(bootstrap.snapshot.header("content-type") == Some("text/x-fold"), "the first part's type");
    ensure!(bootstrap.snapshot.body == b"abcde folded", "the first part's bytes");
    ensure!(bootstrap.bodies() == [b"fgh"], "the messages");
    Ok(())
}

fn live(api: &mut Api, path: &str) -> Result<()> {
    api.stream(path, &[b"abc"])?;
    for query in ["live=sse", "live=long-poll", "live=", "live", "live=x", "a=1&live=sse", "%6Cive=sse"] {
        let response = api.get(&format!("{path}/bootstrap?{query}"))?;
        refused(&response, 400, "invalid_live_mode").context(query)?;
    }
    api.get(&format!("{path}/bootstrap?offset=-1&x=y"))?.expect(&[200], "other parameters")?;
    Ok(())
}

fn empty(api: &mut Api, path: &str) -> Result<()> {
    api.create(path, "text/plain")?;
    let response = api.get(&format!("{path}/bootstrap"))?.expect(&[200], "bootstrap")?;
    let bootstrap = Bootstrap::parse(&response)?;
    ensure!(bootstrap.messages.is_empty() && bootstrap.next_offset == ZERO && bootstrap.up_to_date, "parts");
    let headers: String =
        bootstrap.snapshot.headers.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>().join(" ");
    ensure!(headers == "content-type content-length", "part headers `{headers}`");
    let boundary = &bootstrap.boundary;
    let expected = format!(
        "--{boundary}\r\nContent-Type: application/octet-stream\r\nContent-Length: 0\r\n\r\n\r\n--{boundary}--\r\n"
    );
    ensure!(response.body == expected.as_bytes(), "{}", response.body.escape_ascii());
    Ok(())
}

fn json(api: &mut Api, path: &str) -> Result<()> {
    api.create(path, JSON)?;
    api.append(path, JSON, b" [ {\"a\" : [1, 2]} ,\n\"b,\", [3]]\n")?;
    api.append(path, JSON, b"{\"c\":null}")?;
    let bootstrap = api.bootstrap(path)?;
    let bodies: Vec<serde_json::Value> =
        bootstrap.bodies().into_iter().map(serde_json::from_slice).collect::<Result<_, _>>()?;
    let expected: Vec<serde_json::Value> = serde_json::from_str("[{\"a\":[1,2]},\"b,\",[3],{\"c\":null}]")?;
    ensure!(bodies == expected, "{bodies:?}");
    for part in &bootstrap.messages {
        ensure!(part.header("content-type") == Some(JSON), "a part's type");
        ensure!(part.body.last() != Some(&b',') && part.body.trim_ascii() == part.body, "a part's edges");
    }
    // The offset of each part is a place to read from.
    for (index, part) in bootstrap.messages.iter().enumerate() {
        let offset = part.header("stream-offset").context("no Stream-Offset")?;
        let rest: Vec<serde_json::Value> = serde_json::from_slice(&api.read(path, offset)?.0)?;
        ensure!(rest == expected[index..], "read from {offset}");
    }
    Ok(())
}

fn hostile(api: &mut Api, path: &str) -> Result<()> {
    api.create(path, BYTES)?;
    let mut payloads: Vec<Vec<u8>> = [
        &b"--"[..],
        b"\r\n",
        b"\r\n\r\n",
        b"\r\n--",
        b"--\r\n--",
        b"\r\nContent-Type: text/html\r\n\r\nx",
        b"\0\r\n\0",
        b"ends\r\n",
        b"\n",
        b"\r",
        b"-",
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    for payload in &payloads {
        api.append(path, BYTES, payload)?;
    }
    let tail = api.head(path)?.next_offset()?;
    let mut boundaries = Vec::new();
    for _ in 0..4 {
        let bootstrap = api.bootstrap(path)?;
        ensure!(bootstrap.bodies() == payloads.iter().map(Vec::as_slice).collect::<Vec<_>>(), "the messages");
        let boundary = bootstrap.boundary;
        let token = boundary.bytes().filter(u8::is_ascii_alphanumeric).count();
        ensure!(token >= 32 && boundary.len() <= 70, "boundary `{boundary}`");
        ensure!(!boundaries.contains(&boundary), "the same boundary twice");
        for forged in [
            format!("\r\n--{boundary}\r\nContent-Type: text/html\r\n\r\nforged"),
            format!("\r\n--{boundary}--\r\n"),
        ] {
            api.append(path, BYTES, forged.as_bytes())?;
            payloads.push(forged.into_bytes());
        }
        boundaries.push(boundary);
    }
    api.published(path, &tail, &payloads.concat())?;
    ensure!(api.bootstrap(path)?.snapshot.body == payloads.concat(), "a hostile snapshot");
    Ok(())
}

fn closed(api: &mut Api, path: &str) -> Result<()> {
    api.stream(path, &[b"abc"])?;
    let last = [("content-type", BYTES), ("stream-closed", "true")];
    api.call("POST", path, &last, b"end")?.expect(&[204], "close")?;
    let response = api.get(&format!("{path}/bootstrap"))?.expect(&[200], "bootstrap")?;
    has(&response, "stream-closed", Some("true"))?;
    ensure!(Bootstrap::parse(&response)?.bodies() == [b"abc", b"end"], "the messages");
    Ok(())
}

fn missing(api: &mut Api, path: &str) -> Result<()> {
    refused(&api.get(&format!("{path}/bootstrap"))?, 404, "not_found")
}

fn covers(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"a", b"b", b"c", b"d"])?;
    for offset in &x {
        api.published(path, offset, offset.as_bytes())?;
        let start = api.get(&format!("{path}?offset=-1"))?;
        ensure!(start.status == if offset == ZERO { 200 } else { 410 }, "read from the start");
        let bootstrap = api.bootstrap(path)?;
        ensure!(
            bootstrap.snapshot_offset == *offset && bootstrap.snapshot.body == offset.as_bytes(),
            "snapshot"
        );
        ensure!(bootstrap.content() == api.read(path, offset)?.0, "the messages");
    }
    Ok(())
}

/// Messages `0,1,…` as text, one an append, until told to stop. Returns how many there are.
fn write_until(address: SocketAddr, path: &str, from: u32, stop: &AtomicBool) -> Result<u32> {
    let mut api = Api::new(address);
    let mut next = from;
    while !stop.load(Ordering::Relaxed) {
        api.append(path, BYTES, format!("{next},").as_bytes())?;
        next += 1;
    }
    Ok(next)
}

fn numbers(range: std::ops::Range<u32>) -> String {
    range.flat_map(|number| [number.to_string(), ",".to_owned()]).collect()
}

fn continued(api: &mut Api, path: &str) -> Result<()> {
    api.create(path, "text/plain")?;
    let text = |api: &mut Api, number: u32| api.append(path, "text/plain", format!("{number},").as_bytes());
    for number in 0..50 {
        text(api, number)?;
    }
    let address = api.address;
    let (stop, collected) = (AtomicBool::new(false), 400_usize);
    thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<u32> {
            let mut api = Api::new(address);
            let mut next = 50;
            while !stop.load(Ordering::Relaxed) {
                api.append(path, "text/plain", format!("{next},").as_bytes())?;
                next += 1;
            }
            Ok(next)
        });
        let read = (|| -> Result<String> {
            let bootstrap = api.bootstrap(path)?;
            let mut seen = String::from_utf8(bootstrap.content())?;
            let target = format!("{path}?offset={}&live=sse", bootstrap.next_offset);
            let Subscription::Open(mut events) = Events::subscribe(address, &target)? else {
                bail!("SSE is refused")
            };
            while seen.matches(',').count() < collected {
                let (name, data) = events.next()?.context("the response ended")?;
                if name == "data" {
                    seen.push_str(&data);
                }
            }
            Ok(seen)
        })();
        stop.store(true, Ordering::Relaxed);
        let written = writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
        let seen = read?;
        ensure!(numbers(0..written).starts_with(&seen), "what was seen is not what was written");
        Ok(())
    })
}

fn continued_by_long_poll(api: &mut Api, path: &str) -> Result<()> {
    api.stream(path, &[b"0,", b"1,"])?;
    let (address, stop) = (api.address, AtomicBool::new(false));
    thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(address, path, 2, &stop));
        let read = (|| -> Result<Vec<u8>> {
            let bootstrap = api.bootstrap(path)?;
            let (mut seen, mut offset) = (bootstrap.content(), bootstrap.next_offset);
            while seen.len() < 1_000 {
                let poll = api
                    .get(&format!("{path}?offset={offset}&live=long-poll"))?
                    .expect(&[200, 204], "poll")?;
                offset = poll.next_offset()?;
                seen.extend_from_slice(&poll.body);
            }
            Ok(seen)
        })();
        stop.store(true, Ordering::Relaxed);
        let written = writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
        ensure!(numbers(0..written).as_bytes().starts_with(&read?), "what was seen is not what was written");
        Ok(())
    })
}

/// Snapshots here say how many messages they fold, so that a cut can be judged by itself: the messages after a
/// snapshot must go on exactly where it ends, up to the next offset that the response names.
fn cuts(api: &mut Api, path: &str) -> Result<()> {
    api.create(path, BYTES)?;
    let (address, stop) = (api.address, AtomicBool::new(false));
    thread::scope(|scope| {
        let worker = scope.spawn(|| -> Result<()> {
            let mut api = Api::new(address);
            for number in 0_u32.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let tail = api.append(path, BYTES, &number.to_be_bytes())?;
                if number % 3 == 0 {
                    api.published(path, &tail, &(number + 1).to_be_bytes())?;
                }
            }
            Ok(())
        });
        let checked = (0..CUTS).try_for_each(|_| -> Result<()> {
            let bootstrap = api.bootstrap(path)?;
            let folded = match bootstrap.snapshot.body.as_slice() {
                [] => 0,
                body => u32::from_be_bytes(body.try_into().context("a snapshot of four bytes")?),
            };
            for (number, body) in (folded..).zip(bootstrap.bodies()) {
                ensure!(
                    body == number.to_be_bytes(),
                    "message {number} is missing after {folded} folded ones"
                );
            }
            let held = u64::from(folded) + bootstrap.messages.len() as u64;
            ensure!(bootstrap.next_offset == format!("{held:016x}_{:016x}", held * 4), "the next offset");
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        worker.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
        checked
    })
}

/// What delimits the messages counts as well: a bootstrap of very many tiny ones is no longer than any other.
fn tiny_messages(api: &mut Api, path: &str) -> Result<()> {
    api.create(path, JSON)?;
    let values: Vec<String> = (0..30_000).map(|number| (number % 10).to_string()).collect();
    for values in values.chunks(10_000) {
        api.append(path, JSON, format!("[{}]", values.join(",")).as_bytes())?;
    }
    let response = api.get(&format!("{path}/bootstrap"))?.expect(&[200], "bootstrap")?;
    let sent = response.body.len();
    ensure!((220 * 1024..257 * 1024).contains(&sent), "{sent} bytes");
    let bootstrap = Bootstrap::parse(&response)?;
    ensure!(!bootstrap.up_to_date, "it says that it is complete");
    let count = bootstrap.messages.len();
    ensure!(bootstrap.content() == values[..count].concat().as_bytes(), "the messages");
    let rest = String::from_utf8(api.read(path, &bootstrap.next_offset)?.0)?;
    ensure!(rest == format!("[{}]", values[count..].join(",")), "the rest");
    Ok(())
}

/// The server under test has a limit of 256 KiB for the messages of one bootstrap.
fn early_end(api: &mut Api, path: &str) -> Result<()> {
    api.create(path, BYTES)?;
    let mut random = Random::new(13);
    let messages: Vec<Vec<u8>> = (0..40).map(|_| bytes(&mut random, 20_000)).collect();
    for message in &messages {
        api.append(path, BYTES, message)?;
    }
    api.call("POST", path, &[("stream-closed", "true")], b"")?.expect(&[204], "close")?;
    let response = api.get(&format!("{path}/bootstrap"))?.expect(&[200], "bootstrap")?;
    has(&response, "stream-closed", None)?;
    let bootstrap = Bootstrap::parse(&response)?;
    ensure!(!bootstrap.up_to_date, "it says that it is complete");
    let count = bootstrap.messages.len();
    ensure!((1..40).contains(&count), "{count} messages");
    ensure!(bootstrap.content() == messages[..count].concat(), "the messages");
    ensure!(api.read(path, &bootstrap.next_offset)?.0 == messages[count..].concat(), "the rest");
    let sent: usize = response.body.len();
    ensure!(sent < 256 * 1024 + 20_000 + 1000, "{sent} bytes");
    tiny_messages(api, &format!("{path}-tiny"))?;
    let large = format!("{path}-large");
    api.create(&large, BYTES)?;
    let message = bytes(&mut random, 600_000);
    let tail = api.append(&large, BYTES, &message)?;
    let bootstrap = api.bootstrap(&large)?;
    ensure!(
        bootstrap.bodies() == [message.as_slice()] && bootstrap.next_offset == tail,
        "one larger message"
    );
    Ok(())
}

fn sse_encoding(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc", b"\0\xff\r\n"])?;
    api.published(path, &x[1], b"snap")?;
    let target = format!("{path}?offset={}&live=sse", x[1]);
    let mut connection = crate::http::Connection::open(api.address)?;
    connection.begin("GET", &target, &[])?;
    let head = connection.read_head()?;
    has(&head, "stream-sse-data-encoding", Some("base64"))?;
    let Subscription::Open(mut events) = Events::subscribe(api.address, &target)? else { bail!("refused") };
    let first = events.next()?.context("no event")?;
    ensure!(first == ("data".to_owned(), "AP8NCg==".to_owned()), "{first:?}");
    Ok(())
}

fn bytes(random: &mut Random, length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Mostly small messages, some of them of a mebibyte, in both kinds of stream. What the stages compare later is made
/// of these too.
fn random_messages(api: &mut Api, path: &str) -> Result<()> {
    let mut random = Random::new(39);
    for (content_type, suffix) in [(BYTES, "bytes"), (JSON, "json")] {
        let path = format!("{path}-{suffix}");
        let mut expected: Vec<Vec<u8>> = Vec::new();
        api.create(&path, content_type)?;
        while expected.len() < MESSAGES {
            let length = match random.below(250) {
                0 => random.between(200_000, 1_000_000),
                _ => random.between(1, 400),
            };
            let message = bytes(&mut random, usize::try_from(length)?);
            let message = if content_type == JSON {
                format!("\"{}\"", message.iter().map(|byte| char::from(b'a' + byte % 26)).collect::<String>())
                    .into_bytes()
            } else {
                message
            };
            api.append(&path, content_type, &message)?;
            expected.push(message);
        }
        let (mut parts, mut next): (Vec<Part>, _) = (Vec::new(), String::new());
        // The limit of the server under test makes it end early; the rest is taken by publishing and starting again.
        for _ in 0..expected.len() {
            let bootstrap = api.bootstrap(&path)?;
            parts.extend(bootstrap.messages);
            next = bootstrap.next_offset;
            if bootstrap.up_to_date {
                break;
            }
            api.published(&path, &next, b"so far")?;
        }
        ensure!(api.head(&path)?.next_offset()? == next, "it ends at the tail");
        ensure!(parts.len() == expected.len(), "{} parts", parts.len());
        ensure!(parts.iter().zip(&expected).all(|(part, message)| part.body == *message), "other bytes");
    }
    Ok(())
}
