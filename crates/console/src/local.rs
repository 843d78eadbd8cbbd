//! Recognises clients on this machine. For pages of the operator, and for the demo.

use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use http::header::{FORWARDED, HOST, ORIGIN};
use http::uri::{Authority, Uri};
use http::{Extensions, HeaderMap};

/// Whether the request names a loopback address as its host, and no proxy says that it forwards the request.
pub(crate) fn is_addressed_locally(headers: &HeaderMap) -> bool {
    let is_forwarded = headers.contains_key(FORWARDED) || headers.contains_key("x-forwarded-for");
    !is_forwarded && host(headers).is_some_and(|host| is_loopback_host(host.host()))
}

/// As [`is_addressed_locally`], and the connection comes from this machine, and a page of the console submits the form.
/// A page of another site can neither forge `Sec-Fetch-Site`, nor bind its name to this machine and pass as its own.
pub(crate) fn is_own_form(headers: &HeaderMap, extensions: &Extensions) -> bool {
    let peer = extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip().to_canonical());
    peer.is_some_and(|peer| peer.is_loopback()) && is_addressed_locally(headers) && is_same_origin(headers)
}

/// Whether a page of the console submits the form. A browser says so in `Sec-Fetch-Site`, or over plain HTTP in
/// `Origin`, and no page can forge either.
pub(crate) fn is_same_origin(headers: &HeaderMap) -> bool {
    match headers.get("sec-fetch-site") {
        Some(site) => site == "same-origin",
        None => origin(headers).is_some_and(|origin| Some(origin) == host(headers)),
    }
}

/// `localhost`, or a loopback address, which may have brackets.
pub(crate) fn is_loopback_host(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn host(headers: &HeaderMap) -> Option<Authority> {
    headers.get(HOST)?.to_str().ok()?.parse().ok()
}

fn origin(headers: &HeaderMap) -> Option<Authority> {
    let origin: Uri = headers.get(ORIGIN)?.to_str().ok()?.parse().ok()?;
    origin.authority().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn loopback_hosts_without_a_proxy_are_local() {
        for host in ["127.0.0.1:8081", "localhost:8081", "[::1]:8081", "localhost"] {
            assert!(is_addressed_locally(&headers(&[("host", host)])), "{host}");
            let forwarded = headers(&[("host", host), ("x-forwarded-for", "127.0.0.1")]);
            assert!(!is_addressed_locally(&forwarded), "{host}");
        }
        for host in ["bellbird.example", "localhost.example", "10.0.0.1:8081", "127.0.0.1.example", ""] {
            assert!(!is_addressed_locally(&headers(&[("host", host)])), "{host}");
        }
        assert!(!is_addressed_locally(&HeaderMap::new()));
    }

    #[test]
    fn own_forms_are_local_and_same_origin() {
        let is_own = |peer: &str, pairs: &[(&'static str, &str)]| {
            let mut extensions = Extensions::new();
            extensions.insert(ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 1)));
            is_own_form(&headers(pairs), &extensions)
        };
        let host = ("host", "127.0.0.1:8081");
        assert!(is_own("127.0.0.1", &[host, ("sec-fetch-site", "same-origin")]));
        assert!(is_own("::ffff:127.0.0.1", &[host, ("origin", "http://127.0.0.1:8081")]));
        assert!(!is_own("127.0.0.1", &[host]), "a program that says nothing");
        assert!(!is_own("127.0.0.1", &[host, ("origin", "http://127.0.0.1:9000")]));
        assert!(!is_own("127.0.0.1", &[host, ("origin", "null")]));
        for site in ["same-site", "cross-site", "none"] {
            assert!(!is_own("127.0.0.1", &[host, ("sec-fetch-site", site)]), "{site}");
        }
        assert!(!is_own("192.0.2.1", &[host, ("sec-fetch-site", "same-origin")]));
        let rebound = [("host", "evil.example:8081"), ("sec-fetch-site", "same-origin")];
        assert!(!is_own("127.0.0.1", &rebound));
        assert!(!is_own_form(&headers(&[host, ("sec-fetch-site", "same-origin")]), &Extensions::new()));
    }
}
