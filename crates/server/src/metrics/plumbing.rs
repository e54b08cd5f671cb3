//! Connections, and what responses hold.

use std::sync::Arc;

use alluvium_http::{Counters, ResponseBudget};
use alluvium_metrics::Page;

use super::families::{
    CONNECTIONS, CONNECTIONS_ENDED, CONNECTIONS_MAX, CONNECTIONS_OFFERED, REQUESTS_BY_VERSION,
    REQUESTS_UNREADABLE, RESPONSE_BYTES_HELD, STREAMS_STALLED, TLS_HANDSHAKES, TLS_RELOADS,
};
use crate::sight::Sight;

/// Has shown what an HTTP server holds, and what came to it.
pub fn plumbing(
    sight: &Sight,
    responses: &Arc<ResponseBudget>,
    connections_max: usize,
    counters: &Arc<Counters>,
) {
    let (responses, counters) = (Arc::clone(responses), Arc::clone(counters));
    sight.add(move |page| {
        page.whole(&CONNECTIONS_MAX, &[], connections_max as u64);
        page.whole(&RESPONSE_BYTES_HELD, &[], responses.held() as u64);
        counted(page, &counters);
    });
}

fn counted(page: &mut Page, counters: &Counters) {
    let counted = counters.snapshot();
    page.whole(&CONNECTIONS, &[], counted.connections_open);
    page.whole(&CONNECTIONS_OFFERED, &["accepted"], counted.connections_accepted);
    page.whole(&CONNECTIONS_OFFERED, &["refused"], counted.connections_refused);
    page.whole(&CONNECTIONS_OFFERED, &["refused_by_address"], counted.connections_refused_by_address);
    page.whole(&CONNECTIONS_OFFERED, &["failed"], counted.connections_failed);
    page.whole(&CONNECTIONS_ENDED, &["idle"], counted.connections_idle);
    page.whole(&CONNECTIONS_ENDED, &["broken"], counted.connections_broken);
    page.whole(&CONNECTIONS_ENDED, &["misbehaved"], counted.connections_http2_ended);
    page.whole(&CONNECTIONS_ENDED, &["stalled"], counted.connections_stalled);
    page.whole(&CONNECTIONS_ENDED, &["upgraded"], counted.connections_upgraded);
    let unreadable = counted.heads_too_large + counted.heads_malformed + counted.requests_refused;
    page.whole(&REQUESTS_UNREADABLE, &[], unreadable);
    page.whole(&TLS_HANDSHAKES, &["end"], counted.tls_handshakes);
    page.whole(&TLS_HANDSHAKES, &["failed"], counted.tls_handshakes_failed);
    page.whole(&TLS_RELOADS, &["loaded"], counted.tls_reloads);
    page.whole(&TLS_RELOADS, &["kept"], counted.tls_reloads_failed);
    page.whole(&REQUESTS_BY_VERSION, &["1.1"], counted.requests_http1);
    page.whole(&REQUESTS_BY_VERSION, &["2"], counted.requests_http2);
    page.whole(&STREAMS_STALLED, &[], counted.streams_stalled);
}
