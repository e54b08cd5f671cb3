use std::cell::Cell;

use proptest::prelude::*;

use super::*;

fn parse(offset: Option<&str>, sub_offset: Option<&str>) -> Result<ForkOrigin, InvalidFork> {
    let source = StreamPath::parse_decoded("source").unwrap();
    ForkOrigin::parse(Some(source), offset, sub_offset).map(Option::unwrap)
}

#[test]
fn offset_and_sub_offset_need_a_source() {
    assert_eq!(ForkOrigin::parse(None, None, None), Ok(None));
    let zero = Offset::ZERO.to_string();
    assert_eq!(ForkOrigin::parse(None, Some(&zero), None), Err(InvalidFork::SourceMissing));
    assert_eq!(ForkOrigin::parse(None, None, Some("0")), Err(InvalidFork::SourceMissing));
    let fork = parse(None, None).unwrap();
    assert_eq!((fork.offset, fork.sub_offset), (None, 0));
}

#[test]
fn fork_offsets_are_tokens_and_sub_offsets_canonical_integers() {
    for refused in ["", "-1", "now", "0_0"] {
        let parsed = parse(Some(refused), None);
        assert_eq!(parsed, Err(InvalidFork::Offset(InvalidOffset)), "{refused:?}");
    }
    for refused in ["", "-1", "abc", "1.5", "05", "+1", "00", " 1", "9007199254740992"] {
        let parsed = parse(None, Some(refused));
        assert_eq!(parsed, Err(InvalidFork::SubOffset), "{refused:?}");
    }
    let fork = parse(Some(&Offset::new(2, 9).to_string()), Some("10")).unwrap();
    assert_eq!((fork.offset, fork.sub_offset), (Some(Offset::new(2, 9)), 10));
}

#[test]
fn a_byte_cut_stays_within_the_next_message() {
    let anchor = Offset::new(3, 100);
    let following =
        [MessageBoundary { length: 6, ends_append: true }, MessageBoundary { length: 6, ends_append: true }];
    let cut = |sub_offset| resolve_fork_cut(anchor, sub_offset, SubOffsetUnit::Bytes, following);
    assert_eq!(cut(0), Ok(anchor));
    assert_eq!(cut(1), Ok(Offset::new(3, 101)));
    assert_eq!(cut(5), Ok(Offset::new(3, 105)));
    assert_eq!(cut(6), Ok(Offset::new(4, 106)));
    assert_eq!(cut(7), Err(ForkCutError { requested: 7, available: 6 }));
    let at_tail = resolve_fork_cut(anchor, 1, SubOffsetUnit::Bytes, []);
    assert_eq!(at_tail, Err(ForkCutError { requested: 1, available: 0 }));
}

#[test]
fn a_message_cut_may_cross_appends() {
    let following = [(4, false), (4, true), (9, true)]
        .map(|(length, ends_append)| MessageBoundary { length, ends_append });
    let cut =
        |sub_offset| resolve_fork_cut(Offset::new(1, 10), sub_offset, SubOffsetUnit::Messages, following);
    assert_eq!(cut(0), Ok(Offset::new(1, 10)));
    assert_eq!(cut(1), Ok(Offset::new(1, 14)));
    assert_eq!(cut(2), Ok(Offset::new(2, 18)));
    assert_eq!(cut(3), Ok(Offset::new(3, 27)));
    assert_eq!(cut(4), Err(ForkCutError { requested: 4, available: 3 }));
}

fn messages() -> impl Strategy<Value = Vec<MessageBoundary>> {
    let message =
        (1_u32..9, any::<bool>()).prop_map(|(length, ends_append)| MessageBoundary { length, ends_append });
    prop::collection::vec(message, 0..8)
}

fn unit() -> impl Strategy<Value = SubOffsetUnit> {
    prop_oneof![Just(SubOffsetUnit::Bytes), Just(SubOffsetUnit::Messages)]
}

/// Writes the source out byte by byte and walks it: after each byte, how many bytes and messages have passed,
/// and how many appends.
fn walk(messages: &[MessageBoundary], sub_offset: u64, unit: SubOffsetUnit) -> Option<(u64, u64)> {
    let (mut bytes, mut whole, mut appends) = (0, 0, 0);
    let reached = |bytes, whole| match unit {
        SubOffsetUnit::Bytes => bytes == sub_offset,
        SubOffsetUnit::Messages => whole == sub_offset,
    };
    if reached(bytes, whole) {
        return Some((appends, bytes));
    }
    let reachable = if unit == SubOffsetUnit::Bytes { messages.len().min(1) } else { messages.len() };
    for message in &messages[..reachable] {
        for byte in 1..=message.length {
            bytes += 1;
            if byte == message.length {
                whole += 1;
                appends += u64::from(message.ends_append);
            }
            if reached(bytes, whole) {
                return Some((appends, bytes));
            }
        }
    }
    None
}

proptest! {
    #[test]
    fn cuts_agree_with_a_walk_over_the_bytes(messages in messages(), sub_offset in 0_u64..12, unit in unit()) {
        let anchor = Offset::new(5, 1000);
        let cut = resolve_fork_cut(anchor, sub_offset, unit, messages.iter().copied());
        let expected = walk(&messages, sub_offset, unit)
            .map(|(appends, bytes)| Offset::new(5 + appends, 1000 + bytes));
        prop_assert_eq!(cut.ok(), expected);
        if let Err(error) = cut {
            prop_assert!(walk(&messages, error.available, unit).is_some());
            prop_assert!(walk(&messages, error.available + 1, unit).is_none());
        }
    }

    #[test]
    fn no_more_messages_are_taken_than_needed(messages in messages(), sub_offset in 0_u64..12, unit in unit()) {
        let taken = Cell::new(0);
        let counted = messages.iter().copied().inspect(|_| taken.set(taken.get() + 1));
        let _ = resolve_fork_cut(Offset::ZERO, sub_offset, unit, counted);
        let needed = if unit == SubOffsetUnit::Bytes { sub_offset.min(1) } else { sub_offset };
        prop_assert!(taken.get() <= needed);
    }

    /// A fork cut within a message shows its own forks a shorter message that ends no append.
    #[test]
    fn byte_cuts_compose_over_a_chain_of_forks(length in 2_u32..50, first in 1_u32..50, second in 1_u32..50) {
        let (first, second) = (first % (length - 1) + 1, second % length + 1);
        let cut = |sub_offset: u32, message| {
            resolve_fork_cut(Offset::ZERO, sub_offset.into(), SubOffsetUnit::Bytes, [message])
        };
        let whole = MessageBoundary { length, ends_append: true };
        let shortened = MessageBoundary { length: first, ends_append: false };
        prop_assert_eq!(cut(first, whole), Ok(Offset::new(0, first.into())));
        if second <= first {
            prop_assert_eq!(cut(second, shortened), cut(second, whole));
        } else {
            prop_assert!(cut(second, shortened).is_err());
        }
    }
}
