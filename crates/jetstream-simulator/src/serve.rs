//! The world over sockets: directory and relay on one listener, each PDS host on one of its own, all on one address.
//!
//! A request whose `Host` is `pds3.sim.invalid`, the domain of a handle or of a `did:web` is answered as that host would,
//! on any listener: so a client whose transport goes here whatever the address sees the whole network. One that resolves
//! names itself finds the accounts of [`Options::local_web`].

mod answer;
mod directory;
mod firehose;
mod oracle;
mod query;
mod relay;
mod repos;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use alluvium_http::{
    BindError, CONNECTIONS_MAX, Front, HEADER_BYTES_MAX, Handler, IDLE_TIMEOUT_S, RESPONSES_BYTES_MAX,
    Request, Response, ResponseBudget, Server, ServerOptions, Shutdown, bind,
};
use bytes::Bytes;
use http::{Method, StatusCode, header};
use parking_lot::Mutex;
use serde_json::json;
use thiserror::Error;
use tokio::sync::{Semaphore, watch};

use self::answer::Answer;
pub use self::answer::Reply;
use self::directory::Lookup;
use crate::config::{Config, ConfigError};
use crate::fault::{Armed, Fault, Faults, TooManyFaults};
use crate::identity::{DOMAIN, LOCAL, local_web};
use crate::subscription::{Next, Subscription};
use crate::world::{Act, World, WorldError};

/// Subscribers of the relay at once, unless said otherwise.
pub const SUBSCRIBERS_MAX: usize = 1024;
/// Steps or commits that happen before others get at the world.
const CHUNK: u32 = 64;

/// How a world is served.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where directory and relay listen. The hosts take the ports behind it; with port zero, all take any.
    pub listen: SocketAddr,
    /// Subscribers of the relay at once; more are refused.
    pub subscribers_max: usize,
    /// How long the end of a subscriber may take, and that of everything else.
    pub stop_timeout: Duration,
    /// Whether the first accounts have a `did:web` of this machine, one for each listener, which serves its document.
    pub local_web: bool,
    /// Certificates and limits of the network side.
    pub front: Front,
}

impl Options {
    /// The defaults, on `listen`.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            subscribers_max: SUBSCRIBERS_MAX,
            stop_timeout: Duration::from_secs(2),
            local_web: false,
            front: Front::default(),
        }
    }
}

/// Why a world is not served.
#[derive(Debug, Error)]
pub enum StartError {
    /// No world can be made of the configuration.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// A port cannot be taken.
    #[error("{0}")]
    Bind(#[from] BindError),
    /// The ports behind the first one do not suffice.
    #[error("the ports of the hosts would lie beyond 65535")]
    Ports,
    /// A server does not start.
    #[error("{0}")]
    Server(#[from] alluvium_http::StartError),
}

/// Whose part a listener plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The relay and the directory.
    Relay,
    /// The host with this number.
    Pds(u32),
}

/// What all listeners share.
#[derive(Debug)]
struct State {
    world: Mutex<World>,
    faults: Mutex<Faults>,
    /// How often repositories were given out whole.
    served: Mutex<BTreeMap<String, u64>>,
    /// Wakes subscribers.
    news: watch::Sender<()>,
    subscribers: Arc<Semaphore>,
    subscribers_max: usize,
    rate: AtomicU32,
    shutdown: Shutdown,
}

/// A world that is served. Dropping it without [`stop`](Self::stop) leaves its threads running.
#[derive(Debug)]
pub struct Simulator {
    state: Arc<State>,
    servers: Vec<Server<Site>>,
    stop_timeout: Duration,
}

impl Simulator {
    /// Makes the world without serving it: it is reached by [`get`](Self::get) and [`subscribe`](Self::subscribe) alone.
    pub fn detached(config: Config) -> Result<Self, ConfigError> {
        let rate = config.rate;
        let state = State::new(World::new(config)?, rate, SUBSCRIBERS_MAX);
        Ok(Self { servers: Vec::new(), stop_timeout: Duration::ZERO, state })
    }

