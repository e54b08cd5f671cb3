//! Forks across shards, when the power goes and syncs were left to the system.

use alluvium_engine::CreateRequest;
use alluvium_protocol::{ForkOrigin, Offset};
use bytes::Bytes;

use crate::buckets::fill;
use crate::support::{append_request, create_request, path, publish_request, read_body};
use crate::world::World;

#[tokio::test]
async fn a_fork_that_has_lost_its_source_to_the_disk_ends_and_nothing_else_does() {
    let (mut ended, mut kept) = (0, 0);
    for seed in 0..60 {
        let mut world = World::unsynced(seed);
        // Of each pair, the first has the other's bytes, and one has a snapshot too.
        let names = ["a", "b", "c", "d", "e", "f"];
        for (number, name) in names.into_iter().enumerate() {
            let source = path(&format!("{name}/source"));
            world.run(world.engine.create(&source, create_request("text/plain"))).await.unwrap();
            for text in ["one", "two"] {
                world
                    .run(world.engine.append(&source, append_request("text/plain", text.as_bytes())))
                    .await
                    .unwrap();
            }
            if number % 2 == 0 {
                let request = publish_request(Offset::new(1, 3));
                let mut upload = world.engine.begin_publish(&source, request).await.unwrap();
                // In the journal, or in a table of its own.
                upload.write(Bytes::from(vec![b's'; 10 + 60_000 * number])).await.unwrap();
                world.run(upload.publish()).await.unwrap();
            }
            let fork = path(&format!("{name}/fork"));
            let origin = ForkOrigin { source: source.clone(), offset: None, sub_offset: 0 };
            let request = CreateRequest { fork: Some(origin), ..create_request("text/plain") };
            world.run(world.engine.create(&fork, request)).await.unwrap();
            world.run(world.engine.append(&fork, append_request("text/plain", b"own"))).await.unwrap();
        }
        fill(&world, seed % 2).await;
        world.crash();
        let check = |world: &World| {
            let mut found = Vec::new();
            for name in names {
                let fork = path(&format!("{name}/fork"));
                let Ok(head) = world.engine.head(&fork) else { continue };
                found.push(name);
                if let Some(snapshot) = &head.snapshot {
                    let snapshot = world.engine.open_snapshot(&fork, snapshot.offset).unwrap();
                    assert!(read_body(&snapshot).iter().all(|byte| *byte == b's'), "seed {seed}");
                }
                let content = world.content(&fork, head.floor);
                let whole = &b"onetwoown"[usize::try_from(head.floor.position).unwrap()..];
                assert!(
                    whole.starts_with(&content) && content.len() + 3 >= whole.len(),
                    "seed {seed}: {content:?}"
                );
            }
            found
        };
        let found = check(&world);
        kept += found.len();
        // What was lost is lost for good: the sources come back with other bytes, and no number is used again.
        for name in names {
            let source = path(&format!("{name}/source"));
            if !world.exists(&source) {
                world.run(world.engine.create(&source, create_request("text/plain"))).await.unwrap();
                ended += usize::from(!found.contains(&name));
            }
            world.run(world.engine.append(&source, append_request("text/plain", b"another"))).await.unwrap();
        }
        assert_eq!(check(&world), found, "seed {seed}");
        world.restart();
        assert_eq!(check(&world), found, "seed {seed}");
        world.fold();
        world.sweep();
        assert_eq!(check(&world), found, "seed {seed}");
    }
    assert!(ended > 0 && kept > 0, "{ended} forks ended, {kept} stayed");
}
