//! The simulation is only worth something if it finds bugs. Each of these was made by someone, is put in on purpose,
//! and must be found by the same runs that find nothing when no bug is there.

use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvium_feed_store::planted::{Bug, plant};
use alluvium_feeds_sim::{STEPS_DEFAULT, run};

/// Within how many seeds each bug must be found.
const SEEDS: u64 = 1000;

/// The first seed that finds something, and what it finds. A panic is a find too.
fn first_find(bug: Bug) -> Option<(u64, String)> {
    (0..SEEDS).find_map(|seed| {
        let ended = catch_unwind(|| {
            plant(Some(bug));
            run(seed, STEPS_DEFAULT, false).violation.map(|violation| violation.to_string())
        });
        plant(None);
        let found = ended.unwrap_or_else(|_| Some("a panic".to_owned()));
        found.map(|found| (seed, found))
    })
}

#[test]
fn each_historical_bug_is_found() {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(bug) = Bug::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let find = first_find(*bug);
                    println!("{bug:?}: {find:?}");
                    found.lock().unwrap().push((*bug, find));
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    assert_eq!(found.len(), Bug::ALL.len());
    for (bug, find) in found {
        let (seed, _) = find.unwrap_or_else(|| panic!("{bug:?} was not found within {SEEDS} seeds"));
        // It is the bug that was found, and nothing else.
        assert!(run(seed, STEPS_DEFAULT, false).violation.is_none(), "seed {seed}");
    }
}
