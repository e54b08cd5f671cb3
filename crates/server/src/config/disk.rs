//! How much of the disk stays free.

use alluvium_env::Share;

use super::access::OFF;
use super::load::ConfigError;
use super::options::Config;
use super::value::{ByteSize, Value};

/// A part of the disk, or none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FreeSpace(pub Option<Share>);

impl Value for FreeSpace {
    const KIND: &'static str = "BYTES|PERCENT%|off";

    fn parse(text: &str) -> Result<Self, String> {
        if text == OFF {
            return Ok(Self(None));
        }
        let Some(percent) = text.strip_suffix('%') else {
            let expected = |message| format!("{message}, or a part of the disk, as in `5%`, or `off`");
            return ByteSize::parse(text).map(|size| Self(Some(Share::Bytes(size.0)))).map_err(expected);
        };
        match percent.parse::<u8>() {
            Ok(percent @ 1..=99) => Ok(Self(Some(Share::Percent(percent)))),
            _ => Err("expected a whole number of percent from 1 to 99, as in `5%`".to_owned()),
        }
    }

    fn show(&self) -> String {
        match self.0 {
            None => OFF.to_owned(),
            Some(Share::Bytes(bytes)) => ByteSize(bytes).show(),
            Some(Share::Percent(percent)) => format!("{percent}%"),
        }
    }
}

impl std::str::FromStr for FreeSpace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

impl std::fmt::Display for FreeSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.show())
    }
}

/// With less of its disk free, a server refuses what adds data.
pub const DISK_FREE_MIN: FreeSpace = FreeSpace(Some(Share::Bytes(256 << 20)));
/// With less of its disk free, a server warns.
pub const DISK_FREE_WARN: FreeSpace = FreeSpace(Some(Share::Bytes(1 << 30)));

/// What is wrong with the two limits, if something is.
pub fn check_free_space(warn: FreeSpace, min: FreeSpace) -> Result<(), String> {
    let is_less = match (warn.0, min.0) {
        (Some(Share::Bytes(warn)), Some(Share::Bytes(min))) => warn < min,
        (Some(Share::Percent(warn)), Some(Share::Percent(min))) => warn < min,
        // Which of them is more depends on the disk; the stricter word holds.
        _ => false,
    };
    if is_less {
        return Err(format!("`disk-free-warn` ({warn}) must not be less than `disk-free-min` ({min})"));
    }
    Ok(())
}

impl Config {
    pub(super) fn check_disk(&self) -> Result<(), ConfigError> {
        check_free_space(self.disk_free_warn, self.disk_free_min).map_err(ConfigError::Contradiction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_is_shown_as_it_is_written() {
        for text in ["256MiB", "1000", "1%", "99%", "off"] {
            assert_eq!(FreeSpace::parse(text).map(|free| free.show()), Ok(text.to_owned()));
        }
        for text in ["", "0", "0%", "100%", "5 %", "%", "-1%", "1.5%", "256%", "all"] {
            assert!(FreeSpace::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_warning_after_the_refusal_would_be_no_warning() {
        let parsed = |text: &str| FreeSpace::parse(text).expect("free space");
        for (warn, min, is_good) in [
            ("1GiB", "256MiB", true),
            ("256MiB", "256MiB", true),
            ("255MiB", "256MiB", false),
            ("5%", "6%", false),
            ("5%", "1GiB", true),
            ("off", "1GiB", true),
            ("1GiB", "off", true),
        ] {
            assert_eq!(check_free_space(parsed(warn), parsed(min)).is_ok(), is_good, "{warn} {min}");
        }
    }
}
