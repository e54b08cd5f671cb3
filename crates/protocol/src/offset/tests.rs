use proptest::prelude::*;

use super::*;

/// Components with the edges of each digit count as likely as anything between.
fn component() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..=Offset::MAX_COMPONENT,
        (0_u32..=53).prop_map(|bits| (1_u64 << bits) - 1),
        (0_u32..=52).prop_map(|bits| 1_u64 << bits),
    ]
}

fn offset() -> impl Strategy<Value = Offset> {
    (component(), component()).prop_map(|(append_index, position)| Offset::new(append_index, position))
}

#[test]
fn tokens_are_two_fixed_width_hexadecimal_numbers() {
    assert_eq!(Offset::ZERO.to_string(), "0000000000000000_0000000000000000");
    assert_eq!(Offset::new(42, 8000).to_string(), "000000000000002a_0000000000001f40");
    let largest = Offset::new(Offset::MAX_COMPONENT, Offset::MAX_COMPONENT);
    assert_eq!(largest.to_string(), "001fffffffffffff_001fffffffffffff");
}

#[test]
fn anything_but_a_token_is_refused() {
    let refused = [
        "",
        "-1",
        "now",
        "0_0",
        "0000000000000000-0000000000000000",
        "0000000000000000_000000000000000",
        "0000000000000000_00000000000000000",
        "000000000000002A_0000000000000000",
        "+000000000000000_0000000000000000",
        " 000000000000000_0000000000000000",
        "0020000000000000_0000000000000000",
        "0000000000000000_0020000000000000",
        "9999999999999999_9999999999999999",
        "00000000000000é_0000000000000000",
    ];
    for token in refused {
        assert_eq!(token.parse::<Offset>(), Err(InvalidOffset), "{token:?}");
    }
}

#[test]
fn sentinels_are_understood_only_in_queries() {
    assert_eq!(OffsetQuery::parse(None), Ok(OffsetQuery::Start));
    assert_eq!(OffsetQuery::parse(Some("-1")), Ok(OffsetQuery::Start));
    assert_eq!(OffsetQuery::parse(Some("now")), Ok(OffsetQuery::Now));
    for refused in ["", "NOW", "-2", "0", "../x", "a,b"] {
        assert_eq!(OffsetQuery::parse(Some(refused)), Err(InvalidOffset), "{refused:?}");
    }
}

proptest! {
    #[test]
    fn a_token_leads_back_to_its_offset(offset in offset()) {
        let token = offset.to_string();
        prop_assert_eq!(token.as_bytes(), offset.to_token());
        prop_assert_eq!(token.parse(), Ok(offset));
        prop_assert_eq!(OffsetQuery::parse(Some(&token)), Ok(OffsetQuery::At(offset)));
    }

    #[test]
    fn tokens_sort_as_their_numbers_do(a in offset(), b in offset()) {
        let numbers = (a.append_index, a.position).cmp(&(b.append_index, b.position));
        prop_assert_eq!(a.to_string().cmp(&b.to_string()), numbers);
        prop_assert_eq!(a.cmp(&b), numbers);
    }

    #[test]
    fn an_offset_has_one_spelling(token in "[0-9a-fA-F]{15,17}_[0-9a-fA-F]{15,17}") {
        if let Ok(offset) = token.parse::<Offset>() {
            prop_assert_eq!(offset.to_string(), token);
        }
    }

    #[test]
    fn no_text_upsets_the_parser(token in "\\PC{0,40}") {
        let _ = OffsetQuery::parse(Some(&token));
    }
}

#[test]
fn offsets_move_forward_only_within_bounds() {
    let end = Offset::new(1, 5);
    assert_eq!(end.after_append(3), Some(Offset::new(2, 8)));
    assert_eq!(end.advance(u64::MAX), None);
    assert_eq!(Offset::new(Offset::MAX_COMPONENT, 0).next_append(), None);
    assert_eq!(Offset::new(0, Offset::MAX_COMPONENT).advance(1), None);
}

#[test]
fn sentinels_stand_for_the_ends_of_a_stream() {
    let tail = Offset::new(2, 9);
    let resolve = |text| OffsetQuery::parse(Some(text)).map(|query| query.resolve(tail));
    assert_eq!(resolve("-1"), Ok(Offset::ZERO));
    assert_eq!(resolve("now"), Ok(tail));
    assert_eq!(resolve(&Offset::new(1, 4).to_string()), Ok(Offset::new(1, 4)));
}
