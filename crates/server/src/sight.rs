//! What an operator sees of a server: whether it is well, what it has counted, and which request was which.
//!
//! [`Watched`] goes around everything that answers requests and counts them; [`Sight::answer`] answers the requests that
//! are about the server itself, `/healthz`, `/readyz` and `/metrics`. What there is to show comes from sources: functions
//! that put samples on a page, one for each component, in [`metrics`](crate::metrics).

mod answer;
mod health;
mod operated;
mod own;
mod process;
mod request_id;
mod requests;
mod watched;

use std::fmt;
use std::sync::Arc;

use alluvium_env::{Clock, Env};
use alluvium_http::Request;
use alluvium_metrics::Page;
use parking_lot::Mutex;

pub use answer::{HEALTH_PATH, METRICS_PATH, READY_PATH, Visibility};
pub use health::{Health, Unready};
pub use operated::Operated;
pub use own::{OwnError, OwnServer};
#[cfg(feature = "otlp")]
pub(crate) use request_id::{TRACEPARENT, Traceparent};
pub use requests::STATUSES;
pub use watched::Watched;

use self::request_id::RequestIds;
use self::requests::Requests;
use self::watched::Failures;
use crate::metrics::families;

/// The operations of a server, and which of them a request asks for.
#[derive(Clone, Copy, Debug)]
pub struct Operations {
    /// Their names, each a word that no client chose.
    pub names: &'static [&'static str],
    /// The place among the names of what a request asks for.
    pub of: fn(&Request) -> usize,
}

/// Puts what one component has to show on a page. Called for each scrape; must not wait.
pub type Source = Box<dyn Fn(&mut Page) + Send + Sync>;

/// See the module's documentation.
pub struct Sight {
    operations: Operations,
    requests: Requests,
    ids: RequestIds,
    health: Health,
    sources: Mutex<Vec<Source>>,
    started_ms: u64,
    clock: Arc<dyn Clock>,
    failures: Failures,
    #[cfg(feature = "otlp")]
    spans: std::sync::OnceLock<crate::otlp::Spans>,
}

impl fmt::Debug for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sight").field("health", &self.health).finish_non_exhaustive()
    }
}

impl Sight {
    /// Nothing counted yet, and not ready.
    pub fn new(env: &Env, operations: Operations) -> Arc<Self> {
        Arc::new(Self {
            operations,
            requests: Requests::new(operations.names),
            ids: RequestIds::new(env.random.next_u64()),
            health: Health::default(),
            sources: Mutex::default(),
            started_ms: env.clock.now_ms(),
            clock: Arc::clone(&env.clock),
            failures: Failures::default(),
            #[cfg(feature = "otlp")]
            spans: std::sync::OnceLock::new(),
        })
    }

    /// Adds a component that has something to show.
    pub fn add(&self, source: impl Fn(&mut Page) + Send + Sync + 'static) {
        self.sources.lock().push(Box::new(source));
    }

    /// Whether the server is ready, and why not.
    pub const fn health(&self) -> &Health {
        &self.health
    }

    /// Has requests traced from now on. A second call changes nothing.
    #[cfg(feature = "otlp")]
    pub(crate) fn trace(&self, spans: crate::otlp::Spans) {
        drop(self.spans.set(spans));
    }

    /// Where spans go, if requests are traced.
    #[cfg(feature = "otlp")]
    pub(crate) fn traced(&self) -> Option<&crate::otlp::Spans> {
        self.spans.get()
    }

    /// When this began, in milliseconds since 1970.
    #[cfg(feature = "otlp")]
    pub(crate) const fn started_ms(&self) -> u64 {
        self.started_ms
    }

    /// Everything that there is to show now.
    pub fn page(&self) -> Page {
        let mut page = Page::new();
        page.whole(&families::BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1);
        page.whole(&families::READY, &[], u64::from(self.health.unready().is_none()));
        self.requests.show(&mut page);
        for source in self.sources.lock().iter() {
            source(&mut page);
        }
        process::show(&mut page, self.started_ms);
        page
    }
}
