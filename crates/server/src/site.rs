//! All surfaces of a server under one roof: the path decides which one answers.

use std::sync::Arc;
use std::time::Duration;

use alluvium_env::Env;
use alluvium_feeds::http::{MOUNT, Surface, SurfaceOptions};
use alluvium_feeds::{OpenError, OpenGate, Options as FeedsOptions, Service};
use alluvium_http::{Handler, Request, Response, Shutdown};
use alluvium_streams::Streams;
use tokio::sync::SetOnce;

use crate::config::{Config, MetricsPlace};
use crate::sight::{Sight, Visibility};

/// The folder of feeds in the data directory.
const FEEDS_FOLDER: &str = "feeds";
/// How often expired subscriptions are removed.
const SWEEP_EVERY: Duration = Duration::from_mins(1);

/// What answers requests once everything is recovered.
#[derive(Debug)]
pub(crate) struct Doors {
    pub(crate) streams: Streams,
    pub(crate) feeds: Option<Surface>,
}

/// Everything that answers requests. Those that come before the doors are there wait for them, but for the ones about the
/// server itself.
#[derive(Debug)]
pub(crate) struct Site {
    doors: Arc<SetOnce<Doors>>,
    sight: Arc<Sight>,
    visibility: Visibility,
}

impl Site {
    pub(crate) fn new(config: &Config, sight: &Arc<Sight>) -> Self {
        let is_local = config.listen.ip().is_loopback();
        let visibility = match config.metrics_listen {
            MetricsPlace::Main if is_local => Visibility::Metrics,
            MetricsPlace::Main | MetricsPlace::Own(_) | MetricsPlace::Off => Visibility::HealthOnly,
        };
        Self { doors: Arc::default(), sight: Arc::clone(sight), visibility }
    }

    /// Where the doors are to be put.
    pub(crate) fn doors(&self) -> Arc<SetOnce<Doors>> {
        Arc::clone(&self.doors)
    }
}

impl Handler for Site {
    async fn handle(&self, request: Request) -> Response {
        if let Some(answer) = self.sight.answer(&request, self.visibility) {
            return answer;
        }
        let doors = match self.doors.get() {
            Some(doors) => doors,
            None => self.doors.wait().await,
        };
        match &doors.feeds {
            Some(feeds) if request.uri().path().starts_with(MOUNT) => feeds.handle(request).await,
            _ => doors.streams.handle(request).await,
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
