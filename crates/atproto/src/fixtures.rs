//! What the tests of several modules make their inputs from.

use proptest::prelude::*;

use crate::cbor::{Finite, Map, Value};
use crate::cid::{Cid, Codec};

/// The bytes of hexadecimal digits; spaces are skipped.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// Any value, with floats or without.
pub(crate) fn value(floats: bool) -> impl Strategy<Value = Value> {
    let float = any::<f64>().prop_filter_map("finite", Finite::new).prop_map(Value::Float);
    let leaf = prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Bool),
        3 => any::<i64>().prop_map(Value::Integer),
        3 => (-300_i64..300).prop_map(Value::Integer),
        3 => proptest::collection::vec(any::<u8>(), 0..40).prop_map(Value::Bytes),
        3 => "\\PC{0,30}".prop_map(Value::Text),
        2 => any::<[u8; 8]>().prop_map(|block| Value::Link(Cid::of(Codec::DagCbor, &block))),
        if floats { 2 } else { 0 } => float,
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        let entries = proptest::collection::btree_map("[a-z\\PC]{0,4}", inner.clone(), 0..6);
        prop_oneof![
            proptest::collection::vec(inner, 0..6).prop_map(Value::List),
            entries.prop_map(|map| Value::Map(
                Map::from_entries(map.into_iter().collect()).expect("keys differ")
            )),
        ]
    })
}
