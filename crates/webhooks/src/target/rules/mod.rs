//! Decides where events may be sent (SSRF protection): rules for endpoint URLs and for the IP
//! addresses behind them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hyper::Uri;
use url::{Host, Url};

const URL_BYTES_MAX: usize = 2048;
/// Limits for names and labels: RFC 1035, section 2.3.4.
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// Last labels of names that are not public. Sources: RFC 6761, RFC 6762 with its appendix G, RFC
/// 7686, RFC 8375, RFC 9476, and `internal`, which ICANN reserves for private use.
const PRIVATE_DOMAINS: [&str; 14] = [
    "alt",
    "arpa",
    "corp",
    "home",
    "internal",
    "intranet",
    "invalid",
    "lan",
    "local",
    "localdomain",
    "localhost",
    "onion",
    "private",
    "test",
];

/// Blocked IPv4 networks: the IANA IPv4 Special-Purpose Address Registry
/// (<https://www.iana.org/assignments/iana-ipv4-special-registry>), multicast, and 168.63.129.16,
/// an internal address of Azure. Includes the anycast networks that the registry calls globally
/// reachable.
const BLOCKED_V4: [(Ipv4Addr, u32); 19] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 31, 196, 0), 24),
    (Ipv4Addr::new(192, 52, 193, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(192, 175, 48, 0), 24),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// The only IPv6 network with global unicast addresses: the IANA IPv6 Global Unicast Address
/// Assignments (<https://www.iana.org/assignments/ipv6-unicast-address-assignments>). Mapped and
/// compatible IPv4 addresses, the shared prefixes of NAT64, segment routing, unique local,
/// link-local, site-local and multicast addresses lie outside.
const GLOBAL_UNICAST_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Blocked networks inside [`GLOBAL_UNICAST_V6`], from the IANA IPv6 Special-Purpose Address
/// Registry (<https://www.iana.org/assignments/iana-ipv6-special-registry>): protocol assignments
/// (Teredo, benchmarking, AMT, ORCHID and others), two documentation networks, 6to4, and AS112.
const BLOCKED_V6: [(Ipv6Addr, u32); 5] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Exceptions that the operator allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rules {
    /// Allows plain http and addresses of this machine, for development.
    pub allow_loopback: bool,
}

/// Why an endpoint URL was rejected. Never contains the URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("the URL is too long: use at most 2,048 bytes")]
    TooLong,
    /// Not a URL, or a spelling that two parsers may read differently.
    #[error("the URL is malformed: write it as https://hooks.example.com/path")]
    Malformed,
    #[error("the URL does not start with https://: use https, because events hold financial data")]
    NotHttps,
    /// As [`Self::NotHttps`], with [`Rules::allow_loopback`].
    #[error(
        "the URL does not start with https://: use https, or http to the computer that runs Bellbird"
    )]
    NotHttpsNorLoopback,
    #[error(
        "the URL contains a user or a password: remove them and verify the signature of each event"
    )]
    UserInfo,
    /// HTTP never sends a fragment.
    #[error("the URL contains a fragment: remove the # and all that follows it")]
    Fragment,
    /// An IP address in any spelling.
    #[error("the host is an IP address: use a public DNS name")]
    IpLiteral,
    #[error(
        "the host is not a public name: use a public DNS name that contains a dot and does not end with one"
    )]
    NotPublic,
    #[error("the port is not allowed: use 443, or 1024 and above")]
    Port,
}

/// Parses and checks the URL of an endpoint, without resolving its name.
///
/// Accepts https only, a public name, no user info, no fragment, port 443 or at least 1024, and at
/// most 2,048 bytes. With [`Rules::allow_loopback`] also accepts http and https to `localhost` and
/// to loopback literals, including port 80 for http.
///
/// Checking the returned URL again returns the same URL.
pub fn check_url(text: &str, rules: Rules) -> Result<Url, TargetError> {
    if text.len() > URL_BYTES_MAX {
        return Err(TargetError::TooLong);
    }
    check_spelling(text, rules)?;
    let url = Url::parse(text).map_err(|_| TargetError::Malformed)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(TargetError::UserInfo);
    }
    if url.fragment().is_some() {
        return Err(TargetError::Fragment);
    }
    if url.as_str().len() > URL_BYTES_MAX {
        return Err(TargetError::TooLong);
    }
    let is_local = rules.allow_loopback && is_loopback_host(&url);
    if url.scheme() == "http" && !is_local {
        return Err(not_https(rules));
    }
    if !is_local {
        check_host(&url)?;
    }
    match url.port_or_known_default() {
        Some(443 | 1024..) => {}
        Some(80) if url.scheme() == "http" => {}
        _ => return Err(TargetError::Port),
    }
    request_uri(&url).ok_or(TargetError::Malformed)?;
    Ok(url)
}

