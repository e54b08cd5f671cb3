//! Gathers the configuration: flags over environment variables over the file over the defaults.

use std::{
    fmt::{self, Write},
    io,
    path::{Path, PathBuf},
};

use super::options::{Config, OPTIONS, OptionSpec};

/// The prefix of every environment variable of the project.
const PREFIX: &str = "ALLUVIUM_";

/// A longer name gets no suggestion.
const NAME_BYTES_COMPARED_MAX: usize = 64;

/// The variable that names the configuration file.
pub const CONFIG_VARIABLE: &str = "ALLUVIUM_CONFIG";

/// Where the value of an option came from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// The configuration file.
    File(PathBuf),
    /// An environment variable, by name.
    Variable(String),
    /// A flag.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => write!(f, "{name}"),
            Self::Flag => write!(f, "flag"),
        }
    }
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read the configuration file `{}`: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("the configuration file `{}` is not valid TOML: {message}", path.display())]
    NotToml {
        /// The file.
        path: PathBuf,
        /// Where and why.
        message: String,
    },
    /// The file names an option that does not exist.
    #[error("unknown key `{key}` in the configuration file `{}`{}", path.display(), hint(key))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// A variable names an option that does not exist.
    #[error("unknown environment variable `{name}`{}", variable_hint(name))]
    UnknownVariable {
        /// The variable.
        name: String,
    },
    /// A value cannot be what its option needs.
    #[error("invalid value `{value}` for `{name}` ({origin}): {message}")]
    InvalidValue {
        /// The option.
        name: String,
        /// The text given.
        value: String,
        /// Who gave it.
        origin: Origin,
        /// What was expected.
        message: String,
    },
    /// Two values do not go together.
    #[error("{0}")]
    Contradiction(String),
}

/// What to gather from.
#[derive(Debug, Default)]
pub struct Sources {
    /// Flags given, as option name and text.
    pub flags: Vec<(String, String)>,
    /// The environment. Variables without the prefix `ALLUVIUM_` are passed over.
    pub environment: Vec<(String, String)>,
    /// Variables with the prefix that belong to other commands.
    pub foreign_variables: Vec<String>,
    /// The file, if one was named by flag.
    pub file: Option<PathBuf>,
}

/// A configuration and where each of its values came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    /// The origin of each value, in the order of [`OPTIONS`].
    pub origins: Vec<Origin>,
}

impl Loaded {
    /// Gathers and checks a configuration.
    pub fn from_sources(sources: &Sources) -> Result<Self, ConfigError> {
        let mut loaded = Self { config: Config::default(), origins: vec![Origin::Default; OPTIONS.len()] };
        let from_variable = || sources.environment.iter().find(|(name, _)| name == CONFIG_VARIABLE);
        let file = sources.file.clone().or_else(|| from_variable().map(|(_, path)| PathBuf::from(path)));
        if let Some(path) = file {
            loaded.apply_file(&path)?;
        }
        for (name, text) in &sources.environment {
            if !name.starts_with(PREFIX)
                || name == CONFIG_VARIABLE
                || sources.foreign_variables.contains(name)
            {
                continue;
            }
            let option = OPTIONS.iter().position(|option| option.variable() == *name);
            let option = option.ok_or_else(|| ConfigError::UnknownVariable { name: name.clone() })?;
            loaded.set(option, text, Origin::Variable(name.clone()))?;
        }
        for (name, text) in &sources.flags {
            // The command line parser is built from the same table, so an unknown flag does not get here.
            if let Some(option) = OPTIONS.iter().position(|option| option.name == name) {
                loaded.set(option, text, Origin::Flag)?;
            }
        }
        loaded.config.check()?;
        Ok(loaded)
    }

    fn apply_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| ConfigError::NotToml {
            path: path.to_owned(),
            message: error.to_string(),
        })?;
        for (key, value) in &table {
            let option = OPTIONS.iter().position(|option| option.name == key);
            let option =
                option.ok_or_else(|| ConfigError::UnknownKey { path: path.to_owned(), key: key.clone() })?;
            let origin = Origin::File(path.to_owned());
            match scalar_text(value) {
                Some(text) => self.set(option, &text, origin)?,
                None => {
                    return Err(ConfigError::InvalidValue {
                        name: key.clone(),
                        value: value.to_string(),
                        origin,
                        message: "expected a string, a number or a boolean".to_owned(),
                    });
                }
            }
        }
        Ok(())
    }

    fn set(&mut self, option: usize, text: &str, origin: Origin) -> Result<(), ConfigError> {
        let spec: &OptionSpec = &OPTIONS[option];
        (spec.set)(&mut self.config, text).map_err(|message| ConfigError::InvalidValue {
            name: spec.name.to_owned(),
            value: text.to_owned(),
            origin: origin.clone(),
            message,
        })?;
        self.origins[option] = origin;
        Ok(())
    }

    /// The effective configuration as a file that would give it, each line with its origin.
    pub fn show(&self) -> String {
        let mut text = String::new();
        for (option, origin) in OPTIONS.iter().zip(&self.origins) {
            let value = toml::Value::String((option.show)(&self.config));
            // Writing to a string does not fail.
            let _ = writeln!(text, "{} = {value}  # {origin}", option.name);
        }
        text
    }
}

fn scalar_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(value) => Some(value.to_string()),
        _ => None,
    }
}

fn option_name(variable: &str) -> String {
    variable.strip_prefix(PREFIX).unwrap_or(variable).replace('_', "-").to_ascii_lowercase()
}

/// A suggestion for a key that is close to an option's.
fn hint(name: &str) -> String {
    close_to(name).map_or_else(String::new, |option| format!("; did you mean `{}`?", option.name))
}

/// A suggestion for a variable that is close to an option's.
fn variable_hint(name: &str) -> String {
    let close = close_to(&option_name(name));
    close.map_or_else(String::new, |option| format!("; did you mean `{}`?", option.variable()))
}

/// The option whose name is closest, if any is close.
fn close_to(name: &str) -> Option<&'static OptionSpec> {
    let names: Vec<&str> = OPTIONS.iter().map(|option| option.name).collect();
    let closest = closest(name, &names)?;
    OPTIONS.iter().find(|option| option.name == closest)
}

/// Of `known` the name that was meant by another one, if any is close: one is part of the other, or a letter in four is
/// wrong.
pub fn closest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
    let asked = plain(name);
    // What nobody would type by mistake is not compared.
    if asked.len() > NAME_BYTES_COMPARED_MAX {
        return None;
    }
    let distance = |known: &&&str| edits(&asked, &plain(known));
    let closest = known.iter().min_by_key(distance)?;
    if distance(&closest) * 4 <= asked.len().max(4) {
        return Some(closest);
    }
    let is_part = |known: &&&str| {
        let known = plain(known);
        asked.len() > 3 && (known.contains(&asked) || asked.contains(&known))
    };
    known.iter().find(is_part).copied()
}

/// Letters to put in, take out or change to make one word of the other.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (done, letter) in from.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = done + 1;
        for (at, other) in to.bytes().enumerate() {
            let changed = diagonal + usize::from(letter != other);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests;
