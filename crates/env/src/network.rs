//! Which addresses are those of the public internet.
//!
//! Whoever connects to where strangers say asks this of every address that a name leads to, for each connection, and
//! connects to what was asked about: names change.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is one of the public internet: none of a private network, of this machine, of a link, of a
/// carrier's own network, for many receivers, for documentation or kept for later; nor one that stands for such an address
/// in the other family. The registries of special addresses are those of RFC 6890 and its successors.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_protocol = a == 192 && b == 0 && c == 0;
    let is_benchmark = a == 198 && (b == 18 || b == 19);
    let is_relay = (a, b, c) == (192, 88, 99);
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || is_shared
        || is_protocol
        || is_benchmark
        || is_relay
        || a == 0
        || a >= 224)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(v4) = address.to_ipv4_mapped() {
        return is_public_v4(v4);
    }
    let segments = address.segments();
    let [first, second, ..] = segments;
    // An address of the other family in an envelope is judged as what is in it.
    let embedded = |at: usize| {
        let ([a, b], [c, d]) = (segments[at].to_be_bytes(), segments[at + 1].to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    if first == 0x2002 {
        return is_public_v4(embedded(1));
    }
    if segments[..6] == [0x64, 0xff9b, 0, 0, 0, 0] {
        return is_public_v4(embedded(6));
    }
    // Only 2000::/3 is given out.
    let is_global = first & 0xe000 == 0x2000;
    let is_special = first == 0x2001 && (second < 0x200 || second == 0xdb8);
    let is_documentation = first == 0x3fff && second < 0x1000;
    is_global && !is_special && !is_documentation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_public_internet_are_public() {
        for (address, expected) in [
            ("8.8.8.8", true),
            ("1.1.1.1", true),
            ("100.63.255.255", true),
            ("2606:4700:4700::1111", true),
            ("::ffff:8.8.8.8", true),
            ("64:ff9b::8.8.8.8", true),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("10.1.2.3", false),
            ("100.64.0.1", false),
            ("127.0.0.1", false),
            ("127.255.0.1", false),
            ("169.254.169.254", false),
            ("172.16.0.1", false),
            ("172.31.255.255", false),
            ("192.0.0.8", false),
            ("192.0.2.1", false),
            ("192.168.1.1", false),
            ("198.18.0.1", false),
            ("198.51.100.1", false),
            ("203.0.113.1", false),
            ("224.0.0.1", false),
            ("240.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("::127.0.0.1", false),
            ("64:ff9b::10.0.0.1", false),
            ("2002:7f00:1::", false),
            ("2002:808:808::", true),
            ("2001::1", false),
            ("2001:db8::1", false),
            ("3fff::1", false),
            ("fc00::1", false),
            ("fd12::1", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
            ("100.127.255.255", false),
            ("100.128.0.1", true),
            ("172.32.0.1", true),
            ("192.88.99.1", false),
            ("64:ff9b::127.0.0.1", false),
            ("64:ff9b::169.254.169.254", false),
            ("64:ff9b:1::1", false),
            ("::ffff:169.254.169.254", false),
            ("::ffff:100.64.0.1", false),
            ("2002:a9fe:a9fe::", false),
            ("fd00:ec2::254", false),
            ("100::1", false),
            ("5f00::1", false),
        ] {
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(is_public(address), expected, "{address}");
        }
    }
}
