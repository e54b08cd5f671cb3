use proptest::prelude::*;

use super::*;
use crate::cid::{Cid, Codec};
use crate::fixtures::{hex, value};

fn problem(text: &str) -> Option<Problem> {
    decode(&hex(text)).err().map(|error| error.problem)
}

#[test]
fn the_shortest_form_is_read_and_written() {
    let documents = [
        ("00", Value::Integer(0)),
        ("17", Value::Integer(23)),
        ("1818", Value::Integer(24)),
        ("190100", Value::Integer(256)),
        ("1a00010000", Value::Integer(65_536)),
        ("1b7fffffffffffffff", Value::Integer(i64::MAX)),
        ("20", Value::Integer(-1)),
        ("3b7fffffffffffffff", Value::Integer(i64::MIN)),
        ("f4", Value::Bool(false)),
        ("f5", Value::Bool(true)),
        ("f6", Value::Null),
        ("40", Value::Bytes(Vec::new())),
        ("6161", Value::from("a")),
        ("80", Value::List(Vec::new())),
        ("a0", Value::Map(Map::new())),
        ("fb8000000000000000", Value::Float(Finite::new(-0.0).expect("finite"))),
    ];
    for (text, value) in documents {
        assert_eq!(decode(&hex(text)), Ok(value.clone()), "{text}");
        assert_eq!(encode(&value), hex(text), "{text}");
    }
    let link = Value::Link(Cid::of(Codec::Raw, b""));
    let bytes = "d82a58250001551220e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(decode(&hex(bytes)), Ok(link.clone()));
    assert_eq!(encode(&link), hex(bytes));
}

#[test]
fn every_second_form_of_a_value_is_refused() {
    for text in [
        "1800",
        "1817",
        "1900ff",
        "1a0000ffff",
        "1b00000000ffffffff",
        "3800",
        "5800",
        "780161",
        "9800",
        "b800",
        "d9002a40",
    ] {
        assert_eq!(problem(text), Some(Problem::NotShortest), "{text}");
    }
    for text in ["9fff", "bfff", "5fff", "7fff", "1c", "1d", "1e", "1f", "ff", "fc"] {
        assert_eq!(problem(text), Some(Problem::Head), "{text}");
    }
    for text in ["f93e00", "fa3fc00000", "fb7ff0000000000000", "fbfff0000000000000", "fb7ff8000000000001"] {
        assert_eq!(problem(text), Some(Problem::Float), "{text}");
    }
    for text in ["f7", "e0", "f3", "f800", "f814", "f820", "f8ff"] {
        assert_eq!(problem(text), Some(Problem::Simple), "{text}");
    }
    for text in ["a2616200616100", "a2616100616100", "a262616100616200"] {
        assert_eq!(problem(text), Some(Problem::KeyOrder), "{text}");
    }
    for text in ["a10000", "a1410000", "a1a00000", "a1f600"] {
        assert_eq!(problem(text), Some(Problem::Key), "{text}");
    }
    for text in ["c001", "d82a00", "d82a4100", "d82a40", "c24101", "d9d9f700"] {
        assert_eq!(problem(text), Some(Problem::Tag), "{text}");
    }
    for text in ["1b8000000000000000", "3b8000000000000000", "1bffffffffffffffff"] {
        assert_eq!(problem(text), Some(Problem::Range), "{text}");
    }
    for text in [
        "",
        "18",
        "19ff",
        "61",
        "4200",
        "81",
        "a1",
        "a16161",
        "9bffffffffffffffff",
        "5b7fffffffffffffff",
        "bb7fffffffffffffff",
        "d82a",
    ] {
        assert_eq!(problem(text), Some(Problem::End), "{text}");
    }
    assert_eq!(problem("61ff"), Some(Problem::Utf8));
    assert_eq!(problem("63eda080"), Some(Problem::Utf8), "a surrogate");
    assert_eq!(problem("0000"), Some(Problem::Trailing));
}

