//! Connections, and what responses hold.

use std::sync::Arc;

use alluvium_http::ResponseBudget;

use super::families::{CONNECTIONS_MAX, RESPONSE_BYTES_HELD};
use crate::sight::Sight;

/// Has shown what an HTTP server holds.
pub fn plumbing(sight: &Sight, responses: &Arc<ResponseBudget>, connections_max: usize) {
    let responses = Arc::clone(responses);
    sight.add(move |page| {
        page.whole(&CONNECTIONS_MAX, &[], connections_max as u64);
        page.whole(&RESPONSE_BYTES_HELD, &[], responses.held() as u64);
    });
}
