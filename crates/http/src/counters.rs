//! What happened to connections and requests before a handler saw them, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($( $(#[doc = $doc:literal])+ $name:ident, )+) => {
        /// Counts for as long as the process runs. Given to a server by its [`Front`](crate::Front).
        #[derive(Debug, Default)]
        pub struct Counters {
            $( $(#[doc = $doc])+ pub(crate) $name: Counter, )+
        }

        /// The numbers at one moment. Each only grows, but for that of the connections that are open.
        #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
        pub struct CounterSnapshot {
            $( $(#[doc = $doc])+ pub $name: u64, )+
        }

        impl Counters {
            /// All numbers, each as of now.
            pub fn snapshot(&self) -> CounterSnapshot {
                CounterSnapshot { $( $name: self.$name.get(), )+ }
            }
        }
    };
}

counters! {
    /// Connections that are open.
    connections_open,
    /// Connections that got a place.
    connections_accepted,
    /// Connections refused because all places were taken.
    connections_refused,
    /// Connections refused because their address had too many already.
    connections_refused_by_address,
    /// Connections that the system failed to accept.
    connections_failed,
    /// Connections that broke, or whose first bytes were no request.
    connections_broken,
    /// Connections that went on in another protocol.
    connections_upgraded,
    /// Connections closed because they had no request for too long, complete heads included that never came.
    connections_idle,
    /// TLS handshakes that came to their end.
    tls_handshakes,
    /// TLS handshakes that failed or took too long.
    tls_handshakes_failed,
    /// Times that certificates were loaded anew.
    tls_reloads,
    /// Times that new certificates were of no use, so that the old ones were kept.
    tls_reloads_failed,
    /// Requests over HTTP/1.1.
    requests_http1,
    /// Requests over HTTP/2.
    requests_http2,
    /// Connections that speak HTTP/2.
    connections_http2,
    /// Connections ended because their peer broke the rules of HTTP/2 or flooded it.
    connections_http2_ended,
    /// Answers over HTTP/2 cut because their reader had stopped reading them.
    streams_stalled,
    /// Connections over HTTP/2 cut because their reader had stopped reading altogether.
    connections_stalled,
    /// Request heads with too many bytes or headers.
    heads_too_large,
    /// Request heads that parsers may read in several ways.
    heads_malformed,
    /// Requests refused whatever they asked for: by their host, the length of their body, or what they expect.
    requests_refused,
}

/// One number.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
