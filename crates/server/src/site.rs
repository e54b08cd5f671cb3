//! All surfaces of a server under one roof: the path decides which one answers.

use std::sync::Arc;
use std::time::Duration;

use alluvium_env::Env;
use alluvium_feeds::http::{MOUNT, Surface, SurfaceOptions};
use alluvium_feeds::{Limits, OpenError, OpenGate, Options as FeedsOptions, Service};
use alluvium_http::{Handler, Request, Response, Shutdown};
use alluvium_streams::Streams;

use crate::config::Config;
use crate::store::to_usize;

/// The folder of feeds in the data directory.
const FEEDS_FOLDER: &str = "feeds";
/// How often expired subscriptions are removed.
const SWEEP_EVERY: Duration = Duration::from_mins(1);

/// Everything that answers requests.
#[derive(Debug)]
pub(crate) struct Site {
    streams: Streams,
    feeds: Option<Surface>,
}

impl Site {
    pub(crate) fn new(streams: Streams, feeds: Option<Surface>) -> Self {
        Self { streams, feeds }
    }
}

impl Handler for Site {
    async fn handle(&self, request: Request) -> Response {
        match &self.feeds {
            Some(feeds) if request.uri().path().starts_with(MOUNT) => feeds.handle(request).await,
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
    let options = FeedsOptions {
        spaces_max: config.feed_spaces_max,
        limits: feeds_limits(config),
        ..FeedsOptions::default()
    };
    Service::open(&folder, env, options).map(|service| Some(Arc::new(service)))
}

fn feeds_limits(config: &Config) -> Limits {
    Limits {
        frame_bytes_max: to_usize(config.feed_frame_bytes_max.0),
        data_bytes_max: to_usize(config.feed_block_bytes_max.0),
        append_blocks_max: config.feed_append_blocks_max,
        append_bytes_max: to_usize(config.feed_append_bytes_max.0),
        page_blocks_max: config.feed_page_blocks_max,
        page_bytes_max: to_usize(config.feed_page_bytes_max.0),
        subscribe_feeds_max: config.feed_subscribe_max,
        subscriptions_max: config.feed_subscriptions_max,
        open_requests_max: config.feed_requests_max,
        feeds_max: config.feed_count_max,
        feed_blocks_max: config.feed_blocks_max,
        feeds_soft_max: config.feed_count_warn,
        feed_blocks_soft_max: config.feed_blocks_warn,
    }
}

/// Its surface.
pub(crate) fn feeds_surface(config: &Config, service: &Arc<Service>, shutdown: Shutdown) -> Surface {
    let options = SurfaceOptions {
        body_timeout: config.body_timeout,
        bodies_bytes_max: to_usize(config.bodies_bytes_max.0),
        waiters_max: config.waiters_max,
        long_poll_timeout: config.long_poll_timeout,
        sse_cycle: config.sse_cycle,
        ping_interval: config.feed_ping_interval,
        reader_timeout: config.feed_reader_timeout,
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
