use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

#[test]
fn a_tag_names_incarnation_range_and_closure() {
    let tag = etag(Incarnation(0xab), Offset::ZERO, Offset::new(1, 5), false);
    let expected = "\"inc_000000000000000000000000000000ab:0000000000000000_0000000000000000:\
                    0000000000000001_0000000000000005\"";
    assert_eq!(tag, expected);
    let closed = etag(Incarnation(0xab), Offset::ZERO, Offset::new(1, 5), true);
    assert_eq!(closed, format!("{}:c\"", expected.trim_end_matches('"')));
    assert_eq!(closed.capacity(), etag(Incarnation(u128::MAX), Offset::ZERO, Offset::ZERO, true).len());
}

#[test]
fn tags_differ_when_anything_differs() {
    let mut tags = HashSet::new();
    for incarnation in [0, 1, u128::MAX].map(Incarnation) {
        for start in [Offset::ZERO, Offset::new(0, 1), Offset::new(1, 0)] {
            for end in [Offset::new(1, 1), Offset::new(2, 1)] {
                for closed in [false, true] {
                    assert!(tags.insert(etag(incarnation, start, end, closed)));
                }
            }
        }
    }
}

#[test]
fn lists_weak_tags_and_the_star_are_understood() {
    let tag = "\"a:b\"";
    for header in [
        "\"a:b\"",
        "W/\"a:b\"",
        " \"a:b\" ",
        "*",
        " * ",
        "\"x\", \"a:b\"",
        "\"x,\\\" ,,W/\"a:b\"",
        "\"\",\"a:b\"",
    ] {
        assert!(if_none_match(header, tag), "{header}");
    }
    for header in [
        "",
        "a:b",
        "\"a:b",
        "\"a\"",
        "\"x\" y, \"a:b\"",
        "w/\"a:b\"",
        "W/ \"a:b\"",
        "**",
        "\"*\"",
        "*, \"a:b\"",
    ] {
        assert!(!if_none_match(header, tag), "{header}");
    }
}

proptest! {
    #[test]
    fn a_list_matches_if_it_holds_the_tag(
        list in prop::collection::vec(("[a-c,*]{0,2}", any::<bool>(), "( ?, ?|,,|, *,)"), 0..6),
        wanted in "[a-c,*]{0,2}",
    ) {
        let mut header = String::new();
        for (tag, weak, separator) in &list {
            header.push_str(if *weak { "W/" } else { "" });
            header.extend(["\"", tag, "\"", separator]);
        }
        let held = list.iter().any(|(tag, ..)| *tag == wanted);
        prop_assert_eq!(if_none_match(&header, &format!("\"{wanted}\"")), held);
    }

    #[test]
    fn no_header_upsets_the_comparison(header in "[\"W/*, a]{0,20}") {
        let _ = if_none_match(&header, "\"a\"");
    }
}

#[test]
fn an_incarnation_has_one_spelling() {
    let incarnation = Incarnation(0xabc);
    assert_eq!(incarnation.to_string().parse(), Ok(incarnation));
    let other = [
        "",
        "inc_",
        "inc_abc",
        "INC_00000000000000000000000000000abc",
        "inc_00000000000000000000000000000ABC",
        "inc_+0000000000000000000000000000abc",
        "inc_000000000000000000000000000000abc",
    ];
    for text in other {
        assert_eq!(text.parse::<Incarnation>(), Err(InvalidIncarnation), "{text}");
    }
}

#[test]
fn a_tag_tells_what_it_was_made_of() {
    for closed in [false, true] {
        let tag =
            EntityTag { incarnation: Incarnation(7), start: Offset::ZERO, end: Offset::new(3, 40), closed };
        assert_eq!(parse_etag(&tag.to_string()), Some(tag));
        let text = tag.to_string();
        for broken in [&text[1..], &text[..text.len() - 1], &format!("W/{text}"), &text.replace(':', ":x:")] {
            assert_eq!(parse_etag(broken), None, "{broken}");
        }
    }
}