    /// Makes the world and serves it. Nothing happens in it before [`act`](Self::act) or [`run`](Self::run).
    pub fn start(mut config: Config, options: &Options) -> Result<Self, StartError> {
        config.check()?;
        let rate = config.rate;
        let listeners = listeners(&config, options)?;
        if options.local_web {
            config.web_ports = listeners.iter().map(|(_, _, address)| address.port()).collect();
        }
        let mut world = World::new(config)?;
        let scheme = if options.front.tls.is_some() { "https" } else { "http" };
        for (role, _, address) in &listeners {
            if let Role::Pds(host) = role {
                // The number was taken from the same configuration.
                drop(world.set_host(*host, address.to_string(), format!("{scheme}://{address}")));
            }
        }
        let state = State::new(world, rate, options.subscribers_max);
        let servers = listeners.into_iter().map(|(role, listener, _)| {
            let site = Site { state: Arc::clone(&state), role };
            let front = options.front.clone();
            Server::start_with(listener, site, server_options(), front, state.shutdown.clone())
        });
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { servers, stop_timeout: options.stop_timeout, state })
    }

    /// The address of directory and relay.
    pub fn address(&self) -> SocketAddr {
        self.servers.first().map_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)), Server::address)
    }

    /// The address of each host.
    pub fn hosts(&self) -> Vec<SocketAddr> {
        self.servers.iter().skip(1).map(Server::address).collect()
    }

    /// Looks at the world.
    pub fn world<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&self.state.world.lock())
    }

    /// Lets something happen and tells the subscribers. What was emitted comes back.
    pub fn act(&self, act: Act) -> Result<Vec<Arc<crate::event::Emitted>>, WorldError> {
        self.state.act(act)
    }

    /// Arms a fault for `count` times and gives it a number.
    pub fn arm(&self, fault: Fault, count: u32) -> Result<u64, TooManyFaults> {
        self.state.arm(fault, count)
    }

    /// Ends a fault.
    pub fn disarm(&self, id: u64) {
        self.state.faults.lock().disarm(id);
    }

    /// How often a fault came.
    pub fn fired(&self, id: u64) -> u64 {
        self.state.faults.lock().fired(id)
    }

    /// All faults that were ever armed.
    pub fn faults(&self) -> Vec<Armed> {
        self.state.faults.lock().all().to_vec()
    }

    /// How often the whole repository of an account was given out.
    pub fn served(&self, did: &str) -> u64 {
        self.state.served.lock().get(did).copied().unwrap_or(0)
    }

    /// How many read the relay now.
    pub fn followers(&self) -> usize {
        self.state.subscribers_max.saturating_sub(self.state.subscribers.available_permits())
    }

    /// Live events in a second from now on; none with zero.
    pub fn set_rate(&self, rate: u32) {
        self.state.rate.store(rate, Ordering::Relaxed);
    }

    /// Lets events happen by themselves, at the rate of the configuration or the one set since, until the future is
    /// dropped. The world's clock goes as fast as the real one, or slower if the machine cannot keep up.
    pub async fn run(&self) {
        /// How often a world that stands still looks whether it has to go on.
        const QUIET: Duration = Duration::from_millis(50);
        /// The most that is made up for at once.
        const LAG: Duration = Duration::from_secs(1);
        let mut due = tokio::time::Instant::now();
        loop {
            let rate = self.state.rate.load(Ordering::Relaxed);
            if rate == 0 {
                tokio::time::sleep(QUIET).await;
                due = tokio::time::Instant::now();
                continue;
            }
            let gap = self.state.step(rate);
            let now = tokio::time::Instant::now();
            due = (due + gap).max(now.checked_sub(LAG).unwrap_or(now));
            if due > now {
                tokio::time::sleep_until(due).await;
            } else {
                tokio::task::yield_now().await;
            }
        }
    }

    /// What a `GET` of an address would give, without a socket: for transports of tests. Directory and relay are at every
    /// host that is not one of the world's; `None` if the directory does not answer, by an armed fault. Faults of
    /// connections do not come here.
    pub fn get(&self, url: &str) -> Option<Reply> {
        let url = url.split_once("://").map_or(url, |(_, rest)| rest);
        let (host, target) = url.find('/').map_or((url, "/"), |at| url.split_at(at));
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let number = {
            let world = self.state.world.lock();
            (0..)
                .zip(world.hosts())
                .find(|(_, known)| known.name == host)
                .map(|(number, _)| Role::Pds(number))
        };
        let host = host.to_ascii_lowercase();
        let role = number.or_else(|| self.state.role_of(without_port(&host))).unwrap_or(Role::Relay);
        match self.state.answer(&Method::GET, path, query, role, Some(&host)) {
            Lookup::Answer(answer) => Some(answer.reply()),
            Lookup::Hang => None,
        }
    }

    /// A subscriber of the relay without a socket; see [`next`](Self::next).
    pub fn subscribe(&self, cursor: Option<u64>) -> Subscription {
        Subscription::new(&self.state.world.lock(), cursor)
    }

    /// What such a subscriber gets next, with the faults of connections.
    pub fn next(&self, subscription: &mut Subscription) -> Next {
        subscription.next(&self.state.world.lock(), &mut self.state.faults.lock())
    }

    /// Ends all connections and servers.
    pub async fn stop(self) {
        for server in self.servers {
            server.drain(self.stop_timeout).await;
        }
    }
}

