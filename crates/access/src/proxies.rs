//! Which address a request comes from, where proxies stand before the server.
//!
//! `X-Forwarded-For` is what its sender says. It is believed as far as those say it who are listed: from the right, each
//! address that is a listed proxy's vouches for the one before it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::{HeaderMap, HeaderName};

use crate::limits::PROXIES_MAX;

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Networks of proxies that are believed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Proxies(Vec<Network>);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Network {
    address: IpAddr,
    bits: u8,
}

/// Why a text names no networks.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("expected addresses or networks, as in `10.0.0.1,192.168.0.0/16,fd00::/8`, at most {PROXIES_MAX}")]
pub struct InvalidProxies;

impl FromStr for Network {
    type Err = InvalidProxies;

    fn from_str(text: &str) -> Result<Self, InvalidProxies> {
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| InvalidProxies)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| InvalidProxies))?;
        if bits > most { Err(InvalidProxies) } else { Ok(Self { address, bits }) }
    }
}

impl Network {
    fn contains(self, address: IpAddr) -> bool {
        let same = |one: u128, other: u128, unused: u32| (one ^ other).checked_shr(unused).unwrap_or(0) == 0;
        match (self.address, address) {
            (IpAddr::V4(one), IpAddr::V4(other)) => {
                same(u128::from(one.to_bits()), u128::from(other.to_bits()), 32 - u32::from(self.bits))
            }
            (IpAddr::V6(one), IpAddr::V6(other)) => {
                same(one.to_bits(), other.to_bits(), 128 - u32::from(self.bits))
            }
            _ => false,
        }
    }
}

impl FromStr for Proxies {
    type Err = InvalidProxies;

    fn from_str(text: &str) -> Result<Self, InvalidProxies> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let networks: Vec<Network> =
            text.split(',').map(|one| one.trim().parse()).collect::<Result<_, _>>()?;
        if networks.len() > PROXIES_MAX { Err(InvalidProxies) } else { Ok(Self(networks)) }
    }
}

impl fmt::Display for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Network { address, bits }) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "," })?;
            write!(f, "{address}/{bits}")?;
        }
        Ok(())
    }
}

impl Proxies {
    fn contain(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address.to_canonical()))
    }

    /// The address that a request comes from.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        let mut lines: Vec<&str> =
            headers.get_all(&FORWARDED_FOR).iter().map(|value| value.to_str().unwrap_or_default()).collect();
        lines.reverse();
        for hop in lines.into_iter().flat_map(|line| line.rsplit(',')) {
            if !self.contain(client) {
                break;
            }
            // What is no address is vouched for by the last one that is.
            let Some(before) = address(hop.trim()) else { break };
            client = before.to_canonical();
        }
        client
    }
}

/// An address, with or without a port, as proxies write it.
fn address(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    if let Ok(socket) = text.parse::<std::net::SocketAddr>() {
        return Some(socket.ip());
    }
    text.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn client(proxies: &str, peer: &str, forwarded: &[&'static str]) -> String {
        let mut headers = HeaderMap::new();
        for line in forwarded {
            headers.append(&FORWARDED_FOR, HeaderValue::from_static(line));
        }
        proxies.parse::<Proxies>().unwrap().client(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn an_address_is_believed_as_far_as_listed_proxies_say_it() {
        let listed = "10.0.0.0/8,fd00::/8,127.0.0.1";
        assert_eq!(client("", "1.2.3.4", &["9.9.9.9"]), "1.2.3.4");
        assert_eq!(client(listed, "1.2.3.4", &["9.9.9.9"]), "1.2.3.4");
        assert_eq!(client(listed, "10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(client(listed, "10.0.0.1", &["9.9.9.9"]), "9.9.9.9");
        // The client wrote the first one itself.
        assert_eq!(client(listed, "10.0.0.1", &["8.8.8.8, 9.9.9.9"]), "9.9.9.9");
        assert_eq!(client(listed, "10.0.0.1", &["8.8.8.8", "9.9.9.9, 10.2.0.1"]), "9.9.9.9");
        assert_eq!(client(listed, "::ffff:127.0.0.1", &["fd00::1", "2001:db8::1"]), "2001:db8::1");
        assert_eq!(client(listed, "10.0.0.1", &["9.9.9.9, unknown"]), "10.0.0.1");
        assert_eq!(client(listed, "10.0.0.1", &["[2001:db8::1]:443"]), "2001:db8::1");
        assert_eq!(client("0.0.0.0/0", "1.2.3.4", &["9.9.9.9"]), "9.9.9.9");
    }

    #[test]
    fn networks_are_read_back_as_they_are_shown() {
        for text in ["", "10.0.0.0/8", "10.0.0.1/32,fd00::/8"] {
            assert_eq!(text.parse::<Proxies>().unwrap().to_string(), text);
        }
        for bad in ["x", "10.0.0.0/33", "fd00::/129", "10.0.0.1,", "10.0.0.0/-1", "10.0.0.0/"] {
            assert_eq!(bad.parse::<Proxies>(), Err(InvalidProxies), "{bad}");
        }
    }
}
