//! Bloom filters: hashes, shapes and serialised forms.

use alluvium_jss::gloom::{DidHash, Filter, FilterBuilder, parameters};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use alluvium_vectors::Files;

pub(crate) fn hashes(files: &Files) {
    let table = files.table("gloom/xxh3_vectors.tsv");
    assert!(table.len() > 60);
    for row in table {
        let number = |column: usize| u64::from_str_radix(&row[column], 16).unwrap();
        let input: Vec<u8> = (0..row[0].parse::<u32>().unwrap()).map(|n| (n % 251) as u8).collect();
        assert_eq!(xxh3_64(&input), number(1), "{} bytes", row[0]);
        assert_eq!(xxh3_128(&input), u128::from(number(2)) << 64 | u128::from(number(3)), "{} bytes", row[0]);
    }
}

pub(crate) fn golden_filters(files: &Files) {
    for row in files.table("gloom/golden_recipes.tsv") {
        let path = format!("gloom/k{:0>2}_3blocks.bin", row[0]);
        let filter = Filter::parse(files.bytes(&path).into()).unwrap();
        assert_eq!(filter.added().to_string(), row[3], "{path}");
    }
    let empty = Filter::parse(files.bytes("gloom/empty_1block_k7.bin").into()).unwrap();
    assert!(!empty.may_contain(DidHash::of("did:plc:eygmaihciaxprqvxpfvl6flk")));
}

pub(crate) fn shapes(files: &Files) {
    let table = files.table("gloom/params_fp0.001_n1-4096.tsv");
    assert_eq!(table.len(), 4096);
    for row in table {
        let numbers: Vec<usize> = row.iter().map(|cell| cell.parse().unwrap()).collect();
        let shape = parameters(numbers[0]);
        let len = FilterBuilder::new(numbers[0]).finish().len();
        assert_eq!([shape.blocks, shape.k as usize, len], numbers[1..4], "{}", numbers[0]);
    }
}
