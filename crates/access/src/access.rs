//! The decision itself, and what it rests on: the file, the keys, the limits.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use alluvium_env::Env;
use alluvium_http::{LongQuery, Peer, query};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, header};
use http_body::Body;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::bearer::{Presented, SUBPROTOCOLS, is_token, presented, redact};
use crate::counters::{Counters, Counts};
use crate::file::{AccessFile, InvalidFile, KeySource};
use crate::jwt::{InvalidJwt, Unverified};
use crate::keeper::{self, Fetching, Message};
use crate::keys::{InvalidKeys, KeySet};
use crate::limits::REMEMBERED_MAX;
use crate::rate::{AddressKey, Table};
use crate::refusal::{Refusal, Rejected};
use crate::routes::{self, Asked, Need};
use crate::{Caller, Grants, Lease, Meter, Origins, Rates, Scope, TokenHash, issuer};

/// Which doors are guarded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Doors {
    /// Streams, buckets and feeds.
    Server,
    /// A Jetstream.
    Jetstream,
}

/// How access is given.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which doors are guarded.
    pub doors: Doors,
    /// The access file. With one, whoever has no token may do what the file says that anyone may.
    pub file: Option<PathBuf>,
    /// Without a file: whether everyone may do everything. Otherwise anyone may read a Jetstream, and do nothing else.
    pub is_open: bool,
    /// Whether a token may stand in the query, as `access_token`.
    pub token_in_query: bool,
    /// Which web pages may use the server.
    pub origins: Origins,
    /// What one address may do.
    pub address_rates: Rates,
    /// What one caller may do, unless the file says otherwise for it.
    pub caller_rates: Rates,
    /// What may be saved up: as much as comes in this time.
    pub burst: Duration,
    /// Addresses that are counted at once.
    pub addresses_max: usize,
}

impl Options {
    /// Everyone may do everything.
    pub fn open(doors: Doors) -> Self {
        Self {
            doors,
            file: None,
            is_open: true,
            token_in_query: false,
            origins: Origins::default(),
            address_rates: Rates::default(),
            caller_rates: Rates::default(),
            burst: Duration::from_secs(10),
            addresses_max: crate::limits::ADDRESSES_MAX,
        }
    }
}

/// Why access cannot be given.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A file cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The access file is wrong.
    #[error("the access file `{}`: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: InvalidFile,
    },
    /// A file with keys is wrong.
    #[error("the keys in `{}`: {error}", path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: InvalidKeys,
    },
    /// A file with certificates of authorities has none.
    #[error("`{}` has no certificate in PEM", .0.display())]
    Authority(PathBuf),
    /// No thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
}

/// What is decided by, as a whole. Replaced when something changes, and with it what was remembered.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) file: AccessFile,
    pub(crate) keys: HashMap<KeySource, Arc<KeySet>>,
    anyone: Arc<Caller>,
    /// The holders of static tokens, who may do what anyone may besides what the file says.
    tokens: HashMap<TokenHash, Arc<Caller>>,
    /// Callers whose signed tokens were verified.
    remembered: Mutex<HashMap<TokenHash, Arc<Caller>>>,
}

impl State {
    pub(crate) fn new(options: &Options, file: AccessFile, keys: HashMap<KeySource, Arc<KeySet>>) -> Self {
        let grants = match (&file.anyone, &options.file, options.doors) {
            (Some(grants), ..) => grants.clone(),
            (None, None, _) if options.is_open => Grants::everything(),
            // A public feed: what is read there is public already.
            (None, _, Doors::Jetstream) => Grants::of(Scope::Read),
            (None, _, Doors::Server) => Grants::default(),
        };
        let holder = |(hash, caller): (&TokenHash, &Arc<Caller>)| (*hash, Arc::new(caller.with(&grants)));
        let tokens = file.tokens.iter().map(holder).collect();
        let anyone = Arc::new(Caller::anyone(grants));
        Self { file, keys, anyone, tokens, remembered: Mutex::default() }
    }
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) options: Options,
    pub(crate) env: Env,
    state: RwLock<Arc<State>>,
    /// Counts how often the state was replaced.
    generation: watch::Sender<u64>,
    addresses: Table<AddressKey>,
    callers: Table<u64>,
    hasher: RandomState,
    pub(crate) counters: Counters,
    pub(crate) fetching: Fetching,
    keeper: Sender<Message>,
}

