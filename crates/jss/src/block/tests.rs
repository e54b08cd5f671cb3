//! Blocks against the rows that they were made from, and bodies that are none.

use proptest::prelude::*;

use super::*;
use crate::error::Refused;
use crate::fixtures::{event, rows};

fn built(rows: &[Row]) -> Bytes {
    let mut builder = BlockBuilder::new();
    for row in rows {
        builder.push(row.as_ref()).unwrap();
    }
    let body = builder.body();
    assert_eq!(body.len(), builder.body_bytes());
    body
}

#[test]
fn columns_lie_where_the_format_says() {
    let event = Event {
        witnessed_at: 0x0102,
        indexed_at: 3,
        kind: Kind::Update,
        did: "did".into(),
        collection: "col".into(),
        rkey: "rk".into(),
        rev: "r".into(),
        payload: Bytes::from_static(b"load"),
    };
    let body = built(&[Row { seq: 9, event }]);
    let expected: [&[u8]; 15] = [
        &[1, 0, 0, 0],
        &[9, 0, 0, 0, 0, 0, 0, 0],
        &[2, 1, 0, 0, 0, 0, 0, 0],
        &[3, 0, 0, 0, 0, 0, 0, 0],
        &[2],
        &[3],
        &[3, 0],
        &[2],
        &[1],
        &[4, 0, 0, 0],
        b"col",
        b"did",
        b"rk",
        b"r",
        b"load",
    ];
    assert_eq!(body, expected.concat());
}

#[test]
fn a_count_is_checked_before_memory_is_taken() {
    let body = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0]);
    assert!(matches!(Block::decode(body), Err(Damage::TooMany { .. })));
    let body = Bytes::from_static(&[0, 0, 4, 0, 0]);
    assert!(matches!(Block::decode(body), Err(Damage::Short { .. })));
    assert!(matches!(Block::decode(Bytes::new()), Err(Damage::Short { .. })));
}

#[test]
fn an_empty_block_has_no_rows() {
    let block = Block::decode(Bytes::from_static(&[0; 4])).unwrap();
    assert!(block.is_empty() && block.rows().len() == 0 && block.first_at(1) == 0);
    assert!(matches!(Block::decode(Bytes::from_static(&[0; 5])), Err(Damage::Trailing { .. })));
}

#[test]
fn text_must_be_text_in_each_row() {
    let mut first = event(1);
    first.did = "é".into();
    let good = built(&[Row { seq: 1, event: first.clone() }, Row { seq: 2, event: first }]);
    assert!(Block::decode(good.clone()).is_ok());
    // The same bytes, cut within a character: 1 + 3 bytes instead of 2 + 2.
    let lengths = COUNT_BYTES + 2 * (8 + 8 + 8 + 1 + 1);
    let mut bad = good.to_vec();
    assert_eq!(bad[lengths..lengths + 4], [2, 0, 2, 0]);
    bad[lengths] = 1;
    bad[lengths + 2] = 3;
    assert_eq!(Block::decode(bad.into()).unwrap_err(), Damage::Text(Field::Did));
}

#[test]
fn a_kind_of_a_later_version_is_read_and_not_written() {
    let mut body = built(&rows(1)).to_vec();
    body[COUNT_BYTES + 24] = 99;
    let block = Block::decode(body.into()).unwrap();
    assert_eq!(block.kind(0), Kind::Unknown(99));
    assert_eq!(BlockBuilder::new().push(block.row(0)), Err(Refused::Kind(99)));
}

proptest! {
    #[test]
    fn rows_come_back(rows in crate::fixtures::any_rows(40)) {
        let block = Block::decode(built(&rows)).unwrap();
        let found: Vec<Row> = (0..block.len()).map(|row| block.shared_row(row)).collect();
        prop_assert_eq!(&found, &rows);
        let copies: Vec<Row> = block.rows().map(|row| row.to_row()).collect();
        prop_assert_eq!(&copies, &rows);
        prop_assert!(block.check_order().is_ok());
        for wanted in 0..rows.last().map_or(1, |row| row.seq + 2) {
            let expected = rows.iter().filter(|row| row.seq < wanted).count();
            prop_assert_eq!(block.first_at(wanted), expected);
        }
    }

    #[test]
    fn any_bytes_are_a_block_or_refused(body in proptest::collection::vec(any::<u8>(), 0..300), rows in 0..8u8) {
        drop(Block::decode(body.clone().into()));
        // With a count that the length allows.
        let counted = [&[rows, 0, 0, 0], body.as_slice()].concat();
        if let Ok(block) = Block::decode(counted.clone().into()) {
            let mut builder = BlockBuilder::new();
            for row in block.rows() {
                builder.push_any(row).unwrap();
            }
            prop_assert_eq!(builder.body(), counted);
        }
    }
}
