//! The kinds of value an option can have: how each is written, read and shown.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use alluvium_engine::Durability;
use alluvium_http::Networks;
use alluvium_streams::CacheVisibility;

/// A value of an option: one text form, the same in flags, variables and the file.
pub(crate) trait Value: Sized {
    /// What kind of text is expected, for help and errors.
    const KIND: &'static str;
    /// Reads the text form. The error says what was wrong with it.
    fn parse(text: &str) -> Result<Self, String>;
    /// Writes the text form.
    fn show(&self) -> String;
}

impl Value for SocketAddr {
    const KIND: &'static str = "ADDRESS:PORT";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "expected an IP address and a port, as in `127.0.0.1:4437`".to_owned())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for PathBuf {
    const KIND: &'static str = "PATH";

    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("expected a path".to_owned()) } else { Ok(Self::from(text)) }
    }

    fn show(&self) -> String {
        self.display().to_string()
    }
}

/// A path, or nothing.
impl Value for Option<PathBuf> {
    const KIND: &'static str = "PATH";

    fn parse(text: &str) -> Result<Self, String> {
        Ok(Some(text).filter(|text| !text.is_empty()).map(PathBuf::from))
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(String::new, |path| path.display().to_string())
    }
}

impl Value for Networks {
    const KIND: &'static str = "NETWORKS";

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: alluvium_http::InvalidNetwork| error.to_string())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for usize {
    const KIND: &'static str = "NUMBER";

    fn parse(text: &str) -> Result<Self, String> {
        parse_count(text)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for u64 {
    const KIND: &'static str = "NUMBER";

    fn parse(text: &str) -> Result<Self, String> {
        parse_positive(text)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for bool {
    const KIND: &'static str = "yes|no";

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            // The words of TOML as well, which a file may have without quotes.
            "yes" | "true" => Ok(true),
            "no" | "false" => Ok(false),
            _ => Err("expected `yes` or `no`".to_owned()),
        }
    }

    fn show(&self) -> String {
        if *self { "yes" } else { "no" }.to_owned()
    }
}

/// A number, or `auto` to let the server choose.
impl Value for Option<usize> {
    const KIND: &'static str = "NUMBER|auto";

    fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" { Ok(None) } else { parse_count(text).map(Some) }
    }

    fn show(&self) -> String {
        self.map_or_else(|| "auto".to_owned(), |number| number.to_string())
    }
}

/// A number of things that are held at once: of more there is not even a number for each.
fn parse_count(text: &str) -> Result<usize, String> {
    let number: Option<u32> = text.parse().ok().filter(|number| *number > 0);
    let number = number.and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| format!("expected a whole number from 1 to {}", u32::MAX))
}

fn parse_positive<N: FromStr + PartialOrd + Default>(text: &str) -> Result<N, String> {
    match text.parse::<N>() {
        Ok(number) if number > N::default() => Ok(number),
        _ => Err("expected a whole number of at least 1".to_owned()),
    }
}

impl Value for Durability {
    const KIND: &'static str = "fsync|os";

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "fsync" => Ok(Self::Fsync),
            "os" => Ok(Self::Os),
            _ => Err("expected `fsync` or `os`".to_owned()),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Fsync => "fsync".to_owned(),
            Self::Os => "os".to_owned(),
        }
    }
}

/// What keeps the streams.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StoreChoice {
    /// The project's own store, in the data directory.
    Engine,
    /// One SQLite file.
    Sqlite(PathBuf),
}

/// What comes before the path of a SQLite file.
const SQLITE_SCHEME: &str = "sqlite:";

impl Value for StoreChoice {
    const KIND: &'static str = "engine|sqlite:PATH";

    fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix(SQLITE_SCHEME) {
            None if text == "engine" => Ok(Self::Engine),
            None => Err("expected `engine`, or `sqlite:PATH` with the path of a file".to_owned()),
            Some("") => Err("expected the path of a file after `sqlite:`".to_owned()),
            Some(path) if path.ends_with('/') => {
                Err("expected the path of a file after `sqlite:`, not of a directory".to_owned())
            }
            Some(path) => Ok(Self::Sqlite(PathBuf::from(path))),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl StoreChoice {
    /// Reads the text form of the option `store`. The error says what was wrong with it.
    pub fn from_text(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

impl fmt::Display for StoreChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine => f.write_str("engine"),
            Self::Sqlite(path) => write!(f, "{SQLITE_SCHEME}{}", path.display()),
        }
    }
}

impl Value for CacheVisibility {
    const KIND: &'static str = "public|private";

    fn parse(text: &str) -> Result<Self, String> {
        let known = [Self::Public, Self::Private].into_iter().find(|known| known.directive() == text);
        known.ok_or_else(|| "expected `public` or `private`".to_owned())
    }

