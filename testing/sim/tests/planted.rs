//! The simulation is only worth something if it finds bugs. Each of these is put into the engine on purpose and must
//! be found within a few seeds, by the same runs that find nothing when no bug is there.

use std::panic::catch_unwind;

use alluvium_engine::planted::{Bug, plant};
use alluvium_sim::{STEPS_DEFAULT, run};

/// Within how many seeds each bug must be found.
const SEEDS: u64 = 60;

/// The first seed that finds something, and what it finds. An assertion of the engine that fails is a find too.
fn first_find(bug: Option<Bug>) -> Option<(u64, String)> {
    (0..SEEDS).find_map(|seed| {
        let ended = catch_unwind(|| {
            plant(bug);
            run(seed, STEPS_DEFAULT, false).violation.map(|violation| violation.to_string())
        });
        plant(None);
        let found = ended.unwrap_or_else(|_| Some("an assertion failed".to_owned()));
        found.map(|found| (seed, found))
    })
}

fn assert_found(bug: Bug) {
    assert!(first_find(Some(bug)).is_some(), "{bug:?} was not found within {SEEDS} seeds");
}

#[test]
fn without_a_bug_nothing_is_found() {
    assert_eq!(first_find(None), None);
}

#[test]
fn a_skipped_sync_is_found() {
    assert_found(Bug::SkippedSync);
}

#[test]
fn an_answer_before_the_sync_is_found() {
    assert_found(Bug::AnsweredBeforeSync);
}

#[test]
fn a_segment_that_is_not_replayed_is_found() {
    assert_found(Bug::SegmentNotReplayed);
}

#[test]
fn a_forgotten_producer_is_found() {
    assert_found(Bug::ForgottenProducer);
}

#[test]
fn a_floor_that_moves_before_its_snapshot_is_durable_is_found() {
    assert_found(Bug::FloorBeforeSnapshot);
}

#[test]
fn a_fold_that_forgets_forks_is_found() {
    assert_found(Bug::ForkForgotten);
}

#[test]
fn a_fold_that_forgets_cuts_is_found() {
    assert_found(Bug::CutForgotten);
}

#[test]
fn a_forgotten_beginning_of_a_trimmed_stream_is_found() {
    assert_found(Bug::ForgottenTrim);
}

#[test]
fn a_table_that_is_not_synced_is_found() {
    assert_found(Bug::UnsyncedTable);
}

#[test]
fn a_boundary_lost_in_a_rewrite_is_found() {
    assert_found(Bug::LostBoundary);
}
