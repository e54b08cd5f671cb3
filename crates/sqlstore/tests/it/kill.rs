//! `kill -9`: a process that writes is killed in the middle of it, again and again; its producers simply go on.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};

use alluvium_env::Env;
use alluvium_protocol::store::{AppendOptions, GetOptions, PutOptions, StreamStore};
use alluvium_protocol::{Offset, OffsetQuery, ProducerId, ProducerStamp, StreamPath};
use alluvium_sqlstore::{SqliteOptions, SqliteStore};
use bytes::Bytes;

use crate::world::{World, runtime};

const ROUNDS: usize = 8;
const STREAMS: u64 = 3;
const PRODUCERS: u64 = 4;
/// Acknowledgements after which a round is killed, more in each.
const ACKNOWLEDGEMENTS: usize = 150;
/// The variables that make a test process the one that writes.
const FILE: &str = "SQLSTORE_KILL_FILE";
const NEXT: &str = "SQLSTORE_KILL_NEXT";

fn path(stream: u64) -> StreamPath {
    StreamPath::parse_decoded(&format!("s{stream}")).expect("a path")
}

fn data(stream: u64, producer: u64, seq: u64) -> String {
    // Some appends fill several chunk rows.
    let length = if seq % 10 == 9 { 1_200_000 } else { 20 };
    format!("{stream}.{producer}.{seq};{}\n", "x".repeat(length))
}

/// What each producer of each stream appends next.
type Next = BTreeMap<(u64, u64), u64>;

fn encode(next: &Next) -> String {
    next.iter()
        .map(|((stream, producer), seq)| format!("{stream} {producer} {seq}"))
        .collect::<Vec<_>>()
        .join(",")
}

fn decode(text: &str) -> Next {
    let mut next = Next::new();
    for entry in text.split(',') {
        let numbers: Vec<u64> = entry.split(' ').map(|number| number.parse().expect("a number")).collect();
        next.insert((numbers[0], numbers[1]), numbers[2]);
    }
    next
}

fn parse(line: &str) -> Option<((u64, u64), u64)> {
    let mut numbers = line.strip_prefix("ack ")?.split(' ').map_while(|number| number.parse().ok());
    Some(((numbers.next()?, numbers.next()?), numbers.next()?))
}

#[test]
fn a_process_told_to_do_so_writes_until_it_is_killed() {
    let (Ok(file), Ok(next)) = (std::env::var(FILE), std::env::var(NEXT)) else {
        // An ordinary test run: the other test starts this one as a process of its own.
        return;
    };
    let store = SqliteStore::open(file.as_ref(), SqliteOptions::default(), &Env::real()).expect("opens");
    let runtime = runtime();
    let mut tasks = Vec::new();
    for ((stream, producer), mut seq) in decode(&next) {
        let store = store.clone();
        tasks.push(runtime.spawn(async move {
            store.put(&path(stream), PutOptions::default()).await.expect("creates");
            let id = ProducerId::parse(&format!("p{producer}")).expect("an id");
            loop {
                let stamp = ProducerStamp { id: id.clone(), epoch: 0, seq };
                let options = AppendOptions { producer: Some(stamp), ..AppendOptions::default() };
                store
                    .append(&path(stream), Bytes::from(data(stream, producer, seq)), options)
                    .await
                    .expect("appends");
                // One write each, so that lines don't mix and none is held back.
                let line = format!("ack {stream} {producer} {seq}\n");
                std::io::stdout().lock().write_all(line.as_bytes()).expect("the other side reads");
                seq += 1;
            }
        }));
    }
    // None of them ends by itself; the first that does has failed.
    runtime.block_on(tasks.remove(0)).expect("never ends by itself");
}

#[test]
fn what_was_acknowledged_survives_kill_9_and_nothing_is_there_twice() {
    let world = World::new(1);
    let mut next = Next::new();
    for stream in 0..STREAMS {
        for producer in 0..PRODUCERS {
            next.insert((stream, producer), 0);
        }
    }
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["kill::a_process_told_to_do_so_writes_until_it_is_killed", "--exact", "--nocapture"])
            .env(FILE, world.file())
            .env(NEXT, encode(&next))
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut acknowledged = 0;
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        while let Some(Ok(line)) = lines.next() {
            // What was written before the kill still comes through the pipe after it.
            if let Some((producer, seq)) = parse(&line) {
                next.insert(producer, seq + 1);
                acknowledged += 1;
            }
            if acknowledged == ACKNOWLEDGEMENTS + 30 * round {
                child.kill().expect("is killed");
            }
        }
        child.wait().expect("is gone");
        assert!(acknowledged >= ACKNOWLEDGEMENTS, "round {round}: {acknowledged}");
        check(&world, &next);
    }
}

/// Every producer's appends are there in order, once each: all acknowledged ones, and at most one more.
fn check(world: &World, next: &Next) {
    let store = SqliteStore::open(&world.file(), SqliteOptions::default(), &world.env).expect("opens");
    let mut found = Next::new();
    runtime().block_on(async {
        for stream in 0..STREAMS {
            let mut text = Vec::new();
            let mut offset = Offset::ZERO;
            loop {
                let options = GetOptions { offset: OffsetQuery::At(offset), ..GetOptions::default() };
                let got = store.get(&path(stream), options).await.expect("reads");
                text.extend(got.messages.iter().flat_map(|message| message.data.to_vec()));
                offset = got.next_offset;
                if got.up_to_date {
                    break;
                }
            }
            for line in String::from_utf8(text).expect("text").lines() {
                let mark = line.split(';').next().expect("a mark");
                let numbers: Vec<u64> =
                    mark.split('.').map(|number| number.parse().expect("a number")).collect();
                let seq = found.entry((numbers[0], numbers[1])).or_default();
                assert_eq!(numbers[2], *seq, "in order, and once: {mark}");
                assert_eq!(format!("{line}\n"), data(numbers[0], numbers[1], numbers[2]));
                *seq += 1;
            }
        }
    });
    for (producer, acknowledged) in next {
        let there = found.get(producer).copied().unwrap_or(0);
        assert!((*acknowledged..=acknowledged + 1).contains(&there), "{producer:?}: {acknowledged}, {there}");
    }
}
