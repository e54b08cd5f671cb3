//! An archive on a simulated disk, and a server of it on a real socket: what the tests of the server, of its client and of
//! the command line share.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use alluvium_env::Env;
use alluvium_env::sim::{ManualClock, SeededRandom, SimDisk};
use alluvium_http::{Front, ResponseBudget, Server, ServerOptions, Shutdown, bind};
use alluvium_jetstream::{Options, Surface};
use alluvium_jetstream_archive::{Archive, Batch, LogStore, Options as ArchiveOptions};
use alluvium_jss::{Event, WriteLimits};

/// Far longer than anything takes here.
pub const LONG: Duration = Duration::from_mins(2);
/// When the first event was seen, in microseconds since the Unix epoch; the clock stands there until it is moved.
pub const BEGIN: i64 = 1_783_000_000_000_000;
/// Where the segments are.
pub const DIR: &str = "/archive";

/// The archive and its server. Blocks have eight rows; segments end when they are told to.
#[derive(Debug)]
pub struct World {
    /// The archive, which is written to from here alone.
    pub archive: Archive,
    /// The disk below it.
    pub disk: SimDisk,
    /// Its clock.
    pub clock: Arc<ManualClock>,
    /// What the server shows.
    pub surface: Surface,
    /// Ends the server.
    pub shutdown: Shutdown,
    env: Env,
    options: Options,
    front: Front,
    server: Server<Surface>,
}

impl World {
    /// An empty archive, and a server of it with these options.
    pub fn new(options: Options) -> Self {
        Self::changed(options, |_| {})
    }

    /// The same, with other options of the archive.
    pub fn changed(options: Options, change: impl FnOnce(&mut ArchiveOptions)) -> Self {
        Self::fronted(options, Front::default(), change)
    }

    /// The same, for a server that meets the network in another way.
    pub fn fronted(options: Options, front: Front, change: impl FnOnce(&mut ArchiveOptions)) -> Self {
        let disk = SimDisk::new(1);
        let env = Env {
            clock: Arc::new(ManualClock::new(0)),
            random: Arc::new(SeededRandom::new(1)),
            disk: Arc::new(disk.clone()),
        };
        Self::start(env, disk, Path::new(DIR), (options, front), change)
    }

    /// The same in a directory that the system keeps; its simulated disk is not used.
    pub fn real(dir: &Path) -> Self {
        Self::start(Env::real(), SimDisk::new(1), dir, (Options::default(), Front::default()), |_| {})
    }

    fn start(
        env: Env,
        disk: SimDisk,
        dir: &Path,
        (options, front): (Options, Front),
        change: impl FnOnce(&mut ArchiveOptions),
    ) -> Self {
        let clock = Arc::new(ManualClock::new(u64::try_from(BEGIN).expect("after 1970") / 1000));
        let env = Env { clock: Arc::clone(&clock) as Arc<_>, ..env };
        env.disk.create_dir_all(dir).expect("a directory");
        let store = LogStore::open(&*env.disk, &dir.join("store")).expect("a store");
        let mut archive_options = ArchiveOptions {
            blocks: WriteLimits { block_rows: 8, ..WriteLimits::default() },
            ..ArchiveOptions::new(dir)
        };
        change(&mut archive_options);
        let (archive, _) = Archive::open(env.clone(), Arc::new(store), archive_options).expect("an archive");
        let (surface, server, shutdown) = serve(&archive, &options, &front);
        Self { archive, disk, clock, surface, shutdown, env, options, front, server }
    }

    /// Ends the server, and starts another on the same archive.
    pub fn restart(&mut self) {
        self.shutdown.trigger();
        (self.surface, self.server, self.shutdown) = serve(&self.archive, &self.options, &self.front);
    }

    /// Archives events as one batch, each seen a second after the one before, and returns the number of the first.
    pub fn add(&mut self, events: impl IntoIterator<Item = Event>) -> u64 {
        let first = self.archive.next_seq();
        let seen = |seq: u64| BEGIN + (i64::try_from(seq).expect("few") - 1) * 1_000_000;
        let events = (first..).zip(events).map(|(seq, event)| Event { witnessed_at: seen(seq), ..event });
        let batch = Batch { events: events.collect(), ..Batch::default() };
        self.archive.submit(batch).expect("submitted");
        self.archive.commit_waiting().expect("durable");
        first
    }

    /// Finishes the active segment.
    pub fn seal(&self) {
        self.archive.request_rotation().expect("asked");
        self.archive.commit_waiting().expect("sealed");
    }

    /// The outside world that the archive is in.
    pub const fn env(&self) -> &Env {
        &self.env
    }

    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The same as a URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }
}

fn serve(archive: &Archive, options: &Options, front: &Front) -> (Surface, Server<Surface>, Shutdown) {
    let shutdown = Shutdown::new();
    let surface = Surface::new(archive.clone(), options.clone(), shutdown.clone());
    let listener = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a free port");
    let options = ServerOptions {
        reactors: 1,
        heavy_reactors: 0,
        connections_max: 100,
        header_bytes_max: 64 * 1024,
        idle_timeout: LONG,
        responses: Arc::new(ResponseBudget::new(64 << 20)),
    };
    let started = Server::start_with(listener, surface.clone(), options, front.clone(), shutdown.clone());
    let server = started.expect("threads");
    (surface, server, shutdown)
}