/// Who may do what: shared by everything that asks.
#[derive(Clone, Debug)]
pub struct Access(Arc<Inner>);

/// A request that goes on.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// What a response that stays open rests on.
    pub(crate) lease: Option<Lease>,
    /// Whether others than the caller may see the answer.
    pub(crate) is_public: bool,
}

impl Access {
    /// Reads the file and the keys, and keeps up with both until the last clone is dropped.
    pub fn start(options: Options, env: Env) -> Result<Self, AccessError> {
        let (sender, messages) = std::sync::mpsc::channel();
        let (file, keys) = match &options.file {
            Some(path) => keeper::first(path, &env)?,
            None => Default::default(),
        };
        let is_kept = options.file.is_some();
        let inner = Arc::new(Inner {
            state: RwLock::new(Arc::new(State::new(&options, file, keys))),
            generation: watch::Sender::new(0),
            addresses: Table::new(options.addresses_max, options.burst),
            callers: Table::new(crate::limits::CALLERS_MAX, options.burst),
            hasher: RandomState::new(),
            counters: Counters::default(),
            fetching: Fetching::default(),
            keeper: sender,
            options,
            env,
        });
        if is_kept {
            Counters::one(&inner.counters.file_loads);
            keeper::start(&inner, messages, inner.keeper.clone()).map_err(AccessError::Thread)?;
        }
        Ok(Self(inner))
    }

    /// Everyone may do everything.
    pub fn open(doors: Doors) -> Self {
        let (keeper, _messages) = std::sync::mpsc::channel();
        let options = Options::open(doors);
        Self(Arc::new(Inner {
            state: RwLock::new(Arc::new(State::new(&options, AccessFile::default(), HashMap::new()))),
            generation: watch::Sender::new(0),
            addresses: Table::new(1, options.burst),
            callers: Table::new(1, options.burst),
            hasher: RandomState::new(),
            counters: Counters::default(),
            fetching: Fetching::default(),
            keeper,
            options,
            env: Env::real(),
        }))
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        Counts {
            addresses: self.0.addresses.len() as u64,
            callers: self.0.callers.len() as u64,
            ..self.0.counters.snapshot()
        }
    }

    /// Whether there is nothing to decide, nor to say about origins.
    pub(crate) fn is_idle(&self) -> bool {
        let options = &self.0.options;
        options.file.is_none()
            && options.is_open
            && options.origins == Origins::Any
            && options.address_rates.is_unbounded()
    }

