//! What is measured: servers by URL, or by a command line that the benchmark starts itself.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use thiserror::Error;

/// The path that streams live under unless the URL or `--mount` says otherwise (PROTOCOL §4).
pub(crate) const DEFAULT_MOUNT: &str = "/v1/stream";

/// Why a target cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum TargetError {
    #[error("a server is given as `name=http://…` or `name=command`, not `{0}`")]
    Unnamed(String),
    #[error("only `http://` URLs with an IP address or `localhost` can be measured, not `{0}`")]
    Url(String),
    #[error("{0} is not this machine; pass `--allow-remote` if that server is yours to load")]
    Remote(IpAddr),
    #[error("the command of `{0}` does not say `{{port}}`")]
    NoPort(String),
}

/// Where a server's streams are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    /// The value of the `Host` header.
    pub(crate) host: String,
    /// Further header lines of every request, each with its line end: those that present a token.
    pub(crate) credentials: String,
    /// The path before a stream's own, without a slash at its end.
    pub(crate) base: String,
}

impl Endpoint {
    /// Reads `http://host[:port][/base]`. Addresses of other machines are refused unless `allow_remote`.
    pub(crate) fn parse(url: &str, allow_remote: bool) -> Result<Self, TargetError> {
        let invalid = || TargetError::Url(url.to_owned());
        let rest = url.strip_prefix("http://").ok_or_else(invalid)?;
        let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        let address = parse_authority(authority).ok_or_else(invalid)?;
        if !address.ip().is_loopback() && !allow_remote {
            return Err(TargetError::Remote(address.ip()));
        }
        if path.contains(['?', '#']) || path.contains(char::is_whitespace) {
            return Err(invalid());
        }
        let path = path.trim_end_matches('/');
        let base = if path.is_empty() { DEFAULT_MOUNT } else { path };
        Ok(Self { address, host: authority.to_owned(), credentials: String::new(), base: base.to_owned() })
    }

    /// The endpoint of a server started on a local port.
    pub(crate) fn local(port: u16, mount: &str) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self {
            address,
            host: address.to_string(),
            credentials: String::new(),
            base: mount.trim_end_matches('/').to_owned(),
        }
    }

    /// The same, asked with a token if there is one.
    pub(crate) fn with_token(self, token: Option<&str>) -> Self {
        let credentials = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
        Self { credentials: credentials.unwrap_or_default(), ..self }
    }
}

/// Host names are not resolved: which machine gets the load should be plain from the command line.
fn parse_authority(authority: &str) -> Option<SocketAddr> {
    const HTTP_PORT: u16 = 80;
    if let Ok(address) = authority.parse() {
        return Some(address);
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => (host, port.parse().ok()?),
        _ => (authority, HTTP_PORT),
    };
    let ip = match host {
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        _ => host.trim_start_matches('[').trim_end_matches(']').parse().ok()?,
    };
    Some(SocketAddr::new(ip, port))
}

/// How a target comes to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It runs already.
    Running(Endpoint),
    /// Started for each run by this command line, with `{port}` and `{dir}` filled in.
    Command(String),
}

/// One server under measurement.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) origin: Origin,
    /// Its process, if told; else found by the listening port.
    pub(crate) pid: Option<u32>,
    /// The data directory of a running server, if told.
    pub(crate) data_dir: Option<PathBuf>,
}

impl Target {
    /// Reads `name=http://…` or `name=command … {port} … {dir} …`.
    pub(crate) fn parse(text: &str, allow_remote: bool) -> Result<Self, TargetError> {
        let (name, rest) = split_named(text).ok_or_else(|| TargetError::Unnamed(text.to_owned()))?;
        let origin = if rest.contains("://") && !rest.contains(char::is_whitespace) {
            Origin::Running(Endpoint::parse(rest, allow_remote)?)
        } else if rest.contains("{port}") {
            Origin::Command(rest.to_owned())
        } else {
            return Err(TargetError::NoPort(name.to_owned()));
        };
        Ok(Self { name: name.to_owned(), origin, pid: None, data_dir: None })
    }
}

/// Splits `name=value`; neither may be empty, and a name is a word.
pub(crate) fn split_named(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once('=')?;
    let is_word = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    (is_word(name) && !value.trim().is_empty()).then(|| (name, value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_address_and_the_base_path() {
        let endpoint = Endpoint::parse("http://localhost:4437/streams/", false).unwrap();
        assert_eq!(endpoint.address, "127.0.0.1:4437".parse().unwrap());
        assert_eq!((endpoint.host.as_str(), endpoint.base.as_str()), ("localhost:4437", "/streams"));
        let endpoint = Endpoint::parse("http://[::1]:8080", false).unwrap();
        assert_eq!(endpoint.address, "[::1]:8080".parse().unwrap());
        assert_eq!(endpoint.base, DEFAULT_MOUNT);
        assert_eq!(Endpoint::parse("http://127.0.0.1", false).unwrap().address.port(), 80);
    }

    #[test]
    fn other_machines_are_refused_unless_allowed() {
        let url = "http://192.0.2.1:80/v1/stream";
        assert_eq!(Endpoint::parse(url, false), Err(TargetError::Remote("192.0.2.1".parse().unwrap())));
        assert!(Endpoint::parse(url, true).is_ok());
        assert!(matches!(Endpoint::parse("http://0.0.0.0:80", false), Err(TargetError::Remote(_))));
    }

    #[test]
    fn names_are_not_resolved_and_other_schemes_are_not_spoken() {
        for url in ["http://example.com/", "https://127.0.0.1/", "127.0.0.1:80", "http://127.0.0.1:99999/"] {
            assert!(matches!(Endpoint::parse(url, true), Err(TargetError::Url(_))), "{url}");
        }
        assert!(matches!(Endpoint::parse("http://127.0.0.1/a?b", false), Err(TargetError::Url(_))));
    }

    #[test]
    fn a_target_is_a_url_or_a_command() {
        let running = Target::parse("a=http://127.0.0.1:1/x", false).unwrap();
        assert!(matches!(running.origin, Origin::Running(_)));
        let command = Target::parse("b=serve --listen 127.0.0.1:{port} --data-dir {dir}", false).unwrap();
        assert_eq!(command.name, "b");
        let expected = "serve --listen 127.0.0.1:{port} --data-dir {dir}".to_owned();
        assert_eq!(command.origin, Origin::Command(expected));
    }

    #[test]
    fn a_target_needs_a_name_and_a_command_its_port() {
        for text in ["http://127.0.0.1:1/", "=x {port}", "a=", "a b=serve {port}"] {
            assert_eq!(Target::parse(text, false).unwrap_err(), TargetError::Unnamed(text.to_owned()));
        }
        assert_eq!(Target::parse("a=serve", false).unwrap_err(), TargetError::NoPort("a".to_owned()));
    }
}
