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
    !is_forwarded(headers) && host(headers).is_some_and(|host| is_loopback_host(host.host()))
}

fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.contains_key(FORWARDED) || headers.contains_key("x-forwarded-for")
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
/// its host, and not with any host: the name of another site may lead here. Where the console's own
/// URL is one at home, so that a machine is reached by several addresses, it may also be the
/// address at home that the request names, because no other site has one.
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
    let host = host(headers);
    let is_of_host = host.is_some() && origin.authority() == host.as_ref();
    let is_at_home = || {
        let console = console_url.parse().ok().filter(is_home_url);
        console.is_some() && host.as_ref().is_some_and(|host| is_home_host(host.host()))
    };
    is_public || (is_of_host && (is_addressed_locally(headers) || is_at_home()))
}

/// The address at which the browser has the page of a form, as the browser says. No other page can
/// forge it. None: only this machine reaches that address.
pub(crate) fn public_origin(headers: &HeaderMap) -> Option<String> {
    let origin = origin(headers)?;
    let (scheme, authority) = (origin.scheme_str()?, origin.authority()?);
    let is_web = matches!(scheme, "http" | "https");
    let is_plain = !authority.host().is_empty() && !authority.as_str().contains('@');
    let is_public = is_plain && !is_loopback_host(authority.host());
    (is_web && is_public).then(|| format!("{scheme}://{authority}"))
}

/// Whether the browser has the page at another address than this one, which others may reach too.
pub(crate) fn is_elsewhere(url: &str, headers: &HeaderMap) -> bool {
    let url = url.parse::<Uri>().unwrap_or_default();
    !is_addressed_locally(headers) && host(headers).as_ref() != url.authority()
}

/// The address at home at which the browser has the page, if the settings do not say how another
/// device reaches the console: its URL is one of this machine then. No page of another site has
/// such an address, so nobody else chooses it.
pub(crate) fn home_authority(console_url: &str, headers: &HeaderMap) -> Option<Authority> {
    let is_other = |host: &Authority| is_home_host(host.host()) && !is_loopback_host(host.host());
    let is_at_home = is_loopback_url(console_url) && !is_forwarded(headers);
    host(headers).filter(|host| is_at_home && is_other(host))
}

fn is_home_url(url: &Uri) -> bool {
    url.scheme_str() == Some("http") && url.host().is_some_and(is_home_host)
}

/// This machine, an address of a private network or of a VPN such as Tailscale (RFC 6598), or a
/// name that the machine itself announces (RFC 6762). No DNS server of another site responds for
/// one of these.
fn is_home_host(host: &str) -> bool {
    match address_of(host).map(|address| address.to_canonical()) {
        Some(IpAddr::V4(address)) => {
            let is_shared = matches!(address.octets(), [100, 64..=127, ..]);
            address.is_loopback() || address.is_private() || address.is_link_local() || is_shared
        }
        Some(IpAddr::V6(address)) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
        None => {
            let name = host.trim_end_matches('.').to_ascii_lowercase();
            name == "localhost" || name.ends_with(".local")
        }
    }
}

/// The address of a host, which may have brackets. None: the host is a name.
fn address_of(host: &str) -> Option<IpAddr> {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    address.parse().ok()
}

/// `localhost`, or a loopback address.
pub(crate) fn is_loopback_host(host: &str) -> bool {
    host == "localhost" || address_of(host).is_some_and(|address| address.is_loopback())
}

/// Whether only programs on this machine reach the URL.
#[must_use]
pub fn is_loopback_url(url: &str) -> bool {
    url.parse::<Uri>()
        .is_ok_and(|url| url.host().is_some_and(is_loopback_host))
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
    fn loopback_urls_are_those_of_this_machine() {
        for (url, is_loopback) in [
            ("http://127.0.0.1:8081/", true),
            ("http://[::1]:8081", true),
            ("http://localhost/console", true),
            ("http://192.0.2.1:8081/", false),
            ("https://bellbird.example/", false),
            ("", false),
        ] {
            assert_eq!(is_loopback_url(url), is_loopback, "{url}");
        }
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
    fn forms_at_home_need_no_setting() {
        let is_own = |console_url: &str, host: &str, origin: &str| {
            is_own_form(console_url, &headers(&[("host", host), ("origin", origin)]))
        };
        let homes = [
            "192.168.1.20:8081",
            "10.0.0.1",
            "[fd00::1]:8081",
            "100.101.102.103:8081",
            "umbrel.local:8081",
            "localhost:8081",
        ];
        for host in homes {
            let origin = format!("http://{host}");
            for console_url in ["http://127.0.0.1:8081", "http://casaos.local:8081"] {
                assert!(is_own(console_url, host, &origin), "{host}");
            }
            let public = "https://bellbird.example";
            let is_loopback = host.starts_with("localhost");
            assert_eq!(is_own(public, host, &origin), is_loopback, "{host}");
            let other = "http://192.168.1.66:8081";
            assert!(!is_own("http://127.0.0.1:8081", host, other), "{host}");
        }
        for host in [
            "evil.example:8081",
            "203.0.113.9:8081",
            "100.128.0.1:8081",
            "local",
            "192.168.1.20.evil.example",
        ] {
            let origin = format!("http://{host}");
            assert!(!is_own("http://127.0.0.1:8081", host, &origin), "{host}");
        }
    }

    #[test]
    fn address_at_home_is_that_of_the_browser() {
        let found = |console_url: &str, pairs: &[(&'static str, &str)]| {
            home_authority(console_url, &headers(pairs)).map(|host| host.to_string())
        };
        let local = "http://127.0.0.1:8081";
        for host in ["192.168.1.20:8081", "umbrel.local:8081", "[fd00::1]:8081"] {
            assert_eq!(found(local, &[("host", host)]).as_deref(), Some(host));
            assert_eq!(found("http://umbrel.lan:8081", &[("host", host)]), None);
            let proxied = [("host", host), ("x-forwarded-for", "192.168.1.9")];
            assert_eq!(found(local, &proxied), None, "{host}");
        }
        for host in [
            "localhost:8081",
            "127.0.0.1:8081",
            "evil.example",
            "203.0.113.9",
        ] {
            assert_eq!(found(local, &[("host", host)]), None, "{host}");
        }
    }

    #[test]
    fn address_of_a_form_is_what_the_browser_says() {
        for (origin, found) in [
            ("https://bellbird.example", Some("https://bellbird.example")),
            ("http://192.168.1.20:8081", Some("http://192.168.1.20:8081")),
            ("http://127.0.0.1:8081", None),
            ("http://localhost:8081", None),
            ("http://[::1]:8081", None),
            ("file://", None),
            ("null", None),
        ] {
            let headers = headers(&[("origin", origin), ("host", "other.example")]);
            assert_eq!(public_origin(&headers).as_deref(), found, "{origin}");
        }
        let url = "http://192.168.1.20:8081";
        for (host, is_other) in [
            ("192.168.1.20:8081", false),
            ("127.0.0.1:8081", false),
            ("192.168.1.30:8081", true),
            ("bellbird.example", true),
        ] {
            let found = is_elsewhere(url, &headers(&[("host", host)]));
            assert_eq!(found, is_other, "{host}");
        }
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
