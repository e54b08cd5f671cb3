use proptest::prelude::*;

use super::*;
use crate::cid::Codec;
use crate::fixtures::hex;

const SMALL: Limits = Limits { bytes: 2000, block_bytes: 200, blocks: 8 };

fn block(bytes: &[u8]) -> (Cid, Vec<u8>) {
    (Cid::of(Codec::Raw, bytes), bytes.to_vec())
}

fn file(roots: &[Cid], blocks: &[(Cid, Vec<u8>)]) -> Vec<u8> {
    write(roots, blocks.iter().map(|(cid, block)| (cid, block.as_slice())))
}

fn read(file: Vec<u8>) -> Result<Car, CarError> {
    Car::read(Bytes::from(file), &SMALL)
}

#[test]
fn the_bytes_are_those_of_the_specification() {
    let (cid, bytes) = block(b"");
    let digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let expected =
        format!("3aa265726f6f747381d82a5825000155 1220{digest}6776657273696f6e01 2401551220{digest}");
    assert_eq!(file(&[cid], &[(cid, bytes)]), hex(&expected));
}

#[test]
fn a_file_without_roots_or_blocks_and_one_with_a_block_twice_are_read() {
    assert!(read(file(&[], &[])).is_ok_and(|car| car.is_empty() && car.roots().is_empty()));
    let twice = file(&[block(b"a").0], &[block(b"a"), block(b"a"), block(b"b")]);
    let car = read(twice).expect("repeated blocks are harmless");
    assert_eq!((car.len(), car.roots()), (2, &[block(b"a").0][..]));
    assert_eq!(car.block(&block(b"b").0), Some(&b"b"[..]));
    assert_eq!(car.bytes(&block(b"b").0).as_deref(), Some(&b"b"[..]));
    assert_eq!(car.block(&block(b"c").0), None);
}

#[test]
fn wrong_content_and_wrong_headers_are_refused() {
    let (cid, _) = block(b"a");
    assert_eq!(read(file(&[], &[(cid, b"b".to_vec())])).err(), Some(CarError::Content(cid)));
    let mut other_kind = file(&[], &[block(b"a")]);
    let at = other_kind.len() - 36;
    other_kind[at] = 0x70;
    assert_eq!(read(other_kind).err(), Some(CarError::Cid));
    // Not a map; no version; version 2; a root that is no link; something behind the header's map.
    for header in [
        "80",
        "a1 65726f6f747380",
        "a2 65726f6f747380 6776657273696f6e02",
        "a2 65726f6f74738100 6776657273696f6e01",
    ] {
        let header = hex(header);
        assert_eq!(
            read([vec![u8::try_from(header.len()).expect("short")], header].concat()).err(),
            Some(CarError::Version)
        );
    }
    for header in ["", "a0a0", "ff"] {
        let header = hex(header);
        let refused = read([vec![u8::try_from(header.len()).expect("short")], header].concat());
        assert!(matches!(refused, Err(CarError::Header(_))), "{refused:?}");
    }
}

#[test]
fn lengths_are_checked_before_they_are_believed() {
    for length in ["8000", "ff00", "80808080808080808001", "ffffffffffffffffff01"] {
        assert_eq!(read(hex(length)).err(), Some(CarError::Length), "{length}");
    }
    assert_eq!(read(hex("ffffffffffffffff7f")).err(), Some(CarError::Limit));
    let section = |length: &str| read([file(&[], &[]), hex(length)].concat()).err();
    assert_eq!(section("23"), Some(CarError::Length), "shorter than a CID");
    assert_eq!(section("24"), Some(CarError::End));
    assert_eq!(section("ed01"), Some(CarError::Limit), "a block of 201 bytes");
    assert_eq!(section("ffffffffffffffff7f"), Some(CarError::Limit));
}

#[test]
fn more_than_the_limits_is_refused() {
    let blocks: Vec<_> = (0..9_u8).map(|byte| block(&[byte])).collect();
    assert!(read(file(&[], &blocks[..8])).is_ok());
    assert_eq!(read(file(&[], &blocks)).err(), Some(CarError::Limit));
    assert!(read(file(&[], &[block(&[0; 200])])).is_ok());
    assert_eq!(read(file(&[], &[block(&[0; 201])])).err(), Some(CarError::Limit));
    assert_eq!(read(vec![0; 2001]).err(), Some(CarError::Limit));
    let roots = vec![block(b"").0; 128];
    let limits = Limits { bytes: 1 << 20, ..SMALL };
    assert_eq!(Car::read(file(&roots, &[]).into(), &limits).err(), Some(CarError::Limit));
}

proptest! {
    #[test]
    fn blocks_come_back_and_any_cut_but_between_blocks_is_refused(
        contents in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..6),
        at in any::<prop::sample::Index>(),
    ) {
        let blocks: Vec<_> = contents.iter().map(|bytes| block(bytes)).collect();
        let whole = file(&[], &blocks);
        let car = read(whole.clone()).expect("what was written");
        for (cid, bytes) in &blocks {
            prop_assert_eq!(car.block(cid), Some(bytes.as_slice()));
        }
        let ends: Vec<usize> = (0..blocks.len()).map(|n| file(&[], &blocks[..n]).len()).collect();
        let at = at.index(whole.len());
        prop_assert_eq!(read(whole[..at].to_vec()).is_ok(), ends.contains(&at));
    }

    #[test]
    fn a_changed_byte_is_noticed(content in proptest::collection::vec(any::<u8>(), 1..100), at in any::<prop::sample::Index>(), bit in 0_u32..8) {
        let (cid, bytes) = block(&content);
        let mut changed = file(&[cid], &[(cid, bytes)]);
        let at = at.index(changed.len());
        changed[at] ^= 1_u8 << bit;
        // A changed root is another root; a block whose bytes are others is never there.
        if let Ok(car) = read(changed) {
            prop_assert_ne!(car.roots(), &[cid][..]);
        }
    }
}
