//! All surfaces of a server under one roof: the path decides which one answers.

use std::sync::Arc;
use std::time::Duration;

use alluvium_env::Env;
use alluvium_feeds::http::{MOUNT, Surface, SurfaceOptions};
use alluvium_feeds::{OpenError, OpenGate, Options as FeedsOptions, Service};
use alluvium_http::{Handler, Request, Response, Shutdown};
use alluvium_streams::Streams;
use alluvium_subscriptions::http as subscriptions;

use crate::config::Config;

/// The folder of feeds in the data directory.
const FEEDS_FOLDER: &str = "feeds";
/// How often expired subscriptions are removed.
const SWEEP_EVERY: Duration = Duration::from_mins(1);

/// Everything that answers requests.
#[derive(Debug)]
pub(crate) struct Site {
    streams: Streams,
    feeds: Option<Surface>,
    subscriptions: Option<subscriptions::Surface>,
}

impl Site {
    pub(crate) fn new(
        streams: Streams,
        feeds: Option<Surface>,
        subscriptions: Option<subscriptions::Surface>,
    ) -> Self {
        Self { streams, feeds, subscriptions }
    }
}

impl Handler for Site {
    async fn handle(&self, request: Request) -> Response {
        match (&self.feeds, &self.subscriptions) {
            (Some(feeds), _) if request.uri().path().starts_with(MOUNT) => feeds.handle(request).await,
            // Out of the way of streams, where most requests go.
            (_, Some(subscriptions)) if subscriptions::is_owned(request.uri().path()) => {
                Box::pin(subscriptions.handle(request)).await
            }
            _ => self.streams.handle(request).await,
        }
    }
}

/// The authority of feeds, if it is wanted.
pub(crate) fn open_feeds(config: &Config, env: Env) -> Result<Option<Arc<Service>>, OpenError> {
    if !config.feeds {
        return Ok(None);
    }
    let folder = config.data_dir.join(FEEDS_FOLDER);
    let options = FeedsOptions { spaces_max: config.feed_spaces_max, ..FeedsOptions::default() };
    Service::open(&folder, env, options).map(|service| Some(Arc::new(service)))
}

/// Its surface.
pub(crate) fn feeds_surface(config: &Config, service: &Arc<Service>, shutdown: Shutdown) -> Surface {
    let options = SurfaceOptions {
        body_timeout: config.body_timeout,
        bodies_bytes_max: usize::try_from(config.bodies_bytes_max.0).unwrap_or(usize::MAX),
        waiters_max: config.waiters_max,
        long_poll_timeout: config.long_poll_timeout,
        sse_cycle: config.sse_cycle,
        ..SurfaceOptions::default()
    };
    Surface::new(Arc::clone(service), Arc::new(OpenGate), options, shutdown)
}

/// Removes what has expired, every minute, until it is dropped.
pub(crate) async fn sweep_feeds(service: Option<Arc<Service>>) {
    let Some(service) = service else { return std::future::pending().await };
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let service = Arc::clone(&service);
        // A sweep that fails has said so in the log; the next one tries again.
        drop(tokio::task::spawn_blocking(move || service.sweep()).await);
    }
}
