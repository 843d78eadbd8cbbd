//! Which addresses the client connects to, for host names and IP literals.

use super::*;
use crate::target::resolver::tests::name_server::{MockAnswer, NameServer};

const NOT_ALLOWED: &str = "address not allowed";

/// A listener that counts connections.
struct Trap(std::net::TcpListener);

impl Trap {
    fn new() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    /// Number of connections since the last call.
    fn caught(&self) -> usize {
        std::iter::from_fn(|| self.0.accept().ok()).count()
    }
}

fn url(text: String) -> Url {
    text.parse().unwrap()
}

fn client_with(server: &NameServer, rules: Rules) -> Client {
    let resolver = Resolver::with_name_servers(&[server.address], rules).unwrap();
    Client::new(resolver, rules, TIMEOUT).unwrap()
}

async fn error_with(configured: MockAnswer, rules: Rules, trap: &Trap) -> Option<&'static str> {
    let server = NameServer::new(move |_| configured.clone()).await;
    let endpoint = url(format!("https://hooks.example.com:{}/", trap.port()));
    let exchange = post(&client_with(&server, rules), &endpoint).await;
    assert_eq!(exchange.status, None);
    exchange.error
}

#[tokio::test]
async fn dns_rebinding_is_rejected() {
    let trap = Trap::new();
    let server = NameServer::new(|number| {
        MockAnswer::addresses(&[["93.184.216.34", "127.0.0.1"][number.min(1)]])
    })
    .await;
    let resolver = Resolver::with_name_servers(&[server.address], STRICT).unwrap();
    let client = Client::new(resolver.clone(), STRICT, TIMEOUT).unwrap();
    let endpoint = url(format!("https://rebind.example.com:{}/", trap.port()));
    assert!(check_url(endpoint.as_str(), STRICT).is_ok());
    assert!(resolver.vet("rebind.example.com").await.is_ok());
    for attempt in 1..=3 {
        assert_eq!(post(&client, &endpoint).await.error, Some(NOT_ALLOWED));
        assert_eq!(server.lookups(), 1 + attempt);
    }
    assert_eq!(trap.caught(), 0);
}

#[tokio::test]
async fn connection_uses_the_vetted_address() {
    let trap = Peer::new(|stream| async move { stream.readable().await.unwrap() }).await;
    let server = NameServer::new(|number| {
        MockAnswer::addresses(&[["127.0.0.1", "10.0.0.1"][number.min(1)]])
    })
    .await;
    let client = client_with(&server, DEVELOPMENT);
    let port = trap.address.port();
    let endpoint = url(format!("https://hooks.example.com:{port}/"));
    for (lookups, error) in [(1, "TLS failed"), (2, NOT_ALLOWED)] {
        assert_eq!(post(&client, &endpoint).await.error, Some(error));
        assert_eq!(server.lookups(), lookups);
        assert_eq!(trap.connections(), 1);
    }
}

#[tokio::test]
async fn blocked_addresses_are_never_connected_to() {
    let trap = Trap::new();
    for list in [
        &["127.0.0.1"][..],
        &["::1"],
        &["0.0.0.0"],
        &["93.184.216.34", "127.0.0.1"],
        &["127.0.0.1", "93.184.216.34"],
        &["93.184.216.34", "10.0.0.1"],
        &["::ffff:127.0.0.1"],
        &["::ffff:93.184.216.34"],
        &["64:ff9b::127.0.0.1"],
        &["64:ff9b::93.184.216.34"],
        &["2002:7f00:1::"],
        &["fe80::1"],
    ] {
        let error = error_with(MockAnswer::addresses(list), STRICT, &trap).await;
        assert_eq!(error, Some(NOT_ALLOWED), "{list:?}");
    }
    assert_eq!(trap.caught(), 0);
    let one_blocked = MockAnswer::addresses(&["127.0.0.1", "10.0.0.1"]);
    let error = error_with(one_blocked, DEVELOPMENT, &trap).await;
    assert_eq!(error, Some(NOT_ALLOWED));
    assert_eq!(trap.caught(), 0);
}

