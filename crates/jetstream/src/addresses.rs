//! What one address may take of what all share: so many subscribers, and so many replays from files, at a time; and so many
//! bytes of files in a second.
//!
//! An address stands for whoever it was given to: of IPv6 that is a network of 64 bits. Addresses of this machine are
//! not counted, since they are those of its owner, or of a proxy that all clients come through. A proxy that the server
//! trusts is believed whom it names ([`Peer::client`]).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use alluvium_access::Rates;
use alluvium_access::limits::ADDRESSES_MAX;
use alluvium_access::rate::{AddressKey, Table};
use alluvium_http::{Peer, Request};
use parking_lot::Mutex;

/// Addresses whose replays are counted at once. Beyond it those are forgotten that have used up least.
const REPLAYING_MAX: usize = ADDRESSES_MAX;

/// Who asks, for the log; none if that is not known.
pub(crate) fn peer(request: &Request) -> Option<IpAddr> {
    Some(Peer::of(request)?.client(request.headers()).to_canonical())
}

/// Whom a request counts for; nobody if it comes from this machine, or if that is not known.
pub(crate) fn client(request: &Request) -> Option<IpAddr> {
    counted(Peer::of(request)?.client(request.headers()))
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

/// What addresses read of files, a second.
#[derive(Debug)]
pub(crate) struct Replayed {
    rates: Rates,
    taken: Table<AddressKey>,
}

impl Replayed {
    /// So many bytes a second, and as many at once; 0 for any number.
    pub(crate) fn new(bytes_per_s: u64) -> Self {
        let append_bytes_per_s = (bytes_per_s > 0).then_some(bytes_per_s);
        let rates = Rates { append_bytes_per_s, ..Rates::default() };
        Self { rates, taken: Table::new(REPLAYING_MAX, Duration::from_secs(1)) }
    }

    /// Waits until an address may have so many bytes more. Says whether it had to wait.
    pub(crate) async fn take(&self, address: Option<IpAddr>, bytes: u64) -> bool {
        let Some(address) = address else { return false };
        let mut has_waited = false;
        while let Err(wait) = self.taken.take(address.into(), self.rates, 0, bytes) {
            has_waited = true;
            tokio::time::sleep(wait).await;
        }
        has_waited
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

    #[tokio::test(start_paused = true)]
    async fn an_address_waits_for_what_it_has_used_up_and_others_do_not() {
        let (alice, bob) = (Some(address("192.0.2.1")), Some(address("192.0.2.2")));
        let replayed = Replayed::new(1000);
        let began = tokio::time::Instant::now();
        assert!(!replayed.take(alice, 1000).await, "as much as comes in a second is there at once");
        assert!(replayed.take(alice, 500).await);
        assert_eq!(began.elapsed().as_millis(), 500);
        assert!(!replayed.take(bob, 1000).await);
        assert!(!replayed.take(None, u64::MAX).await, "this machine is not counted");
        assert!(
            replayed.take(alice, 5000).await,
            "what is more than there ever is comes once nothing is used up"
        );
        assert_eq!(began.elapsed().as_millis(), 1500);
        let unbounded = Replayed::new(0);
        assert!(!unbounded.take(alice, u64::MAX).await);
    }
}
