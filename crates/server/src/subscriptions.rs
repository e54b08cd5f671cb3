//! Subscriptions of a server whose streams are in the engine: opened, run, stopped.

use std::sync::Arc;

use alluvium_env::Env;
use alluvium_streams::Backend;
use alluvium_subscriptions::http::{Surface, SurfaceOptions};
use alluvium_subscriptions::{Core, HttpTransport, Options, Service};

use crate::{
    config::Config,
    exit::ServeError,
    store::{OpenStore, to_usize},
};

/// Reads them and starts their thread. `None` for a store that has no place for them.
pub(crate) fn open(config: &Config, store: &OpenStore, env: Env) -> Result<Option<Service>, ServeError> {
    let Backend::Engine(engine) = store.backend() else { return Ok(None) };
    let options = Options {
        public_url: config.public_url.0.clone(),
        subscriptions_max: config.subscriptions_max,
        links_max: config.subscription_links_max,
        deliveries_max: config.webhooks_max,
        webhook_timeout: config.webhook_timeout,
        webhook_loopback: config.webhook_loopback,
        key_rotation: config.webhook_key_rotation,
        ..Options::default()
    };
    let transport = Arc::new(HttpTransport::new(options.webhook_loopback));
    let core = Core::open(engine, env, options)?;
    Ok(Some(Service::start(core, transport)?))
}

/// Their surface.
pub(crate) fn surface(config: &Config, service: &Service) -> Surface {
    let options = SurfaceOptions {
        body_timeout: config.body_timeout,
        bodies_bytes_max: to_usize(config.bodies_bytes_max.0),
    };
    Surface::new(service.handle(), options)
}
