//! Every snapshot and bootstrap case four times: while its bytes are in the journal, after the fold has rewritten
//! them, after a restart, and after tables were merged. The answers must be the same to the byte.
//!
//! The cases build their streams first and name the requests that tell what became of them; the stages then only
//! ask. The one thing that may differ is a bootstrap's boundary, which is new each time.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::api::{Api, BYTES, JSON};
use super::cover::Suite;
use super::kept::{RETRY, producers, retry};
use super::parsers;
use super::snapshots::ZERO;
use crate::http::Response;
use crate::random::Random;
use crate::server::{Launch, Server};

/// Segments and appends small enough that some mebibytes bring folds and merges about.
const FLAGS: &[&str] = &["--shards", "1", "--segment-bytes", "2MiB", "--append-bytes-max", "1MiB"];
/// The longest wait for the background work.
const BACKGROUND_MAX: Duration = Duration::from_mins(1);
/// One append of what makes segments full.
const FILLER_BYTES: usize = 256 << 10;
/// Headers that may differ from one answer to the next although nothing has changed.
const VOLATILE: &[&str] = &["date", "stream-cursor", "x-request-id"];

/// A request that shows the state of a case.
pub(super) type Probe = (&'static str, String);

/// A case: makes its streams below a path and names what to ask.
type Case = (&'static str, fn(&mut Api, &str) -> Result<Vec<Probe>>);

const CASES: &[Case] = &[
    ("no snapshot", no_snapshot),
    ("a snapshot between messages", between),
    ("a snapshot at the tail", at_tail),
    ("a snapshot at zero", at_zero),
    ("an empty stream", empty),
    ("a replaced snapshot", replaced),
    ("history kept", kept),
    ("JSON arrays", json),
    ("a batch", batch),
    ("a closed stream", closed),
    ("large messages and a large snapshot", large),
    ("a thousand small messages", many),
    ("forks around a floor", forks),
    ("a cut inside a message", cut),
    ("a stream made anew", anew),
    ("attributes and lists", listed),
    ("producers", producers),
];

/// An answer without what may differ.
#[derive(Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) status: u16,
    headers: BTreeSet<(String, String)>,
    body: Vec<u8>,
}

pub(super) fn run(suite: &mut Suite<'_>, binary: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let data = scratch.path().join("data");
    let server = Launch::new(binary, &data, FLAGS).start()?;
    let mut api = Api::new(server.address);
    api.bucket("filler")?;
    api.create("/ds/filler/s", BYTES)?;
    let mut cases = Vec::new();
    for (index, (name, build)) in CASES.iter().enumerate() {
        let path = api.bucket(&format!("case-{index}"))?;
        let probes = build(&mut api, &path).with_context(|| format!("make `{name}`"))?;
        cases.push((*name, probes));
    }
    let hot = answers(&mut api, &cases)?;
    suite.check("#39", "hot: the answers hold together", || plausible(&cases, &hot));
    let shard = data.join("streams/shard-00");

    fold(&mut api, &shard)?;
    compare(suite, "after the background rewrite", &cases, &hot, &mut api);
    let server = server.kill()?.start()?;
    let mut api = Api::new(server.address);
    compare(suite, "after kill -9 and a restart", &cases, &hot, &mut api);
    merge(&mut api, &shard)?;
    compare(suite, "after tables were merged", &cases, &hot, &mut api);
    for (name, mut parser) in parsers::programs()? {
        suite.check("BS-1 BS-12", &format!("{name} finds the same parts in all of them"), || {
            let asked = cases.iter().flat_map(|(_, probes)| probes).zip(hot.iter().flatten());
            let mut bootstraps =
                asked.filter(|((_, target), answer)| target.ends_with("/bootstrap") && answer.status == 200);
            bootstraps.try_for_each(|((_, target), _)| parsers::agree(&mut api, target, &mut parser))
        });
    }
    let launch = server.stop()?;
    let copy = scratch.path().join("copy");
    copy_tree(&data, &copy)?;
    let restored: Server = Launch { data_dir: copy, ..launch }.start()?;
    compare_as(
        suite,
        "#50",
        "in a copy of the data directory",
        &cases,
        &hot,
        &mut Api::new(restored.address),
    );
    restored.stop()?;
    Ok(())
}

fn compare(
    suite: &mut Suite<'_>,
    when: &str,
    cases: &[(&str, Vec<Probe>)],
    hot: &[Vec<Answer>],
    api: &mut Api,
) {
    compare_as(suite, "BK-11 SN-16 BS-8 #30 #39", when, cases, hot, api);
}

fn compare_as(
    suite: &mut Suite<'_>,
    ids: &str,
    when: &str,
    cases: &[(&str, Vec<Probe>)],
    hot: &[Vec<Answer>],
    api: &mut Api,
) {
    for ((name, probes), expected) in cases.iter().zip(hot) {
        suite.check(ids, &format!("{when}: {name}"), || {
            for ((method, target), expected) in probes.iter().zip(expected) {
                let answer = ask(api, method, target)?;
                ensure!(answer == *expected, "{method} {target}: {}", difference(&answer, expected));
            }
            Ok(())
        });
    }
}

pub(super) fn difference(answer: &Answer, expected: &Answer) -> String {
    if answer.status != expected.status {
        return format!("status {} where {} was", answer.status, expected.status);
    }
    let headers: Vec<_> = answer.headers.symmetric_difference(&expected.headers).collect();
    if headers.is_empty() {
        let at = answer.body.iter().zip(&expected.body).take_while(|(a, b)| a == b).count();
        return format!("{} bytes where {} were, alike for {at}", answer.body.len(), expected.body.len());
    }
    format!("other headers: {headers:?}")
}

fn answers(api: &mut Api, cases: &[(&str, Vec<Probe>)]) -> Result<Vec<Vec<Answer>>> {
    let ask_all =
        |probes: &Vec<Probe>| probes.iter().map(|(method, target)| ask(api, method, target)).collect();
    cases.iter().map(|(_, probes)| probes).map(ask_all).collect()
}

pub(super) fn ask(api: &mut Api, method: &str, target: &str) -> Result<Answer> {
    // What is refused must not depend on the body, and what is accepted is not asked for here.
    let body: &[u8] = if method == "PUT" { b"refused" } else { b"" };
    let response = match method {
        RETRY => retry(api, target)?,
        method => api.call(method, target, &[], body)?,
    };
    Ok(answer(&response))
}

fn answer(response: &Response) -> Answer {
    let boundary =
        response.header("content-type").and_then(|value| value.strip_prefix("multipart/mixed; boundary="));
    let plain = |bytes: &[u8]| match boundary {
        // Boundaries are of one length, so that nothing else moves.
        Some(boundary) => replace(bytes, boundary.as_bytes(), b"BOUNDARY"),
        None => bytes.to_vec(),
    };
    let headers = response
        .headers()
        .iter()
        .filter(|(name, _)| !VOLATILE.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), String::from_utf8_lossy(&plain(value.as_bytes())).into_owned()))
        .collect();
    Answer { status: response.status, headers, body: plain(&response.body) }
}

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        if rest.starts_with(from) {
            out.extend_from_slice(to);
            rest = &rest[from.len()..];
        } else {
            out.push(*first);
            rest = &rest[1..];
        }
    }
    out
}

