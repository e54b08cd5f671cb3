//! A bounded map that forgets what was not used for long: two generations, of which the older one goes when the newer
//! one is full.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// The map.
#[derive(Debug)]
pub(crate) struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    /// Of each generation.
    limit: usize,
}

impl<K: Eq + Hash, V> Generations<K, V> {
    /// Holds about `limit` entries.
    pub(crate) fn new(limit: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), limit: (limit / 2).max(1) }
    }

    /// Takes an entry out.
    pub(crate) fn take<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.young.remove(key).or_else(|| self.old.remove(key))
    }

    /// Looks at an entry, which makes it young again.
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        if let Some((key, value)) = self.old.remove_entry(key) {
            self.young.insert(key, value);
        }
        self.young.get(key)
    }

    /// Puts an entry in. When the young generation is full it becomes the old one; of what goes with the one before it,
    /// `keep` says what stays.
    pub(crate) fn put(&mut self, key: K, value: V, keep: impl Fn(&V) -> bool) {
        self.old.remove(&key);
        self.young.insert(key, value);
        // What must stay may be more than the limit; then each further generation is as large as that.
        if self.young.len() >= self.limit && self.young.len() > self.old.len() {
            let before = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            self.young.extend(before.into_iter().filter(|(_, value)| keep(value)));
        }
    }

    /// How many entries there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let mut map = Generations::new(10);
        map.put("used", 0, |_| false);
        for number in 0..100 {
            map.put(if number % 2 == 0 { "even" } else { "odd" }, number, |_| false);
        }
        for number in 0..1000 {
            let key: &'static str = Box::leak(number.to_string().into_boxed_str());
            map.put(key, number, |_| false);
            assert_eq!(map.get("used"), Some(&0));
            assert!(map.len() <= 11, "{}", map.len());
        }
        assert_eq!(map.get("even"), None);
        assert_eq!(map.take("used"), Some(0));
        assert_eq!(map.take("used"), None);
    }

    #[test]
    fn what_must_stay_stays() {
        let mut map = Generations::new(4);
        for number in 0..200_u32 {
            map.put(number, number, |number| number.is_multiple_of(10));
        }
        for number in (0..190).step_by(10) {
            assert_eq!(map.take(&number), Some(number));
        }
        assert!(map.len() < 60, "{}", map.len());
    }
}
