//! Spans: requests that somebody traces, and requests that failed.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::SyncSender;

use alluvium_env::Env;
use http::{HeaderMap, Method, StatusCode};

use super::{Counters, Told};
use crate::sight::{TRACEPARENT, Traceparent};

/// A request that was carried out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    /// 32 hexadecimal digits.
    pub(crate) trace_id: String,
    /// 16 hexadecimal digits.
    pub(crate) span_id: String,
    /// The span that the request was made in.
    pub(crate) parent_id: Option<String>,
    pub(crate) operation: &'static str,
    pub(crate) method: Method,
    pub(crate) status: u16,
    pub(crate) request_id: String,
    /// In microseconds since 1970.
    pub(crate) began_us: u64,
    pub(crate) ended_us: u64,
}

/// A request that is being carried out.
#[derive(Debug)]
pub(crate) struct Begun {
    trace: Option<(String, String)>,
    method: Method,
    began_us: u64,
}

/// Where spans begin and end.
#[derive(Debug)]
pub(crate) struct Spans {
    env: Env,
    sender: SyncSender<Told>,
    counters: Arc<Counters>,
}

impl Spans {
    pub(super) fn new(env: &Env, sender: SyncSender<Told>, counters: Arc<Counters>) -> Self {
        Self { env: env.clone(), sender, counters }
    }

    /// A request begins.
    pub(crate) fn begin(&self, method: &Method, headers: &HeaderMap) -> Begun {
        let parent = headers.get(&TRACEPARENT);
        let parent = parent.and_then(|parent| Traceparent::parse(parent.as_bytes()));
        let text = |digits: &[u8]| String::from_utf8_lossy(digits).into_owned();
        let sampled = parent.filter(|parent| parent.is_sampled);
        Begun {
            trace: sampled.map(|parent| (text(parent.trace_id), text(parent.parent_id))),
            method: method.clone(),
            began_us: self.env.clock.now_us(),
        }
    }

    /// A request has been answered. Never waits: a span that finds no room is dropped.
    pub(crate) fn end(&self, begun: Begun, operation: &'static str, status: StatusCode, request_id: &str) {
        if begun.trace.is_none() && !status.is_server_error() {
            return;
        }
        let random = &self.env.random;
        let (trace_id, parent_id) = match begun.trace {
            Some((trace, parent)) => (trace, Some(parent)),
            None => (format!("{:032x}", random.next_u128().max(1)), None),
        };
        let span = Span {
            trace_id,
            span_id: format!("{:016x}", random.next_u64().max(1)),
            parent_id,
            operation,
            method: begun.method,
            status: status.as_u16(),
            request_id: request_id.to_owned(),
            began_us: begun.began_us,
            ended_us: self.env.clock.now_us().max(begun.began_us),
        };
        if self.sender.try_send(Told::Ended(Box::new(span))).is_err() {
            self.counters.dropped.fetch_add(1, Relaxed);
        }
    }
}
