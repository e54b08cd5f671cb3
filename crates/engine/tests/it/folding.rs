//! Folding keeps every byte and boundary, and gives space back.

use std::collections::HashMap;

use alluvium_protocol::{Lifetime, Offset, OffsetQuery, StreamPath};
use bytes::Bytes;

use crate::support::{Fixture, append_request, create_request, path, publish_request, small_options};
use crate::world::World;

#[tokio::test]
async fn many_folds_keep_bytes_and_boundaries() {
    let mut fixture = Fixture::new();
    let mut expected: HashMap<String, Vec<u8>> = HashMap::new();
    let mut boundaries: HashMap<String, Vec<Offset>> = HashMap::new();
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

/// How many bytes the same appends write, with everything that follows, beside so many streams with floors.
async fn bytes_beside(count: u64) -> u64 {
    let world = World::new();
    let names: Vec<StreamPath> = (0..count).map(|number| path(&format!("beside/{number}"))).collect();
    for names in names.chunks(500) {
        world.run_all(names.iter().map(|name| world.engine.create(name, create_request("text/plain")))).await;
        world
            .run_all(names.iter().map(|name| world.engine.append(name, append_request("text/plain", b"abc"))))
            .await;
        // Fewer at a time than there may be uploads.
        for names in names.chunks(50) {
            let publish = async |name: &StreamPath| {
                let mut upload = world.engine.begin_publish(name, publish_request(Offset::new(1, 3))).await?;
                upload.write(Bytes::from_static(b"folded")).await?;
                upload.publish().await
            };
            world.run_all(names.iter().map(publish)).await;
        }
    }
    world.fold();
    let stream = path("s");
    world.create("s", Lifetime::Forever).await;
    let before = world.disk.written_bytes();
    for number in 0..400_u64 {
        let append = append_request("text/plain", &vec![b'x'; 30_000]);
        let tail = world.run(world.engine.append(&stream, append)).await.unwrap().tail;
        if number % 20 == 0 {
            let mut upload = world.engine.begin_publish(&stream, publish_request(tail)).await.unwrap();
            upload.write(Bytes::from_static(b"folded")).await.unwrap();
            world.run(upload.publish()).await.unwrap();
        }
        (0..world.engine.shards()).for_each(|shard| world.engine.step_maintenance(shard));
    }
    assert!(world.engine.head(&names[0]).is_ok_and(|head| head.floor == Offset::new(1, 3)));
    world.disk.written_bytes() - before
}

#[tokio::test]
async fn folds_cost_by_what_is_written_and_not_by_the_number_of_streams_with_floors() {
    let (few, many) = (bytes_beside(20).await, bytes_beside(5_000).await);
    assert!(many < few + few / 2, "{few} bytes beside a few streams, {many} beside many");
}
