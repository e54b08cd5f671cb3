//! What one address may take of what all share: so many subscribers, and so many replays from files, at a time.
//!
//! An address stands for whoever it was given to: of IPv6 that is a network of 64 bits. Addresses of this machine are
//! not counted, since they are those of its owner, or of a proxy that all clients come through; see
//! [`crate::Options::trust_forwarded`].

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use alluvium_http::{Peer, Request};
use parking_lot::Mutex;

/// Where proxies write whom they were asked by.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// Whom a request counts for; nobody if it comes from this machine, or if that is not known.
pub(crate) fn client(request: &Request, trust_forwarded: bool) -> Option<IpAddr> {
    let forwarded = || {
        let last = request.headers().get_all(FORWARDED_FOR).iter().next_back()?.to_str().ok()?;
        // What stands before was written by others, perhaps by the client itself.
        last.rsplit(',').next()?.trim().parse::<IpAddr>().ok()
    };
    let forwarded = if trust_forwarded { forwarded() } else { None };
    let address = forwarded.or_else(|| request.extensions().get::<Peer>().map(|peer| peer.0.ip()))?;
    counted(address)
}

/// The address that stands for all that were given out with it; none for this machine.
fn counted(address: IpAddr) -> Option<IpAddr> {
    let address = address.to_canonical();
    if address.is_loopback() {
        return None;
    }
    Some(match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    })
}

/// How many places each address has taken.
#[derive(Debug)]
pub(crate) struct Addresses {
    /// Of each; 0 for any number.
    max: usize,
    taken: Mutex<HashMap<IpAddr, usize>>,
}

/// A place that an address has taken, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place(Option<(Arc<Addresses>, IpAddr)>);

impl Addresses {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, taken: Mutex::default() })
    }

    /// The bound.
    pub(crate) const fn max(&self) -> usize {
        self.max
    }

    /// A place, if the address has one left.
    pub(crate) fn take(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Place> {
        let Some(address) = address.filter(|_| self.max > 0) else { return Some(Place(None)) };
        let mut taken = self.taken.lock();
        let held = taken.entry(address).or_default();
        if *held >= self.max {
            return None;
        }
        *held += 1;
        drop(taken);
        Some(Place(Some((Arc::clone(self), address))))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((addresses, address)) = self.0.take() else { return };
        let mut taken = addresses.taken.lock();
        if let Some(held) = taken.get_mut(&address) {
            *held -= 1;
            if *held == 0 {
                taken.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_network_of_one_customer_counts_as_one_and_this_machine_does_not_count() {
        for (text, expected) in [
            ("192.0.2.7", Some("192.0.2.7")),
            ("::ffff:192.0.2.7", Some("192.0.2.7")),
            ("2001:db8:1:2:3:4:5:6", Some("2001:db8:1:2::")),
            ("2001:db8:1:2::", Some("2001:db8:1:2::")),
            ("127.0.0.1", None),
            ("127.3.2.1", None),
            ("::1", None),
            ("::ffff:127.0.0.1", None),
        ] {
            assert_eq!(counted(address(text)), expected.map(address), "{text}");
        }
    }

    #[test]
    fn places_are_given_back_and_nothing_is_kept_of_addresses_without_one() {
        let addresses = Addresses::new(2);
        let (one, other) = (Some(address("192.0.2.1")), Some(address("192.0.2.2")));
        let first = addresses.take(one).expect("a place");
        let second = addresses.take(one).expect("a place");
        assert!(addresses.take(one).is_none());
        let third = addresses.take(other).expect("another address has its own");
        drop(first);
        let again = addresses.take(one).expect("it was given back");
        assert!(addresses.take(one).is_none());
        assert!(addresses.take(None).is_some());
        drop((second, third, again));
        assert!(addresses.taken.lock().is_empty());
        let unbounded = Addresses::new(0);
        let all: Vec<_> = (0..1000).map(|_| unbounded.take(one).expect("a place")).collect();
        assert!(unbounded.taken.lock().is_empty());
        drop(all);
    }
}