#[tokio::test]
async fn name_without_address_is_reported() {
    let trap = Trap::new();
    for (configured, error) in [
        (MockAnswer::NoSuchName, "name not found"),
        (MockAnswer::Addresses(Vec::new()), "name not found"),
        (MockAnswer::ServerFailure, "name not resolved"),
    ] {
        assert_eq!(error_with(configured, STRICT, &trap).await, Some(error));
    }
}

#[tokio::test(start_paused = true)]
async fn silent_name_server_fails_before_the_deadline() {
    let started = Instant::now();
    let error = error_with(MockAnswer::NoAnswer, STRICT, &Trap::new()).await;
    assert_eq!(error, Some("name not resolved"));
    assert!(started.elapsed() < TIMEOUT / 2, "{:?}", started.elapsed());
}

#[tokio::test]
async fn unchecked_url_is_rejected() {
    let trap = Trap::new();
    let port = trap.port();
    for text in [
        format!("http://127.0.0.1:{port}/"),
        format!("https://127.0.0.1:{port}/"),
        format!("https://2130706433:{port}/"),
        format!("https://localhost:{port}/"),
        format!("http://hooks.example.com:{port}/"),
        "https://169.254.169.254/".to_owned(),
        "https://[::ffff:127.0.0.1]/".to_owned(),
        "https://user@hooks.example.com/".to_owned(),
        "https://hooks.example.com:22/".to_owned(),
        "file:///etc/passwd".to_owned(),
    ] {
        let exchange = post(&client(STRICT), &url(text.clone())).await;
        let outcome = (exchange.status, exchange.error);
        assert_eq!(outcome, (None, Some(NOT_ALLOWED)), "{text}");
    }
    for text in [
        "http://10.0.0.1/",
        "https://10.0.0.1/",
        "https://93.184.216.34/",
    ] {
        assert_fails(&url(text.to_owned()), NOT_ALLOWED).await;
    }
    assert_eq!(trap.caught(), 0);
}

#[tokio::test]
async fn connecting_alone_fails_as_an_exchange_does() {
    let trap = Trap::new();
    for (configured, error) in [
        (MockAnswer::NoSuchName, "name not found"),
        (MockAnswer::ServerFailure, "name not resolved"),
        (MockAnswer::addresses(&["127.0.0.1"]), NOT_ALLOWED),
    ] {
        let server = NameServer::new(move |_| configured.clone()).await;
        let endpoint = url(format!("https://hooks.example.com:{}/", trap.port()));
        let client = client_with(&server, STRICT);
        let connected = client.connect(&endpoint, ConnectTime::Usual).await;
        let failed = connected.unwrap_err();
        assert_eq!((failed.status, failed.error), (None, Some(error)));
        // Users do not learn which names the operator's name servers know.
        assert_eq!(failed.shown(), Some("no public address"));
    }
    let literal = url(format!("https://127.0.0.1:{}/", trap.port()));
    let error_with = async |rules: Rules| {
        let client = client(rules);
        let connected = client.connect(&literal, ConnectTime::Usual).await;
        connected.unwrap_err().error
    };
    assert_eq!(error_with(STRICT).await, Some(NOT_ALLOWED));
    assert_eq!(trap.caught(), 0);
    drop(trap);
    assert_eq!(error_with(DEVELOPMENT).await, Some("connection refused"));
}

#[tokio::test]
async fn localhost_is_allowed_by_the_setting_only() {
    let peer = Peer::answering(status("200 OK")).await;
    let endpoint = url(format!("http://localhost:{}/", peer.address.port()));
    assert_eq!(outcome(&endpoint).await, (Some(200), None));
    let exchange = post(&client(STRICT), &endpoint).await;
    assert_eq!(exchange.error, Some(NOT_ALLOWED));
}
