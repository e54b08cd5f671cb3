//! The system calls that the units allow: a server under `strace`, which writes down every other one that it makes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::text;
use crate::check::Report;
use crate::http::Connection;
use crate::server::{Launch, Server};
use crate::sight::wait_until;
use crate::simulator::Network;
use crate::tools;

/// Longer than what is kept in memory of what was just written, so that a read of it is one of files.
const LONG_BYTES: usize = 24 * 1024 * 1024;
/// Parts of it, each an append.
const PARTS: usize = 5;
/// What happens in the network that the Jetstream follows.
const EVENTS_PER_S: u32 = 200;

/// The groups of systemd, by their names.
type Groups = BTreeMap<String, BTreeSet<String>>;

pub(super) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    tools::debian_tool("strace")?;
    tools::debian_program("systemd-analyze", "systemd")?;
    let groups = groups()?;
    report.check("the unit allows every system call of `alluvium serve`", || {
        let scratch = tempfile::tempdir()?;
        let trace = scratch.path().join("trace");
        let backups = scratch.path().join("backups");
        let backups = backups.display().to_string();
        let flags = ["--backup-dir", &backups, "--recent-bytes", "8MiB", "--long-poll-timeout", "100ms"];
        let mut launch = Launch::new(binary, &scratch.path().join("data"), &flags);
        let plain = launch.program.clone();
        launch.program = traced("alluvium.service", &groups, &trace)?;
        launch.program.extend(plain);
        let server = launch.start()?;
        use_all(binary, &server, scratch.path())?;
        drop(server.stop()?);
        nothing_in(&trace)
    });
    report.check("the unit allows every system call of `alluvium jetstream serve`", || {
        jetstream(binary, &groups)
    });
    report.check("a call that the unit does not allow is noticed", || {
        let scratch = tempfile::tempdir()?;
        let (file, trace) = (scratch.path().join("file"), scratch.path().join("trace"));
        fs::write(&file, "")?;
        let told = |words: &[&str]| -> Result<Result<()>> {
            let program = traced("alluvium.service", &groups, &trace)?;
            let (strace, before) = program.split_first().context("no program")?;
            // Without `-D`, so that it has written everything when it ends.
            let before = before.iter().filter(|word| *word != "-D");
            tools::run(Command::new(strace).args(before).args(words).arg(&file))?;
            Ok(nothing_in(&trace))
        };
        told(&["chmod", "0600"])??;
        let owner = rustix::process::geteuid().as_raw().to_string();
        ensure!(told(&["chown", &owner])?.is_err(), "`chown` was not noticed");
        Ok(())
    });
    Ok(())
}

/// `strace`, which notes in a file what a unit does not allow.
fn traced(unit: &str, groups: &Groups, trace: &Path) -> Result<Vec<String>> {
    let mut calls = allowed(&text(unit)?, groups)?;
    if rustix::process::geteuid().is_root() {
        // As root, which the unit does not run it as, SQLite gives its files to whom the database belongs.
        calls.insert("fchown".to_owned());
    }
    // A name that this `strace` does not know is none that it could see.
    let allowed: Vec<String> = calls.iter().map(|call| format!("?{call}")).collect();
    let calls = format!("trace=!{}", allowed.join(","));
    let file = trace.display().to_string();
    // `-D` makes the server, not strace, the child that is waited for.
    let words =
        ["strace", "-D", "-f", "-qq", "--seccomp-bpf", "-e", "signal=none", "-e", &calls, "-o", &file];
    Ok(words.iter().map(|&word| word.to_owned()).collect())
}

/// The calls that are left of the lines of a unit, taken one after the other as systemd does.
fn allowed(unit: &str, groups: &Groups) -> Result<BTreeSet<String>> {
    let mut allowed = BTreeSet::new();
    for list in unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let (list, taken) = list.strip_prefix('~').map_or((list, false), |list| (list, true));
        for word in list.split_whitespace() {
            let calls = if word.starts_with('@') {
                groups.get(word).with_context(|| format!("systemd has no group `{word}`"))?.clone()
            } else {
                BTreeSet::from([word.to_owned()])
            };
            if taken {
                allowed.retain(|call| !calls.contains(call));
            } else {
                allowed.extend(calls);
            }
        }
    }
    ensure!(!allowed.is_empty(), "the unit has no `SystemCallFilter`");
    Ok(allowed)
}