    fn show(&self) -> String {
        self.directive().to_owned()
    }
}

/// What is wrong with a size or a duration of nothing.
const ZERO: &str = "must be more than 0";

/// A number of bytes, written with a binary unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ByteSize(pub u64);

const BYTE_UNITS: [(&str, u64); 4] =
    [("GiB", 1024 * 1024 * 1024), ("MiB", 1024 * 1024), ("KiB", 1024), ("", 1)];

impl Value for ByteSize {
    const KIND: &'static str = "BYTES";

    fn parse(text: &str) -> Result<Self, String> {
        let expected = || "expected bytes, as in `32MiB`, `64KiB` or `1048576`".to_owned();
        let (number, unit) = split_unit(text);
        let (_, factor) = BYTE_UNITS.into_iter().find(|(name, _)| *name == unit).ok_or_else(expected)?;
        let number: u64 = number.parse().map_err(|_| expected())?;
        match number.checked_mul(factor) {
            Some(0) => Err(ZERO.to_owned()),
            Some(bytes) => Ok(Self(bytes)),
            None => Err(expected()),
        }
    }

    fn show(&self) -> String {
        show_in_units(self.0, &BYTE_UNITS)
    }
}

const DURATION_UNITS_MS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl Value for Duration {
    const KIND: &'static str = "DURATION";

    fn parse(text: &str) -> Result<Self, String> {
        let expected = || "expected a duration, as in `25s`, `500ms` or `2m`".to_owned();
        let (number, unit) = split_unit(text);
        let (_, factor) =
            DURATION_UNITS_MS.into_iter().find(|(name, _)| *name == unit).ok_or_else(expected)?;
        let number: u64 = number.parse().map_err(|_| expected())?;
        match number.checked_mul(factor) {
            Some(0) => Err(ZERO.to_owned()),
            Some(ms) => Ok(Self::from_millis(ms)),
            None => Err(expected()),
        }
    }

    fn show(&self) -> String {
        show_in_units(u64::try_from(self.as_millis()).unwrap_or(u64::MAX), &DURATION_UNITS_MS)
    }
}

/// Reads a time in whole seconds: a plain number of them, or a duration as options have it (`90s`, `15m`, `7d`).
pub fn parse_seconds(text: &str) -> Result<u64, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(seconds);
    }
    match Duration::parse(text) {
        Ok(duration) if duration.subsec_millis() == 0 => Ok(duration.as_secs()),
        _ => Err("expected seconds, as in `90`, `90s`, `15m` or `7d`".to_owned()),
    }
}

/// Splits `32MiB` or `32 MiB` in number and unit.
fn split_unit(text: &str) -> (&str, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    (number, unit.trim_start())
}

/// The largest unit that leaves a whole number.
fn show_in_units(amount: u64, units: &[(&str, u64)]) -> String {
    let (unit, factor) = units
        .iter()
        .find(|(_, factor)| amount >= *factor && amount.is_multiple_of(*factor))
        .unwrap_or(&("", 1));
    format!("{}{unit}", amount / factor)
}

/// The URL under which clients reach the server, when it is not what their `Host` header says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PublicUrl(pub Option<String>);

impl Value for PublicUrl {
    const KIND: &'static str = "URL";

    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        match rest {
            Some(rest)
                if !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'?') =>
            {
                Ok(Self(Some(text.trim_end_matches('/').to_owned())))
            }
            _ => Err("expected a URL that starts with `http://` or `https://`".to_owned()),
        }
    }

    fn show(&self) -> String {
        self.0.clone().unwrap_or_default()
    }
}

/// Where `/metrics` is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MetricsPlace {
    /// Beside everything else, while that is reached from this machine only.
    Main,
    /// At an address of its own, with `/healthz` and `/readyz`.
    Own(SocketAddr),
    /// Nowhere.
    Off,
}

impl Value for MetricsPlace {
    const KIND: &'static str = "main|off|ADDRESS:PORT";

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "main" => Ok(Self::Main),
            "off" => Ok(Self::Off),
            _ => text.parse().map(Self::Own).map_err(|_| {
                "expected `main`, `off`, or an IP address and a port, as in `127.0.0.1:9464`".to_owned()
            }),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Main => "main".to_owned(),
            Self::Own(address) => address.to_string(),
            Self::Off => "off".to_owned(),
        }
    }
}

impl FromStr for MetricsPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Value for LogFormat {
    const KIND: &'static str = "text|json";

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("expected `text` or `json`".to_owned()),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Json => "json".to_owned(),
        }
    }
}

/// Which log lines are written: a level, or directives as in `info,alluvium_engine=debug`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogFilter(pub String);

impl Value for LogFilter {
    const KIND: &'static str = "FILTER";

