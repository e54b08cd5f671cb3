//! Rules of retention, as an operator writes them: which streams go by themselves, and what of those that stay.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use alluvium_engine::RetentionRule;
use alluvium_protocol::path::{BUCKET_MOUNT, STREAM_MOUNT, percent_decode, percent_encode};
use alluvium_protocol::prefix::{InvalidPrefix, Prefix};

use super::load::ConfigError;
use super::options::Config;
use super::value::{ByteSize, StoreChoice, Value};

/// Most rules.
pub const RETENTION_RULES_MAX: usize = 64;
/// What all streams begin with.
const EVERYTHING: &str = "/";
/// What somebody may write who wants a limit of one stream, and that is none.
const NO_LIMITS: [&str; 3] = ["max-age", "max-messages", "stream-max-messages"];

/// What is wrong with rules.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidRetention {
    /// More than there may be.
    #[error("there are more than {RETENTION_RULES_MAX} rules")]
    TooMany,
    /// A part of a rule that is none.
    #[error("expected `key=value` in `{0}`, as in `prefix=/v1/stream/logs/,max-idle=30d;max-bytes=100GiB`")]
    Part(String),
    /// A key that is not known.
    #[error(
        "`{0}` is no part of a rule: there are `prefix`, `max-idle`, `max-closed`, `max-bytes`, `stream-max-bytes` and \
         `stream-max-age`"
    )]
    Unknown(String),
    /// A limit that there is not.
    #[error(
        "`{0}` is no limit: the beginning of a stream goes by `stream-max-bytes` and `stream-max-age`, whole streams by \
         `max-idle`, `max-closed` and `max-bytes`"
    )]
    NoSuchLimit(String),
    /// A key that stands twice.
    #[error("`{0}` stands twice in one rule")]
    Twice(&'static str),
    /// A value that is none.
    #[error("`{key}`: {message}")]
    Value {
        /// The key.
        key: &'static str,
        /// What was expected.
        message: String,
    },
    /// A prefix that no stream can begin with.
    #[error("no stream is at or below `{0}`: they are below `{STREAM_MOUNT}` and `{BUCKET_MOUNT}`")]
    Prefix(String),
    /// A rule that asks for nothing.
    #[error(
        "the rule `{0}` has no limit: it needs `max-idle`, `max-closed`, `max-bytes`, `stream-max-bytes` or \
         `stream-max-age`"
    )]
    NoLimit(String),
    /// Two rules for one prefix.
    #[error("two rules are about `{0}`")]
    SamePrefix(String),
}

/// Rules, in the order in which they are looked at.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RetentionRules(pub Vec<RetentionRule>);

impl FromStr for RetentionRules {
    type Err = InvalidRetention;

    fn from_str(text: &str) -> Result<Self, InvalidRetention> {
        let mut rules: Vec<RetentionRule> = Vec::new();
        for text in text.split(';').map(str::trim).filter(|text| !text.is_empty()) {
            let rule = rule(text)?;
            let place = |rule: &RetentionRule| rule.prefix.trim_end_matches('/').to_owned();
            if rules.iter().any(|known| place(known) == place(&rule)) {
                return Err(InvalidRetention::SamePrefix(rule.prefix));
            }
            rules.push(rule);
            if rules.len() > RETENTION_RULES_MAX {
                return Err(InvalidRetention::TooMany);
            }
        }
        Ok(Self(rules))
    }
}