/// What listens: for relay and directory, and for each host.
fn listeners(config: &Config, options: &Options) -> Result<Vec<(Role, TcpListener, SocketAddr)>, StartError> {
    let roles = std::iter::once(Role::Relay).chain((0..config.hosts).map(Role::Pds));
    let listening = (0_u32..).zip(roles).map(|(place, role)| {
        let port = match options.listen.port() {
            0 => 0,
            first => u32::from(first)
                .checked_add(place)
                .and_then(|port| u16::try_from(port).ok())
                .ok_or(StartError::Ports)?,
        };
        let listener = bind(SocketAddr::new(options.listen.ip(), port))?;
        let address = listener.local_addr().map_err(alluvium_http::StartError::from)?;
        Ok((role, listener, address))
    });
    listening.collect()
}

impl State {
    fn new(world: World, rate: u32, subscribers_max: usize) -> Arc<Self> {
        Arc::new(Self {
            world: Mutex::new(world),
            faults: Mutex::default(),
            served: Mutex::default(),
            news: watch::Sender::new(()),
            subscribers: Arc::new(Semaphore::new(subscribers_max)),
            subscribers_max,
            rate: AtomicU32::new(rate),
            shutdown: Shutdown::new(),
        })
    }

    fn act(&self, act: Act) -> Result<Vec<Arc<crate::event::Emitted>>, WorldError> {
        let mut emitted = Vec::new();
        match act {
            // In parts, so that subscribers and requests are not held up by a great many of them.
            Act::Step { mut count } if count > CHUNK => {
                while count > 0 {
                    let part = count.min(CHUNK);
                    emitted.extend(self.world.lock().act(Act::Step { count: part })?);
                    self.news.send_replace(());
                    count -= part;
                }
            }
            Act::Burst { account, mut commits } if commits > CHUNK => {
                while commits > 0 {
                    let part = commits.min(CHUNK);
                    emitted.extend(self.world.lock().act(Act::Burst { account, commits: part })?);
                    self.news.send_replace(());
                    commits -= part;
                }
            }
            act => emitted = self.world.lock().act(act)?,
        }
        self.news.send_replace(());
        Ok(emitted)
    }

    /// One event by itself; the time since the one before it.
    fn step(&self, rate: u32) -> Duration {
        let mut world = self.world.lock();
        world.set_rate(rate);
        let before = world.micros();
        world.step();
        let gap = world.micros() - before;
        drop(world);
        self.news.send_replace(());
        Duration::from_micros(gap)
    }

    fn arm(&self, fault: Fault, count: u32) -> Result<u64, TooManyFaults> {
        let payload = match &fault {
            Fault::GetRepoOld { did } => {
                let world = self.world.lock();
                world.find(did).map_or_else(Bytes::new, |account| world.repo(account).car().into())
            }
            _ => Bytes::new(),
        };
        self.faults.lock().arm_with(fault, count, payload)
    }
}

fn server_options() -> ServerOptions {
    ServerOptions {
        reactors: 1,
        heavy_reactors: 0,
        connections_max: CONNECTIONS_MAX,
        header_bytes_max: HEADER_BYTES_MAX,
        idle_timeout: Duration::from_secs(IDLE_TIMEOUT_S),
        responses: Arc::new(ResponseBudget::new(RESPONSES_BYTES_MAX)),
    }
}