#[test]
fn depth_and_number_of_values_are_bounded() {
    let lists = |depth: usize| [vec![0x81; depth], vec![0x00]].concat();
    assert!(decode(&lists(MAX_DEPTH)).is_ok());
    assert_eq!(decode(&lists(MAX_DEPTH + 1)).map_err(|error| error.problem), Err(Problem::Depth));
    assert_eq!(decode(&lists(1_000_000)).map_err(|error| error.problem), Err(Problem::Depth));
    let many = |len: u32| [vec![0x9a], len.to_be_bytes().to_vec(), vec![0xf6; len as usize]].concat();
    assert!(decode(&many(999_999)).is_ok());
    assert_eq!(decode(&many(1_000_000)).map_err(|error| error.problem), Err(Problem::Values));
}

#[test]
fn a_lenient_reader_takes_what_the_network_holds_and_still_no_nonsense() {
    let map = decode_lenient(&hex("a26162180161610061")).map_err(|error| error.problem);
    assert_eq!(map, Err(Problem::Trailing));
    let map = decode_lenient(&hex("a2616218016161 61ff")).expect("unsorted, long, not UTF-8");
    let expected = [("a".to_owned(), Value::from("\u{fffd}")), ("b".to_owned(), Value::Integer(1))];
    assert_eq!(Some(map), Map::from_entries(expected.into()).map(Value::Map));
    for text in ["a2616100616101", "9fff", "c001", "f7", "fa3fc00000", "a10000"] {
        assert!(decode_lenient(&hex(text)).is_err(), "{text}");
    }
}

#[test]
fn a_reader_says_where_it_stumbled() {
    assert_eq!(decode(&hex("8200f7")), Err(CborError { at: 2, problem: Problem::Simple }));
    let bytes = hex("a1616b42aabb00");
    let mut reader = Reader::new(&bytes);
    assert_eq!((reader.map(), reader.key("k"), reader.bytes()), (Ok(1), Ok(()), Ok(&[0xaa, 0xbb][..])));
    assert_eq!((reader.position(), reader.rest()), (6, &[0][..]));
    assert_eq!(reader.link().map_err(|error| error.problem), Err(Problem::Expected("a link")));
}

#[test]
fn a_map_keeps_the_order_of_the_encoding() {
    let mut map = Map::new();
    for key in ["bb", "a", "b", "aa", ""] {
        assert_eq!(map.insert(key, Value::Null), None);
    }
    assert_eq!(map.insert("a", Value::Integer(1)), Some(Value::Null));
    assert_eq!(map.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["", "a", "b", "aa", "bb"]);
    assert_eq!((map.remove("b"), map.remove("b"), map.len()), (Some(Value::Null), None, 4));
}

proptest! {
    #[test]
    fn a_value_comes_back(value in value(true)) {
        let bytes = encode(&value);
        prop_assert_eq!(decode(&bytes), Ok(value.clone()));
        prop_assert_eq!(decode_lenient(&bytes), Ok(value));
    }

    #[test]
    fn what_is_read_is_written_as_it_was(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(value) = decode(&bytes) {
            prop_assert_eq!(encode(&value), bytes);
        }
    }

    #[test]
    fn a_changed_document_is_refused_or_means_something_else(value in value(true), at in any::<prop::sample::Index>(), bit in 0_u32..8) {
        let mut bytes = encode(&value);
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        let _ = decode_lenient(&bytes).is_ok();
        if let Ok(other) = decode(&bytes) {
            prop_assert_ne!(&other, &value);
            prop_assert_eq!(encode(&other), bytes);
        }
    }

    #[test]
    fn a_cut_document_is_refused(value in value(true), at in any::<prop::sample::Index>()) {
        let bytes = encode(&value);
        let at = at.index(bytes.len());
        prop_assert!(decode(&bytes[..at]).is_err());
    }
}
