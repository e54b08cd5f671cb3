//! Streams that end by themselves, on a clock that the test moves.

use alluvium_engine::LookupError;
use alluvium_protocol::Lifetime;

use crate::support::path;
use crate::world::World;

#[tokio::test]
async fn a_window_slides_with_reads_and_not_with_heads() {
    let world = World::new();
    let stream = path("t");
    world.create("t", Lifetime::Ttl { seconds: 10 }).await;
    for _ in 0..5 {
        world.clock.advance_ms(9_999);
        assert!(world.engine.open_stream(&stream).is_ok());
    }
    for _ in 0..9 {
        world.clock.advance_ms(1_000);
        assert!(world.exists(&stream));
    }
    world.clock.advance_ms(1_000);
    assert_eq!(world.engine.open_stream(&stream).map(drop), Err(LookupError::NotFound));
}

#[tokio::test]
async fn a_restart_never_shortens_a_window_and_lengthens_it_by_an_eighth_at_most() {
    let mut world = World::new();
    let stream = path("t");
    world.create("t", Lifetime::Ttl { seconds: 80 }).await;
    world.clock.advance_ms(79_000);
    assert!(world.engine.open_stream(&stream).is_ok());
    world.commit();
    world.restart();
    world.clock.advance_ms(79_999);
    assert!(world.exists(&stream));
    world.restart();
    assert!(world.exists(&stream));
    world.clock.advance_ms(10_001);
    assert!(!world.exists(&stream));
}

#[tokio::test]
async fn an_instant_comes_whatever_happens_and_the_path_is_free_again() {
    let mut world = World::new();
    let stream = path("u");
    let first = world.create("u", Lifetime::Until { unix_ms: 1_005_000 }).await;
    world.clock.advance_ms(4_999);
    assert!(world.engine.open_stream(&stream).is_ok());
    world.clock.advance_ms(1);
    assert!(!world.exists(&stream));
    let second = world.create("u", Lifetime::Forever).await;
    assert!(second.fresh && second.incarnation != first.incarnation);
    world.restart();
    assert_eq!(world.engine.head(&stream).unwrap().incarnation, second.incarnation);
}

#[tokio::test]
async fn the_sweep_ends_what_nobody_asks_for() {
    let mut world = World::new();
    for number in 0..50 {
        world.create(&format!("s{number}"), Lifetime::Ttl { seconds: 1 + number }).await;
    }
    world.clock.advance_ms(25_000);
    world.sweep();
    assert_eq!(world.engine.stats().streams, 25);
    world.restart();
    assert_eq!(world.engine.stats().streams, 25);
}