/// One listener.
#[derive(Debug)]
struct Site {
    state: Arc<State>,
    role: Role,
}

impl Handler for Site {
    async fn handle(&self, request: Request) -> Response {
        let path = request.uri().path().to_owned();
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.map(str::to_ascii_lowercase);
        let role =
            host.as_deref().and_then(|host| self.state.role_of(without_port(host))).unwrap_or(self.role);
        if path == "/xrpc/com.atproto.sync.subscribeRepos" && role == Role::Relay {
            return firehose::handle(&self.state, &request);
        }
        if path.starts_with(oracle::MOUNT) && self.role == Role::Relay {
            return oracle::handle(&self.state, request).await.send(&path, &mut self.state.faults.lock());
        }
        let (method, query) = (request.method(), request.uri().query());
        let answer = match self.state.answer(method, &path, query, role, host.as_deref()) {
            Lookup::Answer(answer) => answer,
            Lookup::Hang => {
                self.state.shutdown.wait().await;
                Answer::fault(503)
            }
        };
        answer.send(&path, &mut self.state.faults.lock())
    }
}

impl State {
    /// The host that a name belongs to.
    fn role_of(&self, domain: &str) -> Option<Role> {
        let number = domain.strip_suffix(DOMAIN)?.strip_suffix('.')?.strip_prefix("pds")?.parse().ok()?;
        (number < self.world.lock().config().hosts).then_some(Role::Pds(number))
    }

    fn answer(
        &self,
        method: &Method,
        path: &str,
        query: Option<&str>,
        role: Role,
        host: Option<&str>,
    ) -> Lookup {
        let state = self;
        let host = host.unwrap_or_default();
        let is_post = *method == Method::POST;
        if !is_post && *method != Method::GET && *method != Method::HEAD {
            let answer = Answer::error(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "no such method");
            return Lookup::Answer(answer.with("allow", "GET, HEAD, POST"));
        }
        let answer = match (path, role) {
            ("/xrpc/com.atproto.sync.getRepo", _) => repos::get_repo(state, role, query),
            ("/xrpc/com.atproto.sync.listRepos", _) => repos::list_repos(state, role, query),
            ("/xrpc/com.atproto.sync.getLatestCommit", _) => repos::latest_commit(state, role, query),
            ("/xrpc/com.atproto.sync.getRepoStatus", _) => repos::repo_status(state, role, query),
            ("/xrpc/com.atproto.sync.listHosts", Role::Relay) => relay::list_hosts(state),
            ("/xrpc/com.atproto.sync.getHostStatus", Role::Relay) => relay::host_status(state, query),
            ("/xrpc/com.atproto.sync.requestCrawl", Role::Relay) if is_post => Ok(Answer::json(&json!({}))),
            ("/xrpc/com.atproto.server.describeServer", Role::Pds(_)) => Ok(described()),
            ("/xrpc/com.atproto.identity.resolveHandle", _) => directory::resolve_handle(state, query),
            ("/xrpc/_health" | "/_health", _) => Ok(Answer::json(&json!({"version": "simulator"}))),
            ("/.well-known/atproto-did", _) => directory::did_of_domain(state, without_port(host)),
            ("/.well-known/did.json", _) => {
                return directory::document(state, &web_did(host));
            }
            _ => match path.strip_prefix('/').and_then(query::decode) {
                Some(did) if did.starts_with("did:") && role == Role::Relay => {
                    return directory::document(state, &did);
                }
                _ => Err(Answer::nothing_here()),
            },
        };
        Lookup::Answer(answer.unwrap_or_else(|refused| refused))
    }
}

fn without_port(host: &str) -> &str {
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

/// The `did:web` whose document a host serves.
fn web_did(host: &str) -> String {
    match host.rsplit_once(':') {
        Some((LOCAL, port)) => port.parse().map(local_web).unwrap_or_default(),
        _ => format!("did:web:{}", without_port(host)),
    }
}

fn described() -> Answer {
    Answer::json(&json!({
        "did": format!("did:web:{DOMAIN}"),
        "availableUserDomains": [".test"],
        "inviteCodeRequired": false,
        "phoneVerificationRequired": false,
        "links": {},
        "contact": {},
    }))
}
