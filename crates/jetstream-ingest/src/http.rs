//! The network over HTTP: the directory of `did:plc`, hosts of `did:web`, servers with repositories.
//!
//! Where to connect is what strangers wrote into documents, so every name is looked at after it was resolved: an address
//! that is not on the public internet is refused, also behind a redirect. Everything read is bounded in bytes and time.

mod address;
mod hosts;

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use alluvium_atproto::{Did, did_document};
use alluvium_env::Clock;
use bytes::Bytes;
use ureq::Agent;
use ureq::http::{Response, StatusCode};
use ureq::unversioned::transport::DefaultConnector;

use self::address::Guarded;
use self::hosts::Hosts;
use crate::account::{FetchFailure, HostingStatus};
use crate::budget::Permit;
use crate::network::{FetchError, Network};
use crate::rules::LookupError;

/// What is read of an error, in bytes.
const ERROR_BYTES: u64 = 16 * 1024;
/// A repository is read in pieces of this many bytes.
const PIECE: usize = 256 * 1024;
/// How slow a server may be over a whole transfer, in bytes a second, once it had [`SLOW_AFTER_MS`].
const SLOW_BYTES: u64 = 1024;
/// The time that every transfer may take, in milliseconds.
const SLOW_AFTER_MS: u64 = 30_000;
/// The longest time that a server may ask to be left alone, in milliseconds.
const BUSY_MAX_MS: u64 = 7 * 24 * 3_600_000;
/// The time that a server is left alone that is busy and does not say for how long, in milliseconds.
const BUSY_MS: u64 = 60_000;

/// How the network is reached.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// The directory of `did:plc`: scheme, host and port.
    pub plc: String,
    /// The relay over HTTP, if it has this too: scheme, host and port.
    pub relay: Option<String>,
    /// Connects to addresses that are not public, and without TLS, where documents name them: for a simulation on this
    /// machine. Directory and relay may be anywhere, as it is not strangers who name them.
    pub allow_private: bool,
    /// The longest time for a DID document.
    pub lookup_timeout: Duration,
    /// The longest time for a repository.
    pub repo_timeout: Duration,
    /// The longest repository, in bytes.
    pub repo_bytes: usize,
    /// Lookups of `did:web` at one time: slow hosts of single accounts must not hold every worker.
    pub web_lookups: usize,
    /// Repositories from one host at one time.
    pub host_fetches: usize,
}

impl HttpConfig {
    /// The usual bounds for a directory.
    pub fn new(plc: &str) -> Self {
        Self {
            plc: plc.trim_end_matches('/').to_owned(),
            relay: None,
            allow_private: false,
            lookup_timeout: Duration::from_secs(10),
            repo_timeout: Duration::from_mins(5),
            repo_bytes: 512 << 20,
            web_lookups: 8,
            host_fetches: 4,
        }
    }
}

/// The network.
#[derive(Debug)]
pub struct Http {
    config: HttpConfig,
    lookups: Agent,
    /// For what the operator names.
    named: Agent,
    repos: Agent,
    clock: Arc<dyn Clock>,
    hosts: Hosts,
    web: Hosts,
}

impl Http {
    /// Nothing is connected yet.
    pub fn new(config: HttpConfig, clock: Arc<dyn Clock>) -> Self {
        let agent = |guarded: bool, timeout: Duration| {
            let settings = Agent::config_builder()
                .http_status_as_error(false)
                .timeout_global(Some(timeout))
                .timeout_connect(Some(Duration::from_secs(10)))
                .max_redirects(3)
                .https_only(guarded)
                .proxy(None)
                .user_agent("alluvium-jetstream")
                .build();
            Agent::with_parts(settings, DefaultConnector::default(), Guarded { allow_private: !guarded })
        };
        let guarded = !config.allow_private;
        Self {
            lookups: agent(guarded, config.lookup_timeout),
            named: agent(false, config.lookup_timeout),
            repos: agent(guarded, config.repo_timeout),
            hosts: Hosts::new(config.host_fetches),
            web: Hosts::new(config.web_lookups),
            clock,
            config,
        }
    }

    /// The address of a DID document.
    fn document_url(&self, did: &Did) -> Option<String> {
        match did.method() {
            "plc" => Some(format!("{}/{did}", self.config.plc)),
            "web" => web_host(did, self.config.allow_private)
                .map(|origin| format!("{origin}/.well-known/did.json")),
            _ => None,
        }
    }

    /// Why a server does not answer, and leaves it alone if it asks for that.
    fn refused(&self, server: &str, response: Response<ureq::Body>) -> FetchError {
        match response.status() {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                let wait_ms = retry_after(&response).unwrap_or(BUSY_MS).min(BUSY_MAX_MS);
                self.hosts.leave_alone(server, self.clock.now_ms().saturating_add(wait_ms));
                FetchError::Busy { wait_ms }
            }
            status => FetchError::Failure(failure(status, response)),
        }
    }

    fn read_repo(
        &self,
        mut response: Response<ureq::Body>,
        permit: &mut Permit,
    ) -> Result<Bytes, FetchError> {
        let transient = FetchError::Failure(FetchFailure::Transient);
        let announced = response.body().content_length().and_then(|len| usize::try_from(len).ok());
        if announced.is_some_and(|len| len > self.config.repo_bytes) {
            return Err(FetchError::Failure(FetchFailure::Refused));
        }
        let start_ms = self.clock.now_ms();
        let mut reader = response.body_mut().as_reader();
        let mut file = Vec::new();
        loop {
            if !permit.grow(announced.unwrap_or_default().max(file.len() + PIECE)) {
                return Err(FetchError::NoRoom);
            }
            let read = reader.by_ref().take(PIECE as u64).read_to_end(&mut file).map_err(|_| transient)?;
            if read == 0 {
                return Ok(file.into());
            }
            if file.len() > self.config.repo_bytes {
                return Err(FetchError::Failure(FetchFailure::Refused));
            }
            let elapsed_ms = self.clock.now_ms().saturating_sub(start_ms);
            if elapsed_ms > SLOW_AFTER_MS && (file.len() as u64) < elapsed_ms / 1000 * SLOW_BYTES {
                return Err(transient);
            }
        }
    }
}