/// Answers that are compared with themselves later should be worth it: each case has a bootstrap that was served.
fn plausible(cases: &[(&str, Vec<Probe>)], hot: &[Vec<Answer>]) -> Result<()> {
    for ((name, probes), answers) in cases.iter().zip(hot) {
        let served = probes.iter().zip(answers).any(|((method, target), answer)| {
            *method == "GET" && target.ends_with("/bootstrap") && answer.status == 200
        });
        ensure!(served, "{name}: no bootstrap");
        ensure!(answers.iter().all(|answer| answer.status < 500), "{name}: an error of the server");
    }
    Ok(())
}

/// Files of a shard with this ending.
fn files(shard: &Path, prefix: &str) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(shard).with_context(|| format!("list `{}`", shard.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(prefix) {
            names.insert(name);
        }
    }
    Ok(names)
}

/// Appends filler until none of `names` is left among the shard's files.
fn until_gone(api: &mut Api, shard: &Path, prefix: &str, names: &BTreeSet<String>) -> Result<()> {
    ensure!(!names.is_empty(), "nothing to wait for");
    let mut random = Random::new(7);
    let deadline = Instant::now() + BACKGROUND_MAX;
    while files(shard, prefix)?.intersection(names).next().is_some() {
        ensure!(Instant::now() < deadline, "the background work does not come to {names:?}");
        let filler: Vec<u8> =
            std::iter::repeat_with(|| random.next().to_le_bytes()).take(FILLER_BYTES / 8).flatten().collect();
        api.append("/ds/filler/s", BYTES, &filler)?;
        thread::yield_now();
    }
    Ok(())
}

