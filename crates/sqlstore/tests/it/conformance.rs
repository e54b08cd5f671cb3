//! The behaviour suite of the store contract.

use std::panic::{AssertUnwindSafe, catch_unwind};

use alluvium_protocol::store::conformance::{Harness, Limits, behaviours};
use alluvium_sqlstore::{ReadMode, SqliteOptions, SqliteStore};

use crate::world::{World, bounds, options, runtime};

struct Sqlite {
    world: World,
    store: SqliteStore,
}

impl Harness for Sqlite {
    type Store = SqliteStore;

    fn store(&self) -> &SqliteStore {
        &self.store
    }

    fn advance_ms(&self, by_ms: u64) {
        self.world.clock.advance_ms(by_ms);
    }

    fn limits(&self) -> Limits {
        let bounds = bounds();
        let size = |bytes: u64| usize::try_from(bytes).expect("small");
        Limits {
            append_bytes_max: size(bounds.append_bytes_max),
            read_bytes_max: size(bounds.read_bytes_max),
            checkpoint_bytes_max: size(bounds.checkpoint_bytes_max),
        }
    }
}

fn run(claims_required: bool, open: impl Fn(&World) -> SqliteStore) {
    let runtime = runtime();
    let behaviours = behaviours::<Sqlite>(claims_required);
    assert!(behaviours.len() > 45, "the suite is there");
    for behaviour in behaviours {
        let world = World::new(1);
        let store = open(&world);
        let harness = Sqlite { world, store };
        let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on((behaviour.run)(&harness))));
        assert!(outcome.is_ok(), "`{}` failed", behaviour.name);
    }
}

#[test]
fn a_plain_store_behaves_as_the_contract_says() {
    run(false, World::open);
}

#[test]
fn a_strict_store_behaves_as_the_contract_says() {
    run(true, World::strict);
}

#[test]
fn a_store_without_memory_of_streams_that_reads_in_place_behaves_the_same() {
    run(false, |world| {
        let options = SqliteOptions { cached_streams_max: 0, reads: ReadMode::Inline, ..options() };
        world.try_open(options).expect("opens")
    });
}
