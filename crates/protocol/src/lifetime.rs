//! How long a stream lives: for ever, for an idle time, or until an instant (PROTOCOL §5.1, §4.2).

use jiff::civil::Date;

use crate::header;
use crate::integer;

/// Last instant with a four-digit year: 9999-12-31T23:59:59.999Z.
const EXPIRES_AT_MS_MAX: u64 = 253_402_300_799_999;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const EPOCH: Date = Date::constant(1970, 1, 1);

/// When a stream ends by itself.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq, Hash)]
pub enum Lifetime {
    /// Only when deleted.
    #[default]
    Forever,
    /// After this long without a read or a write; both start the time anew.
    Ttl {
        /// Idle time in seconds.
        seconds: u64,
    },
    /// At an instant, whatever happens.
    Until {
        /// Milliseconds since 1970 in UTC.
        unix_ms: u64,
    },
}

impl Lifetime {
    /// Reads the values of `Stream-TTL` and `Stream-Expires-At`, of which at most one may be given (PROTOCOL
    /// §5.1).
    ///
    /// Instants are kept to the millisecond. One before 1970 is kept as 1970, one after 9999 as the end of
    /// 9999.
    pub fn parse(ttl: Option<&str>, expires_at: Option<&str>) -> Result<Lifetime, InvalidLifetime> {
        match (ttl, expires_at) {
            (None, None) => Ok(Lifetime::Forever),
            (Some(ttl), None) => integer::parse_canonical(ttl)
                .map(|seconds| Lifetime::Ttl { seconds })
                .ok_or(InvalidLifetime::Ttl),
            (None, Some(expires_at)) => parse_rfc3339(expires_at)
                .map(|unix_ms| Lifetime::Until { unix_ms })
                .ok_or(InvalidLifetime::ExpiresAt),
            (Some(_), Some(_)) => Err(InvalidLifetime::Both),
        }
    }

    /// The lifetime of a fork: its own if it asked for one, else its source's (table in PROTOCOL §4.2).
    pub fn inherit(source: Lifetime, requested: Lifetime) -> Lifetime {
        match requested {
            Lifetime::Forever => source,
            Lifetime::Ttl { .. } | Lifetime::Until { .. } => requested,
        }
    }

    /// When a stream touched at `now_ms` expires, in milliseconds since 1970; `None` for never.
    pub fn deadline_ms(self, now_ms: u64) -> Option<u64> {
        match self {
            Lifetime::Forever => None,
            Lifetime::Ttl { seconds } => Some(now_ms.saturating_add(seconds.saturating_mul(1000))),
            Lifetime::Until { unix_ms } => Some(unix_ms),
        }
    }

    /// Whether reads and writes move the deadline.
    pub fn is_sliding(self) -> bool {
        matches!(self, Lifetime::Ttl { .. })
    }

    /// Name and value of the header that tells this lifetime; `None` for [`Lifetime::Forever`].
    pub fn header(self) -> Option<(&'static str, String)> {
        match self {
            Lifetime::Forever => None,
            Lifetime::Ttl { seconds } => Some((header::STREAM_TTL, seconds.to_string())),
            Lifetime::Until { unix_ms } => Some((header::STREAM_EXPIRES_AT, format_rfc3339(unix_ms))),
        }
    }
}

/// Whether a deadline has come: at the deadline itself the stream is gone.
pub fn is_expired(deadline_ms: Option<u64>, now_ms: u64) -> bool {
    deadline_ms.is_some_and(|deadline_ms| now_ms >= deadline_ms)
}

/// The `date-time` of RFC 3339 §5.6, as milliseconds since 1970. A leap second counts as the second before
/// it.
fn parse_rfc3339(text: &str) -> Option<u64> {
    let mut input = Digits(text.as_bytes());
    let year = input.number(4)?;
    input.one_of(b"-")?;
    let month = input.number(2)?;
    input.one_of(b"-")?;
    let day = input.number(2)?;
    input.one_of(b"Tt")?;
    let hour = input.number_below(2, 24)?;
    input.one_of(b":")?;
    let minute = input.number_below(2, 60)?;
    input.one_of(b":")?;
    let second = input.number_below(2, 61)?.min(59);
    let millis = input.fraction()?;
    let zone_minutes = match input.one_of(b"Zz+-")? {
        sign @ (b'+' | b'-') => {
            let hours = input.number_below(2, 24)?;
            input.one_of(b":")?;
            let minutes = hours * 60 + input.number_below(2, 60)?;
            if sign == b'-' { -minutes } else { minutes }
        }
        _ => 0,
    };
    if !input.0.is_empty() {
        return None;
    }
    let date =
        Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    let days = date.duration_since(EPOCH).as_secs() * 1000 / DAY_MS;
    let minutes = hour * 60 + minute - zone_minutes;
    let unix_ms = days * DAY_MS + minutes * 60_000 + second * 1000 + millis;
    Some(u64::try_from(unix_ms).unwrap_or(0).min(EXPIRES_AT_MS_MAX))
}

/// The one spelling used in responses: UTC, three digits of a second, as in `2026-11-29T18:30:00.000Z`.
fn format_rfc3339(unix_ms: u64) -> String {
    let unix_ms = unix_ms.min(EXPIRES_AT_MS_MAX);
    let (days, ms) = (unix_ms / DAY_MS.unsigned_abs(), unix_ms % DAY_MS.unsigned_abs());
    let date = EPOCH.saturating_add(jiff::SignedDuration::from_hours(24 * days.cast_signed()));
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{date}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
}

/// What is left of a timestamp being read.
struct Digits<'a>(&'a [u8]);

impl Digits<'_> {
    fn one_of(&mut self, allowed: &[u8]) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        allowed.contains(&byte).then_some(byte)
    }

    fn number(&mut self, digits: usize) -> Option<i64> {
        (0..digits).try_fold(0, |value, _| Some(value * 10 + i64::from(self.one_of(b"0123456789")? - b'0')))
    }

    fn number_below(&mut self, digits: usize, bound: i64) -> Option<i64> {
        self.number(digits).filter(|&value| value < bound)
    }

    /// Milliseconds of an optional `.` and at least one digit; digits past the third are dropped.
    fn fraction(&mut self) -> Option<i64> {
        if self.0.first() != Some(&b'.') {
            return Some(0);
        }
        self.0 = &self.0[1..];
        let count = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        let millis = |place: usize| digits.get(place).map_or(0, |digit| i64::from(digit - b'0'));
        (count > 0).then(|| millis(0) * 100 + millis(1) * 10 + millis(2))
    }
}

/// Why the lifetime headers are refused.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum InvalidLifetime {
    /// `Stream-TTL` is not a canonical decimal number of seconds.
    #[error("`Stream-TTL` is not a whole number of seconds")]
    Ttl,
    /// `Stream-Expires-At` is not an RFC 3339 timestamp.
    #[error("`Stream-Expires-At` is not an RFC 3339 timestamp")]
    ExpiresAt,
    /// Both headers are given.
    #[error("`Stream-TTL` and `Stream-Expires-At` exclude each other")]
    Both,
}

#[cfg(test)]
mod tests;
