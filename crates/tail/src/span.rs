//! One encoded buffer for all subscribers of a log.

use bytes::Bytes;
use parking_lot::Mutex;

/// Encoded spans above this size are handed to their reader and not kept.
pub const SPAN_BYTES_MAX: usize = 256 * 1024;

/// Which bytes an encoded span stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanKey {
    /// The log, by an identity that is never reused.
    pub log: u64,
    /// First position, inclusive.
    pub from: u64,
    /// Last position, exclusive.
    pub to: u64,
    /// Tells apart encodings of the same bytes (for example with another resume token).
    pub variant: u128,
}

/// The last span that was encoded for the logs that share a place.
type Slot = Mutex<Option<(SpanKey, Bytes)>>;

/// The most recently encoded spans, a fixed number of them.
///
/// A log always falls into the same slot, so the memory held is at most
/// `slots` × [`SPAN_BYTES_MAX`], whatever the number of logs and subscribers.
#[derive(Debug)]
pub struct SpanCache {
    slots: Box<[Slot]>,
}

impl SpanCache {
    /// Makes a cache of `slots` spans (at least one).
    pub fn new(slots: usize) -> Self {
        Self { slots: (0..slots.max(1)).map(|_| Mutex::new(None)).collect() }
    }

    /// The encoded span for `key`, made by `encode` unless it is the one last made for this slot.
    ///
    /// Two readers that ask at the same moment may both encode; both get the right bytes.
    pub fn get_or_encode<E>(
        &self,
        key: SpanKey,
        encode: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let index = usize::try_from(key.log % self.slots.len() as u64).unwrap_or_default();
        let slot = &self.slots[index];
        if let Some((held, bytes)) = &*slot.lock()
            && *held == key
        {
            return Ok(bytes.clone());
        }
        let bytes = encode()?;
        if bytes.len() <= SPAN_BYTES_MAX {
            *slot.lock() = Some((key, bytes.clone()));
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn key(log: u64, from: u64) -> SpanKey {
        SpanKey { log, from, to: from + 1, variant: 0 }
    }

    #[test]
    fn the_same_span_is_encoded_once() {
        let cache = SpanCache::new(4);
        let mut encoded = 0;
        for _ in 0..3 {
            let bytes = cache.get_or_encode::<Infallible>(key(1, 0), || {
                encoded += 1;
                Ok(Bytes::from_static(b"span"))
            });
            assert_eq!(bytes, Ok(Bytes::from_static(b"span")));
        }
        assert_eq!(encoded, 1);
    }

    #[test]
    fn logs_that_share_a_slot_never_see_each_others_bytes() {
        let cache = SpanCache::new(1);
        let get = |log, text: &'static str| {
            cache.get_or_encode::<Infallible>(key(log, 0), || Ok(Bytes::from_static(text.as_bytes())))
        };
        assert_eq!(get(1, "one"), Ok(Bytes::from_static(b"one")));
        assert_eq!(get(2, "two"), Ok(Bytes::from_static(b"two")));
        assert_eq!(get(1, "one"), Ok(Bytes::from_static(b"one")));
    }

    #[test]
    fn a_large_span_is_not_kept() {
        let cache = SpanCache::new(1);
        let large = Bytes::from(vec![0; SPAN_BYTES_MAX + 1]);
        let first = cache.get_or_encode::<Infallible>(key(1, 0), || Ok(large.clone()));
        assert_eq!(first.unwrap().len(), SPAN_BYTES_MAX + 1);
        let second = cache.get_or_encode::<Infallible>(key(1, 0), || Ok(Bytes::new()));
        assert_eq!(second.unwrap().len(), 0);
    }
}
