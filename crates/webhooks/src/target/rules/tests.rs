use proptest::prelude::*;

use super::*;

const STRICT: Rules = Rules {
    allow_loopback: false,
};
const DEVELOPMENT: Rules = Rules {
    allow_loopback: true,
};

/// URLs that are always rejected, with or without loopback allowed.
const HOSTILE: &[&str] = &[
    // IP addresses in plain notation.
    "https://10.0.0.1/",
    "https://172.16.0.1/",
    "https://192.168.1.1/hook",
    "https://169.254.169.254/latest/meta-data/",
    "https://100.100.100.200/",
    "https://168.63.129.16/",
    "https://0.0.0.0/",
    "https://255.255.255.255/",
    "https://224.0.0.1/",
    "https://93.184.216.34/",
    "https://8.8.8.8:8443/",
    // IP addresses in other radices and with fewer parts.
    "https://2852039166/",
    "https://0xa9fea9fe/",
    "https://0xA9.0xFE.0xA9.0xFE/",
    "https://025177524776/",
    "https://0251.0376.0251.0376/",
    "https://0251.254.0xa9.254/",
    "https://169.16689662/",
    "https://169.254.43518/",
    "https://10.1/",
    "https://0/",
    "https://0x0/",
    "https://00000000000000000000000000000000012/",
    "https://134744072/",
    // IP addresses with characters that normalise to dots, digits or letters.
    "https://169.254.169.254./",
    "https://8.8.8.8./",
    "https://169。254。169。254/",
    "https://１６９．２５４．１６９．２５４/",
    "https://①⑥⑨.②⑤④.①⑥⑨.②⑤④/",
    "https://%31%36%39.254.169.254/",
    "https://1.2.3/",
    "https://1.2.3.4.5/",
    "https://256.256.256.256/",
    "https://hooks.example.1/",
    "https://hooks.example.0x7f/",
    // IPv6, including wrapped IPv4.
    "https://[::]/",
    "https://[fe80::1]/",
    "https://[fe80::1%25eth0]/",
    "https://[fe80::1%eth0]/",
    "https://[fc00::1]/",
    "https://[fd00:ec2::254]/",
    "https://[fec0::1]/",
    "https://[ff02::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:a9fe:a9fe]/",
    "https://[::127.0.0.1]/",
    "https://[64:ff9b::169.254.169.254]/",
    "https://[64:ff9b:1::a00:1]/",
    "https://[2002:a9fe:a9fe::]/",
    "https://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    "https://[2001:db8::1]/",
    "https://[2606:4700:4700::1111]/",
    "https://2606:4700:4700::1111/",
    "https://[v1.fe80]/",
    // Names that are not public.
    "https://localhost./",
    "https://api.localhost/",
    "https://api.localhost./",
    "https://intranet/",
    "https://hooks/",
    "https://printer.local/",
    "https://metadata.google.internal/",
    "https://metadata.google.internal./",
    "https://router.home.arpa/",
    "https://1.0.0.127.in-addr.arpa/",
    "https://expyuzz4wqqyqhjn.onion/",
    "https://db.corp/",
    "https://nas.lan/",
    "https://x.invalid/",
    "https://hooks.example.com./",
    "https://hooks.example.com。/",
    "https://hooks..example.com/",
    "https://.example.com/",
    "https://-hooks.example.com/",
    "https://hooks-.example.com/",
    "https://*.example.com/",
    "https://hooks.ex!ample.com/",
    "https://PRINTER.LOCAL/",
    "https://ｐｒｉｎｔｅｒ．ｌｏｃａｌ/",
    // Users, passwords, and users that resemble a host.
    "https://user@hooks.example.com/",
    "https://user:secret@hooks.example.com/",
    "https://:@hooks.example.com/",
    "https://@hooks.example.com/",
    "https://hooks.example.com@169.254.169.254/",
    "https://hooks.example.com:443@10.0.0.1/",
    "https://169.254.169.254\\@hooks.example.com/",
    "https://hooks.example.com#@10.0.0.1/",
    // Ports of other services, and malformed ports.
    "https://hooks.example.com:0/",
    "https://hooks.example.com:22/",
    "https://hooks.example.com:25/",
    "https://hooks.example.com:80/",
    "https://hooks.example.com:1023/",
    "https://hooks.example.com:65536/",
    "https://hooks.example.com:-1/",
    "https://hooks.example.com:8443x/",
    // Other schemes and spellings.
    "http://hooks.example.com/",
    "http://hooks.example.com:8080/",
    "ftp://hooks.example.com/",
    "file:///etc/passwd",
    "file://localhost/etc/passwd",
    "gopher://hooks.example.com/",
    "unix:///run/docker.sock",
    "javascript:alert(1)",
    "wss://hooks.example.com/",
    "//hooks.example.com/",
    "hooks.example.com/",
    "https:hooks.example.com/",
    "https:/hooks.example.com/",
    "https:///hooks.example.com/",
    "https:\\\\hooks.example.com\\",
    "https://",
    "https://?x",
    "",
    " https://hooks.example.com/",
    "https://hooks.example.com/\n",
    "https://hooks.exa\tmple.com/",
    "https://hooks.example.com/a b",
    "https://hooks.example.com/\u{0}",
    "https://hooks.example.com/\r\nx-injected: 1",
    "https://hooks.example.com\u{2028}/",
    "https://hooks.example.com/#fragment",
    "https://hooks.example.com/#",
    "https://hooks%2eexample%00.com/",
    "https://hooks.example.com%2f@10.0.0.1/",
];

