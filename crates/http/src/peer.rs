//! Who a request comes from, as far as its connection and the proxies on its way tell.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
    sync::Arc,
};

use http::{HeaderMap, HeaderName, header};

/// Most addresses that a request's list of proxies is read for, from its end.
const HOPS_MAX: usize = 16;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The connection that a request came on. Every request has it among its extensions.
#[derive(Clone, Debug)]
pub struct Peer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    address: SocketAddr,
    is_tls: bool,
    sends_mapped: bool,
    proxies: Arc<Networks>,
}

impl Peer {
    pub(crate) fn new(address: SocketAddr, is_tls: bool, sends_mapped: bool, proxies: Arc<Networks>) -> Self {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        Self(Arc::new(Inner { address, is_tls, sends_mapped, proxies }))
    }

    /// That of a request; `None` for one that did not come through a [`Server`](crate::Server).
    pub fn of<B>(request: &http::Request<B>) -> Option<&Self> {
        request.extensions().get()
    }

    /// Whether the response to a request may be made of slices of mapped files
    /// ([`Feed::send_mapped`](crate::Feed::send_mapped)). Not so where this process looks at the bytes it sends: a page
    /// that the device cannot deliver would end it.
    pub fn takes_mapped<B>(request: &http::Request<B>) -> bool {
        Self::of(request).is_some_and(|peer| peer.0.sends_mapped)
    }

    /// The other end of the connection, be it the client's or a proxy's.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Whether the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        self.0.is_tls
    }

    /// The client's address, as [`Networks::client`] finds it.
    pub fn client(&self, headers: &HeaderMap) -> IpAddr {
        self.0.proxies.client(self.0.address.ip(), headers)
    }

    /// The scheme that the client used: `https` or `http`. A trusted proxy may say it (`X-Forwarded-Proto`).
    pub fn scheme(&self, headers: &HeaderMap) -> &'static str {
        let told = headers.get(X_FORWARDED_PROTO).filter(|_| self.0.proxies.contains(self.0.address.ip()));
        match told.map(|told| told.as_bytes().trim_ascii()) {
            Some(told) if told.eq_ignore_ascii_case(b"https") => "https",
            Some(told) if told.eq_ignore_ascii_case(b"http") => "http",
            _ if self.0.is_tls => "https",
            _ => "http",
        }
    }
}

/// The elements of a header that is a list, from the last to the first. What is no text counts as an element that
/// cannot be read.
fn elements<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> + use<'a> {
    let lines: Vec<_> = headers.get_all(name).iter().collect();
    lines.into_iter().rev().flat_map(|line| line.to_str().unwrap_or("?").rsplit(',')).take(HOPS_MAX)
}

/// The `for` of one element of `Forwarded`.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let mut pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
    node(value.trim().trim_matches('"'))
}

/// An address with or without a port; one of IPv6 with a port is in brackets.
fn node(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = match text.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?,
        None => text,
    };
    let address = bare.parse().ok().or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

/// A set of networks, written as in `10.0.0.0/8, 2001:db8::/32, 192.0.2.7`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Networks(Vec<Network>);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Network {
    address: IpAddr,
    /// How many bits of it count.
    bits: u8,
}

/// A text names no network.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{text}` is no address or network, as in `192.0.2.7` or `10.0.0.0/8`")]
pub struct InvalidNetwork {
    /// The text.
    text: String,
}

impl Networks {
    /// Whether an address is in one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(address))
    }

    /// The address of a client whose request comes over a connection from `peer`. Where that is a trusted proxy, it is the
    /// last one in `Forwarded` (RFC 7239), or else in `X-Forwarded-For`, that is no trusted proxy itself; what stands
    /// before it anybody may have written. A list that cannot be read from its end, or a missing one, gives the proxy's
    /// own address.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer;
        if !self.contains(client) {
            return client;
        }
        let hops = if headers.contains_key(header::FORWARDED) {
            elements(headers, &header::FORWARDED).map(forwarded_for).collect::<Vec<_>>()
        } else {
            elements(headers, &X_FORWARDED_FOR).map(node).collect()
        };
        for hop in hops {
            let Some(address) = hop else { break };
            client = address;
            if !self.contains(client) {
                break;
            }
        }
        client
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Network {
    fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differ = own.to_bits() ^ other.to_bits();
                differ.checked_shr(32 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differ = own.to_bits() ^ other.to_bits();
                differ.checked_shr(128 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let invalid = || InvalidNetwork { text: text.to_owned() };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| invalid()))?;
        if bits > most { Err(invalid()) } else { Ok(Self { address, bits }) }
    }
}

