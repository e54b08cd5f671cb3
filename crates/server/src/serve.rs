//! The life of a server: open, listen, announce, serve, drain, close.

use std::{io, sync::Arc};

use alluvium_access::{Access, Guarded};
use alluvium_env::{Env, Room, RoomLimits};
use alluvium_http::{
    Front, ResponseBudget, Server, ServerOptions, Shutdown, bind, default_reactors, heavy_reactors,
};
use alluvium_streams::{MOUNT, Options as StreamsOptions, Streams};
use rustix::process::Signal;
use tokio::{runtime, signal::unix};

use crate::{
    access,
    admin::Admin,
    config::{Config, StoreChoice},
    exit::ServeError,
    front::{keep_certificates, open_front, reached_at, scheme},
    keep::try_folder,
    logging,
    memory::check_memory,
    metrics,
    retention::keep_retention,
    room::RoomKeeper,
    sight::{METRICS_PATH, OwnServer, Sight, Watched},
    site::{Doors, Site, backups, feeds_surface, open_feeds, sweep_feeds},
    stop::{Signals, drain, say_stopped},
    store::{OpenStore, StoreStopped, stop_at_once, to_usize},
    subscriptions, watch,
};

/// What connections are given to.
type Doorway = Watched<Guarded<Site>>;

/// Looks at the files that a configuration names, as a start does, and opens nothing.
pub fn check_files(config: &Config) -> Result<(), ServeError> {
    drop(Access::start(access::options(config), Env::real())?);
    drop(open_front(config)?);
    Ok(())
}

/// Runs a server until it is told to stop. What it announces goes to `out`, what it logs to standard error.
pub fn serve(config: &Config, out: &mut dyn io::Write) -> Result<(), ServeError> {
    logging::start(config);
    for option in config.without_effect() {
        tracing::warn!("`{option}` has no effect with `store = {}`", config.store);
    }
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    // Before anything is written.
    let _noticed = survive_file_size_limit(&runtime)?;
    let env = Env::real();
    let allowed = Access::start(access::options(config), env.clone())?;
    let front = open_front(config)?;
    check_backup_dir(config, &env)?;
    // The port is taken before the data directory: a second server on the same port then fails without touching it.
    let listener = bind(config.listen)?;
    let sight = watch::sight(&env);
    #[cfg(feature = "otlp")]
    let exporter = export(config, &env, &sight)?;
    let own = OwnServer::start(config.metrics_listen, &sight)?;
    let shutdown = Shutdown::new();
    let responses = Arc::new(ResponseBudget::new(to_usize(config.responses_bytes_max.0)));
    metrics::plumbing(&sight, &responses, config.connections_max, &front.counters);
    // From here on the server answers, but for itself only: what else is asked waits until everything is recovered.
    let site = Site::new(config, &sight);
    let doors = site.doors();
    let shown = allowed.clone();
    sight.add(move |page| metrics::access(page, &shown));
    let server = Server::start_with(
        listener,
        Watched::new(Guarded::new(site, allowed), Arc::clone(&sight)),
        server_options(config, Arc::clone(&responses)),
        front.clone(),
        shutdown.clone(),
    )?;
    let store = OpenStore::open(config, &env)?;
    // A data directory that was there has its own number of shards.
    check_memory(config, store.shards().unwrap_or(1))?;
    let (keeper, feeds_room) = room_keeper(config, &env, &store, &sight);
    watch::watch_store(&sight, config, &store);
    let feeds = open_feeds(config, env.clone(), feeds_room)?;
    let surface = feeds.as_ref().map(|service| feeds_surface(config, service, shutdown.clone()));
    let subscriptions = subscriptions::open(config, &store, env.clone())?;
    let clock = Arc::clone(&env.clock);
    let streams = Streams::new(store.backend(), env, streams_options(config, responses), shutdown);
    watch::watch_doors(&sight, config, &streams, feeds.as_ref().zip(surface.as_ref()));
    watch::watch_subscriptions(&sight, subscriptions.as_ref());
    let backups = backups(config, &sight, store.backend());
    let subscribed = subscriptions.as_ref().map(|service| subscriptions::surface(config, service));
    let admin = Admin::new(store.backend(), feeds.clone(), clock, config.body_timeout);
    if doors.set(Doors { streams, feeds: surface, subscriptions: subscribed, admin, backups }).is_err() {
        unreachable!("the doors are put in once");
    }
    // Before anything says that it is there: whoever waits for that may stop it at once.
    let signals = runtime.block_on(async { Signals::receive() })?;
    sight.health().recovered();
    runtime.block_on(async {
        announce(config, &server, &front, own.as_ref(), &store, out);
        tokio::select! {
            () = until_told_to_stop(config, server, &sight, signals) => {}
            () = sweep_feeds(feeds.clone()) => {}
            () = keeper.keep() => {}
            () = keep_retention(config, &store) => {}
            watched = keep_certificates(front.tls.clone()) => watched?,
            () = store.failed() => stop_at_once(&StoreStopped),
        }
        Ok::<(), io::Error>(())
    })?;
    close(feeds, subscriptions, &store);
    #[cfg(feature = "otlp")]
    if let Some(exporter) = exporter {
        exporter.stop();
    }
    if let Some(own) = own {
        runtime.block_on(own.stop());
    }
    say_stopped();
    Ok(())
}