/// URLs of this machine. Rejected unless loopback is allowed.
const LOOPBACK: &[&str] = &[
    "https://localhost/",
    "https://LOCALHOST:8443/",
    "http://localhost/",
    "http://localhost:3000/hook",
    "http://localhost:80/",
    "http://127.0.0.1/",
    "http://127.0.0.1:443/",
    "https://127.0.0.1:8443/",
    "https://127.255.255.254/",
    "http://[::1]:3000/",
    "https://[::1]/",
    "https://[0:0:0:0:0:0:0:1]/",
    "https://2130706433/",
    "https://0x7f.1/",
    "https://0177.0.0.01/",
    "https://017700000001/",
    "https://127.1/",
    "https://127.0.0.1./",
    "https://127。0。0。1/",
    "https://１２７．０．０．１/",
    "https://ⓛocalhost/",
];

const GOOD: &[(&str, &str)] = &[
    ("https://hooks.example.com", "https://hooks.example.com/"),
    (
        "https://hooks.example.com:443/",
        "https://hooks.example.com/",
    ),
    (
        "HTTPS://Hooks.Example.COM/Path?Query=1",
        "https://hooks.example.com/Path?Query=1",
    ),
    (
        "https://hooks.example.com:1024/x",
        "https://hooks.example.com:1024/x",
    ),
    (
        "https://hooks.example.com:65535/x/../y",
        "https://hooks.example.com:65535/y",
    ),
    (
        "https://a_b.xn--bcher-kva.example/",
        "https://a_b.xn--bcher-kva.example/",
    ),
    (
        "https://bücher.example/ü",
        "https://xn--bcher-kva.example/%C3%BC",
    ),
    ("https://10.example.com/", "https://10.example.com/"),
    (
        "https://localhost.example.com/",
        "https://localhost.example.com/",
    ),
    ("https://127.0.0.1.nip.io/", "https://127.0.0.1.nip.io/"),
    (
        "https://hooks.example.com/a@b?c=[d]|{e}",
        "https://hooks.example.com/a@b?c=[d]|{e}",
    ),
    (
        "https://hooks.example.com?token=x",
        "https://hooks.example.com/?token=x",
    ),
];

/// Addresses to which nothing is sent, those of one first number in a line.
const BLOCKED: &str = "
    0.0.0.0 0.255.255.255
    10.0.0.0 10.255.255.255
    100.64.0.0 100.100.100.200 100.127.255.255
    168.63.129.16
    169.254.0.0 169.254.169.254 169.254.170.2 169.254.255.255
    172.16.0.0 172.31.255.255
    192.0.0.0 192.0.0.9 192.0.0.192 192.0.2.1 192.31.196.1 192.52.193.1 192.88.99.1
    192.168.0.0 192.168.255.255 192.175.48.1
    198.18.0.0 198.19.255.255 198.51.100.1
    203.0.113.1
    224.0.0.0
    239.255.255.255
    240.0.0.0
    255.255.255.254 255.255.255.255
    :: ::2 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::ffff:8.8.8.8
    ::ffff:0:8.8.8.8
    64:ff9b::8.8.8.8 64:ff9b::169.254.169.254 64:ff9b:1::10.0.0.1 64:ff9b:1:ffff::1
    100::1 100:0:0:1::1
    1fff:ffff::1
    2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:1::1 2001:2::1 2001:3::1 2001:4:112::1
    2001:10::1 2001:20::1 2001:30::1 2001:1ff:ffff::1 2001:db8::1 2001:db8:ffff:ffff::1
    2002::1 2002:7f00:1:: 2002:a9fe:a9fe::1 2002:808:808::1
    2620:4f:8000::1
    2606:4700::5efe:10.0.0.1 2606:4700::5efe:8.8.8.8 2606:4700::200:5efe:10.0.0.1
    2606:4700::200:5efe:8.8.8.8 2606:4700::300:5efe:8.8.8.8
    3fff::1 3fff:fff:ffff::1
    4000::1
    5f00::1
    fc00::1
    fd00:ec2::254
    fdff:ffff::1
    fe80::1
    febf::1
    fec0::1
    ff02::1
    ff0e::1
    ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
