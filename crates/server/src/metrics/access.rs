//! Who was let in, and who was not.

use alluvium_access::Access;
use alluvium_metrics::Page;

use super::families as f;

/// Decisions about requests, and what they rest on.
pub fn access(page: &mut Page, access: &Access) {
    let counts = access.counts();
    for (reason, count) in [
        ("unauthorized", counts.unauthorized),
        ("forbidden", counts.forbidden),
        ("address_rate", counts.limited_by_address),
        ("token_rate", counts.limited_by_caller),
    ] {
        page.whole(&f::ACCESS_REFUSED, &[reason], count);
    }
    page.whole(&f::ACCESS_ENDED, &[], counts.leases_ended);
    for (what, outcome, count) in [
        ("file", "taken", counts.file_loads),
        ("file", "failed", counts.file_failures),
        ("keys", "taken", counts.key_loads),
        ("keys", "failed", counts.key_failures),
    ] {
        page.whole(&f::ACCESS_LOADS, &[what, outcome], count);
    }
    page.whole(&f::ACCESS_COUNTED, &["address"], counts.addresses);
    page.whole(&f::ACCESS_COUNTED, &["token"], counts.callers);
}
