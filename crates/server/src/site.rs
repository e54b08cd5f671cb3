//! All surfaces of a server under one roof: the path decides which one answers.

use std::sync::Arc;
use std::time::Duration;

use alluvium_env::{Env, Room};
use alluvium_feeds::http::{MOUNT, Surface, SurfaceOptions};
use alluvium_feeds::{ClosedGate, Gate, Limits, OpenError, OpenGate, Options as FeedsOptions, Service};
use alluvium_http::{Handler, Request, Response, Shutdown};
use alluvium_streams::{Backend, Streams};
use alluvium_subscriptions::http as subscriptions;
use tokio::sync::SetOnce;

use crate::admin::{ADMIN_MOUNT, Admin};
use crate::config::{Config, MetricsPlace, StoreChoice};
use crate::keep::{Backups, FEEDS, Keeper};
use crate::sight::{Sight, Visibility};
use crate::store::to_usize;
use crate::watch;

/// How often expired subscriptions are removed.
const SWEEP_EVERY: Duration = Duration::from_mins(1);

/// What answers requests once everything is recovered.
#[derive(Debug)]
pub(crate) struct Doors {
    pub(crate) streams: Streams,
    pub(crate) feeds: Option<Surface>,
    pub(crate) subscriptions: Option<subscriptions::Surface>,
    pub(crate) backups: Backups,
    pub(crate) admin: Admin,
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
        // Elsewhere whoever asks needs a token for it.
        let is_local = config.listen.ip().is_loopback();
        let visibility = match config.metrics_listen {
            MetricsPlace::Main if is_local || config.access_file.0.is_some() => Visibility::Metrics,
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
        match (&doors.feeds, &doors.subscriptions) {
            (Some(feeds), _) if request.uri().path().starts_with(MOUNT) => feeds.handle(request).await,
            // Out of the way of streams, where most requests go.
            _ if Backups::is_owned(request.uri().path()) => Box::pin(doors.backups.handle(request)).await,
            _ if request.uri().path().starts_with(ADMIN_MOUNT) => Box::pin(doors.admin.handle(request)).await,
            (_, Some(subscriptions)) if subscriptions::is_owned(request.uri().path()) => {
                Box::pin(subscriptions.handle(request)).await
            }
            _ => doors.streams.handle(request).await,
        }
    }
}

/// The authority of feeds, if it is wanted.
pub(crate) fn open_feeds(config: &Config, env: Env, room: Room) -> Result<Option<Arc<Service>>, OpenError> {
    if !config.feeds {
        return Ok(None);
    }
    let folder = config.data_dir.join(FEEDS);
    let options = FeedsOptions {
        spaces_max: config.feed_spaces_max,
        open_spaces_max: config.feed_open_spaces_max,
        limits: feeds_limits(config),
        room,
        ..FeedsOptions::default()
    };
    Service::open(&folder, env, options).map(|service| Some(Arc::new(service)))
}

/// The surface of backups, and what it counts shown.
pub(crate) fn backups(config: &Config, sight: &Sight, backend: Backend) -> Backups {
    let store = match &config.store {
        StoreChoice::Engine => None,
        StoreChoice::Sqlite(path) => Some(path.clone()),
    };
    let keeper =
        |folder| Arc::new(Keeper::new(Env::real(), folder, backend, store, &config.data_dir, config.feeds));
    let keeper = config.backup_dir.clone().map(keeper);
    watch::watch_backups(sight, keeper.as_ref());
    Backups::new(keeper)
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
        greeting_timeout: config.feed_greeting_timeout,
        reader_timeout: config.feed_reader_timeout,
    };
    // With an access file callers are known before they come here.
    let gate: Arc<dyn Gate> =
        if config.access_file.0.is_some() { Arc::new(ClosedGate) } else { Arc::new(OpenGate) };
    Surface::new(Arc::clone(service), gate, options, shutdown)
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
