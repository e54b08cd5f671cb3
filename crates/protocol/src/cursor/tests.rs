use proptest::prelude::*;

use super::*;

#[test]
fn the_cursor_is_the_number_of_the_interval() {
    let at = |now_ms| response_cursor(now_ms, None, || panic!("no jitter is due")).unwrap();
    assert_eq!(at(0), 0);
    assert_eq!(at(EPOCH_MS), 0);
    assert_eq!(at(EPOCH_MS + 19_999), 0);
    assert_eq!(at(EPOCH_MS + 20_000), 1);
    assert_eq!(at(EPOCH_MS + 20_000_000), 1000);
}

#[test]
fn a_client_that_is_not_behind_is_sent_ahead() {
    let now_ms = EPOCH_MS + 20_000_000;
    let answer = |client, jitter_s| response_cursor(now_ms, Some(client), || jitter_s).unwrap();
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
    for client in ["", "abc", "-1", "+1001", "1e9", "1001 "] {
        assert_eq!(response_cursor(now_ms, Some(client), || 1), Ok(1000), "{client:?}");
    }
}

#[test]
fn a_cursor_that_nothing_can_follow_is_refused() {
    let answer = |client| response_cursor(0, Some(client), || JITTER_S_MAX);
    assert_eq!(answer("18446744073709551614"), Ok(u64::MAX));
    for client in ["18446744073709551615", "18446744073709551616", "99999999999999999999999999"] {
        assert_eq!(answer(client), Err(InvalidCursor), "{client}");
    }
}

proptest! {
    #[test]
    fn any_cursor_below_the_last_is_followed_by_a_greater_one(
        client in prop_oneof![any::<u64>(), (1_u64 << 53) - 400..(1 << 53) + 400, u64::MAX - 400..=u64::MAX],
        zeros in 0..3_usize,
        now_ms in any::<u64>(),
        jitter_s in any::<u64>(),
    ) {
        let text = format!("{}{client}", "0".repeat(zeros));
        // Only the greatest of all has nothing above it.
        let grown = response_cursor(now_ms, Some(&text), || jitter_s);
        prop_assert_eq!(grown.map(|cursor| cursor > client), (client < u64::MAX).then_some(true).ok_or(InvalidCursor));
    }

    /// One client, many polls, a clock that may even step back.
    #[test]
    fn a_client_that_echoes_its_cursor_never_sees_it_again(
        polls in prop::collection::vec((0_u64..400_000, JITTER_S_MIN..=JITTER_S_MAX), 1..50),
    ) {
        let mut last: Option<u64> = None;
        for (since_epoch_ms, jitter_s) in polls {
            let now_ms = EPOCH_MS + since_epoch_ms;
            let echoed = last.map(|last| last.to_string());
            let cursor = response_cursor(now_ms, echoed.as_deref(), || jitter_s).unwrap();
            prop_assert!(cursor >= since_epoch_ms / 20_000);
            if let Some(last) = last {
                prop_assert!(cursor > last);
            }
            last = Some(cursor);
        }
    }
}
