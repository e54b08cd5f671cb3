//! A fuzz body for what an operator asks of a server.

use alluvium_server::check_admin_request;

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 1] = [("admin_request", request)];

/// The input is the query of a list, or the body of what is to be done. It reads or is refused with a reason; a parameter more
/// that nobody knows has every query refused.
pub fn request(input: &[u8]) {
    for operation in ["delete", "trim", "prune-feed", "delete-space"] {
        if let Err(reason) = check_admin_request(operation, None, input) {
            assert!(!reason.is_empty());
        }
    }
    let Ok(text) = str::from_utf8(input) else { return };
    for operation in ["streams", "totals", "spaces"] {
        if let Err(reason) = check_admin_request(operation, Some(text), b"") {
            assert!(!reason.is_empty());
        }
        let more = format!("{text}&unheard-of=1");
        assert!(check_admin_request(operation, Some(&more), b"").is_err(), "{operation}: {more}");
    }
}
