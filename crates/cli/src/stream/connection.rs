//! The options that every command of `stream`, `bucket` and `feed` has: which server, with which token, how patiently.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use alluvium_server::config::parse_seconds;
use alluvium_websocket::{plain_refusal, tls_refusal, trusting, try_plain, try_tls};
use clap::Args;
use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, RequestBuilder};

use super::client::{Client, RetryPolicy};
use super::failure::Failure;
use super::notes::Notes;
use super::target::Target;

/// The variable of `--url`.
pub(crate) const URL_VARIABLE: &str = "ALLUVIUM_URL";
/// Where a server is that runs with its defaults.
pub(crate) const URL_DEFAULT: &str = "http://127.0.0.1:4437";
/// The variable of `--token`.
pub(crate) const TOKEN_VARIABLE: &str = "ALLUVIUM_TOKEN";
/// The variable of `--token-file`.
pub(crate) const TOKEN_FILE_VARIABLE: &str = "ALLUVIUM_TOKEN_FILE";
/// Longest token file, in bytes.
const TOKEN_FILE_BYTES_MAX: u64 = 64 * 1024;

/// How long a server may take for a greeting that only shows whether it can be trusted.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// The variable of `--tls-ca`.
pub(crate) const TLS_CA_VARIABLE: &str = "ALLUVIUM_TLS_CA";

/// Which server, and whom to trust that it is that.
#[derive(Debug, Args)]
pub(crate) struct ServerPlace {
    /// The server; streams are under its /v1/stream/, unless the URL has a path of its own.
    #[arg(
        long,
        alias = "server",
        global = true,
        env = URL_VARIABLE,
        hide_env_values = true,
        value_name = "URL",
        default_value = URL_DEFAULT
    )]
    pub(crate) url: String,

    /// Trust the certificates in this file (PEM) in place of the public ones, for `https://` and `wss://`.
    #[arg(long, global = true, env = TLS_CA_VARIABLE, hide_env_values = true, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
}

impl ServerPlace {
    /// What sends requests there, each answered within a time if one is given.
    pub(crate) fn agent(&self, answer_timeout: Option<Duration>) -> Result<Agent, Failure> {
        let roots = self.roots()?.unwrap_or(RootCerts::WebPki);
        let config = Agent::config_builder()
            .timeout_global(answer_timeout)
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("alluvium/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(roots).build());
        Ok(config.build().into())
    }

    /// A URL of the server that ends so.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url.trim_end_matches('/'))
    }

    fn roots(&self) -> Result<Option<RootCerts>, Failure> {
        roots(self.tls_ca.as_deref())
    }
}

/// Which server, and with which token.
#[derive(Debug, Args)]
pub(crate) struct ServerAccess {
    #[command(flatten)]
    pub(crate) place: ServerPlace,

    /// Send `Authorization: Bearer TOKEN`. The variable keeps it out of the process list.
    #[arg(long, global = true, env = TOKEN_VARIABLE, hide_env_values = true, value_name = "TOKEN")]
    token: Option<Secret>,

    /// Read the token from this file, where `--token` is not given; space and line ends around it are left out.
    #[arg(
        long,
        global = true,
        env = TOKEN_FILE_VARIABLE,
        hide_env_values = true,
        value_name = "FILE"
    )]
    token_file: Option<PathBuf>,
}

impl ServerAccess {
    /// The token, if there is one. A file is read each time.
    pub(crate) fn token(&self) -> Result<Option<String>, Failure> {
        token(self.token.as_ref(), self.token_file.as_deref())
    }

    /// A request with the token, if there is one.
    pub(crate) fn authorized<B>(&self, request: RequestBuilder<B>) -> Result<RequestBuilder<B>, Failure> {
        Ok(match self.token()? {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        })
    }
}

/// Options shared by all commands that work on a server's streams and feeds.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every stream, bucket and feed command")]
pub(crate) struct ConnectionArgs {
    #[command(flatten)]
    pub(crate) access: ServerAccess,

    /// Give up when the server has been unavailable for this long, such as `90` (seconds) or `15m`; 0 tries for ever.
    #[arg(long, global = true, value_name = "TIME", value_parser = parse_seconds, default_value = "60")]
    give_up_after: u64,

