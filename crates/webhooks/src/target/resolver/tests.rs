pub(crate) mod name_server;

use super::*;
use name_server::{MockAnswer, NameServer};

const STRICT: Rules = Rules {
    allow_loopback: false,
};
const DEVELOPMENT: Rules = Rules {
    allow_loopback: true,
};
const HOST: &str = "hooks.example.com";

fn addresses(list: &[&str]) -> Vec<IpAddr> {
    list.iter().map(|text| text.parse().unwrap()).collect()
}

fn resolver(server: &NameServer, rules: Rules) -> Resolver {
    Resolver::with_name_servers(&[server.address], rules).unwrap()
}

async fn vetted(list: &'static [&'static str], rules: Rules) -> Result<Vec<IpAddr>, ResolveError> {
    let server = NameServer::new(move |_| MockAnswer::addresses(list)).await;
    resolver(&server, rules).vet(HOST).await
}

#[tokio::test]
async fn both_families_are_found() {
    let both = ["93.184.216.34", "2606:4700:4700::1111"];
    for (listed, expected) in [
        (&["2606:4700:4700::1111", "93.184.216.34"][..], &both[..]),
        (&["93.184.216.34"][..], &both[..1]),
        (&["2606:4700:4700::1111"][..], &both[1..]),
    ] {
        assert_eq!(vetted(listed, STRICT).await, Ok(addresses(expected)));
    }
}

#[tokio::test]
async fn one_blocked_address_rejects_the_name() {
    for list in [
        &["10.0.0.1"][..],
        &["127.0.0.1"],
        &["93.184.216.34", "169.254.169.254"],
        &["93.184.216.34", "1.1.1.1", "192.168.0.1", "8.8.8.8"],
        &["93.184.216.34", "::1"],
        &["93.184.216.34", "fd00::1"],
        &["2606:4700:4700::1111", "10.0.0.1"],
        &["::ffff:93.184.216.34"],
        &["::ffff:127.0.0.1"],
        &["64:ff9b::93.184.216.34"],
        &["64:ff9b:1::10.0.0.1"],
        &["2002:7f00:1::1"],
        &["93.184.216.34", "::ffff:93.184.216.34"],
    ] {
        let vetted = vetted(list, STRICT).await;
        assert_eq!(vetted, Err(ResolveError::NotAllowed), "{list:?}");
    }
    let loopback = addresses(&["127.0.0.1", "::1"]);
    for (list, expected) in [
        (&["127.0.0.1", "::1"][..], Ok(loopback)),
        (
            &["127.0.0.1", "10.0.0.1"][..],
            Err(ResolveError::NotAllowed),
        ),
        (&["::ffff:127.0.0.1"][..], Err(ResolveError::NotAllowed)),
    ] {
        assert_eq!(vetted(list, DEVELOPMENT).await, expected, "{list:?}");
    }
}

#[tokio::test]
async fn all_addresses_are_vetted_and_few_used() {
    let many = |last: &str| {
        let mut list: Vec<IpAddr> = (1..=24).map(|n| IpAddr::from([93, 184, 216, n])).collect();
        list.push(last.parse().unwrap());
        list
    };
    for (last, expected) in [
        ("93.184.217.1", Ok(ADDRESSES_MAX)),
        ("10.0.0.1", Err(ResolveError::NotAllowed)),
    ] {
        let list = many(last);
        let server = NameServer::new(move |_| MockAnswer::Addresses(list.clone())).await;
        let vetted = resolver(&server, STRICT).vet(HOST).await;
        assert_eq!(vetted.map(|list| list.len()), expected, "{last}");
    }
}

#[tokio::test]
async fn no_answer_is_cached() {
    let server = NameServer::new(|number| {
        MockAnswer::addresses(&[["93.184.216.34", "127.0.0.1"][number.min(1)]])
    })
    .await;
    let resolver = resolver(&server, STRICT);
    assert_eq!(resolver.vet(HOST).await, Ok(addresses(&["93.184.216.34"])));
    for resolver in [resolver.clone(), resolver] {
        assert_eq!(resolver.vet(HOST).await, Err(ResolveError::NotAllowed));
    }
    assert_eq!(server.lookups(), 3);
}

#[tokio::test]
async fn localhost_names_are_vetted_too() {
    let server = NameServer::new(|_| MockAnswer::addresses(&["93.184.216.34"])).await;
    let strict = resolver(&server, STRICT);
    for host in ["localhost", "localhost.", "api.localhost"] {
        let vetted = strict.vet(host).await;
        assert_eq!(vetted, Err(ResolveError::NotAllowed), "{host}");
    }
    let vetted = resolver(&server, DEVELOPMENT).vet("localhost").await;
    assert_eq!(vetted, Ok(addresses(&["127.0.0.1", "::1"])));
    assert_eq!(server.lookups(), 0);
}

#[tokio::test]
async fn missing_name_differs_from_server_failure() {
    for (configured, error) in [
        (MockAnswer::NoSuchName, ResolveError::NotFound),
        (MockAnswer::Addresses(Vec::new()), ResolveError::NotFound),
        (MockAnswer::ServerFailure, ResolveError::Unavailable),
    ] {
        let server = NameServer::new(move |_| configured.clone()).await;
        let vetted = resolver(&server, STRICT).vet(HOST).await;
        assert_eq!(vetted, Err(error));
    }
}

#[tokio::test(start_paused = true)]
async fn lookup_times_out() {
    let server = NameServer::new(|_| MockAnswer::NoAnswer).await;
    let resolver = resolver(&server, STRICT);
    let started = tokio::time::Instant::now();
    assert_eq!(resolver.vet(HOST).await, Err(ResolveError::Unavailable));
    let elapsed = started.elapsed();
    assert!(
        elapsed <= LOOKUP_TIMEOUT + Duration::from_millis(1),
        "{elapsed:?}"
    );
}
