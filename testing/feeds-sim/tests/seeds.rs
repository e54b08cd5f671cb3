//! A few seeds in every test run; the test command runs hundreds, `cargo run --release -p alluvium-feeds-sim` as many
//! as asked for.

use alluvium_feeds_sim::{STEPS_DEFAULT, run};

#[test]
fn nothing_is_found_in_the_first_seeds() {
    for seed in 0..20 {
        let outcome = run(seed, STEPS_DEFAULT, false);
        assert!(outcome.violation.is_none(), "seed {seed}: {}", outcome.violation.unwrap());
        assert!(outcome.requests > 0 && outcome.appended > 0);
    }
}

#[test]
fn a_seed_gives_the_same_run_every_time() {
    let (first, second) = (run(7, 120, true), run(7, 120, true));
    assert_eq!(first.trace, second.trace);
}
