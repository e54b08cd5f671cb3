//! Brings what a server has counted, and whether it is well, to its operator.

use std::sync::Arc;

use alluvium_env::Env;
use alluvium_feeds::Service;
use alluvium_feeds::http::{
    MOUNT as FEEDS_MOUNT, OPERATIONS as FEED_OPERATIONS, Surface, operation as feed_operation,
};
use alluvium_http::RequestBody;
use alluvium_streams::{Backend, Operation, Streams, operation};

use crate::admin::{ADMIN_MOUNT, OPERATIONS as ADMIN_OPERATIONS, operation as admin_operation};
use crate::config::Config;
use crate::keep::{BACKUP_OPERATIONS, Backups, Keeper, operation as backup_operation};
use crate::metrics;
use crate::sight::{HEALTH_PATH, METRICS_PATH, Operations, READY_PATH, Sight, Unready};
use crate::store::OpenStore;

/// The operations about the server itself.
const OWN: &[&str] = &["health", "ready", "metrics"];
const STREAM_COUNT: usize = Operation::ALL.len();
const OWN_FROM: usize = STREAM_COUNT + FEED_OPERATIONS.len();
const ADMIN_FROM: usize = OWN_FROM + OWN.len();
const BACKUPS_FROM: usize = ADMIN_FROM + ADMIN_OPERATIONS.len();
const COUNT: usize = BACKUPS_FROM + BACKUP_OPERATIONS.len();

static NAMES: [&str; COUNT] = names();

/// All operations: those of streams, those of feeds, those about the server itself, and those of its operator.
pub(crate) static OPERATIONS: Operations = Operations { names: &NAMES, of: operation_of::<RequestBody> };

const fn names() -> [&'static str; COUNT] {
    let mut names = [""; COUNT];
    let mut at = 0;
    while at < COUNT {
        names[at] = if at < STREAM_COUNT {
            Operation::ALL[at].name()
        } else if at < OWN_FROM {
            FEED_OPERATIONS[at - STREAM_COUNT]
        } else if at < ADMIN_FROM {
            OWN[at - OWN_FROM]
        } else if at < BACKUPS_FROM {
            ADMIN_OPERATIONS[at - ADMIN_FROM]
        } else {
            BACKUP_OPERATIONS[at - BACKUPS_FROM]
        };
        at += 1;
    }
    names
}

/// The names of all operations that requests to a server are counted under.
pub fn operations() -> impl Iterator<Item = &'static str> {
    NAMES.iter().copied()
}

fn operation_of<B>(request: &http::Request<B>) -> usize {
    let (method, uri) = (request.method(), request.uri());
    let own = |place: usize| OWN_FROM + place;
    match uri.path() {
        HEALTH_PATH => own(0),
        READY_PATH => own(1),
        METRICS_PATH => own(2),
        path if Backups::is_owned(path) => BACKUPS_FROM + backup_operation(path),
        path if path.starts_with(ADMIN_MOUNT) => ADMIN_FROM + admin_operation(method, path),
        path if path.starts_with(FEEDS_MOUNT) => STREAM_COUNT + feed_operation(method, uri),
        _ => operation(method, uri) as usize,
    }
}

/// Has shown what the store counts, and asks it whether it is well.
pub(crate) fn watch_store(sight: &Sight, config: &Config, store: &OpenStore) {
    let (choice, durability) = (config.store.clone(), config.durability);
    sight.add(move |page| metrics::store(page, &choice, durability));
    let recovery = store.recovery();
    sight.add(move |page| {
        metrics::recovery(page, recovery.took.as_secs_f64(), recovery.streams, recovery.segments);
    });
    match store.backend() {
        Backend::Engine(engine) => {
            let shown = engine.clone();
            sight.add(move |page| metrics::engine(page, &shown));
            sight.health().watch(move || {
                if !engine.is_running() {
                    return Some(Unready::StoreFailed);
                }
                engine.is_full().then_some(Unready::DiskFull)
            });
        }
        // One that has failed ends the process.
        Backend::Sqlite(store) => {
            let shown = store.clone();
            sight.add(move |page| metrics::sqlite(page, &shown));
            sight.health().watch(move || store.is_full().then_some(Unready::DiskFull));
        }
    }
}

/// Has shown what the surfaces hold.
pub(crate) fn watch_doors(
    sight: &Sight,
    config: &Config,
    streams: &Streams,
    feeds: Option<(&Arc<Service>, &Surface)>,
) {
    let (streams, waiters_max) = (streams.clone(), config.waiters_max);
    sight.add(move |page| metrics::streams(page, &streams, waiters_max));
    if let Some((service, surface)) = feeds {
        let (service, surface) = (Arc::clone(service), surface.clone());
        sight.add(move |page| metrics::feeds(page, &service, &surface));
    }
}

/// Has shown what the subscriptions count.
pub(crate) fn watch_subscriptions(sight: &Sight, service: Option<&alluvium_subscriptions::Service>) {
    if let Some(service) = service {
        let handle = service.handle();
        sight.add(move |page| metrics::subscriptions(page, &handle));
    }
}

/// Has shown how backups went.
pub(crate) fn watch_backups(sight: &Sight, keeper: Option<&Arc<Keeper>>) {
    if let Some(keeper) = keeper {
        let keeper = Arc::clone(keeper);
        sight.add(move |page| metrics::backups(page, keeper.counted()));
    }
}

/// What an operator sees of this server.
pub(crate) fn sight(env: &Env) -> Arc<Sight> {
    Sight::new(env, OPERATIONS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_operation_has_a_name_of_its_own_and_its_request_is_found() {
        assert_eq!(NAMES.iter().collect::<BTreeSet<_>>().len(), COUNT);
        for (request, expected) in [
            ("GET /metrics", "metrics"),
            ("GET /healthz", "health"),
            ("GET /readyz", "ready"),
            ("GET /admin/v1/streams?order=idle", "admin_streams"),
            ("POST /admin/v1/delete", "admin_delete"),
            ("POST /admin/v1/trim", "admin_trim"),
            ("POST /admin/v1/prune-feed", "admin_prune_feed"),
            ("POST /admin/v1/delete-space", "admin_delete_space"),
            ("DELETE /admin/v1/streams", "admin_other"),
            ("POST /v1/stream/metrics", "append"),
            ("POST /feeds/v1/spaces/s/append", "feed_append"),
            ("PUT /admin/v1/backups/daily", "backup"),
            ("GET /admin/v1/backups", "backup_list"),
            ("GET /", "other"),
        ] {
            let (method, uri) = request.split_once(' ').expect("a method");
            let asked = http::Request::builder().method(method).uri(uri).body(()).expect("a request");
            let found = operation_of(&asked);
            assert_eq!(NAMES[found], expected, "{request}");
        }
    }
}
