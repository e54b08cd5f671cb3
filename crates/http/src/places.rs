//! Places for connections: so many in all, and so many for one address.
//!
//! A client with IPv6 has a whole network of addresses to itself, so those are counted by their first 64 bits.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{counters::Counters, peer::Networks};

/// How many connections may be held.
#[derive(Clone, Debug)]
pub(crate) struct PlaceLimits {
    pub(crate) all: usize,
    /// For one address that is not exempt.
    pub(crate) one: usize,
    /// Whether this machine's own addresses count as others do.
    pub(crate) counts_loopback: bool,
    /// Proxies, which connect for many.
    pub(crate) exempt: Networks,
}

/// The places of a server.
#[derive(Debug)]
pub(crate) struct Places {
    limits: PlaceLimits,
    counters: Arc<Counters>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Only addresses that have some.
    by_address: HashMap<IpAddr, usize>,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NoPlace {
    /// All are taken.
    Full,
    /// The address has its share.
    AddressFull,
}

/// A place among the connections; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    counted: Option<IpAddr>,
}

impl Places {
    pub(crate) fn new(limits: PlaceLimits, counters: Arc<Counters>) -> Arc<Self> {
        Arc::new(Self { limits, counters, taken: Mutex::default() })
    }

    /// Connections held now.
    pub(crate) fn taken(&self) -> usize {
        self.lock().all
    }

    /// Takes a place for a connection from `address`.
    pub(crate) fn take(self: &Arc<Self>, address: IpAddr) -> Result<Place, NoPlace> {
        let counted = self.counted(address);
        let mut taken = self.lock();
        if taken.all >= self.limits.all {
            return Err(NoPlace::Full);
        }
        if let Some(counted) = counted {
            let held = taken.by_address.entry(counted).or_default();
            if *held >= self.limits.one {
                return Err(NoPlace::AddressFull);
            }
            *held += 1;
        }
        taken.all += 1;
        self.counters.connections_open.add();
        Ok(Place { places: Arc::clone(self), counted })
    }

    /// What an address is counted as, if it is.
    fn counted(&self, address: IpAddr) -> Option<IpAddr> {
        let address = address.to_canonical();
        let is_exempt =
            self.limits.exempt.contains(address) || (address.is_loopback() && !self.limits.counts_loopback);
        (!is_exempt).then(|| network(address))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.all -= 1;
        self.places.counters.connections_open.subtract();
        if let Some(counted) = self.counted
            && let Some(held) = taken.by_address.get_mut(&counted)
        {
            *held -= 1;
            if *held == 0 {
                taken.by_address.remove(&counted);
            }
        }
    }
}

/// The address, or the first 64 bits of one that has more.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn places(all: usize, one: usize, exempt: &str, counts_loopback: bool) -> Arc<Places> {
        let exempt = exempt.parse().expect("networks");
        Places::new(PlaceLimits { all, one, counts_loopback, exempt }, Arc::default())
    }

    fn take(places: &Arc<Places>, address: &str) -> Result<Place, NoPlace> {
        places.take(address.parse().expect("an address"))
    }

    #[test]
    fn an_address_has_its_share_and_no_more() {
        let places = places(10, 2, "", false);
        let held = [take(&places, "198.51.100.1"), take(&places, "::ffff:198.51.100.1")];
        assert_eq!(take(&places, "198.51.100.1").expect_err("two are held"), NoPlace::AddressFull);
        let other = take(&places, "198.51.100.2").expect("another address");
        assert_eq!(places.taken(), 3);
        drop(held);
        take(&places, "198.51.100.1").expect("they were given back");
        drop(other);
        assert_eq!(places.taken(), 0);
        assert!(places.lock().by_address.is_empty());
    }

    #[test]
    fn one_network_of_ipv6_is_one_client() {
        let places = places(10, 1, "", false);
        let _held = take(&places, "2001:db8:1:2::1");
        assert_eq!(take(&places, "2001:db8:1:2:3::4").expect_err("the same"), NoPlace::AddressFull);
        take(&places, "2001:db8:1:3::1").expect("the next network");
    }

    #[test]
    fn proxies_and_this_machine_are_exempt_unless_it_is_to_be_counted() {
        let exempting = places(10, 1, "10.0.0.0/8", false);
        let mut held: Vec<_> = ["10.1.2.3", "10.1.2.3", "127.0.0.1", "127.0.0.1", "::1", "::1"]
            .map(|address| take(&exempting, address).expect("exempt"))
            .into();
        held.extend((0..4).map(|_| take(&exempting, "10.0.0.1").expect("exempt")));
        assert_eq!(take(&exempting, "10.0.0.1").expect_err("ten are held"), NoPlace::Full);
        let counting = places(10, 1, "", true);
        let _held = take(&counting, "127.0.0.1");
        assert_eq!(take(&counting, "127.0.0.1").expect_err("counted"), NoPlace::AddressFull);
    }

    proptest! {
        /// However places are taken and given back, no limit is passed, none is reached too early, and nothing is left.
        #[test]
        fn places_are_as_many_as_the_limits_say(steps in prop::collection::vec((0..4_u8, any::<bool>()), 0..100)) {
            let places = places(6, 3, "", true);
            let mut held: Vec<(u8, Place)> = Vec::new();
            for (host, takes) in steps {
                if !takes {
                    if let Some(index) = held.iter().position(|(of, _)| *of == host) {
                        held.swap_remove(index);
                    }
                    continue;
                }
                let of_host = held.iter().filter(|(of, _)| *of == host).count();
                match places.take(IpAddr::from([127, 0, 0, host])) {
                    Ok(place) => {
                        prop_assert!(held.len() < 6 && of_host < 3);
                        held.push((host, place));
                    }
                    Err(NoPlace::Full) => prop_assert_eq!(held.len(), 6),
                    Err(NoPlace::AddressFull) => prop_assert_eq!(of_host, 3),
                }
                prop_assert_eq!(places.taken(), held.len());
                prop_assert_eq!(places.counters.snapshot().connections_open, held.len() as u64);
            }
            drop(held);
            prop_assert!(places.lock().by_address.is_empty());
        }
    }
}