    pub(crate) fn origins(&self) -> &Origins {
        &self.0.options.origins
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }

    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.0.generation.subscribe()
    }

    /// Decides about a request: whether it goes on, and as whose. What it presented is taken out of it, so that nothing
    /// behind this can tell it to anyone; only a route that has credentials of its own gets them.
    pub(crate) fn admit<B: Body>(&self, request: &mut Request<B>) -> Result<Admitted, Refusal> {
        // What did not come by a connection has the address of nobody.
        let nobody = IpAddr::from(Ipv4Addr::UNSPECIFIED);
        let client = Peer::of(request).map_or(nobody, |peer| peer.client(request.headers()));
        self.admit_from(client, request)
    }

    fn admit_from<B: Body>(&self, client: IpAddr, request: &mut Request<B>) -> Result<Admitted, Refusal> {
        let inner = &*self.0;
        let options = &inner.options;
        let need = routes::need(options.doors, request.method(), request.uri().path(), request.headers());
        if need.asked == Asked::Nothing {
            withdraw(request);
            return Ok(Admitted { lease: None, is_public: true });
        }
        let headers = request.headers();
        if headers.contains_key(header::UPGRADE) && !options.origins.allow(headers.get(header::ORIGIN)) {
            return Err(inner.refused(Refusal::Origin));
        }
        let address = AddressKey::from(client);
        inner.take_of_address(address, 1, 0)?;
        if need.asked == Asked::Own {
            return Ok(Admitted { lease: None, is_public: false });
        }
        // Of what is answered at once nothing is left that could end.
        let may_stay = matches!(
            need.asked,
            Asked::Something | Asked::Greeting | Asked::Scope(Scope::Read | Scope::Admin)
        );
        let news = may_stay.then(|| self.news());
        let token = self.token(request)?;
        let is_greeting = need.asked == Asked::Greeting;
        let caller = match token.as_deref() {
            None if is_greeting => Arc::clone(&inner.state().anyone),
            token => self.decide(token, &need)?,
        };
        let meter = Meter::new(self.clone(), address, &caller);
        let bytes =
            if changes(request.method(), &need) { request.body().size_hint().exact() } else { Some(0) };
        meter.take_of_caller(1, 0)?;
        meter.take_bytes(bytes.unwrap_or_default())?;
        let is_public = token.is_none() || Inner::may(&inner.state().anyone, &need).is_ok();
        let lease = news.map(|news| Lease::new(self.clone(), token, need, Arc::clone(&caller), news));
        withdraw(request);
        let extensions = request.extensions_mut();
        extensions.insert(caller);
        if let Some(lease) = &lease {
            extensions.insert(lease.clone());
        }
        // Who greets is somebody else afterwards, with limits of its own.
        if is_greeting || !meter.is_unbounded() {
            extensions.insert(meter.for_body(bytes.is_none()));
        }
        Ok(Admitted { lease, is_public })
    }

    /// What a request presents; nothing counts where everyone may do everything.
    fn token<B>(&self, request: &Request<B>) -> Result<Option<Arc<str>>, Refusal> {
        let options = &self.0.options;
        if options.file.is_none() {
            return Ok(None);
        }
        let found = presented(request.headers(), query(request), options.token_in_query);
        match found {
            Presented::Nothing => Ok(None),
            Presented::Token(token) => Ok(Some(token.into())),
            Presented::Malformed => Err(self.0.refused(Refusal::Malformed)),
            Presented::NoToken => Err(self.0.refused(Rejected::Unknown.into())),
        }
    }

    /// Who presents a token, or nothing, if it may have what is needed.
    pub(crate) fn decide(&self, token: Option<&str>, need: &Need) -> Result<Arc<Caller>, Refusal> {
        let decided = match token {
            None => {
                let anyone = Arc::clone(&self.0.state().anyone);
                // To whoever is not known, everything that is closed looks alike, whether it is there or not.
                Inner::may(&anyone, need).map(|()| anyone).map_err(|_| Refusal::Missing)
            }
            Some(token) => self.0.identify(token).map_err(Refusal::from).and_then(|caller| {
                Inner::may(&caller, need)?;
                Ok(caller)
            }),
        };
        decided.map_err(|refusal| self.0.refused(refusal))
    }
}