/// Fails if backups are wanted and cannot be made where they are to be: better now than with the first of them.
fn check_backup_dir(config: &Config, env: &Env) -> Result<(), ServeError> {
    let Some(folder) = &config.backup_dir else { return Ok(()) };
    try_folder(env.disk.as_ref(), folder, &config.data_dir).map_err(ServeError::Backups)
}

/// Ends what stores data, what rests on others first.
fn close(
    feeds: Option<Arc<alluvium_feeds::Service>>,
    subscriptions: Option<alluvium_subscriptions::Service>,
    store: &OpenStore,
) {
    if let Some(feeds) = feeds {
        feeds.close();
    }
    if let Some(subscriptions) = subscriptions {
        subscriptions.stop();
    }
    store.close();
}

/// What looks at the disks, after a first look, and what feeds are told of theirs.
fn room_keeper(config: &Config, env: &Env, store: &OpenStore, sight: &Sight) -> (RoomKeeper, Room) {
    let (what, path, room) = store.place();
    let limits = RoomLimits { warn: config.disk_free_warn.0, min: config.disk_free_min.0 };
    let keeper = RoomKeeper::new(env, limits).and(what, path, room.clone());
    let (keeper, feeds_room) = match config.store {
        StoreChoice::Sqlite(_) if config.feeds => {
            let room = Room::default();
            (keeper.and("data", config.data_dir.clone(), room.clone()), room)
        }
        // They are in the same directory, or there are none.
        StoreChoice::Engine | StoreChoice::Sqlite(_) => (keeper, room),
    };
    keeper.show(sight);
    keeper.look();
    (keeper, feeds_room)
}

/// The export of traces and metrics, if it is wanted.
#[cfg(feature = "otlp")]
fn export(config: &Config, env: &Env, sight: &Arc<Sight>) -> io::Result<Option<crate::otlp::Exporter>> {
    let endpoint = config.otlp_endpoint.0.as_deref();
    endpoint.map(|endpoint| crate::otlp::Exporter::start(endpoint, env, sight)).transpose()
}

/// Has a write beyond the limit on file size (`ulimit -f`) fail as one on a full disk does. Left alone, the signal
/// that comes with it would end the process before it sees the error.
fn survive_file_size_limit(runtime: &runtime::Runtime) -> io::Result<unix::Signal> {
    let _entered = runtime.enter();
    unix::signal(unix::SignalKind::from_raw(Signal::XFSZ.as_raw()))
}

/// Waits for a signal, then drains. A second signal during the drain cuts it short.
async fn until_told_to_stop(config: &Config, server: Server<Doorway>, sight: &Sight, mut signals: Signals) {
    let signal = signals.next().await;
    sight.health().stopping();
    drain(server, config.shutdown_timeout, Some(signal), &mut signals).await;
}

/// The data directory, and what it is for if it is not for everything.
fn data_directory(config: &Config) -> String {
    let folder = config.data_dir.display();
    match (&config.store, config.feeds) {
        (StoreChoice::Engine, _) => folder.to_string(),
        (StoreChoice::Sqlite(_), true) => format!("{folder} (for feeds)"),
        (StoreChoice::Sqlite(_), false) => "none".to_owned(),
    }
}

