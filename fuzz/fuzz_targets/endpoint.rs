//! The URL of a webhook endpoint, as its user writes it: either rejected, or it leads to a public name.

#![no_main]

#[allow(dead_code, reason = "the client's half is not called")]
#[path = "../../crates/webhooks/src/target.rs"]
mod target;

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use target::{Rules, check_url, is_allowed};

const PUBLIC: Rules = Rules { allow_loopback: false };

fuzz_target!(|text: &str| {
    if let Ok(url) = check_url(text, PUBLIC) {
        assert_eq!(url.scheme(), "https");
        assert!(url.username().is_empty() && url.password().is_none() && url.fragment().is_none());
        let port = url.port_or_known_default().expect("a port");
        assert!(port == 443 || port >= 1024, "a port of the system");
        let host = url.host_str().expect("a host");
        assert!(host.parse::<IpAddr>().is_err() && !host.starts_with('['), "an address");
        assert!(host.contains('.') && !host.ends_with('.'), "a name of this network");
        assert_eq!(check_url(url.as_str(), PUBLIC).as_ref(), Ok(&url), "what was taken is taken again");
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        let inside = address.is_loopback() || address.is_unspecified() || address.is_multicast();
        assert!(!(inside && is_allowed(address, PUBLIC)), "an address of this machine");
        if let IpAddr::V6(address) = address
            && address.to_ipv4_mapped().is_some()
        {
            assert!(!is_allowed(address.into(), PUBLIC), "a mapped address");
        }
    }
});
