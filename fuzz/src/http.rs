//! Fuzz bodies for `alluvium-http`: nobody makes up an address before a trusted proxy's own word, networks are written as
//! they are read, and what is found in the bytes of a connection does not depend on how they come.

use std::net::{IpAddr, Ipv4Addr};

use alluvium_http::Networks;
use alluvium_http::fuzzing::follow;
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 3] =
    [("http_forwarded", forwarded), ("http_networks", networks), ("http_head", head)];

const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));

/// The input is lines of headers that a client has sent to a proxy.
pub fn forwarded(input: &[u8]) {
    let proxies: Networks = "10.0.0.0/8,fd00::/8".parse().expect("networks");
    let mut headers = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n').take(64) {
        let Some(at) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (HeaderName::from_bytes(&line[..at]), HeaderValue::from_bytes(&line[at + 1..]));
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    // Whoever is no proxy speaks for itself alone.
    assert_eq!(proxies.client(STRANGER, &headers), STRANGER);
    let client = proxies.client(PROXY, &headers);
    let is_named = [header::FORWARDED, HeaderName::from_static("x-forwarded-for")]
        .iter()
        .any(|name| headers.contains_key(name));
    assert!(is_named || client == PROXY);
    // What the proxy adds at the end counts, whatever stands before it.
    let (name, value) = if headers.contains_key(header::FORWARDED) {
        (header::FORWARDED, "for=203.0.113.9;proto=https")
    } else {
        (HeaderName::from_static("x-forwarded-for"), "203.0.113.9")
    };
    headers.append(name, HeaderValue::from_static(value));
    assert_eq!(proxies.client(PROXY, &headers), STRANGER);
}

/// The input is the value of an option.
pub fn networks(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(networks) = text.parse::<Networks>() else { return };
    let written = networks.to_string();
    let again: Networks = written.parse().expect("what was written is read");
    assert_eq!(again.to_string(), written);
    for address in [PROXY, STRANGER, IpAddr::from([0; 16]), IpAddr::from([255; 4])] {
        assert_eq!(networks.contains(address), again.contains(address));
        assert!(!networks.is_empty() || !networks.contains(address));
    }
}

/// The input is how long parts are, and the bytes of a connection.
pub fn head(input: &[u8]) {
    let Some((len, bytes)) = input.split_first() else { return };
    let whole = follow(std::iter::once(bytes), 512, 2048);
    let parts = follow(bytes.chunks(usize::from(*len).max(1)), 512, 2048);
    let single = follow(bytes.chunks(1), 512, 2048);
    for other in [&parts, &single] {
        assert_eq!((&whole.fault, whole.ambiguous), (&other.fault, other.ambiguous));
        // Of a line that ends the connection more or less may have gone through before its end.
        assert!(whole.fault.is_some() || whole.seen == other.seen);
    }
    assert!(whole.seen.len() <= bytes.len());
}
