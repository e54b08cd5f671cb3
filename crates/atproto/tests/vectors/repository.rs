//! Files with blocks, and a whole repository.

use std::fmt::Write as _;

use alluvium_atproto::car::{Limits, write};
use alluvium_atproto::{Blocks as _, Car, Cid, Repo, cbor};

use alluvium_vectors::{Files, base64, text};

pub(crate) fn car_files(files: &Files) {
    for case in files.cases("atmos/car/car-file-fixtures.json") {
        let file = base64(text(&case, "car"));
        let root: Cid = text(&case, "root").parse().expect("a CID");
        let blocks: Vec<(Cid, Vec<u8>)> = case["blocks"]
            .as_array()
            .expect("blocks")
            .iter()
            .map(|block| (text(block, "cid").parse().expect("a CID"), base64(text(block, "bytes"))))
            .collect();
        let car = Car::read(file.clone().into(), &Limits::COMMIT).expect("a file");
        assert_eq!((car.roots(), car.len()), (&[root][..], blocks.len()));
        for (cid, block) in &blocks {
            assert_eq!(car.block(cid), Some(block.as_slice()));
        }
        assert_eq!(write(&[root], blocks.iter().map(|(cid, block)| (cid, block.as_slice()))), file);
    }
    // A whole repository, and a file that holds a part of one.
    let whole =
        Car::read(files.bytes("atmos/car/greenground.repo.car").into(), &Limits::REPO).expect("a file");
    let whole = Repo::open(whole).expect("a repository");
    assert!(whole.records(100, |_, _, _| {}).is_ok_and(|records| records > 0));
    let part = Car::read(files.bytes("atmos/car/repo_slice.car").into(), &Limits::REPO).expect("a file");
    assert!(Repo::open(part).and_then(|repo| repo.records(100_000, |_, _, _| {})).is_err());
}

pub(crate) fn a_real_one(files: &Files) {
    let car = Car::read(files.bytes("corpus/repo.car").into(), &Limits::REPO).expect("a file");
    let repo = Repo::open(car).expect("a repository");
    assert_eq!(repo.commit.check("did:plc:53iucmf5ldftgqyf2ac7hmhd", Some("3migo7fijwi2k")), Ok(()));
    assert_eq!(repo.commit.data.to_string(), "bafyreidigqr65jj2zsmitco3fcuag6pi7std6quxa2bcp2xrpin44ikzsy");
    assert_eq!(repo.car().block(&repo.cid), Some(repo.commit.encode().1.as_slice()));
    let mut records = String::new();
    let count = repo.records(1_000_000, |key, cid, block| {
        let value = cbor::decode(block).expect("a record");
        assert_eq!(cbor::encode(&value), block);
        writeln!(records, "{}\t{cid}", String::from_utf8_lossy(key)).expect("a string takes everything");
    });
    let expected = files.text("corpus/car_expected_records.tsv");
    assert_eq!(count, Ok(expected.lines().count()));
    assert_eq!(records.lines().collect::<Vec<_>>(), expected.lines().collect::<Vec<_>>());
}
