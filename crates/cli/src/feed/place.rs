//! Which file, which space, which feed, which server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use alluvium_env::{Clock, Env, Random, SystemClock};
use alluvium_feed_client::{Client, Credentials, Hints, Id, Options, Server, Space};
use clap::{Args, ValueEnum};

use super::failure;
use crate::stream::connection::ConnectionArgs;
use crate::stream::failure::Failure;
use crate::stream::notes::Notes;

/// The variable of `--db`.
pub(crate) const DB_VARIABLE: &str = "ALLUVIUM_FEEDS_DB";
/// The file if nothing else is said.
pub(super) const DB_DEFAULT: &str = "feeds.sqlite";
/// The variable of `--space`.
pub(crate) const SPACE_VARIABLE: &str = "ALLUVIUM_SPACE";
/// The space of a file that has none yet.
pub(super) const SPACE_DEFAULT: &str = "default";
/// Under which name the file remembers its space.
const SPACE_SETTING: &str = "space";
/// How long `--give-up-after 0` waits: for ever, for all that matters.
const FOR_EVER: Duration = Duration::from_hours(24 * 365);
/// Crockford's alphabet, in which feeds that are drawn are named.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Options of every feed command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every feed command")]
pub(crate) struct PlaceArgs {
    /// The file with the replica; made by `append` and `replicate` if it isn't there.
    #[arg(
        long,
        visible_alias = "file",
        global = true,
        env = DB_VARIABLE,
        hide_env_values = true,
        value_name = "PATH",
        default_value = DB_DEFAULT
    )]
    db: PathBuf,

    /// The space: feeds that share one order [default: the one the file was first used for, else `default`].
    #[arg(long, global = true, env = SPACE_VARIABLE, hide_env_values = true, value_name = "NAME")]
    space: Option<String>,

    /// Who writes here, for a file that is new [default: a random one].
    #[arg(long, global = true, value_name = "ID")]
    actor: Option<String>,

    /// How to hear of what others append.
    #[arg(long, global = true, value_enum, value_name = "HOW", default_value = "wait")]
    hints: HintsArg,
}

#[derive(Copy, Clone, Debug, ValueEnum)]
enum HintsArg {
    /// A request waits at the server.
    Wait,
    /// Not at all: ask every five seconds.
    Poll,
}

/// Where a command works.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) connection: ConnectionArgs,
    args: PlaceArgs,
}

/// A file that is open.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) client: Client,
    pub(super) space: Space,
}

impl Place {
    pub(super) fn new(connection: ConnectionArgs, args: PlaceArgs) -> Self {
        Self { connection, args }
    }

    /// Where the file is.
    pub(super) fn db(&self) -> &Path {
        &self.args.db
    }

    pub(super) fn notes(&self) -> Notes {
        self.connection.notes()
    }

    /// The file, made if it isn't there.
    pub(super) fn create(&self) -> Result<Opened, Failure> {
        let actor = self.args.actor.as_deref().map(id).transpose()?;
        let client = Client::open(&self.args.db, actor.as_ref(), Options::default());
        let client = client.map_err(|error| self.unopened(failure::replica(error)))?;
        let space = self.space(&client)?;
        Ok(Opened { space: client.space(&space), client })
    }

    /// The file, if it is there.
    pub(super) fn open(&self) -> Result<Opened, Failure> {
        if !self.args.db.exists() {
            let path = self.args.db.display();
            let text = format!("there is no file `{path}`; `feed append` and `feed replicate` make it");
            return Err(Failure::NotFound(text));
        }
        self.create()
    }

    fn unopened(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Other(text) => Failure::Other(format!("`{}`: {text}", self.args.db.display())),
            other => other,
        }
    }

    /// The space that was named, else the one that the file remembers.
    fn space(&self, client: &Client) -> Result<Id, Failure> {
        let named = self.args.space.as_deref().map(id).transpose()?;
        let first = named.as_ref().map_or(SPACE_DEFAULT, Id::as_str);
        let remembered = client.replica().setting_or(SPACE_SETTING, first).map_err(failure::replica)?;
        named.map_or_else(|| id(&remembered), Ok)
    }

    /// The server, as the options describe it.
    pub(super) fn server(&self) -> Result<Server, Failure> {
        // Else it would be waited for like one that is away.
        self.connection.check_trust()?;
        let credentials = self.connection.token()?.map(Credentials::Token);
        let hints = match self.args.hints {
            HintsArg::Wait => Hints::Wait,
            HintsArg::Poll => Hints::Poll,
        };
        Ok(Server {
            credentials: credentials.unwrap_or_default(),
            hints,
            roots_pem: self.connection.roots_pem()?,
            ..Server::new(self.connection.url())
        })
    }

    /// How long to try.
    pub(super) fn patience(&self) -> Duration {
        self.connection.patience().unwrap_or(FOR_EVER)
    }
}

impl Opened {
    /// The feed that was named, else the file's own in the space.
    pub(super) fn feed(&self, named: Option<&str>) -> Result<Id, Failure> {
        if let Some(named) = named {
            return id(named);
        }
        let setting = format!("feed of {}", self.space.id());
        let env = Env::real();
        let drawn = ulid(env.clock.now_ms(), env.random.as_ref());
        let own = self.client.replica().setting_or(&setting, &drawn).map_err(failure::replica)?;
        id(&own)
    }
}

/// The time, as the file counts it.
pub(super) fn now_ms() -> u64 {
    SystemClock.now_ms()
}

/// A name as it may be one.
pub(super) fn id(text: &str) -> Result<Id, Failure> {
    Id::parse(text).map_err(|error| Failure::Usage(format!("`{text}`: {error}")))
}

/// A ULID: ten characters of time, sixteen of chance.
fn ulid(now_ms: u64, random: &dyn Random) -> String {
    let bits = (u128::from(now_ms) << 80) | (random.next_u128() >> 48);
    let digit = |place: u32| char::from(ALPHABET[(bits >> (5 * place)) as usize & 31]);
    (0..26).rev().map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alluvium_env::sim::SeededRandom;

    #[test]
    fn a_drawn_name_sorts_by_time_and_never_repeats() {
        let random = SeededRandom::new(1);
        let one = ulid(1_700_000_000_000, &random);
        let other = ulid(1_700_000_000_001, &random);
        assert_eq!((one.len(), other.len()), (26, 26));
        assert!(one < other);
        assert!(one.starts_with("01HF7YAT00"), "{one}");
        assert_ne!(one[10..], other[10..]);
    }
}