";

/// Addresses beside them, and others that may be an endpoint's.
const ROUTABLE: &str = "
    1.0.0.1
    8.8.8.8
    9.255.255.255
    11.0.0.0
    93.184.216.34
    100.63.255.255 100.128.0.0
    126.255.255.255
    128.0.0.0
    168.63.129.15
    169.253.255.255
    172.15.255.255 172.32.0.0
    192.0.1.0 192.167.255.255 192.169.0.0
    198.17.255.255 198.20.0.0
    223.255.255.255
    2000::1
    2001:200::1 2001:4860:4860::8888
    2003::1
    2606:4700:4700::1111 2606:4700::100:5eff:8.8.8.8
    2a00:1450::1
    3ffe:ffff::1
";

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn hostile_urls_are_rejected() {
    for text in HOSTILE {
        for rules in [STRICT, DEVELOPMENT] {
            assert!(check_url(text, rules).is_err(), "{text:?} {rules:?}");
        }
    }
    for text in LOOPBACK {
        assert!(check_url(text, STRICT).is_err(), "{text:?}");
    }
}

#[test]
fn loopback_is_allowed_by_the_setting_only() {
    for text in LOOPBACK {
        let url = check_url(text, DEVELOPMENT);
        assert!(url.is_ok_and(|url| is_loopback_host(&url)), "{text:?}");
    }
    for text in [
        "https://localhost:80/",
        "http://localhost:22/",
        "http://127.0.0.1:1023/",
        "http://a@localhost/",
    ] {
        assert!(check_url(text, DEVELOPMENT).is_err(), "{text:?}");
    }
}

#[test]
fn good_urls_pass_unchanged() {
    for (text, normalised) in GOOD {
        for rules in [STRICT, DEVELOPMENT] {
            for text in [text, normalised] {
                let url = check_url(text, rules).map(String::from);
                assert_eq!(url.as_deref(), Ok(*normalised), "{text:?}");
            }
        }
    }
}

#[test]
fn length_limit_covers_text_and_normalised_url() {
    let long =
        |filler: &str, times: usize| format!("https://hooks.example.com/{}", filler.repeat(times));
    assert!(check_url(&long("x", URL_BYTES_MAX - 26), STRICT).is_ok());
    for too_long in [long("x", URL_BYTES_MAX - 25), long("ü", 700)] {
        assert_eq!(check_url(&too_long, STRICT), Err(TargetError::TooLong));
    }
    let label = "a".repeat(63);
    let name = |last: usize| format!("https://{label}.{label}.{label}.{}.com/", "a".repeat(last));
    assert!(check_url(&name(57), STRICT).is_ok());
    assert_eq!(check_url(&name(58), STRICT), Err(TargetError::NotPublic));
    assert!(check_url(&format!("https://{}.com/", "a".repeat(64)), STRICT).is_err());
}

#[test]
fn errors_say_what_to_do_and_hold_no_url() {
    for (text, error) in [
        ("https://10.0.0.1/", TargetError::IpLiteral),
        ("https://hooks/", TargetError::NotPublic),
        ("http://hooks.example.com/", TargetError::NotHttps),
        ("ftp://hooks.example.com/", TargetError::NotHttps),
        ("https://a:b@hooks.example.com/", TargetError::UserInfo),
        ("https://hooks.example.com/#x", TargetError::Fragment),
        ("https://hooks.example.com:22/", TargetError::Port),
        ("hooks.example.com", TargetError::Malformed),
    ] {
        assert_eq!(check_url(text, STRICT), Err(error), "{text}");
        let sentence = error.to_string();
        assert!(sentence.contains(": "), "{sentence}");
        assert!(!sentence.contains("10.0.0.1"), "{sentence}");
    }
}