impl FromStr for Networks {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, network) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}/{}", network.address, network.bits)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn client(peer: &str, proxies: &str, lines: &[(&'static str, &str)]) -> String {
        let peer = SocketAddr::new(peer.parse().expect("an address"), 1);
        let peer = Peer::new(peer, false, true, Arc::new(proxies.parse().expect("networks")));
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_str(value).expect("a value"));
        }
        peer.client(&headers).to_string()
    }

    #[test]
    fn only_what_trusted_proxies_wrote_is_believed() {
        const PROXIES: &str = "10.0.0.0/8, 2001:db8::/32";
        let with = |lines: &[(&'static str, &str)]| client("10.0.0.1", PROXIES, lines);
        let list = [("x-forwarded-for", "1.1.1.1, 192.0.2.7,10.9.9.9")];
        assert_eq!(with(&list), "192.0.2.7");
        assert_eq!(client("198.51.100.1", PROXIES, &list), "198.51.100.1");
        assert_eq!(client("10.0.0.1", "", &list), "10.0.0.1");
        assert_eq!(with(&[]), "10.0.0.1");
        assert_eq!(with(&[("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "192.0.2.7")]), "192.0.2.7");
        assert_eq!(with(&[("x-forwarded-for", "1.1.1.1, nonsense, 10.2.2.2")]), "10.2.2.2");
        assert_eq!(with(&[("x-forwarded-for", "192.0.2.7:4711")]), "192.0.2.7");
        assert_eq!(with(&[("x-forwarded-for", "[2001:db9::1]:443")]), "2001:db9::1");
        assert_eq!(with(&[("x-forwarded-for", "2001:db9::1, ::ffff:10.0.0.2")]), "2001:db9::1");
        let forwarded = r#"for=1.1.1.1, by=x;For="[2001:db9::1]:80";proto=https, for=10.1.1.1"#;
        assert_eq!(with(&[("forwarded", forwarded), ("x-forwarded-for", "1.1.1.1")]), "2001:db9::1");
        assert_eq!(with(&[("forwarded", "for=_hidden"), ("x-forwarded-for", "1.1.1.1")]), "10.0.0.1");
    }

    #[test]
    fn the_scheme_is_the_connections_unless_a_trusted_proxy_says_another() {
        let scheme = |peer: &str, is_tls, told: &'static str| {
            let peer = SocketAddr::new(peer.parse().expect("an address"), 1);
            let peer = Peer::new(peer, is_tls, false, Arc::new("10.0.0.1".parse().expect("a network")));
            peer.scheme(&HeaderMap::from_iter([(X_FORWARDED_PROTO, HeaderValue::from_static(told))]))
        };
        assert_eq!(scheme("10.0.0.1", false, "HTTPS"), "https");
        assert_eq!(scheme("10.0.0.1", true, "http"), "http");
        assert_eq!(scheme("10.0.0.2", false, "https"), "http");
        assert_eq!(scheme("10.0.0.2", true, "http"), "https");
        assert_eq!(scheme("10.0.0.1", false, "gopher"), "http");
    }

    #[test]
    fn what_is_no_network_is_refused_with_its_text() {
        for bad in ["10.0.0.0/33", "::/129", "10.0.0/8", "x", "10.0.0.1/-1", "10.0.0.1/"] {
            let error = Networks::from_str(&format!("127.0.0.1,{bad}")).expect_err(bad);
            assert!(error.to_string().contains(bad), "{error}");
        }
        assert!(Networks::from_str(" , ").expect("none").is_empty());
    }

    proptest! {
        /// Whatever a client writes before it, what the last proxy wrote counts; and nothing breaks what reads it.
        #[test]
        fn nothing_that_a_client_writes_changes_its_address(
            written in prop::collection::vec(0x20..0x7f_u8, 0..80),
            is_forwarded in any::<bool>(),
        ) {
            let written = String::from_utf8(written).expect("ASCII");
            let (name, own) = if is_forwarded {
                ("forwarded", "for=192.0.2.7")
            } else {
                ("x-forwarded-for", "192.0.2.7")
            };
            prop_assert_eq!(client("10.0.0.1", "10.0.0.0/8", &[(name, &format!("{written},{own}"))]), "192.0.2.7");
            let alone: IpAddr = client("10.0.0.1", "10.0.0.0/8", &[(name, &written)]).parse().expect("an address");
            prop_assert!(alone == IpAddr::from([10, 0, 0, 1]) || !written.is_empty());
        }

        #[test]
        fn a_network_has_the_addresses_that_begin_as_it_does(
            own in any::<u32>(), other in any::<u32>(), bits in 0..=32_u8, near in any::<bool>(),
        ) {
            let other = if near { own ^ other.checked_shr(u32::from(bits)).unwrap_or(0) } else { other };
            let text = format!("{}/{bits}", IpAddr::from(own.to_be_bytes()));
            let networks: Networks = text.parse().expect("a network");
            let expected = (0..u32::from(bits)).all(|bit| (own ^ other) >> (31 - bit) & 1 == 0);
            prop_assert_eq!(networks.contains(IpAddr::from(other.to_be_bytes())), expected);
            prop_assert_eq!(networks.to_string(), text);
        }
    }
}
