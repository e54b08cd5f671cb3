//! Streams that end by themselves, on a clock that the test moves.

use std::sync::Arc;

use alluvium_engine::{CreateRequest, Created, Engine, LookupError, Threads};
use alluvium_env::sim::{ManualClock, SeededRandom, SimDisk};
use alluvium_env::{Clock, Env};
use alluvium_protocol::{Lifetime, StreamPath};

use crate::support::{create_request, path, small_options};

/// An engine whose time and work are moved by hand.
struct World {
    engine: Engine,
    clock: Arc<ManualClock>,
    disk: SimDisk,
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(1_000_000));
        let disk = SimDisk::new(1);
        Self { engine: open(&clock, &disk), clock, disk }
    }

    fn restart(&mut self) {
        self.engine.shutdown();
        self.engine = open(&self.clock, &self.disk);
    }

    async fn create(&self, name: &str, lifetime: Lifetime) -> Created {
        let path = path(name);
        let request = CreateRequest { lifetime, ..create_request("text/plain") };
        let create = self.engine.create(&path, request);
        let mut create = std::pin::pin!(create);
        assert!(futures_now(create.as_mut()).is_none(), "a create waits for its commit");
        self.commit();
        create.await.unwrap()
    }

    fn commit(&self) {
        for shard in 0..self.engine.shards() {
            self.engine.step_commit(shard).unwrap();
        }
    }

    fn sweep(&self) {
        for shard in 0..self.engine.shards() {
            self.engine.step_expire(shard);
        }
        self.commit();
    }

    fn exists(&self, path: &StreamPath) -> bool {
        self.engine.head(path).is_ok()
    }
}

fn open(clock: &Arc<ManualClock>, disk: &SimDisk) -> Engine {
    let env = Env {
        clock: clock.clone() as Arc<dyn Clock>,
        random: Arc::new(SeededRandom::new(7)),
        disk: Arc::new(disk.clone()),
    };
    let mut options = small_options();
    options.threads = Threads::Manual;
    Engine::open(env, std::path::Path::new("/data"), options).unwrap()
}

fn futures_now<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

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