/// Brings everything that was written so far out of the journal.
pub(super) fn fold(api: &mut Api, shard: &Path) -> Result<()> {
    let segments = files(shard, "journal-")?;
    until_gone(api, shard, "journal-", &segments)
}

/// Has every table that there is now rewritten.
pub(super) fn merge(api: &mut Api, shard: &Path) -> Result<()> {
    let tables = files(shard, "table-")?;
    until_gone(api, shard, "table-", &tables)
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// What is asked of every stream: its head, its list of messages, its snapshot, and reads and refused publications
/// from each of these offsets.
fn probes(path: &str, offsets: &[String]) -> Vec<Probe> {
    let mut probes = vec![
        ("HEAD", path.to_owned()),
        ("GET", format!("{path}/bootstrap")),
        ("GET", format!("{path}/snapshot")),
        ("GET", format!("{path}?offset=-1")),
        ("GET", format!("{path}?offset=now")),
    ];
    for offset in offsets {
        probes.push(("GET", format!("{path}?offset={offset}")));
        probes.push(("GET", format!("{path}?offset={offset}&max_bytes=1")));
        probes.push(("GET", format!("{path}/snapshot/{offset}")));
        probes.push(("DELETE", format!("{path}/snapshot/{offset}")));
        // One byte further on there is a boundary nowhere.
        if let Some((append, position)) = offset.split_once('_')
            && let Ok(position) = u64::from_str_radix(position, 16)
        {
            let inside = format!("{append}_{:016x}", position + 1);
            probes.push(("PUT", format!("{path}/snapshot/{inside}")));
            probes.push(("GET", format!("{path}?offset={inside}")));
        }
    }
    probes
}

fn no_snapshot(api: &mut Api, bucket: &str) -> Result<Vec<Probe>> {
    let path = format!("{bucket}/s");
    let x = api.stream(&path, &[b"ab", b"cd", b"ef"])?;
    Ok(probes(&path, &x))
}

fn between(api: &mut Api, bucket: &str) -> Result<Vec<Probe>> {
    let path = format!("{bucket}/s");
    let x = api.stream(&path, &[b"ab", b"cd", b"ef", b"gh"])?;
    let snapshot = [("content-type", "application/x-fold; v=\"1\"")];
    api.publish(&path, &x[2], &snapshot, b"abcd folded")?.expect(&[204], "publish")?;
    Ok(probes(&path, &x))
}

fn at_tail(api: &mut Api, bucket: &str) -> Result<Vec<Probe>> {
    let path = format!("{bucket}/s");
    let x = api.stream(&path, &[b"ab", b"cd"])?;
    api.published(&path, &x[2], b"all")?;
    Ok(probes(&path, &x))
}

fn at_zero(api: &mut Api, bucket: &str) -> Result<Vec<Probe>> {
    let path = format!("{bucket}/s");
    let x = api.stream(&path, &[b"ab", b"cd"])?;
    api.published(&path, ZERO, b"before all")?;
    Ok(probes(&path, &x))
}

fn empty(api: &mut Api, bucket: &str) -> Result<Vec<Probe>> {
    let (bare, snapped) = (format!("{bucket}/bare"), format!("{bucket}/snapped"));
    let x = api.stream(&bare, &[])?;
    api.stream(&snapped, &[])?;
    api.published(&snapped, ZERO, b"")?;
    Ok([probes(&bare, &x), probes(&snapped, &x)].concat())
}

fn replaced(api: &mut Api, bucket: &str) -> Result<Vec<Probe>> {
    let path = format!("{bucket}/s");
    let x = api.stream(&path, &[b"ab", b"cd", b"ef"])?;
    api.published(&path, &x[1], b"first")?;
    api.published(&path, &x[2], b"second")?;
    api.publish(&path, &x[2], &[("content-type", "text/plain")], b"third")?.expect(&[204], "publish")?;
    // The superseded one is not asked for: how long it stays readable is a matter of time.
    Ok(probes(&path, &x[2..]))
}

fn kept(api: &mut Api, bucket: &str) -> Result<Vec<Probe>> {
    let path = format!("{bucket}/s");
    let x = api.stream(&path, &[b"ab", b"cd", b"ef"])?;
    api.publish(&path, &x[2], &[("stream-retain", "all")], b"abcd")?.expect(&[204], "publish")?;
    Ok(probes(&path, &x))
}

fn json(api: &mut Api, bucket: &str) -> Result<Vec<Probe>> {
    let path = format!("{bucket}/s");
    let mut x = vec![api.create(&path, JSON)?];
    x.push(api.append(&path, JSON, br#"[{"a":1},[2,3],"four"]"#)?);
    x.push(api.append(&path, JSON, b"5")?);
    let starts: Vec<String> = api
        .bootstrap(&path)?
        .messages
        .iter()
        .filter_map(|part| part.header("stream-offset").map(str::to_owned))
        .collect();
    ensure!(starts.len() == 4, "{starts:?}");
    api.published(&path, &starts[2], br#"[{"a":1},[2,3]]"#)?;
    x.extend(starts);
    Ok(probes(&path, &x))
}

fn batch(api: &mut Api, bucket: &str) -> Result<Vec<Probe>> {
    let path = format!("{bucket}/s");
    api.create(&path, BYTES)?;
    let body = b"\0\0\0\x02ab\0\0\0\x03cde\0\0\0\x01f";
    api.call("POST", &format!("{path}/append-batch"), &[("content-type", BYTES)], body)?
        .expect(&[200], "batch")?;
    let starts: Vec<String> = api
        .bootstrap(&path)?
        .messages
        .iter()
        .filter_map(|part| part.header("stream-offset").map(str::to_owned))
        .collect();
    api.published(&path, starts.get(1).context("a second frame")?, b"ab")?;
    Ok(probes(&path, &starts))
}

fn closed(api: &mut Api, bucket: &str) -> Result<Vec<Probe>> {
    let path = format!("{bucket}/s");
    let mut x = api.stream(&path, &[b"ab"])?;
    let last = [("content-type", BYTES), ("stream-closed", "true")];
    x.push(api.call("POST", &path, &last, b"cd")?.expect(&[204], "close")?.next_offset()?);
    api.published(&path, &x[1], b"ab")?;
    let whole = format!("{bucket}/whole");
    let mut y = api.stream(&whole, &[b"ab"])?;
    y.push(
        api.call("POST", &whole, &[("stream-closed", "true")], b"")?
            .expect(&[204], "close")?
            .next_offset()?,
    );
    api.published(&whole, &y[2], b"ab")?;
    Ok([probes(&path, &x), probes(&whole, &y)].concat())
}

fn large(api: &mut Api, bucket: &str) -> Result<Vec<Probe>> {
    let path = format!("{bucket}/s");
    let mut random = Random::new(5);
    let mut bytes = |length: usize| -> Vec<u8> {
        std::iter::repeat_with(|| random.next().to_le_bytes()).take(length / 8).flatten().collect()
    };
    let (one, two) = (bytes(700_000), bytes(400_000));
    let x = api.stream(&path, &[&one, &two, b"small", &two])?;
    api.published(&path, &x[1], &bytes(5_000_000))?;
    Ok(probes(&path, &x))
}

fn many(api: &mut Api, bucket: &str) -> Result<Vec<Probe>> {
    let path = format!("{bucket}/s");
    let mut random = Random::new(6);
    let mut x = vec![api.create(&path, BYTES)?];
    for number in 0..1_000_u32 {
        let length = 1 + random.below(60) as usize;
        let body: Vec<u8> = (0..length).map(|index| (number as usize + index).to_le_bytes()[0]).collect();
        x.push(api.append(&path, BYTES, &body)?);
    }
    api.published(&path, &x[300], b"the first 300")?;
    Ok(probes(
        &path,
        &[x[0].clone(), x[299].clone(), x[300].clone(), x[301].clone(), x[777].clone(), x[1000].clone()],
    ))
}

fn forks(api: &mut Api, bucket: &str) -> Result<Vec<Probe>> {
    let source = format!("{bucket}/source");
    let x = api.stream(&source, &[b"ab", b"cd", b"ef"])?;
    let fork = |api: &mut Api, from: &str, name: &str, offset: &str| -> Result<String> {
        let path = format!("{bucket}/{name}");
        let headers = [("content-type", BYTES), ("stream-forked-from", from), ("stream-fork-offset", offset)];
        api.put(&path, &headers, b"")?.expect(&[201], name)?;
        Ok(path)
    };
    let before = fork(api, &source, "before", &x[3])?;
    api.published(&source, &x[2], b"abcd")?;
    let at = fork(api, &source, "at", &x[2])?;
    let above = fork(api, &source, "above", &x[3])?;
    let deep = fork(api, &above, "deep", &x[3])?;
    for path in [&before, &at, &above, &deep] {
        api.append(path, BYTES, path.as_bytes())?;
    }
    api.published(&source, &x[3], b"abcdef")?;
    let doomed = fork(api, &source, "doomed", &x[3])?;
    api.delete(&doomed)?.expect(&[204], "delete")?;
    api.delete(&above)?.expect(&[204], "delete a source")?;
    Ok([&source, &before, &at, &above, &deep].into_iter().flat_map(|path| probes(path, &x)).collect())
}

fn cut(api: &mut Api, bucket: &str) -> Result<Vec<Probe>> {
    let (source, path) = (format!("{bucket}/source"), format!("{bucket}/fork"));
    let x = api.stream(&source, &[b"abc", b"defgh"])?;
    let headers = [
        ("content-type", BYTES),
        ("stream-forked-from", source.as_str()),
        ("stream-fork-offset", x[1].as_str()),
        ("stream-fork-sub-offset", "2"),
    ];
    let at = api.put(&path, &headers, b"")?.expect(&[201], "fork")?.next_offset()?;
    let tail = api.append(&path, BYTES, b"x")?;
    api.published(&path, &at, b"abcde")?;
    Ok([probes(&source, &x), probes(&path, &[x[1].clone(), at, tail])].concat())
}

fn anew(api: &mut Api, bucket: &str) -> Result<Vec<Probe>> {
    let path = format!("{bucket}/s");
    let x = api.stream(&path, &[b"ab", b"cd"])?;
    api.published(&path, &x[2], b"of the first")?;
    api.delete(&path)?.expect(&[204], "delete")?;
    let x = api.stream(&path, &[b"gh"])?;
    Ok(probes(&path, &x))
}

fn listed(api: &mut Api, bucket: &str) -> Result<Vec<Probe>> {
    let path = format!("{bucket}/a%20b");
    let headers = [("content-type", JSON), ("stream-attrs", "{\"title\":\"x\"}")];
    api.put(&path, &headers, b"[1,2]")?.expect(&[201], "create")?;
    api.stream(&format!("{bucket}/other"), &[b"x"])?;
    let gone = format!("{bucket}/gone");
    api.stream(&gone, &[b"x"])?;
    api.delete(&gone)?.expect(&[204], "delete")?;
    let empty = format!("{bucket}-empty");
    api.put(&empty, &[], b"")?.expect(&[201], "bucket")?;
    let deleted = format!("{bucket}-gone");
    api.put(&deleted, &[], b"")?.expect(&[201], "bucket")?;
    api.delete(&deleted)?.expect(&[204], "delete")?;
    let mut probes = probes(&path, &[]);
    for target in
        [bucket.to_owned(), format!("{bucket}/streams"), format!("{path}/attrs"), gone, empty, deleted]
    {
        probes.push(("GET", target));
    }
    // A bucket that exists and a stream that is taken stay so.
    probes.push(("PUT", bucket.to_owned()));
    Ok(probes)
}
