//! From times to rows.

use std::path::Path;

use alluvium_env::Disk as _;
use alluvium_jetstream_archive::{Archive, Batch, Changes};
use alluvium_jss::{SegmentIndex, Writer};

use crate::world::{DIR, START_US, World, batch, commit, event, rows_from};

/// The first row that was seen then or later, looked for one by one.
fn by_hand(archive: &Archive, witnessed_at: i64) -> u64 {
    let rows = rows_from(archive, 1);
    let found = rows.iter().find(|row| row.event.witnessed_at >= witnessed_at);
    found.map_or(archive.status().next_seq, |row| row.seq)
}

#[test]
fn a_time_leads_to_the_first_row_of_it_or_later_everywhere() {
    for hot_bytes in [0, 3000, 1 << 20] {
        let mut world = World::new(1);
        world.options.hot_bytes = hot_bytes;
        let archive = world.opened();
        // Groups of rows with one time each, some far apart.
        let mut time = START_US;
        for group in 0_u64.. {
            let status = archive.status();
            if status.segments >= 2 && status.active_blocks > 0 && status.flushed_seq < status.next_seq {
                break;
            }
            time += i64::try_from(group * group % 7).unwrap() * 500;
            let events = (0..=group % 4).map(|row| {
                let mut event = event(group * 10 + row);
                event.witnessed_at = time;
                event
            });
            commit(&archive, Batch { events: events.collect(), changes: Changes::new() }).unwrap();
        }
        for at in (START_US - 1000..time + 2000).step_by(250) {
            for at in [at, at + 1] {
                assert_eq!(archive.first_at_time(at).unwrap(), by_hand(&archive, at), "{}", at - START_US);
            }
        }
        assert_eq!(archive.first_at_time(i64::MAX).unwrap(), archive.status().next_seq);
        assert_eq!(archive.first_at_time(0).unwrap(), 1);
    }
}

/// In an archive that others gathered times go back and forth: rows of many repositories lie between each other, and each
/// repository has one time.
#[test]
fn times_that_go_back_in_files_of_others_are_searched_all_the_same() {
    let world = World::new(1);
    world.disk.create_dir_all(Path::new(DIR)).unwrap();
    let times =
        [50, 10, 90, 20, 30, 80, 5, 70, 60, 40, 85, 15, 95, 35, 25, 100, 1, 2, 99, 3, 120, 4, 110, 119];
    for (number, times) in (0..).zip(times.chunks(8)) {
        let index = SegmentIndex::new(number).unwrap();
        let path = Path::new(DIR).join(index.file_name());
        let mut writer = Writer::create(&world.disk, &path, world.options.blocks).unwrap();
        for (seq, time) in (number * 8 + 1..).zip(times) {
            let mut event = event(seq);
            event.witnessed_at = START_US + time * 1000;
            if writer.append(event.at(seq)).unwrap() {
                writer.flush().unwrap();
            }
        }
        writer.seal().unwrap();
    }
    let archive = world.opened();
    assert_eq!(archive.status().next_seq, 25);
    // What is added now is not before what was there.
    commit(&archive, batch(25..=30)).unwrap();
    for at in (0..125_000).step_by(500) {
        let at = START_US + at;
        assert_eq!(archive.first_at_time(at).unwrap(), by_hand(&archive, at), "{}", at - START_US);
    }
}

#[test]
fn times_ascend_with_the_numbers_over_restarts() {
    let world = World::new(1);
    let mut last = i64::MIN;
    for start in 0..3_u64 {
        let archive = world.opened();
        for number in 1..=9 {
            let mut event = event(number);
            // A clock that goes back.
            event.witnessed_at = START_US + i64::try_from(start * 2 + 20 - number).unwrap();
            commit(&archive, Batch { events: vec![event], changes: Changes::new() }).unwrap();
        }
        let times: Vec<i64> = rows_from(&archive, 1).iter().map(|row| row.event.witnessed_at).collect();
        assert!(times.is_sorted(), "{times:?}");
        assert!(*times.last().unwrap() >= last);
        last = *times.last().unwrap();
    }
}

#[test]
fn a_floor_is_the_first_row_of_the_segment_that_reaches_the_time() {
    let world = World::new(1);
    let archive = world.opened();
    assert_eq!(archive.floor_at_time(START_US), 0, "nothing is sealed");
    for number in 1..=60 {
        commit(&archive, batch(number..=number)).unwrap();
    }
    let manifest = archive.manifest();
    assert!(manifest.segments.len() > 3);
    for segment in manifest.segments.iter() {
        let header = segment.header();
        assert_eq!(archive.floor_at_time(header.max_witnessed_at), header.min_seq);
        assert_eq!(archive.floor_at_time(header.min_witnessed_at), header.min_seq);
    }
    let last = manifest.segments.last().unwrap().header();
    assert_eq!(archive.floor_at_time(last.max_witnessed_at + 1), last.min_seq, "all are older");
}

#[test]
fn an_old_segment_is_sealed_by_its_age() {
    let mut world = World::new(1);
    world.options.segment_ms = Some(60_000);
    let archive = world.opened();
    commit(&archive, batch(1..=1)).unwrap();
    world.clock.advance_ms(59_999);
    commit(&archive, batch(2..=2)).unwrap();
    assert_eq!(archive.status().segments, 0);
    world.clock.advance_ms(1);
    commit(&archive, Batch::default()).unwrap();
    assert_eq!((archive.status().segments, archive.status().active_blocks), (1, 0));
    // The next one begins with its first row.
    world.clock.advance_ms(600_000);
    commit(&archive, Batch::default()).unwrap();
    assert_eq!(archive.status().segments, 1);
}
