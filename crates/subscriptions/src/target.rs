//! Where webhooks may go, and sending them there (PROTOCOL §12.8).
//!
//! What a URL says is checked when a subscription is made; what its name leads to is checked for every connection, and the
//! connection goes to an address that was checked. One address among them that is not of the public internet refuses all.
//! Redirects are not followed.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use alluvium_env::is_public;
use alluvium_protocol::subscription::answer::says_done;
use alluvium_protocol::subscription::signature::WEBHOOK_SIGNATURE;
use http::Uri;
use ureq::Agent;
use ureq::config::Config;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

use crate::delivery::{Delivery, Failure, Outcome, Transport};
use crate::options::RESPONSE_BYTES_MAX;

/// Most time for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Addresses of one name that are looked at: more than can be tried.
const ADDRESSES_MAX: usize = 16;

/// Why webhooks must not go somewhere.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Not a URL with a host.
    #[error("it is not a URL with a host")]
    Url,
    /// Another scheme than `https`, or `http` elsewhere than to this machine.
    #[error("it must use https")]
    Scheme,
    /// A user or password.
    #[error("it must not name a user or a password")]
    User,
    /// An address that is not of the public internet.
    #[error("it must not lead to an address that is not on the public internet")]
    Address,
    /// This machine, and the server was not started for that.
    #[error("it leads to this machine, for which the server must be started with `--webhook-loopback`")]
    Loopback,
}

/// Whether webhooks may go to a URL, as far as the URL tells.
pub fn check_target(url: &str, allow_loopback: bool) -> Result<(), TargetError> {
    let uri: Uri = url.parse().map_err(|_| TargetError::Url)?;
    let (scheme, authority) = uri.scheme_str().zip(uri.authority()).ok_or(TargetError::Url)?;
    if authority.host().is_empty() || url.bytes().any(|byte| !byte.is_ascii_graphic()) {
        return Err(TargetError::Url);
    }
    if authority.as_str().contains('@') {
        return Err(TargetError::User);
    }
    let is_local = is_loopback_host(authority.host());
    match (scheme, is_local) {
        ("http" | "https", true) if allow_loopback => Ok(()),
        ("http" | "https", true) => Err(TargetError::Loopback),
        ("https", false) => match literal(authority.host()) {
            Some(address) if !is_public(address) => Err(TargetError::Address),
            _ => Ok(()),
        },
        ("http", false) if literal(authority.host()).is_some_and(|address| !is_public(address)) => {
            Err(TargetError::Address)
        }
        _ => Err(TargetError::Scheme),
    }
}

/// The host as an address, if it is written as one.
fn literal(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Whether a host is this machine by its very name.
fn is_loopback_host(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    let is_name = host.eq_ignore_ascii_case("localhost")
        || host.len() > ".localhost".len()
            && host[host.len() - ".localhost".len()..].eq_ignore_ascii_case(".localhost");
    is_name || literal(host).is_some_and(|address| address.to_canonical().is_loopback())
}

/// What leads from names to addresses.
pub trait Names: Send + Sync + fmt::Debug {
    /// The addresses of a host.
    fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// The operating system's.
#[derive(Copy, Clone, Debug, Default)]
pub struct SystemNames;

impl Names for SystemNames {
    fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Ok((host, port).to_socket_addrs()?.take(ADDRESSES_MAX).collect())
    }
}

/// Looks at the addresses of each connection before it is made.
struct Guarded {
    names: Option<Arc<dyn Names>>,
    allow_loopback: bool,
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded").field("allow_loopback", &self.allow_loopback).finish_non_exhaustive()
    }
}

/// How [`Guarded`] says why it gives no address: the one kind of error that nothing else makes.
const NOT_PUBLIC: &str = "an address is not on the public internet";

