use proptest::prelude::*;

use super::*;
use crate::limits::INTEGER_MAX;

fn parse(id: &str, epoch: &str, seq: &str) -> Result<Option<ProducerStamp>, InvalidProducer> {
    ProducerStamp::parse(Some(id), Some(epoch), Some(seq))
}

#[test]
fn the_three_headers_come_together_or_not_at_all() {
    assert_eq!(ProducerStamp::parse(None, None, None), Ok(None));
    for given in 1..7_u8 {
        let header = |bit: u8| (given >> bit & 1 == 1).then_some("0");
        let stamp = ProducerStamp::parse(header(0), header(1), header(2));
        assert_eq!(stamp, Err(InvalidProducer::Incomplete), "{given:03b}");
    }
    let stamp = parse("p", "3", "4").unwrap().unwrap();
    assert_eq!((stamp.id.as_str(), stamp.epoch, stamp.seq), ("p", 3, 4));
}

#[test]
fn numbers_are_digits_up_to_the_largest_safe_integer() {
    let largest = INTEGER_MAX.to_string();
    let stamp = parse("p", &largest, &largest).unwrap().unwrap();
    assert_eq!((stamp.epoch, stamp.seq), (INTEGER_MAX, INTEGER_MAX));
    for refused in
        ["", "-1", "+1", "1abc", "1e3", "1.0", " 1", "٣", "9007199254740992", "99999999999999999999999"]
    {
        assert_eq!(parse("p", refused, "0"), Err(InvalidProducer::Epoch), "{refused:?}");
        assert_eq!(parse("p", "0", refused), Err(InvalidProducer::Seq), "{refused:?}");
    }
}

#[test]
fn names_have_one_to_256_bytes() {
    assert_eq!(parse("", "0", "0"), Err(InvalidProducer::EmptyId));
    assert!(parse(&"x".repeat(PRODUCER_ID_BYTES_MAX), "0", "0").is_ok());
    assert_eq!(parse(&"x".repeat(PRODUCER_ID_BYTES_MAX + 1), "0", "0"), Err(InvalidProducer::IdTooLong));
}

#[test]
fn the_specification_walks_through() {
    let state = |epoch, seq| Some(ProducerState { epoch, seq });
    let accept = |epoch, seq| Ok(ProducerVerdict::Accept(ProducerState { epoch, seq }));
    assert_eq!(evaluate(None, 0, 0), accept(0, 0));
    assert_eq!(evaluate(None, 7, 0), accept(7, 0));
    assert_eq!(evaluate(None, 0, 2), Err(ProducerRejection::Gap { expected: 0, received: 2 }));
    assert_eq!(evaluate(state(0, 0), 0, 1), accept(0, 1));
    assert_eq!(evaluate(state(0, 4), 1, 0), accept(1, 0));
    assert_eq!(evaluate(state(0, 4), 1, 5), Err(ProducerRejection::EpochMustStartAtZero));
    assert_eq!(evaluate(state(1, 0), 0, 5), Err(ProducerRejection::Fenced { current_epoch: 1 }));
    assert_eq!(evaluate(state(0, 0), 0, 2), Err(ProducerRejection::Gap { expected: 1, received: 2 }));
    let highest = ProducerVerdict::Duplicate(ProducerState { epoch: 0, seq: 4 });
    assert_eq!(evaluate(state(0, 4), 0, 2), Ok(highest));
}

/// Remembers every stamp it took and finds the answers by searching them.
#[derive(Default)]
struct Memory(Vec<(u64, u64)>);

impl Memory {
    fn evaluate(&mut self, epoch: u64, seq: u64) -> Result<ProducerVerdict, ProducerRejection> {
        let current = self.0.iter().map(|&(epoch, _)| epoch).max();
        let taken_in = |epoch| self.0.iter().filter(move |taken| taken.0 == epoch).map(|taken| taken.1);
        match current {
            Some(current_epoch) if epoch < current_epoch => {
                return Err(ProducerRejection::Fenced { current_epoch });
            }
            Some(current_epoch) if epoch > current_epoch && seq != 0 => {
                return Err(ProducerRejection::EpochMustStartAtZero);
            }
            _ => {}
        }
        if self.0.contains(&(epoch, seq)) {
            let seq = taken_in(epoch).max().unwrap();
            return Ok(ProducerVerdict::Duplicate(ProducerState { epoch, seq }));
        }
        let expected = taken_in(epoch).max().map_or(0, |highest| highest + 1);
        if seq != expected {
            return Err(ProducerRejection::Gap { expected, received: seq });
        }
        self.0.push((epoch, seq));
        Ok(ProducerVerdict::Accept(ProducerState { epoch, seq }))
    }
}

proptest! {
    #[test]
    fn verdicts_agree_with_a_memory_of_all_appends(
        appends in prop::collection::vec((0_u64..4, 0_u64..6), 0..40),
    ) {
        let mut memory = Memory::default();
        let mut state = None;
        for (epoch, seq) in appends {
            let verdict = evaluate(state, epoch, seq);
            prop_assert_eq!(verdict, memory.evaluate(epoch, seq));
            if let Ok(ProducerVerdict::Accept(accepted)) = verdict {
                state = Some(accepted);
            }
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow(
        (epoch, seq) in (INTEGER_MAX - 1..=INTEGER_MAX, INTEGER_MAX - 2..=INTEGER_MAX),
        (held_epoch, held_seq) in (INTEGER_MAX - 1..=INTEGER_MAX, INTEGER_MAX - 2..=INTEGER_MAX),
    ) {
        let state = ProducerState { epoch: held_epoch, seq: held_seq };
        if let Ok(ProducerVerdict::Accept(accepted)) = evaluate(Some(state), epoch, seq) {
            prop_assert_eq!(accepted, ProducerState { epoch: held_epoch, seq: held_seq + 1 });
        }
    }
}