fn rule(text: &str) -> Result<RetentionRule, InvalidRetention> {
    let (mut prefix, mut idle, mut closed, mut bytes) = (None, None, None, None);
    let (mut stream_bytes, mut stream_age) = (None, None);
    for part in text.split(',') {
        let (key, value) =
            part.trim().split_once('=').ok_or_else(|| InvalidRetention::Part(part.to_owned()))?;
        match key {
            "prefix" => once(&mut prefix, "prefix", parse_prefix(value)?)?,
            "max-idle" => once(&mut idle, "max-idle", parse::<Duration>("max-idle", value)?)?,
            "max-closed" => once(&mut closed, "max-closed", parse::<Duration>("max-closed", value)?)?,
            "max-bytes" => once(&mut bytes, "max-bytes", parse::<ByteSize>("max-bytes", value)?)?,
            "stream-max-bytes" => {
                let key = "stream-max-bytes";
                once(&mut stream_bytes, key, parse::<ByteSize>(key, value)?)?;
            }
            "stream-max-age" => {
                once(&mut stream_age, "stream-max-age", parse::<Duration>("stream-max-age", value)?)?;
            }
            key if NO_LIMITS.contains(&key) => return Err(InvalidRetention::NoSuchLimit(key.to_owned())),
            key => return Err(InvalidRetention::Unknown(key.to_owned())),
        }
    }
    let in_ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let rule = RetentionRule {
        prefix: prefix.unwrap_or_else(|| EVERYTHING.to_owned()),
        idle_ms_max: idle.map(in_ms),
        closed_ms_max: closed.map(in_ms),
        stream_bytes_max: stream_bytes.map(|bytes| bytes.0),
        stream_age_ms_max: stream_age.map(in_ms),
        bytes_max: bytes.map(|bytes| bytes.0),
    };
    let has_limit = rule != RetentionRule { prefix: rule.prefix.clone(), ..RetentionRule::default() };
    if !has_limit {
        return Err(InvalidRetention::NoLimit(text.to_owned()));
    }
    Ok(rule)
}

/// Keeps the value of a key that has none yet.
fn once<T>(place: &mut Option<T>, key: &'static str, value: T) -> Result<(), InvalidRetention> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(InvalidRetention::Twice(key)),
    }
}

fn parse<T: Value>(key: &'static str, value: &str) -> Result<T, InvalidRetention> {
    T::parse(value).map_err(|message| InvalidRetention::Value { key, message })
}

/// Reads a place, percent-encoded as a URL path is, decoded: it and everything below it is meant, as
/// [prefixes](alluvium_protocol::prefix) have it. Some stream can be there.
pub fn parse_prefix(text: &str) -> Result<String, InvalidRetention> {
    let refused = |error: InvalidPrefix| match error {
        InvalidPrefix::Relative => InvalidRetention::Prefix(text.to_owned()),
        error => InvalidRetention::Value { key: "prefix", message: format!("`{text}`: {error}") },
    };
    let place = Prefix::parse(text).map_err(refused)?;
    let can_be = |mount: &str| {
        let mount = mount.trim_end_matches('/');
        place.covers(mount) || place.as_str().strip_prefix(mount).is_some_and(|rest| rest.starts_with('/'))
    };
    if !can_be(STREAM_MOUNT) && !can_be(BUCKET_MOUNT) {
        return Err(InvalidRetention::Prefix(text.to_owned()));
    }
    // As it was written, for whoever is shown it.
    percent_decode(text).ok_or_else(|| refused(InvalidPrefix::Encoding))
}

/// Reads a size as rules have it, in bytes; here also none at all.
pub fn parse_size(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { ByteSize::parse(text).map(|size| size.0) }
}

/// Reads a time as rules have it, in milliseconds.
pub fn parse_time_ms(text: &str) -> Result<u64, String> {
    let time = <Duration as Value>::parse(text)?;
    Ok(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

impl fmt::Display for RetentionRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, rule) in self.0.iter().enumerate() {
            let separator = if nth == 0 { "" } else { ";" };
            // What separates rules and their parts is written encoded.
            let prefix =
                percent_encode(&rule.prefix).replace(',', "%2C").replace(';', "%3B").replace('*', "%2A");
            write!(f, "{separator}prefix={prefix}")?;
            let times = [
                ("max-idle", rule.idle_ms_max),
                ("max-closed", rule.closed_ms_max),
                ("stream-max-age", rule.stream_age_ms_max),
            ];
            for (key, ms) in times {
                if let Some(ms) = ms {
                    write!(f, ",{key}={}", Duration::from_millis(ms).show())?;
                }
            }
            for (key, bytes) in [("max-bytes", rule.bytes_max), ("stream-max-bytes", rule.stream_bytes_max)] {
                if let Some(bytes) = bytes {
                    write!(f, ",{key}={}", ByteSize(bytes).show())?;
                }
            }
        }
        Ok(())
    }
}