impl Resolver for Guarded {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let host = uri.host().ok_or(ureq::Error::HostNotFound)?;
        let mut resolved = self.empty();
        match &self.names {
            // Gives up in time, whatever the system does.
            None => resolved = DefaultResolver::default().resolve(uri, config, timeout)?,
            Some(names) => {
                let default = if uri.scheme_str() == Some("http") { 80 } else { 443 };
                let found = names.look_up(host, uri.port_u16().unwrap_or(default))?;
                found.into_iter().take(ADDRESSES_MAX).for_each(|address| resolved.push(address));
            }
        }
        // A name other than this machine's own must not lead to it, whatever the server was started with.
        let is_local = self.allow_loopback && is_loopback_host(host);
        let is_allowed = |address: &SocketAddr| {
            let address = address.ip();
            is_public(address) || is_local && address.to_canonical().is_loopback()
        };
        if resolved.is_empty() {
            return Err(ureq::Error::HostNotFound);
        }
        if resolved.iter().all(is_allowed) { Ok(resolved) } else { Err(ureq::Error::Tls(NOT_PUBLIC)) }
    }
}

/// Sends webhooks over HTTP.
#[derive(Debug)]
pub struct HttpTransport {
    agent: Agent,
    allow_loopback: bool,
}

impl HttpTransport {
    /// Connects to nothing yet.
    pub fn new(allow_loopback: bool) -> Self {
        Self::build(allow_loopback, None)
    }

    /// As [`new`](Self::new), with names looked up elsewhere than in the system.
    pub fn with_names(allow_loopback: bool, names: Arc<dyn Names>) -> Self {
        Self::build(allow_loopback, Some(names))
    }

    fn build(allow_loopback: bool, names: Option<Arc<dyn Names>>) -> Self {
        let settings = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .max_redirects(0)
            .max_redirects_will_error(false)
            .https_only(!allow_loopback)
            .proxy(None)
            .user_agent("alluvium")
            .build();
        let guarded = Guarded { names, allow_loopback };
        let agent = Agent::with_parts(settings, DefaultConnector::default(), guarded);
        Self { agent, allow_loopback }
    }
}

impl Transport for HttpTransport {
    fn send(&self, delivery: &Delivery) -> Outcome {
        // Once more: a subscription may be older than the flag that it was made under.
        if check_target(&delivery.url, self.allow_loopback).is_err() {
            return Outcome::Failed(Failure::Target);
        }
        let request = self
            .agent
            .post(&delivery.url)
            .config()
            .timeout_global(Some(delivery.timeout))
            .build()
            .header("content-type", "application/json")
            .header(WEBHOOK_SIGNATURE, &delivery.signature);
        let mut response = match request.send(&delivery.body[..]) {
            Ok(response) => response,
            Err(error) => return Outcome::Failed(class_of(&error)),
        };
        let status = response.status();
        if !status.is_success() {
            return Outcome::Failed(if status.is_redirection() {
                Failure::Redirect
            } else if status.is_client_error() {
                Failure::Refused
            } else {
                Failure::Error
            });
        }
        match response.body_mut().with_config().limit(RESPONSE_BYTES_MAX).read_to_vec() {
            Ok(body) => Outcome::Accepted { done: says_done(&body) },
            Err(error) => Outcome::Failed(class_of(&error)),
        }
    }
}

fn class_of(error: &ureq::Error) -> Failure {
    match error {
        ureq::Error::Tls(reason) if *reason == NOT_PUBLIC => Failure::Address,
        ureq::Error::HostNotFound => Failure::Name,
        ureq::Error::Timeout(_) => Failure::Timeout,
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) => Failure::Tls,
        ureq::Error::BadUri(_) | ureq::Error::RequireHttpsOnly(_) => Failure::Target,
        ureq::Error::Protocol(_) | ureq::Error::BodyExceedsLimit(_) | ureq::Error::Http(_) => Failure::Answer,
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => Failure::Timeout,
        // Of a name that the system does not know.
        ureq::Error::Io(error) if error.to_string().contains("lookup address") => Failure::Name,
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => Failure::Tls,
        _ => Failure::Connection,
    }
}