impl Network for Http {
    fn document(&self, did: &Did) -> Result<Vec<u8>, LookupError> {
        let url = self.document_url(did).ok_or(LookupError::Unusable)?;
        if did.method() != "web" {
            return read_document(&self.named, &url);
        }
        let _turn = self.web.enter("", self.clock.now_ms()).map_err(|_| LookupError::Failed)?;
        read_document(&self.lookups, &url)
    }

    fn repo(&self, server: &str, did: &Did, permit: &mut Permit) -> Result<Bytes, FetchError> {
        let _turn =
            self.hosts.enter(server, self.clock.now_ms()).map_err(|wait_ms| FetchError::Busy { wait_ms })?;
        let url = format!("{server}/xrpc/com.atproto.sync.getRepo?did={}", query(did.as_str()));
        let call = self.repos.get(&url).header("accept", "application/vnd.ipld.car").call();
        let response = call.map_err(|_| FetchError::Failure(FetchFailure::Transient))?;
        match response.status() {
            StatusCode::OK => self.read_repo(response, permit),
            _ => Err(self.refused(server, response)),
        }
    }

    fn status(&self, server: Option<&str>, did: &Did) -> Result<HostingStatus, FetchError> {
        let unknown = FetchError::Failure(FetchFailure::Gone);
        let agent = if server.is_some() { &self.lookups } else { &self.named };
        let server = server.or(self.config.relay.as_deref()).ok_or(unknown)?;
        let _turn =
            self.hosts.enter(server, self.clock.now_ms()).map_err(|wait_ms| FetchError::Busy { wait_ms })?;
        let url = format!("{server}/xrpc/com.atproto.sync.getRepoStatus?did={}", query(did.as_str()));
        let transient = FetchError::Failure(FetchFailure::Transient);
        let mut response = agent.get(&url).call().map_err(|_| transient)?;
        if response.status() != StatusCode::OK {
            return Err(self.refused(server, response));
        }
        let body = response.body_mut().with_config().limit(ERROR_BYTES).read_to_vec();
        let status = HostingStatus::read(&body.map_err(|_| transient)?, did.as_str());
        status.ok_or(FetchError::Failure(FetchFailure::Refused))
    }
}

fn read_document(agent: &Agent, url: &str) -> Result<Vec<u8>, LookupError> {
    let response = agent.get(url).header("accept", "application/did+ld+json, application/json");
    let mut response = response.call().map_err(|_| LookupError::Failed)?;
    match response.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND | StatusCode::GONE => return Err(LookupError::Gone),
        _ => return Err(LookupError::Failed),
    }
    let limit = did_document::MAX_LEN as u64;
    response.body_mut().with_config().limit(limit + 1).read_to_vec().map_err(|_| LookupError::Failed)
}

/// What an answer other than a repository means.
fn failure(status: StatusCode, mut response: Response<ureq::Body>) -> FetchFailure {
    let body = response.body_mut().with_config().limit(ERROR_BYTES).read_to_vec().unwrap_or_default();
    let body: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
    let error = body.as_ref().and_then(|body| body.get("error")).and_then(serde_json::Value::as_str);
    match (error, status) {
        (Some("RepoTakendown" | "RepoSuspended" | "RepoDeactivated"), _) => FetchFailure::Unavailable,
        (Some("RepoNotFound"), _) | (_, StatusCode::NOT_FOUND) => FetchFailure::Gone,
        _ => FetchFailure::Transient,
    }
}

/// `Retry-After` in seconds, in milliseconds.
fn retry_after(response: &Response<ureq::Body>) -> Option<u64> {
    let seconds: u64 = response.headers().get("retry-after")?.to_str().ok()?.trim().parse().ok()?;
    Some(seconds.saturating_mul(1000))
}

/// Scheme, host and perhaps port of a `did:web`, which has no path (<https://atproto.com/specs/did>).
fn web_host(did: &Did, allow_private: bool) -> Option<String> {
    let host = did.as_str().strip_prefix("did:web:")?.replace("%3A", ":").replace("%3a", ":");
    let (name, port) = host.split_once(':').map_or((host.as_str(), None), |(name, port)| (name, Some(port)));
    let is_local = allow_private && name == "localhost";
    let scheme = if is_local { "http" } else { "https" };
    let is_name = is_local || alluvium_atproto::Handle::is_valid(name);
    let port_is_valid = port.is_none_or(|port| allow_private && port.parse::<u16>().is_ok());
    (is_name && port_is_valid).then(|| format!("{scheme}://{host}"))
}

/// A DID within a query: of what a DID may hold, only `%` has a meaning there.
fn query(did: &str) -> String {
    did.replace('%', "%25")
}

#[cfg(test)]
mod tests;