impl Value for RetentionRules {
    const KIND: &'static str = "RULES";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: InvalidRetention| error.to_string())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Config {
    /// Only the engine can tell which streams are due.
    pub(super) fn check_retention(&self) -> Result<(), ConfigError> {
        if self.retention.0.is_empty() || self.store == StoreChoice::Engine {
            return Ok(());
        }
        Err(ConfigError::Contradiction(
            "`retention` goes with `store = engine` only: a SQLite store keeps what is not deleted and has no lifetime"
                .to_owned(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<RetentionRule>, InvalidRetention> {
        text.parse::<RetentionRules>().map(|rules| rules.0)
    }

    #[test]
    fn a_rule_has_a_prefix_and_limits() {
        let rules = parsed(
            " prefix=/v1/stream/logs/, max-idle=30d ; max-bytes=2GiB,max-closed=500ms;prefix=/ds/b%2Cc,max-bytes=1;\
             prefix=/ds/,stream-max-bytes=1MiB,stream-max-age=2d",
        );
        let rule = |prefix: &str| RetentionRule { prefix: prefix.to_owned(), ..RetentionRule::default() };
        let expected = vec![
            RetentionRule { idle_ms_max: Some(30 * 86_400_000), ..rule("/v1/stream/logs/") },
            RetentionRule { closed_ms_max: Some(500), bytes_max: Some(2 << 30), ..rule("/") },
            RetentionRule { bytes_max: Some(1), ..rule("/ds/b,c") },
            RetentionRule {
                stream_bytes_max: Some(1 << 20),
                stream_age_ms_max: Some(2 * 86_400_000),
                ..rule("/ds/")
            },
        ];
        assert_eq!(rules, Ok(expected));
        assert_eq!(parsed(""), Ok(Vec::new()));
    }

    #[test]
    fn rules_are_shown_as_they_can_be_written() {
        for text in [
            "",
            "prefix=/,max-idle=1d",
            "prefix=/ds/a%2Cb%3Bc%20d,max-idle=90s,max-closed=1ms,max-bytes=5MiB",
            "prefix=/v1/stream/x,max-bytes=10;prefix=/ds/,max-closed=1d",
            "prefix=/v1/stream/x,stream-max-age=1d,max-bytes=10,stream-max-bytes=5MiB",
            "prefix=/v1/stream/x%2Ay,max-bytes=10",
        ] {
            let rules: RetentionRules = text.parse().expect("rules");
            assert_eq!(rules.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_rule_is_refused_with_what_is_wrong() {
        use InvalidRetention as E;
        let text = |text: &str| text.to_owned();
        for (given, expected) in [
            ("prefix=/ds/", E::NoLimit(text("prefix=/ds/"))),
            ("max-bytes", E::Part(text("max-bytes"))),
            ("max-bytes=1,", E::Part(text(""))),
            ("max-size=1", E::Unknown(text("max-size"))),
            ("max-age=1d", E::NoSuchLimit(text("max-age"))),
            ("stream-max-messages=1", E::NoSuchLimit(text("stream-max-messages"))),
            ("stream-max-age=1d,stream-max-age=1d", E::Twice("stream-max-age")),
            ("stream-max-bytes=1,stream-max-bytes=1", E::Twice("stream-max-bytes")),
            ("max-idle=1d,max-idle=2d", E::Twice("max-idle")),
            ("prefix=logs,max-idle=1d", E::Prefix(text("logs"))),
            ("prefix=,max-idle=1d", E::Prefix(text(""))),
            ("prefix=/v1/streams/,max-idle=1d", E::Prefix(text("/v1/streams/"))),
            ("prefix=/v1/str,max-idle=1d", E::Prefix(text("/v1/str"))),
            ("max-idle=1d,prefix=/ds/a;prefix=/ds/a/,max-bytes=1", E::SamePrefix(text("/ds/a/"))),
            ("max-idle=1d;prefix=/,max-bytes=1", E::SamePrefix(text("/"))),
        ] {
            assert_eq!(parsed(given), Err(expected), "{given}");
        }
        for given in [
            "max-idle=0d",
            "max-idle=1w",
            "max-bytes=0",
            "stream-max-bytes=0",
            "stream-max-age=0s",
            "max-bytes=1GB",
            "prefix=/ds/%zz,max-idle=1d",
            "prefix=/ds/*,max-idle=1d",
            "prefix=/ds//a,max-idle=1d",
        ] {
            assert!(matches!(parsed(given), Err(E::Value { .. })), "{given}");
        }
        let many = "max-idle=1d;".repeat(RETENTION_RULES_MAX + 1);
        assert!(parsed(&many).is_err());
    }
}
