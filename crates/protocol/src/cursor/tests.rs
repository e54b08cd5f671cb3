use proptest::prelude::*;

use super::*;

#[test]
fn the_cursor_is_the_number_of_the_interval() {
    let at = |now_ms| response_cursor(now_ms, None, || panic!("no jitter is due"));
    assert_eq!(at(0), 0);
    assert_eq!(at(EPOCH_MS), 0);
    assert_eq!(at(EPOCH_MS + 19_999), 0);
    assert_eq!(at(EPOCH_MS + 20_000), 1);
    assert_eq!(at(EPOCH_MS + 20_000_000), 1000);
}

#[test]
fn a_client_that_is_not_behind_is_sent_ahead() {
    let now_ms = EPOCH_MS + 20_000_000;
    let answer = |client, jitter_s| response_cursor(now_ms, Some(client), || jitter_s);
    assert_eq!(answer("999", 3600), 1000);
    assert_eq!(answer("1000", 1), 1001);
    assert_eq!(answer("1000", 20), 1001);
    assert_eq!(answer("1000", 21), 1002);
    assert_eq!(answer("1000", 3600), 1180);
    assert_eq!(answer("5000", 0), 5001);
    assert_eq!(answer("5000", u64::MAX), 5180);
}

#[test]
fn what_is_no_cursor_counts_as_absent() {
    let now_ms = EPOCH_MS + 20_000_000;
    for client in ["", "abc", "-1", "1e9", "9007199254740991", "99999999999999999999"] {
        assert_eq!(response_cursor(now_ms, Some(client), || 1), 1000, "{client:?}");
    }
}

proptest! {
    /// One client, many polls, a clock that may even step back.
    #[test]
    fn a_client_that_echoes_its_cursor_never_sees_it_again(
        polls in prop::collection::vec((0_u64..400_000, JITTER_S_MIN..=JITTER_S_MAX), 1..50),
    ) {
        let mut last: Option<u64> = None;
        for (since_epoch_ms, jitter_s) in polls {
            let now_ms = EPOCH_MS + since_epoch_ms;
            let echoed = last.map(|last| last.to_string());
            let cursor = response_cursor(now_ms, echoed.as_deref(), || jitter_s);
            prop_assert!(cursor >= since_epoch_ms / 20_000);
            if let Some(last) = last {
                prop_assert!(cursor > last);
            }
            last = Some(cursor);
        }
    }
}