#[test]
fn another_scheme_is_told_those_that_are_allowed() {
    for text in ["ftp://hooks.example.com/", "http://hooks.example.com/"] {
        let [strict, development] =
            [STRICT, DEVELOPMENT].map(|rules| check_url(text, rules).unwrap_err().to_string());
        assert!(strict.contains("use https") && !strict.contains("http to"));
        assert!(development.contains("use https, or http to the computer"));
    }
}

#[test]
fn only_globally_routable_addresses_are_allowed() {
    for text in BLOCKED.split_whitespace() {
        for rules in [STRICT, DEVELOPMENT] {
            assert!(!is_allowed(address(text), rules), "{text} {rules:?}");
        }
    }
    for text in ROUTABLE.split_whitespace() {
        assert!(is_allowed(address(text), STRICT), "{text}");
    }
    for text in ["127.0.0.1", "127.255.255.255", "::1"] {
        assert!(!is_allowed(address(text), STRICT), "{text}");
        assert!(is_allowed(address(text), DEVELOPMENT), "{text}");
    }
}

/// A number in one of the spellings that `inet_aton` accepts.
fn spelled(number: u32, radix: u8, zeros: usize) -> String {
    let zeros = "0".repeat(zeros);
    match radix {
        0 => number.to_string(),
        1 => format!("0{zeros}{number:o}"),
        2 => format!("0x{zeros}{number:x}"),
        _ => format!("0X{zeros}{number:X}"),
    }
}

/// The text in full-width digits and letters.
fn wide(text: &str) -> String {
    text.chars()
        .map(|c| char::from_u32(u32::from(c) + 0xfee0).unwrap())
        .collect()
}

proptest! {
    #[test]
    fn every_spelling_of_an_ipv4_address_is_rejected(
        bits: u32,
        parts in 1_usize..=4,
        radices: [u8; 4],
        zeros in prop::array::uniform4(0_usize..6),
        dot: bool,
        is_wide: bool,
        port in prop::option::of(1024_u16..),
    ) {
        let octets = bits.to_be_bytes();
        let mut numbers: Vec<u32> = octets[..parts - 1].iter().copied().map(u32::from).collect();
        numbers.push(bits & u32::MAX.checked_shr(8 * (parts as u32 - 1)).unwrap());
        let spellings: Vec<String> =
            (0..parts).map(|at| spelled(numbers[at], radices[at] % 4, zeros[at])).collect();
        let host = spellings.join(".") + if dot { "." } else { "" };
        let host = if is_wide { wide(&host) } else { host };
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let text = format!("https://{host}{port}/");
        prop_assert_eq!(check_url(&text, STRICT), Err(TargetError::IpLiteral), "{}", text);
        if octets[0] != 127 {
            prop_assert!(check_url(&text, DEVELOPMENT).is_err());
        }
    }

    #[test]
    fn addresses_wrapping_another_are_blocked(bits: u32, prefix in 0x2000_u16..0x4000, rest: [u16; 3]) {
        let wrapped = Ipv4Addr::from_bits(bits);
        let [high, low] = [(bits >> 16) as u16, bits as u16];
        for address in [
            wrapped.to_ipv6_mapped(),
            wrapped.to_ipv6_compatible(),
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0x64, 0xff9b, 1, rest[0], rest[1], rest[2], high, low),
            Ipv6Addr::new(0x2002, high, low, rest[0], rest[1], rest[2], 0, 1),
            Ipv6Addr::new(0x2001, 0, rest[0], rest[1], rest[2], 0, high, low),
            Ipv6Addr::new(prefix, rest[0], rest[1], rest[2], 0, 0x5efe, high, low),
            Ipv6Addr::new(prefix, rest[0], rest[1], rest[2], 0x200, 0x5efe, high, low),
        ] {
            if !address.is_loopback() {
                prop_assert!(!is_allowed(address.into(), DEVELOPMENT), "{}", address);
            }
            prop_assert!(!is_allowed(address.into(), STRICT), "{}", address);
        }
    }

    #[test]
    fn accepted_urls_are_stable(text in "(https?|HTTPS)://[a-z0-9.\\-_%@:\\[\\]ü。/?#|'\"<>{}^`~]{1,40}") {
        for rules in [STRICT, DEVELOPMENT] {
            if let Ok(url) = check_url(&text, rules) {
                let checked_twice = check_url(url.as_str(), rules);
                prop_assert_eq!(checked_twice.as_ref(), Ok(&url));
                prop_assert!(request_uri(&url).is_some());
            }
        }
    }
}
