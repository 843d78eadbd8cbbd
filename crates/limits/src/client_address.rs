//! Finds a client's IP address behind trusted proxies, for the limits by address.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use http::HeaderMap;
use ipnet::{IpNet, Ipv6Net};

/// A range of addresses such as `10.0.0.0/8`, or a single address. IPv4 is kept as IPv6, so that
/// both spellings of an address are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network(Ipv6Net);

/// The text is neither an IP address nor a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkError;

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let network = text
            .parse::<IpNet>()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        let network = match network.map_err(|_| NetworkError)? {
            IpNet::V4(v4) => Ipv6Net::new(v4.addr().to_ipv6_mapped(), 96 + v4.prefix_len()),
            IpNet::V6(v6) => Ok(v6),
        };
        network.map(Self).map_err(|_| NetworkError)
    }
}

impl Network {
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        self.0.contains(&address)
    }
}

/// The peer's address. If the peer is a trusted proxy: the last entry of `X-Forwarded-For` that is
/// not a trusted proxy.
#[must_use]
pub fn client_address(peer: SocketAddr, headers: &HeaderMap, trusted: &[Network]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    if !is_trusted(peer.ip()) {
        return peer.ip();
    }
    let lines = headers
        .get_all("x-forwarded-for")
        .iter()
        .filter_map(|line| line.to_str().ok());
    let entries: Vec<&str> = lines
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .collect();
    let mut client = peer.ip();
    for entry in entries.into_iter().rev() {
        let Some(address) = parse_forwarded_entry(entry) else {
            break;
        };
        client = address;
        if !is_trusted(address) {
            break;
        }
    }
    client
}

/// Parses an address with or without a port.
fn parse_forwarded_entry(entry: &str) -> Option<IpAddr> {
    let bare = entry
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(entry);
    bare.parse()
        .ok()
        .or_else(|| entry.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

/// An IPv4 address, or the /64 prefix of an IPv6 address, because an IPv6 client can use any
/// address of its /64.
#[must_use]
pub fn rate_limit_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(v6) & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, forwarded: &[&str], trusted: &[&str]) -> String {
        let trusted: Vec<Network> = trusted
            .iter()
            .map(|network| network.parse().unwrap())
            .collect();
        let mut headers = HeaderMap::new();
        for line in forwarded {
            headers.append("x-forwarded-for", line.parse().unwrap());
        }
        client_address(
            SocketAddr::new(peer.parse().unwrap(), 1),
            &headers,
            &trusted,
        )
        .to_string()
    }

    #[test]
    fn forwarded_for_counts_from_trusted_proxies_only() {
        let via = |trusted, forwarded: &[&str]| client("10.0.0.1", forwarded, &[trusted]);
        assert_eq!(client("9.9.9.9", &["1.1.1.1"], &[]), "9.9.9.9");
        for (forwarded, expected) in [
            (&["1.1.1.1"][..], "1.1.1.1"),
            (&["6.6.6.6, 1.1.1.1, 10.0.0.7"], "1.1.1.1"),
            (&["10.0.0.9"], "10.0.0.9"),
            (&["1.1.1.1, nonsense"], "10.0.0.1"),
            (&[], "10.0.0.1"),
        ] {
            assert_eq!(via("10.0.0.0/8", forwarded), expected, "{forwarded:?}");
        }
        assert_eq!(via("10.0.0.1", &["6.6.6.6", "1.1.1.1"]), "1.1.1.1");
        assert_eq!(via("::ffff:10.0.0.1", &["1.1.1.1:8080"]), "1.1.1.1");
        let by_ipv6 = client("::1", &["[2001:db8::5]:443"], &["::1"]);
        assert_eq!(by_ipv6, "2001:db8::5");
    }

    #[test]
    fn network_contains_its_addresses_only() {
        let within = |network: &str, address: &str| {
            network
                .parse::<Network>()
                .unwrap()
                .contains(address.parse().unwrap())
        };
        assert!(within("0.0.0.0/0", "1.2.3.4"));
        assert!(!within("0.0.0.0/0", "::1"));
        assert!(within("::/0", "1.2.3.4"));
        assert!(within("192.168.1.0/24", "192.168.1.255"));
        assert!(!within("192.168.1.0/24", "192.168.2.0"));
        for text in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0",
            "10.0.0.0/x",
            "10.0.0.0/+8",
            "10.0.0.0/",
            "host",
        ] {
            assert_eq!(text.parse::<Network>(), Err(NetworkError), "{text}");
        }
    }

    #[test]
    fn ipv6_clients_are_limited_by_their_64_prefix() {
        let rate_limit_key_of =
            |address: &str| rate_limit_key(address.parse().unwrap()).to_string();
        assert_eq!(
            rate_limit_key_of("2001:db8:1:2:3:4:5:6"),
            rate_limit_key_of("2001:db8:1:2:ffff::1")
        );
        assert_ne!(
            rate_limit_key_of("2001:db8:1:2::1"),
            rate_limit_key_of("2001:db8:1:3::1")
        );
        assert_eq!(rate_limit_key_of("::ffff:1.2.3.4"), "1.2.3.4");
    }
}