    /// Print no notes (such as the next offset) on standard error, only errors.
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

impl ConnectionArgs {
    /// A client as the options ask for.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Client::new(
            self.token()?.as_deref(),
            self.access.place.roots()?,
            RetryPolicy::new(self.patience()),
            self.notes(),
        )
    }

    /// The server.
    pub(crate) fn url(&self) -> &str {
        &self.access.place.url
    }

    /// The certificates to trust in place of the public ones, as they are in the file.
    pub(crate) fn roots_pem(&self) -> Result<Option<Vec<u8>>, Failure> {
        self.access.place.tls_ca.as_deref().map(read_pem).transpose()
    }

    /// Fails if TLS with the server will not come about however often it is tried, or is what it speaks and its URL does
    /// not.
    pub(crate) fn check_trust(&self) -> Result<(), Failure> {
        let Ok(uri) = self.url().parse::<Uri>() else { return Ok(()) };
        let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.host()) else { return Ok(()) };
        let host = host.trim_matches(['[', ']']);
        let why = if matches!(scheme, "https" | "wss") {
            let unreadable = |error: std::io::Error| Failure::Usage(format!("the certificates: {error}"));
            let tls = self.roots_pem()?.map(|pem| trusting(&pem)).transpose().map_err(unreadable)?;
            try_tls(host, uri.port_u16().unwrap_or(443), tls, GREETING_TIMEOUT)
        } else {
            try_plain(host, uri.port_u16().unwrap_or(80), GREETING_TIMEOUT)
        };
        match why {
            Some(why) => Err(Failure::untrusted(self.url(), why)),
            None => Ok(()),
        }
    }

    /// How long to try, if not for ever.
    pub(crate) fn patience(&self) -> Option<Duration> {
        (self.give_up_after > 0).then(|| Duration::from_secs(self.give_up_after))
    }

    /// The token, if there is one.
    pub(crate) fn token(&self) -> Result<Option<String>, Failure> {
        self.access.token()
    }

    /// The stream that an argument names.
    pub(crate) fn target(&self, stream: &str) -> Result<Target, Failure> {
        Target::resolve(self.url(), stream)
    }

    /// The bucket that an argument names.
    pub(crate) fn bucket(&self, bucket: &str) -> Result<Target, Failure> {
        Target::bucket(self.url(), bucket)
    }

    pub(crate) fn notes(&self) -> Notes {
        Notes::new(self.quiet)
    }
}

/// Why a request of `url` came to nothing, for a command that does not try again.
pub(crate) fn unreachable(url: &str, error: &ureq::Error) -> Failure {
    match refusal(error) {
        Some(why) => Failure::untrusted(url, why),
        None => Failure::Unavailable(format!("cannot read `{url}`: {error}")),
    }
}

/// Why TLS with a server will not come about, or nothing but TLS, if that is what an error tells of.
pub(crate) fn refusal(error: &ureq::Error) -> Option<&'static str> {
    match error {
        ureq::Error::Io(error) => tls_refusal(error),
        ureq::Error::Rustls(error) => tls_refusal(error),
        ureq::Error::Protocol(error) => plain_refusal(error),
        _ => None,
    }
}

fn read_pem(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::Usage(format!("cannot read `{}`: {error}", path.display())))
}

/// The certificates in a file, to trust in place of the public ones.
pub(crate) fn roots(file: Option<&Path>) -> Result<Option<RootCerts>, Failure> {
    let Some(path) = file else { return Ok(None) };
    let mut roots: Vec<Certificate<'static>> = Vec::new();
    for item in parse_pem(&read_pem(path)?) {
        match item {
            Ok(PemItem::Certificate(certificate)) => roots.push(certificate),
            Ok(_) => {}
            Err(error) => {
                return Err(Failure::Usage(format!("`{}` is not in PEM: {error}", path.display())));
            }
        }
    }
    if roots.is_empty() {
        return Err(Failure::Usage(format!("`{}` has no certificate in PEM", path.display())));
    }
    Ok(Some(RootCerts::Specific(Arc::new(roots))))
}

/// A token that was given, or that a file has.
pub(crate) fn token(given: Option<&Secret>, file: Option<&Path>) -> Result<Option<String>, Failure> {
    let Some(path) = file.filter(|_| given.is_none()) else {
        return Ok(given.map(|secret| secret.0.clone()));
    };
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::Usage(format!("cannot read the token file `{}`: {error}", path.display()))
    };
    let text = read(path).map_err(|error| unreadable(&error))?;
    match text.trim() {
        "" => Err(unreadable(&"it is empty")),
        text if text.contains(|letter: char| letter.is_whitespace() || letter.is_control()) => {
            Err(unreadable(&"it has more than a token"))
        }
        token => Ok(Some(token.to_owned())),
    }
}

#[expect(clippy::disallowed_methods, reason = "the edge of the program: the file is the user's")]
fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(TOKEN_FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// A value that never shows in `Debug` output.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl From<&str> for Secret {
    fn from(value: &str) -> Self {
        Self(value.to_owned())
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}
