use proptest::prelude::*;

use super::*;
use crate::record::{decode_record, tests::arbitrary_record};

fn joined(pieces: &[Bytes]) -> Bytes {
    Bytes::from(pieces.iter().flat_map(|piece| piece.iter().copied()).collect::<Vec<u8>>())
}

proptest! {
    #[test]
    fn every_record_is_where_its_place_says(records in prop::collection::vec(arbitrary_record(), 1..8)) {
        let mut builder = BatchBuilder::new();
        let places: Vec<_> = records.iter().map(|record| builder.push(record)).collect();
        let len = builder.len();
        let (pieces, _) = builder.seal(9, 8, 2, 77);
        let bytes = joined(&pieces);
        prop_assert_eq!(bytes.len() as u64, len);

        let header = BatchHeader::decode(bytes.first_chunk().expect("a header")).expect("a valid header");
        prop_assert_eq!(BATCH_HEADER_BYTES as u64 + u64::from(header.body_len), len);
        prop_assert_eq!(header.record_count as usize, records.len());
        for (record, place) in records.iter().zip(places) {
            let (decoded, record_len) = decode_record(&bytes.slice(place.record_at as usize..)).expect("a record");
            prop_assert_eq!(&decoded, record);
            prop_assert!(record_len <= BatchBuilder::record_len_max(record));
            let data = &bytes[place.data_at as usize..][..place.data_len as usize];
            prop_assert_eq!(crc32c::crc32c(data), place.data_crc);
        }
    }
}

#[test]
fn large_data_is_not_copied() {
    let data = Bytes::from(vec![7; DATA_COPIED_BYTES_MAX + 1]);
    let record = record::tests::append_of(data.clone());
    let mut builder = BatchBuilder::new();
    builder.push(&record);
    builder.push(&record);
    let (pieces, _) = builder.seal(1, 0, 1, 1);
    let shared = pieces.iter().filter(|piece| piece.as_ptr() == data.as_ptr()).count();
    assert_eq!(shared, 2);
}

#[test]
fn the_next_batch_goes_on_in_the_same_memory() {
    let mut builder = BatchBuilder::with_buffer(BytesMut::with_capacity(64 * 1024));
    builder.push(&record::tests::append_of(Bytes::from_static(b"first")));
    let (first, rest) = builder.seal(1, 0, 1, 1);
    let second = BatchBuilder::with_buffer(rest);
    assert_eq!(second.buffer.as_ptr(), first[0].as_ptr_range().end);
}

#[test]
fn an_ordinary_append_has_little_overhead() {
    let record = record::tests::append_of(Bytes::from(vec![b'x'; 100]));
    let mut builder = BatchBuilder::new();
    let before = builder.len();
    builder.push(&record);
    assert!(builder.len() - before - 100 <= 64, "{}", builder.len() - before - 100);
}