/// Whether the client may connect to an address: globally routable unicast, and with
/// [`Rules::allow_loopback`] this machine.
///
/// Rejects every address that wraps another one: mapped, 6to4, Teredo, ISATAP, and NAT64 with a
/// shared prefix. NAT64 with a network's own prefix cannot be detected.
#[must_use]
pub fn is_allowed(address: IpAddr, rules: Rules) -> bool {
    (rules.allow_loopback && address.is_loopback())
        || match address {
            IpAddr::V4(address) => !BLOCKED_V4.iter().any(|block| is_within_v4(address, *block)),
            IpAddr::V6(address) => {
                is_within_v6(address, GLOBAL_UNICAST_V6)
                    && !BLOCKED_V6.iter().any(|block| is_within_v6(address, *block))
                    && !is_isatap(address)
            }
        }
}

/// Converts a URL for hyper. `None` if hyper's parser and the `url` crate disagree about scheme,
/// host or port.
pub(crate) fn request_uri(url: &Url) -> Option<Uri> {
    let uri: Uri = url.as_str().parse().ok()?;
    let is_same = uri.scheme_str() == Some(url.scheme())
        && uri.host() == url.host_str()
        && uri.port_u16() == url.port();
    is_same.then_some(uri)
}

/// Rejects spellings that the URL standard would silently repair.
fn check_spelling(text: &str, rules: Rules) -> Result<(), TargetError> {
    let (scheme, rest) = text.split_once("://").ok_or(TargetError::Malformed)?;
    if !scheme.eq_ignore_ascii_case("https") && !scheme.eq_ignore_ascii_case("http") {
        return Err(not_https(rules));
    }
    if text
        .chars()
        .any(|c| c.is_control() || c.is_whitespace() || c == '\\')
        || rest.starts_with('/')
    {
        return Err(TargetError::Malformed);
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(TargetError::UserInfo);
    }
    Ok(())
}

/// Names the schemes that the rules allow.
fn not_https(rules: Rules) -> TargetError {
    match rules.allow_loopback {
        true => TargetError::NotHttpsNorLoopback,
        false => TargetError::NotHttps,
    }
}

fn is_loopback_host(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn check_host(url: &Url) -> Result<(), TargetError> {
    match url.host() {
        Some(Host::Domain(name)) if is_public_name(name) => Ok(()),
        Some(Host::Domain(_)) => Err(TargetError::NotPublic),
        Some(Host::Ipv4(_) | Host::Ipv6(_)) => Err(TargetError::IpLiteral),
        None => Err(TargetError::Malformed),
    }
}

/// Whether a name, in lower-case ASCII, can be a public DNS name.
fn is_public_name(name: &str) -> bool {
    let Some((_, last)) = name.rsplit_once('.') else {
        return false;
    };
    name.len() <= NAME_BYTES_MAX
        && name.split('.').all(is_label)
        && last.starts_with(|first: char| first.is_ascii_lowercase())
        && !PRIVATE_DOMAINS.contains(&last)
}

fn is_label(label: &str) -> bool {
    (1..=LABEL_BYTES_MAX).contains(&label.len())
        && label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        && !label.starts_with('-')
        && !label.ends_with('-')
}

fn is_within_v4(address: Ipv4Addr, (network, bits): (Ipv4Addr, u32)) -> bool {
    (address.to_bits() ^ network.to_bits()).leading_zeros() >= bits
}

fn is_within_v6(address: Ipv6Addr, (network, bits): (Ipv6Addr, u32)) -> bool {
    (address.to_bits() ^ network.to_bits()).leading_zeros() >= bits
}

/// Whether the interface identifier wraps an IPv4 address (RFC 5214, section 6.1). Its "universal"
/// and "group" bits may have any value.
fn is_isatap(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    segments[4] & !0x0300 == 0 && segments[5] == 0x5efe
}

#[cfg(test)]
mod tests;
