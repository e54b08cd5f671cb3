//! Folding keeps every byte and boundary, and gives space back.

use std::collections::HashMap;

use alluvium_protocol::OffsetQuery;

use crate::support::{Fixture, path, small_options};

#[tokio::test]
async fn many_folds_keep_bytes_and_boundaries() {
    let mut fixture = Fixture::new();
    let mut expected: HashMap<String, Vec<u8>> = HashMap::new();
    let mut boundaries: HashMap<String, Vec<alluvium_protocol::Offset>> = HashMap::new();
    for number in 0..6 {
        fixture.create(&format!("s{number}"), "text/plain").await;
    }
    for round in 0..12u32 {
        for step in 0..40u32 {
            let name = format!("s{}", (round * 7 + step * step) % 6);
            let body: Vec<u8> =
                (0..=(step * 97 + round * 31) % 4000).map(|i| (i * step % 251).to_le_bytes()[0]).collect();
            let appended = fixture.append(&name, "text/plain", &body).await;
            expected.entry(name.clone()).or_default().extend_from_slice(&body);
            boundaries.entry(name).or_default().push(appended.tail);
        }
        if round % 2 == 0 {
            fixture.fold();
        }
        if round % 5 == 4 {
            fixture.restart();
        }
        for (name, bytes) in &expected {
            assert_eq!(&fixture.read(name), bytes, "{name} in round {round}");
            assert_eq!(&fixture.read_pages(name, 3000).0, bytes, "{name} in pages in round {round}");
            let reader = fixture.reader(name);
            for offset in &boundaries[name] {
                assert_eq!(reader.resolve(OffsetQuery::At(*offset)), Ok(*offset));
            }
        }
    }
    assert!(fixture.engine.stats().tables > 0);
}

#[tokio::test]
async fn the_space_of_deleted_streams_comes_back() {
    let mut options = small_options();
    options.shards = 1;
    let fixture = Fixture::with(options);
    for number in 0..20 {
        let name = format!("big{number}");
        fixture.create(&name, "text/plain").await;
        for _ in 0..10 {
            fixture.append(&name, "text/plain", &vec![number; 20_000]).await;
        }
    }
    fixture.fold();
    while fixture.engine.stats().sealed_segments > 0 {
        fixture.fold();
    }
    let full = fixture.disk_bytes();
    for number in 1..20 {
        fixture.engine.delete(&path(&format!("big{number}"))).await.unwrap();
    }
    for _ in 0..4 {
        fixture.fold();
    }
    let left = fixture.disk_bytes();
    assert!(full > 20 * 10 * 20_000, "{full}");
    assert!(left < 1_500_000, "{left} bytes are left of {full}");
    assert_eq!(fixture.read("big0"), vec![0; 200_000]);
}

#[tokio::test]
async fn ids_are_not_given_again_after_everything_is_gone() {
    let mut fixture = Fixture::new();
    let mut incarnations = Vec::new();
    for _ in 0..3 {
        incarnations.push(fixture.create("x", "text/plain").await.incarnation);
        fixture.append("x", "text/plain", b"1").await;
        fixture.engine.delete(&path("x")).await.unwrap();
        fixture.fold();
        fixture.restart();
    }
    incarnations.dedup();
    assert_eq!(incarnations.len(), 3);
    assert_eq!(fixture.engine.stats().streams, 0);
}