impl Inner {
    pub(crate) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Decides by something else from now on, and tells whoever rests on what was before.
    pub(crate) fn replace(&self, state: State) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
        self.generation.send_modify(|generation| *generation += 1);
    }

    fn refused(&self, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::Missing | Refusal::Malformed | Refusal::Rejected(_) => {
                Counters::one(&self.counters.unauthorized);
            }
            Refusal::Forbidden(_) | Refusal::Origin => Counters::one(&self.counters.forbidden),
            Refusal::Limited(_) => {}
        }
        refusal
    }

    fn take_of_address(&self, address: AddressKey, requests: u64, bytes: u64) -> Result<(), Refusal> {
        self.addresses.take(address, self.options.address_rates, requests, bytes).map_err(|wait| {
            Counters::one(&self.counters.limited_by_address);
            Refusal::Limited(wait)
        })
    }

    /// By what the requests of a caller are counted; not those of many who go by one name.
    pub(crate) fn key_of(&self, caller: &Caller) -> Option<u64> {
        (!caller.is_shared).then(|| self.hasher.hash_one(&caller.name))
    }

    /// Takes from the buckets of an address and a caller.
    pub(crate) fn take(
        &self,
        (address, caller): (AddressKey, Option<u64>),
        rates: Rates,
        requests: u64,
        bytes: u64,
    ) -> Result<(), Refusal> {
        self.take_of_address(address, requests, bytes)?;
        self.take_of_caller(caller, rates, requests, bytes)
    }

    pub(crate) fn take_of_caller(
        &self,
        caller: Option<u64>,
        rates: Rates,
        requests: u64,
        bytes: u64,
    ) -> Result<(), Refusal> {
        let Some(caller) = caller else { return Ok(()) };
        self.callers.take(caller, rates, requests, bytes).map_err(|wait| {
            Counters::one(&self.counters.limited_by_caller);
            Refusal::Limited(wait)
        })
    }

    /// Takes bytes that have come already.
    pub(crate) fn owe(&self, (address, caller): (AddressKey, Option<u64>), rates: Rates, bytes: u64) {
        self.addresses.owe(address, self.options.address_rates, bytes);
        if let Some(caller) = caller {
            self.callers.owe(caller, rates, bytes);
        }
    }

    /// Whether a caller may have what is needed.
    pub(crate) fn may(caller: &Caller, need: &Need) -> Result<(), Refusal> {
        match need.asked {
            Asked::Nothing | Asked::Own => {}
            Asked::Something | Asked::Greeting if caller.grants.may_something(&need.place) => {}
            Asked::Something | Asked::Greeting => return Err(Refusal::Forbidden(Scope::Read)),
            Asked::Scope(scope) if caller.grants.may(scope, &need.place) => {}
            Asked::Scope(scope) => return Err(Refusal::Forbidden(scope)),
        }
        match &need.reads {
            Some(place) if !caller.grants.may(Scope::Read, place) => Err(Refusal::Forbidden(Scope::Read)),
            _ => Ok(()),
        }
    }

    /// Who has a token.
    fn identify(&self, token: &str) -> Result<Arc<Caller>, Rejected> {
        let state = self.state();
        let now_ms = self.env.clock.now_ms();
        let hash = TokenHash::of(token);
        let known = state.tokens.get(&hash).cloned();
        if let Some(caller) = known.or_else(|| state.remembered.lock().get(&hash).cloned()) {
            return if caller.is_expired(now_ms) { Err(Rejected::Expired) } else { Ok(caller) };
        }
        let unverified = Unverified::parse(token).map_err(|_| Rejected::Unknown)?;
        let issuer =
            unverified.issuer().and_then(|name| state.file.issuers.iter().find(|one| one.name == name));
        let issuer = issuer.ok_or(InvalidJwt::Issuer)?;
        let Some(keys) = state.keys.get(&issuer.keys) else { return Err(self.ask_for_keys(&issuer.keys)) };
        let caller = match issuer::caller(issuer, keys, unverified, now_ms) {
            Ok(caller) => Arc::new(caller.with(&state.anyone.grants)),
            // Perhaps the issuer has begun to sign with another one.
            Err(InvalidJwt::UnknownKey) => return Err(self.ask_for_keys(&issuer.keys)),
            Err(error) => return Err(error.into()),
        };
        let mut remembered = state.remembered.lock();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(hash, Arc::clone(&caller));
        Ok(caller)
    }

    /// Has keys fetched, if they may be again.
    pub(crate) fn ask_for_keys(&self, source: &KeySource) -> Rejected {
        let KeySource::Url(url) = source else { return InvalidJwt::UnknownKey.into() };
        if !self.fetching.is_worth_waiting(url, self.env.clock.now_ms()) {
            return InvalidJwt::UnknownKey.into();
        }
        // It ends with the last of those who could ask.
        drop(self.keeper.send(Message::Wanted(url.clone())));
        Rejected::KeysPending
    }
}

/// Whether the body of a request is something to be kept.
fn changes(method: &Method, need: &Need) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
        && matches!(need.asked, Asked::Something | Asked::Scope(Scope::Write | Scope::Admin))
}

/// Takes whatever a request presented out of it.
fn withdraw<B>(request: &mut Request<B>) {
    if let Some(uri) = redact(request.uri()) {
        *request.uri_mut() = uri;
    }
    LongQuery::retain(request, |pair| !is_token(pair));
    request.headers_mut().remove(header::AUTHORIZATION);
    withdraw_subprotocols(request.headers_mut(), &header::SEC_WEBSOCKET_PROTOCOL);
}

fn withdraw_subprotocols(headers: &mut HeaderMap, name: &HeaderName) {
    let is_token = |name: &str| SUBPROTOCOLS.iter().any(|beginning| name.starts_with(beginning));
    let all: Vec<&str> = headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .collect();
    if !all.iter().any(|one| is_token(one)) {
        return;
    }
    let kept = all.into_iter().filter(|one| !is_token(one)).collect::<Vec<_>>().join(", ");
    headers.remove(name);
    if let Some(kept) = HeaderValue::try_from(kept).ok().filter(|kept| !kept.is_empty()) {
        headers.insert(name, kept);
    }
}

#[cfg(test)]
mod tests;
