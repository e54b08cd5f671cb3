//! Which addresses may be connected to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Resolves names, and hides addresses that are not public. It is asked for every connection, so a name that changes
/// its address between two looks is looked at each time.
#[derive(Debug)]
pub(super) struct Guarded {
    pub(super) allow_private: bool,
}

impl Resolver for Guarded {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = DefaultResolver::default().resolve(uri, config, timeout)?;
        let mut allowed = self.empty();
        for address in found.iter().filter(|address| self.allow_private || is_public(address.ip())) {
            allowed.push(*address);
        }
        if allowed.is_empty() { Err(ureq::Error::HostNotFound) } else { Ok(allowed) }
    }
}

/// Whether an address is one of the public internet.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_protocol = a == 192 && b == 0 && c == 0;
    let is_benchmark = a == 198 && (b == 18 || b == 19);
    let is_relay = (a, b, c) == (192, 88, 99);
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || is_shared
        || is_protocol
        || is_benchmark
        || is_relay
        || a == 0
        || a >= 224)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(v4) = address.to_ipv4_mapped() {
        return is_public_v4(v4);
    }
    let segments = address.segments();
    let [first, second, ..] = segments;
    // An address of the other family in an envelope is judged as what is in it.
    let embedded = |at: usize| {
        let ([a, b], [c, d]) = (segments[at].to_be_bytes(), segments[at + 1].to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    if first == 0x2002 {
        return is_public_v4(embedded(1));
    }
    if segments[..6] == [0x64, 0xff9b, 0, 0, 0, 0] {
        return is_public_v4(embedded(6));
    }
    // Only 2000::/3 is given out.
    let is_global = first & 0xe000 == 0x2000;
    let is_special = first == 0x2001 && (second < 0x200 || second == 0xdb8);
    let is_documentation = first == 0x3fff && second < 0x1000;
    is_global && !is_special && !is_documentation
}