/// A command that makes a stream on the server, which is at `base` if it was not said where clients reach it.
fn how_to_try(config: &Config, base: &str) -> String {
    // A shell's quotes, for what may have any character.
    let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
    let mut curl = "curl -i -X PUT".to_owned();
    let base = match (&config.public_url.0, &config.tls_cert) {
        (Some(url), _) => url.trim_end_matches('/'),
        (None, certificate) => {
            if let Some(certificate) = certificate {
                curl.extend([" --cacert ", &quoted(&certificate.display().to_string())]);
            }
            base
        }
    };
    if config.access_file.0.is_some() {
        curl += r#" -H "Authorization: Bearer $ALLUVIUM_TOKEN""#;
    }
    format!("{curl} -H 'Content-Type: text/plain' -d hello {}", quoted(&format!("{base}{MOUNT}first")))
}

/// Tells where the server is, what it has and how to try it.
fn announce(
    config: &Config,
    server: &Server<Doorway>,
    front: &Front,
    own: Option<&OwnServer>,
    store: &OpenStore,
    out: &mut dyn io::Write,
) {
    let (scheme, address) = (scheme(front), server.address());
    let text = format!(
        "listening on   {scheme}://{address}\n\
         store          {}\n\
         data directory {}\n\
         durability     {}\n\
         recovered      {}\n{}\
         try            {}\n",
        config.store,
        data_directory(config),
        store.durability(),
        store.recovered(),
        own.map(|own| format!("metrics        http://{}{METRICS_PATH}\n", own.address())).unwrap_or_default(),
        how_to_try(config, &format!("{scheme}://{}", reached_at(address))),
    );
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever started it did not stay to read: no reason not to serve.
        tracing::warn!(%error, %address, "cannot say where the server is");
    }
}

fn streams_options(config: &Config, responses: Arc<ResponseBudget>) -> StreamsOptions {
    StreamsOptions {
        public_url: config.public_url.0.clone(),
        long_poll_timeout: config.long_poll_timeout,
        sse_cycle: config.sse_cycle,
        append_bytes_max: to_usize(config.append_bytes_max.0),
        read_bytes_max: config.read_bytes_max.0,
        waiters_max: config.waiters_max,
        bodies_bytes_max: to_usize(config.bodies_bytes_max.0),
        body_timeout: config.body_timeout,
        responses,
        cache_visibility: config.cache_visibility,
        snapshot_bytes_max: to_usize(config.snapshot_bytes_max.0),
        bootstrap_bytes_max: config.bootstrap_bytes_max.0,
        public_history: config.public_history,
    }
}

fn server_options(config: &Config, responses: Arc<ResponseBudget>) -> ServerOptions {
    let reactors = config.reactors.unwrap_or_else(default_reactors);
    ServerOptions {
        reactors,
        heavy_reactors: heavy_reactors(reactors),
        connections_max: config.connections_max,
        header_bytes_max: to_usize(config.header_bytes_max.0),
        idle_timeout: config.idle_timeout,
        responses,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Loaded, Sources};

    #[test]
    fn what_is_said_to_try_has_the_certificate_and_the_token_that_are_needed() {
        let said = |flags: &[(&str, &str)]| {
            let flags = flags.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
            let loaded = Loaded::from_sources(&Sources { flags, ..Sources::default() }).unwrap();
            how_to_try(&loaded.config, "https://127.0.0.1:4437")
        };
        let end = "-H 'Content-Type: text/plain' -d hello";
        let here = "'https://127.0.0.1:4437/v1/stream/first'";
        assert_eq!(said(&[]), format!("curl -i -X PUT {end} {here}"));
        let tls = [("tls-cert", "/etc/it's.pem"), ("tls-key", "/etc/key.pem")];
        assert_eq!(said(&tls), format!(r"curl -i -X PUT --cacert '/etc/it'\''s.pem' {end} {here}"));
        let known =
            [&tls[..], &[("public-url", "https://streams.example/"), ("access-file", "/etc/a")]].concat();
        let token = r#"-H "Authorization: Bearer $ALLUVIUM_TOKEN""#;
        let there = "'https://streams.example/v1/stream/first'";
        assert_eq!(said(&known), format!("curl -i -X PUT {token} {end} {there}"));
    }
}
