//! What a world is made of.

use thiserror::Error;

/// The first moment of a world that does not say another: 2025-01-01, in microseconds since 1970. It lies in the past,
/// so that revisions are not ahead of anybody's clock.
pub const START_MICROS: u64 = 1_735_689_600_000_000;
/// The most accounts of a world.
pub const ACCOUNTS_MAX: u32 = 10_000_000;
/// The most PDS hosts of a world.
pub const HOSTS_MAX: u32 = 64;
/// The most records that an account begins with.
pub const INITIAL_RECORDS_MAX: u32 = 100_000;

/// A world, as its seed and these numbers determine it.
#[derive(Debug, Clone)]
pub struct Config {
    /// What everything is drawn from.
    pub seed: u64,
    /// How many accounts there are.
    pub accounts: u32,
    /// How many PDS hosts they live on; the first has about half of them, the next a quarter, and so on.
    pub hosts: u32,
    /// The moment at which live events begin, in microseconds since 1970.
    pub start_micros: u64,
    /// Live events in a second of the world's own clock, on average.
    pub rate: u32,
    /// The most records that an account begins with: 30 % have none, 40 % up to ten, 25 % up to a hundred, 5 % up to a
    /// thousand, and none more than this.
    pub initial_records_max: u32,
    /// How many of a hundred accounts sign with P-256 instead of K-256.
    pub p256_percent: u32,
    /// How many of a hundred accounts have a `did:web` instead of a `did:plc`.
    pub web_percent: u32,
    /// Ports of this machine: the first accounts, one for each, have the `did:web` of that port of `localhost`.
    pub web_ports: Vec<u16>,
    /// The relay's window: how many frames it can send again.
    pub history_frames: usize,
    /// The relay's window: how many bytes of frames it keeps. The newest frame is kept in any case.
    pub history_bytes: usize,
    /// How often each kind of live event comes.
    pub mix: Mix,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 42,
            accounts: 10_000,
            hosts: 4,
            start_micros: START_MICROS,
            rate: 10,
            initial_records_max: 1000,
            p256_percent: 12,
            web_percent: 0,
            web_ports: Vec::new(),
            history_frames: 10_000,
            history_bytes: 256 * 1024 * 1024,
            mix: Mix::default(),
        }
    }
}

impl Config {
    /// A small world for tests: few accounts with few records, both curves and both kinds of DID, every kind of event.
    pub fn small(seed: u64) -> Self {
        Self {
            seed,
            accounts: 24,
            hosts: 3,
            initial_records_max: 40,
            p256_percent: 30,
            web_percent: 10,
            mix: Mix {
                commit: 100,
                identity: 5,
                account: 4,
                sync: 3,
                rotate: 2,
                migrate: 2,
                ..Mix::default()
            },
            ..Self::default()
        }
    }

    /// Whether a world can be made of it.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let bounded = |value: u64, low: u64, high: u64, name| {
            if (low..=high).contains(&value) { Ok(()) } else { Err(ConfigError { name, low, high }) }
        };
        bounded(self.accounts.into(), 1, ACCOUNTS_MAX.into(), "accounts")?;
        bounded(self.hosts.into(), 1, HOSTS_MAX.into(), "hosts")?;
        bounded(self.rate.into(), 1, 1_000_000, "rate")?;
        bounded(self.initial_records_max.into(), 0, INITIAL_RECORDS_MAX.into(), "initial records")?;
        bounded(self.p256_percent.into(), 0, 100, "percentage of P-256")?;
        bounded(self.web_percent.into(), 0, 100, "percentage of did:web")?;
        bounded(self.history_frames as u64, 1, 100_000_000, "frames of history")?;
        bounded(self.start_micros, 1_000_000_000_000_000, 8_000_000_000_000_000, "start, in microseconds,")?;
        let mix = &self.mix;
        let weights = [mix.commit, mix.identity, mix.account, mix.sync, mix.rotate, mix.migrate];
        let total = weights.iter().copied().map(u64::from).sum();
        bounded(total, 1, u64::from(u32::MAX), "sum of the weights of events")?;
        let total = [mix.create, mix.update, mix.delete].iter().copied().map(u64::from).sum();
        bounded(total, 1, u64::from(u32::MAX), "sum of the weights of operations")
    }
}

/// A number of a [`Config`] that no world can have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the {name} must be {low} to {high}")]
pub struct ConfigError {
    name: &'static str,
    low: u64,
    high: u64,
}

/// Weights of live events against each other, and of the operations in a commit.
#[derive(Debug, Clone)]
pub struct Mix {
    /// Commits with one operation or more.
    pub commit: u32,
    /// `#identity`, most of them without a handle.
    pub identity: u32,
    /// An account becomes deactivated, suspended, taken down or deleted, or active again.
    pub account: u32,
    /// `#sync` of a repository as it is.
    pub sync: u32,
    /// A new signing key.
    pub rotate: u32,
    /// An account moves to another host.
    pub migrate: u32,
    /// Operations that create a record.
    pub create: u32,
    /// Operations that replace one.
    pub update: u32,
    /// Operations that delete one.
    pub delete: u32,
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            commit: 1000,
            identity: 30,
            account: 4,
            sync: 1,
            rotate: 1,
            migrate: 1,
            create: 75,
            update: 15,
            delete: 10,
        }
    }
}

impl Mix {
    /// Commits alone, all of which create records.
    pub const fn creates_only() -> Self {
        Self {
            commit: 1,
            identity: 0,
            account: 0,
            sync: 0,
            rotate: 0,
            migrate: 0,
            create: 1,
            update: 0,
            delete: 0,
        }
    }
}
