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

async fn vetted(list: &'static [&'static str], rules: Rules) -> Result<Vec<IpAddr>, ResolveError> {
    let server = NameServer::new(move |_| MockAnswer::addresses(list)).await;
    Resolver::with_name_servers(&[server.address], rules)
        .unwrap()
        .vet(HOST)
        .await
}

#[tokio::test]
async fn both_families_are_found() {
    let both = ["93.184.216.34", "2606:4700:4700::1111"];
    assert_eq!(
        vetted(&["2606:4700:4700::1111", "93.184.216.34"], STRICT).await,
        Ok(addresses(&both))
    );
    assert_eq!(
        vetted(&["93.184.216.34"], STRICT).await,
        Ok(addresses(&both[..1]))
    );
    assert_eq!(
        vetted(&["2606:4700:4700::1111"], STRICT).await,
        Ok(addresses(&both[1..]))
    );
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
        assert_eq!(
            vetted(list, STRICT).await,
            Err(ResolveError::NotAllowed),
            "{list:?}"
        );
    }
    assert_eq!(
        vetted(&["127.0.0.1", "::1"], DEVELOPMENT).await,
        Ok(addresses(&["127.0.0.1", "::1"]))
    );
    assert_eq!(
        vetted(&["127.0.0.1", "10.0.0.1"], DEVELOPMENT).await,
        Err(ResolveError::NotAllowed)
    );
    assert_eq!(
        vetted(&["::ffff:127.0.0.1"], DEVELOPMENT).await,
        Err(ResolveError::NotAllowed)
    );
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
        let vetted = Resolver::with_name_servers(&[server.address], STRICT)
            .unwrap()
            .vet(HOST)
            .await;
        assert_eq!(vetted.map(|list| list.len()), expected, "{last}");
    }
}

#[tokio::test]
async fn no_answer_is_cached() {
    let server = NameServer::new(|number| {
        MockAnswer::addresses(&[["93.184.216.34", "127.0.0.1"][number.min(1)]])
    })
    .await;
    let resolver = Resolver::with_name_servers(&[server.address], STRICT).unwrap();
    assert_eq!(resolver.vet(HOST).await, Ok(addresses(&["93.184.216.34"])));
    assert_eq!(resolver.vet(HOST).await, Err(ResolveError::NotAllowed));
    assert_eq!(
        resolver.clone().vet(HOST).await,
        Err(ResolveError::NotAllowed)
    );
    assert_eq!(server.lookups(), 3);
}

#[tokio::test]
async fn localhost_names_are_vetted_too() {
    let server = NameServer::new(|_| MockAnswer::addresses(&["93.184.216.34"])).await;
    let strict = Resolver::with_name_servers(&[server.address], STRICT).unwrap();
    for host in ["localhost", "localhost.", "api.localhost"] {
        assert_eq!(
            strict.vet(host).await,
            Err(ResolveError::NotAllowed),
            "{host}"
        );
    }
    let development = Resolver::with_name_servers(&[server.address], DEVELOPMENT).unwrap();
    assert_eq!(
        development.vet("localhost").await,
        Ok(addresses(&["127.0.0.1", "::1"]))
    );
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
        let resolver = Resolver::with_name_servers(&[server.address], STRICT).unwrap();
        assert_eq!(resolver.vet(HOST).await, Err(error));
    }
}

#[tokio::test(start_paused = true)]
async fn lookup_times_out() {
    let server = NameServer::new(|_| MockAnswer::NoAnswer).await;
    let resolver = Resolver::with_name_servers(&[server.address], STRICT).unwrap();
    let started = tokio::time::Instant::now();
    assert_eq!(resolver.vet(HOST).await, Err(ResolveError::Unavailable));
    assert!(
        started.elapsed() <= LOOKUP_TIMEOUT + Duration::from_millis(1),
        "{:?}",
        started.elapsed()
    );
}
