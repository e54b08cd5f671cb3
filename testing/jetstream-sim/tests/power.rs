//! The power is cut at any operation of the disk, while events come in, repositories are replaced, blocks and segments
//! end: what a reader was shown is there as it was, and everything is there once.

use alluvium_jetstream_archive::Status;
use alluvium_jetstream_ingest::counters::Counter;
use alluvium_jetstream_ingest::ingest::{IngestConfig, PipelineConfig};
use alluvium_jetstream_ingest::snapshot::Snapshot;
use alluvium_jetstream_sim::Power;
use alluvium_jetstream_simulator::{Act, Config, Mix, Operation};

fn power(seed: u64) -> Power {
    let small = Config::small(seed);
    // Nobody goes away or changes a key: what is fetched then depends on when.
    let config = Config { accounts: 8, mix: Mix { rotate: 0, account: 0, ..small.mix }, ..small };
    let pipeline = PipelineConfig { workers: 3, fetchers: 2, lossless: true, ..PipelineConfig::default() };
    Power::new(config, IngestConfig { pipeline, start_cursor: None }, seed).expect("a world")
}

/// Something is missing of an account, so that its repository is fetched and replaced: more rows than a block has.
fn tear(power: &mut Power, number: u64) {
    for (key, silent) in [("unseen", true), ("seen", false)] {
        let path = format!("app.bsky.feed.like/{key}-{number}");
        let operations = vec![Operation::Put { path, record: None }];
        let act = Act::Write { account: 0, operations, silent, missing_block: None };
        // An account that is away writes nothing.
        drop(power.act(act));
    }
}

/// How it stands, once nothing waits for the disk.
fn at_rest(power: &Power) -> (Snapshot, Status) {
    loop {
        let (snapshot, status) = power.standing().expect("it runs");
        if snapshot.cursor == snapshot.handled_seq && snapshot.write_queue_bytes == 0 {
            return (snapshot, status);
        }
        std::thread::yield_now();
    }
}

/// A disk that stands still holds verified rows up to the bound in memory, and then the relay: by the socket, or by the
/// bounds of the accounts' queues, whose drops are repaired. What the status says is durable is what the disk has.
#[test]
fn a_disk_that_stands_still_holds_verification_back_within_its_bound() {
    const BOUND: usize = 16 * 1024;
    for (lossless, seed) in [(true, 71), (false, 72)] {
        let mut power = power(seed);
        power.config.pipeline.lossless = lossless;
        power.config.pipeline.rules.limits.write_queue_bytes = BOUND;
        power.config.pipeline.rules.limits.queue_events = 16;
        power.start().expect("an empty disk");
        power.run(40);
        assert!(power.follow().expect("it can be read"));
        let (before, archived) = at_rest(&power);
        power.stall.set(true);
        power.run(1500);
        // Nothing more comes of it, for as long as one likes.
        let (mut last, mut same) = (0, 0);
        while same < 2000 {
            let (now, status) = power.standing().expect("it runs");
            assert_eq!(status.next_seq, archived.next_seq, "the disk stands");
            assert_eq!(now.cursor, before.cursor, "what is durable is what is shown");
            assert!(now.write_queue_bytes <= BOUND, "{}", now.write_queue_bytes);
            let (rows, came) = (now.count(Counter::Rows), now.count(Counter::Received));
            let undurable = rows + 1 - archived.next_seq;
            // Every row counts for 128 bytes and more; so does the one result of each worker that waits.
            assert!(undurable <= (BOUND / 128) as u64, "{undurable} rows wait for the disk");
            let waits =
                now.count(Counter::WriteWaits) > 0 && (lossless || now.count(Counter::QueueDropped) > 0);
            same = if waits && last == came { same + 1 } else { 0 };
            last = came;
            assert!(!lossless || came < 1500, "the relay waits");
            std::thread::yield_now();
        }
        power.stall.set(false);
        assert!(power.follow().expect("it can be read"), "no fault is left");
        let (after, _) = at_rest(&power);
        assert!(after.cursor > before.cursor);
        assert_eq!(lossless, after.count(Counter::QueueDropped) == 0);
        // Where events are dropped every account may have been repaired: then its log tells nothing, its records all.
        let compared = power.check().expect("the truth");
        assert!(!lossless || compared > 1000, "{compared}");
    }
}

#[test]
fn nothing_that_was_shown_is_taken_back_and_nothing_is_lost_wherever_the_power_goes() {
    let (mut cuts, mut compared) = (0, 0);
    for seed in 0..6 {
        for round in 0..9 {
            let mut power = power(seed * 100 + round);
            power.start().expect("an empty disk");
            power.run(25);
            assert!(power.follow().expect("it can be read"), "nothing has failed yet");
            for number in 0..3 {
                power.disk.crash_at(power.disk.operations() + (round * 7 + number * 11) % 40);
                power.run(12);
                tear(&mut power, number);
                power.run(6);
                let is_done = power.follow().expect("it can be read");
                let ended = power.end();
                assert!(is_done || ended.is_err() || power.disk.is_down());
                cuts += u32::from(power.disk.is_down());
                power.disk.restart();
                // It may go while the process starts, too.
                power.disk.crash_at(power.disk.operations() + round * 3 + number);
                if power.start().is_err() {
                    assert!(power.disk.is_down());
                    cuts += 1;
                }
                drop(power.end());
                power.disk.restart();
                power.start().expect("it starts on what the disk has");
                assert!(power.follow().expect("it can be read"), "no fault is left");
                // What is judged and not handed on yet is, when it ends in peace.
                power.end().expect("it was well");
                power.start().expect("it starts again");
                compared +=
                    power.check().unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
            }
        }
    }
    assert!(cuts > 100 && compared > 2000, "{cuts} cuts, {compared} rows");
}
