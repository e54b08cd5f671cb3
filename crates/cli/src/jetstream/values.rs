//! What the values of options may be, told as a whole where one is not: numbers by their range, servers by their URL.

use std::fmt::Display;
use std::ops::RangeInclusive;

use ureq::http::Uri;
use ureq::http::uri::Authority;

/// Most subscribers of a server. Each takes a descriptor, and hardly a system gives more than this to one process.
pub(super) const SUBSCRIBERS_MAX: u64 = 1_000_000;

/// Reads a whole number of a range.
pub(super) fn number<N: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let fits = number.and_then(|number: u64| N::try_from(number).ok());
        fits.ok_or_else(|| format!("expected a whole number from {} to {}", range.start(), range.end()))
    }
}

/// Reads 0, or a whole number of a range.
pub(super) fn zero_or<N: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static {
    let told = format!("expected 0, or a whole number from {} to {}", range.start(), range.end());
    let number = number(range);
    move |text| match text {
        "0" => N::try_from(0).map_err(|_| told.clone()),
        text => number(text).map_err(|_| told.clone()),
    }
}

/// Reads a number of seconds, or a time as in `15m`, up to a longest one.
pub(super) fn seconds(longest: u64) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let seconds = alluvium_server::config::parse_seconds(text)?;
        if seconds <= longest { Ok(seconds) } else { Err(format!("expected up to {longest} seconds")) }
    }
}

/// Reads the URL of a server: one of two schemes, a host, a port and a path if there are some, and nothing else.
pub(super) fn url(
    schemes: [&'static str; 2],
) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync + 'static {
    move |text| {
        let [secure, plain] = schemes;
        let told = |what: &dyn Display| {
            format!("{what}: expected a URL as in `{secure}://host` or `{plain}://host:1234`")
        };
        let uri: Uri = text.parse().map_err(|error| told(&error))?;
        if !uri.scheme_str().is_some_and(|scheme| schemes.contains(&scheme)) {
            return Err(told(&"the scheme is another one"));
        }
        let authority = uri.authority().map(Authority::as_str).unwrap_or_default();
        let host = uri.host().unwrap_or_default();
        if host.is_empty() || authority.contains('@') {
            return Err(told(&"there is no host alone"));
        }
        // A port that is none is taken for none.
        if authority.len() != host.len() && uri.port_u16().is_none_or(|port| port == 0) {
            return Err(told(&"the port is none"));
        }
        if uri.query().is_some() || text.contains('#') {
            return Err(told(&"there is more behind the path"));
        }
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_ends_that_belong_to_them() {
        let read = number::<u32>(1..=u64::from(u32::MAX));
        assert_eq!((read("1"), read("4294967295")), (Ok(1), Ok(u32::MAX)));
        for text in ["0", "4294967296", "18446744073709551616", "-1", "", "x", "1.5", "1e3", " 1"] {
            assert_eq!(read(text), Err("expected a whole number from 1 to 4294967295".to_owned()), "{text}");
        }
        let read = zero_or::<u8>(5..=6);
        assert_eq!((read("0"), read("5"), read("6")), (Ok(0), Ok(5), Ok(6)));
        for text in ["1", "4", "7", "x"] {
            assert_eq!(read(text), Err("expected 0, or a whole number from 5 to 6".to_owned()), "{text}");
        }
    }

    #[test]
    fn a_server_has_a_scheme_and_a_host() {
        let read = url(["wss", "ws"]);
        for text in ["wss://relay.example", "ws://127.0.0.1:7777", "wss://relay.example/x/y", "ws://[::1]:80"]
        {
            assert_eq!(read(text), Ok(text.to_owned()));
        }
        for text in [
            "",
            "relay.example",
            "relay.example:443",
            "http://relay.example",
            "wss://",
            "wss:///x",
            "wss://:443",
            "wss://user@relay.example",
            "wss://relay.example:0",
            "wss://relay.example:70000",
            "wss://relay.example:",
            "wss://relay.example?cursor=1",
            "wss://relay.example/#x",
            "wss://relay example",
        ] {
            let told = read(text).expect_err(text);
            assert!(told.contains("as in `wss://host` or `ws://host:1234`"), "{text}: {told}");
        }
    }
}