    fn parse(text: &str) -> Result<Self, String> {
        for directive in text.split(',') {
            check_directive(directive.trim())?;
        }
        match text.parse::<tracing_subscriber::filter::Targets>() {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(_) => Err(format!("expected {LEVELS}, or `target=level` pairs")),
        }
    }

    fn show(&self) -> String {
        self.0.clone()
    }
}

/// What stands for a level.
const LEVELS: &str = "a level (`off`, `error`, `warn`, `info`, `debug`, `trace`)";

/// Refuses what [`Targets`](tracing_subscriber::filter::Targets) takes for something else than was meant: a lone word
/// that is no level is a target to it, all of whose lines are written, and no others; an empty level is `error`.
fn check_directive(directive: &str) -> Result<(), String> {
    let (target, level) =
        directive.rsplit_once('=').map_or((None, directive), |(target, level)| (Some(target), level));
    if target == Some("") {
        return Err(format!("expected a target before `=` in `{directive}`"));
    }
    if !level.is_empty() && level.parse::<tracing_subscriber::filter::LevelFilter>().is_ok() {
        return Ok(());
    }
    Err(match (target, level) {
        (Some(target), level) => format!("expected {LEVELS} after `{target}=`, not `{level}`"),
        (None, "") => format!("expected {LEVELS}, or `target=level` pairs"),
        (None, word) => {
            format!(
                "`{word}` is no level: expected {LEVELS}, or `{word}=level` if it is a part of the program"
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_sizes_are_shown_as_they_are_written() {
        for text in ["32MiB", "64KiB", "1GiB", "1000", "1025KiB"] {
            assert_eq!(ByteSize::parse(text).map(|size| size.show()), Ok(text.to_owned()));
        }
        assert_eq!(ByteSize::parse("2 MiB"), Ok(ByteSize(2 * 1024 * 1024)));
        for text in ["", "MiB", "-1", "1.5MiB", "32MB", "0", "99999999999GiB"] {
            assert!(ByteSize::parse(text).is_err(), "{text}");
        }
        for text in ["0", "0MiB"] {
            assert_eq!(ByteSize::parse(text), Err(ZERO.to_owned()));
        }
    }

    #[test]
    fn a_store_is_shown_as_it_is_written() {
        for text in ["engine", "sqlite:streams.sqlite", "sqlite:/var/lib/a b.sqlite", "sqlite:sqlite:x"] {
            assert_eq!(StoreChoice::parse(text).map(|store| store.show()), Ok(text.to_owned()));
        }
        for text in ["", "Engine", "sqlite", "sqlite:", "sqlite:/var/lib/", "postgres:x", "streams.sqlite"] {
            assert!(StoreChoice::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_shown_as_they_are_written() {
        for text in ["25s", "500ms", "2m", "1h", "90s", "7d"] {
            assert_eq!(Duration::parse(text).map(|duration| duration.show()), Ok(text.to_owned()));
        }
        for text in ["", "25", "s", "1.5s", "0s", "1w"] {
            assert!(Duration::parse(text).is_err(), "{text}");
        }
        for text in ["0s", "0ms"] {
            assert_eq!(Duration::parse(text), Err(ZERO.to_owned()));
        }
    }

    #[test]
    fn seconds_are_a_number_or_a_whole_duration() {
        for (text, seconds) in
            [("0", 0), ("90", 90), ("90s", 90), ("15m", 900), ("7d", 604_800), ("2000ms", 2)]
        {
            assert_eq!(parse_seconds(text), Ok(seconds), "{text}");
        }
        for text in ["", "-1", "1.5", "1500ms", "m", "0s", "1w"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_filter_has_levels_that_exist() {
        for text in ["info", "INFO", "off", "3", "warn,alluvium_engine=debug", "a::b=trace, warn", "a=off"] {
            assert_eq!(LogFilter::parse(text), Ok(LogFilter(text.to_owned())), "{text}");
        }
        for (text, told) in [
            ("debgu", "`debgu` is no level"),
            ("warn,alluvium_engine", "`alluvium_engine` is no level"),
            ("alluvium_engine=debgu", "after `alluvium_engine=`, not `debgu`"),
            ("nonsense=", "after `nonsense=`"),
            ("=info", "a target before `=`"),
            ("", "expected a level"),
            ("info,", "expected a level"),
            ("6", "`6` is no level"),
        ] {
            let refused = LogFilter::parse(text).expect_err(text);
            assert!(refused.contains(told), "{text}: {refused}");
        }
    }

    #[test]
    fn a_public_url_loses_its_last_slash() {
        let url = PublicUrl::parse("https://streams.example/");
        assert_eq!(url, Ok(PublicUrl(Some("https://streams.example".to_owned()))));
        for text in ["streams.example", "ftp://x", "http://", "http://a b", "http://a?b"] {
            assert!(PublicUrl::parse(text).is_err(), "{text}");
        }
    }
}