/// What is in each group, groups in it resolved.
fn groups() -> Result<Groups> {
    let output = Command::new("systemd-analyze").args(["syscall-filter", "--no-pager"]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut current = None;
    for line in String::from_utf8(output.stdout)?.lines() {
        if line.starts_with('@') {
            current = Some(groups.entry(line.trim().to_owned()).or_default());
        } else if let (Some(group), true) = (&mut current, line.starts_with(' ')) {
            let word = line.trim();
            if !word.starts_with('#') {
                group.push(word.to_owned());
            }
        }
    }
    groups.keys().map(|name| Ok((name.clone(), resolved(name, &groups)?))).collect()
}

fn resolved(name: &str, groups: &BTreeMap<String, Vec<String>>) -> Result<BTreeSet<String>> {
    let mut calls = BTreeSet::new();
    let mut wanted = vec![name.to_owned()];
    let mut seen = BTreeSet::new();
    while let Some(group) = wanted.pop() {
        if !seen.insert(group.clone()) {
            continue;
        }
        for word in groups.get(&group).with_context(|| format!("systemd has no group `{group}`"))? {
            if word.starts_with('@') {
                wanted.push(word.clone());
            } else {
                calls.insert(word.clone());
            }
        }
    }
    Ok(calls)
}

/// What has certificates read again.
fn hang_up(server: &Server) -> Result<()> {
    let process = Pid::from_raw(i32::try_from(server.pid())?).context("no process")?;
    Ok(kill_process(process, Signal::HUP)?)
}

fn nothing_in(trace: &Path) -> Result<()> {
    let made = fs::read_to_string(trace).context("read what strace wrote")?;
    let first: Vec<&str> = made.lines().take(5).collect();
    ensure!(first.is_empty(), "the unit does not allow: {}", first.join("; "));
    Ok(())
}

/// A bit of everything that needs the disk, the network or the clock.
fn use_all(binary: &Path, server: &Server, scratch: &Path) -> Result<()> {
    let mut connection = Connection::open(server.address)?;
    let mut call = |method: &str, target: &str, body: &[u8]| {
        let answer = connection.call(method, target, &[("content-type", "text/plain")], body)?;
        ensure!(answer.status < 300, "{method} {target}: {}", answer.status);
        Ok(answer)
    };
    let long = vec![b'x'; LONG_BYTES];
    call("PUT", "/v1/stream/long", &[])?;
    call("PUT", "/ds/docs", &[])?;
    call("PUT", "/ds/docs/long", &long)?;
    for _ in 0..PARTS {
        call("POST", "/v1/stream/long", &long)?;
    }
    // From the journal, or from a table if it was folded meanwhile.
    call("GET", "/v1/stream/long?offset=-1", &[])?;
    let at = call("HEAD", "/ds/docs/long", &[])?.next_offset()?;
    call("PUT", &format!("/ds/docs/long/snapshot/{at}"), &long)?;
    call("GET", "/ds/docs/long/bootstrap", &[])?;
    call("GET", "/v1/stream/long?offset=now&live=long-poll", &[])?;
    call("GET", "/metrics", &[])?;
    let url = format!("http://{}", server.address);
    let alluvium = |words: &[&str]| tools::run(Command::new(binary).args(words).env("ALLUVIUM_URL", &url));
    let replica = scratch.join("replica.sqlite").display().to_string();
    alluvium(&["feed", "--db", &replica, "append", "notes", "-m", "milk", "--sync"])?;
    alluvium(&["feed", "--db", &replica, "--url", &url.replace("http", "ws"), "sync"])?;
    alluvium(&["backup", "first"])?;
    hang_up(server)?;
    call("DELETE", "/v1/stream/long", &[])?;
    call("DELETE", "/ds/docs/long", &[])?;
    call("DELETE", "/ds/docs", &[])?;
    Ok(())
}

fn jetstream(binary: &Path, groups: &Groups) -> Result<()> {
    let network = Network::with_rate(binary, 7, EVENTS_PER_S)?;
    let scratch = tempfile::tempdir()?;
    let trace = scratch.path().join("trace");
    let backups = scratch.path().join("backups").display().to_string();
    let (relay, plc) = (format!("ws://{}", network.address), format!("http://{}", network.address));
    let flags = ["--relay", &relay, "--plc", &plc, "--start-cursor", "0", "--allow-private"];
    let small = ["--block-rows", "64", "--segment-bytes", "4096", "--backup-dir", &backups];
    let mut launch = Launch::new(binary, &scratch.path().join("data"), &[&flags[..], &small].concat());
    launch.program = traced("alluvium-jetstream.service", groups, &trace)?;
    launch.program.extend([binary.display().to_string(), "jetstream".to_owned()]);
    let server = launch.start()?;
    let get = |target: &str| {
        Connection::open(server.address)?.call("GET", target, &[], &[])?.expect(&[200], target)
    };
    let segments = "/xrpc/network.bsky.jetstream.listSegments";
    let mut name = None;
    wait_until("a finished segment", || {
        let listed: Value = serde_json::from_slice(&get(segments)?.body)?;
        name = listed["segments"][0]["name"].as_str().map(str::to_owned);
        Ok(name.is_some())
    })?;
    get(&format!("/xrpc/network.bsky.jetstream.getSegment?name={}", name.context("no name")?))?;
    get("/streams/events?offset=-1")?;
    get("/metrics")?;
    let url = format!("http://{}", server.address);
    let tail = ["jetstream", "tail", &url, "--cursor", "0", "--count", "100", "--quiet"];
    tools::run(Command::new(binary).args(tail))?;
    tools::run(Command::new(binary).args(["backup", "--url", &url, "first"]))?;
    hang_up(&server)?;
    drop(server.stop()?);
    network.stop()?;
    nothing_in(&trace)
}
