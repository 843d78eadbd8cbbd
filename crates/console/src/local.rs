//! Recognises forms of the console's own pages, and clients on this machine. The latter for pages
//! of the operator, and for the demo.

use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use http::header::{FORWARDED, HOST, ORIGIN};
use http::uri::{Authority, Uri};
use http::{Extensions, HeaderMap};

/// Whether the request names a loopback address as its host, and no proxy says that it forwards the
/// request.
pub(crate) fn is_addressed_locally(headers: &HeaderMap) -> bool {
    let is_forwarded = headers.contains_key(FORWARDED) || headers.contains_key("x-forwarded-for");
    !is_forwarded && host(headers).is_some_and(|host| is_loopback_host(host.host()))
}

/// As [`is_addressed_locally`], and the connection comes from this machine. A page of another site
/// cannot bind its name to this machine and pass as its own.
pub(crate) fn is_from_here(headers: &HeaderMap, extensions: &Extensions) -> bool {
    let peer = extensions
        .get::<ConnectInfo<SocketAddr>>()
        .map(|peer| peer.0.ip().to_canonical());
    peer.is_some_and(|peer| peer.is_loopback()) && is_addressed_locally(headers)
}

/// Whether a page of the console submits the form. A browser says so in `Sec-Fetch-Site`, which it
/// sends to this machine and over HTTPS. To any other address over plain HTTP, it sends `Origin`
/// only, and no page can forge either.
///
/// `Origin` is compared with the public URL, or with a loopback address that the request names as
/// its host, and not with any host: the name of another site may lead here.
pub(crate) fn is_own_form(console_url: &str, headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        return site == "same-origin";
    }
    let Some(origin) = origin(headers) else {
        return false;
    };
    let is_public = console_url
        .parse()
        .is_ok_and(|url: Uri| origin_of(&url) == origin_of(&origin));
    is_public || (is_addressed_locally(headers) && origin.authority() == host(headers).as_ref())
}

/// `localhost`, or a loopback address, which may have brackets.
pub(crate) fn is_loopback_host(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

fn host(headers: &HeaderMap) -> Option<Authority> {
    headers.get(HOST)?.to_str().ok()?.parse().ok()
}

fn origin(headers: &HeaderMap) -> Option<Uri> {
    headers.get(ORIGIN)?.to_str().ok()?.parse().ok()
}

/// Scheme, host and port. Browsers leave out the port of the scheme, and write the host in lower
/// case.
fn origin_of(url: &Uri) -> Option<(&str, String, u16)> {
    let scheme = url.scheme_str()?;
    let port = url
        .port_u16()
        .unwrap_or(if scheme == "https" { 443 } else { 80 });
    Some((scheme, url.host()?.to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn loopback_hosts_without_a_proxy_are_local() {
        for host in [
            "127.0.0.1:8081",
            "localhost:8081",
            "[::1]:8081",
            "localhost",
        ] {
            assert!(is_addressed_locally(&headers(&[("host", host)])), "{host}");
            let forwarded = headers(&[("host", host), ("x-forwarded-for", "127.0.0.1")]);
            assert!(!is_addressed_locally(&forwarded), "{host}");
        }
        for host in [
            "bellbird.example",
            "localhost.example",
            "10.0.0.1:8081",
            "127.0.0.1.example",
            "",
        ] {
            assert!(!is_addressed_locally(&headers(&[("host", host)])), "{host}");
        }
        assert!(!is_addressed_locally(&HeaderMap::new()));
    }

    #[test]
    fn origin_counts_where_browsers_say_no_site() {
        let is_own = |console_url: &str, pairs: &[(&'static str, &str)]| {
            is_own_form(console_url, &headers(pairs))
        };
        let lan = "http://Bellbird.lan/";
        for origin in ["http://bellbird.lan", "http://bellbird.lan:80"] {
            assert!(
                is_own(lan, &[("host", "other"), ("origin", origin)]),
                "{origin}"
            );
        }
        let rebound = ("host", "evil.example");
        for origin in [
            "https://bellbird.lan",
            "http://bellbird.lan:81",
            "http://evil.example",
            "null",
            "",
        ] {
            assert!(!is_own(lan, &[rebound, ("origin", origin)]), "{origin}");
        }
        assert!(
            !is_own(lan, &[("host", "bellbird.lan")]),
            "a program that says nothing"
        );
        assert!(!is_own(
            lan,
            &[
                ("origin", "http://bellbird.lan"),
                ("sec-fetch-site", "cross-site")
            ]
        ));
        assert!(is_own(
            "https://bellbird.example",
            &[("sec-fetch-site", "same-origin"), ("origin", "null")]
        ));
        let proxied = [
            ("host", "127.0.0.1:8081"),
            ("origin", "http://127.0.0.1:8081"),
            ("x-forwarded-for", "::1"),
        ];
        assert!(!is_own("https://bellbird.example", &proxied));
        assert!(is_own("https://bellbird.example", &proxied[..2]));
    }

    #[test]
    fn only_this_machine_is_here() {
        let is_here = |peer: &str, pairs: &[(&'static str, &str)]| {
            let mut extensions = Extensions::new();
            extensions.insert(ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 1)));
            is_from_here(&headers(pairs), &extensions)
        };
        let host = ("host", "127.0.0.1:8081");
        assert!(is_here("127.0.0.1", &[host]));
        assert!(is_here("::ffff:127.0.0.1", &[host]));
        assert!(!is_here("192.0.2.1", &[host]));
        assert!(!is_here(
            "127.0.0.1",
            &[host, ("forwarded", "for=127.0.0.1")]
        ));
        assert!(!is_here("127.0.0.1", &[("host", "evil.example:8081")]));
        assert!(!is_from_here(&headers(&[host]), &Extensions::new()));
    }
}
