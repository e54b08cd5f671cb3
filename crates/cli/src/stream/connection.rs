//! The options that every command of `stream`, `bucket` and `feed` has: which server, with which token, how patiently.

use std::time::Duration;

use alluvium_server::config::parse_seconds;
use clap::Args;

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

/// Options shared by all commands that talk to a server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every stream, bucket and feed command")]
pub(crate) struct ConnectionArgs {
    /// The server; streams are under its /v1/stream/, unless the URL has a path of its own.
    #[arg(
        long,
        global = true,
        env = URL_VARIABLE,
        hide_env_values = true,
        value_name = "URL",
        default_value = URL_DEFAULT
    )]
    pub(crate) url: String,

    /// Send `Authorization: Bearer TOKEN`. The variable keeps it out of the process list.
    #[arg(long, global = true, env = TOKEN_VARIABLE, hide_env_values = true, value_name = "TOKEN")]
    token: Option<Secret>,

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
        Client::new(self.token(), RetryPolicy::new(self.patience()), self.notes())
    }

    /// How long to try, if not for ever.
    pub(crate) fn patience(&self) -> Option<Duration> {
        (self.give_up_after > 0).then(|| Duration::from_secs(self.give_up_after))
    }

    /// The token, if there is one.
    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_ref().map(Secret::reveal)
    }

    /// The stream that an argument names.
    pub(crate) fn target(&self, stream: &str) -> Result<Target, Failure> {
        Target::resolve(&self.url, stream)
    }

    /// The bucket that an argument names.
    pub(crate) fn bucket(&self, bucket: &str) -> Result<Target, Failure> {
        Target::bucket(&self.url, bucket)
    }

    pub(crate) fn notes(&self) -> Notes {
        Notes::new(self.quiet)
    }
}

/// A value that never shows in `Debug` output.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl Secret {
    /// The value itself, for the one place that needs it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

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
