//! What the host of a URL says.

use std::net::IpAddr;

use http::Uri;

/// The host, if it is an address.
fn address(uri: &Uri) -> Option<IpAddr> {
    let host = uri.host()?;
    host.trim_matches(['[', ']']).parse().ok()
}

fn is_localhost(uri: &Uri) -> bool {
    uri.host() == Some("localhost")
}

/// Whether the host is an address or `localhost`: no page can bind it to another machine.
pub(crate) fn is_fixed(uri: &Uri) -> bool {
    is_localhost(uri) || address(uri).is_some()
}

pub(crate) fn is_this_machine(uri: &Uri) -> bool {
    is_localhost(uri) || address(uri).is_some_and(|address| address.is_loopback())
}
