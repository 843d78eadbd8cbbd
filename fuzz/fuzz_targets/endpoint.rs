//! Checks URLs of webhook endpoints as users write them: an accepted URL has a public host name,
//! and no forbidden IP address is allowed.

#![no_main]

#[path = "../../crates/webhooks/src/target/rules/mod.rs"]
mod target;

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use target::{Rules, check_url, is_allowed};

const PUBLIC: Rules = Rules {
    allow_loopback: false,
};

fuzz_target!(|text: &str| {
    if let Ok(url) = check_url(text, PUBLIC) {
        assert_eq!(url.scheme(), "https");
        assert!(url.username().is_empty() && url.password().is_none() && url.fragment().is_none());
        let port = url.port_or_known_default().expect("a port");
        assert!(port == 443 || port >= 1024, "a system port");
        let host = url.host_str().expect("a host");
        assert!(
            host.parse::<IpAddr>().is_err() && !host.starts_with('['),
            "an IP address"
        );
        assert!(host.contains('.') && !host.ends_with('.'), "a local name");
        assert_eq!(
            check_url(url.as_str(), PUBLIC).as_ref(),
            Ok(&url),
            "an accepted URL is accepted again"
        );
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        let is_special =
            address.is_loopback() || address.is_unspecified() || address.is_multicast();
        assert!(
            !(is_special && is_allowed(address, PUBLIC)),
            "an address that is not public"
        );
        if let IpAddr::V6(address) = address
            && address.to_ipv4_mapped().is_some()
        {
            assert!(!is_allowed(address.into(), PUBLIC), "a mapped IPv4 address");
        }
    }
});
