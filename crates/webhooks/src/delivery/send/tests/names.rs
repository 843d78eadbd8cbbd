//! Which addresses the client connects to, for host names and IP literals.

use super::*;
use crate::target::resolver::tests::name_server::{MockAnswer, NameServer};

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
    Client::new(
        Resolver::with_name_servers(&[server.address], rules).unwrap(),
        rules,
        TIMEOUT,
    )
    .unwrap()
}

async fn error_with(configured: MockAnswer, rules: Rules, trap: &Trap) -> Option<&'static str> {
    let server = NameServer::new(move |_| configured.clone()).await;
    let exchange = post(
        &client_with(&server, rules),
        &url(format!("https://hooks.example.com:{}/", trap.port())),
    )
    .await;
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
        assert_eq!(
            post(&client, &endpoint).await.error,
            Some("address not allowed")
        );
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
    let endpoint = url(format!(
        "https://hooks.example.com:{}/",
        trap.address.port()
    ));
    assert_eq!(post(&client, &endpoint).await.error, Some("TLS failed"));
    assert_eq!(server.lookups(), 1);
    assert_eq!(trap.connections(), 1);
    assert_eq!(
        post(&client, &endpoint).await.error,
        Some("address not allowed")
    );
    assert_eq!(server.lookups(), 2);
    assert_eq!(trap.connections(), 1);
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
        assert_eq!(error, Some("address not allowed"), "{list:?}");
    }
    assert_eq!(trap.caught(), 0);
    let error = error_with(
        MockAnswer::addresses(&["127.0.0.1", "10.0.0.1"]),
        DEVELOPMENT,
        &trap,
    )
    .await;
    assert_eq!(error, Some("address not allowed"));
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
    assert_eq!(
        error_with(MockAnswer::NoAnswer, STRICT, &Trap::new()).await,
        Some("name not resolved")
    );
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
        assert_eq!(
            (exchange.status, exchange.error),
            (None, Some("address not allowed")),
            "{text}"
        );
    }
    for text in [
        "http://10.0.0.1/",
        "https://10.0.0.1/",
        "https://93.184.216.34/",
    ] {
        assert_eq!(
            outcome(&url(text.to_owned())).await,
            (None, Some("address not allowed")),
            "{text}"
        );
    }
    assert_eq!(trap.caught(), 0);
}

#[tokio::test]
async fn connecting_alone_fails_as_an_exchange_does() {
    let trap = Trap::new();
    for (configured, error) in [
        (MockAnswer::NoSuchName, "name not found"),
        (MockAnswer::ServerFailure, "name not resolved"),
        (MockAnswer::addresses(&["127.0.0.1"]), "address not allowed"),
    ] {
        let server = NameServer::new(move |_| configured.clone()).await;
        let endpoint = url(format!("https://hooks.example.com:{}/", trap.port()));
        let failed = client_with(&server, STRICT)
            .connect(&endpoint, ConnectTime::Usual)
            .await
            .unwrap_err();
        assert_eq!((failed.status, failed.error), (None, Some(error)));
        // Users do not learn which names the operator's name servers know.
        assert_eq!(failed.shown(), Some("no public address"));
    }
    let literal = url(format!("https://127.0.0.1:{}/", trap.port()));
    assert_eq!(
        client(STRICT)
            .connect(&literal, ConnectTime::Usual)
            .await
            .unwrap_err()
            .error,
        Some("address not allowed")
    );
    assert_eq!(trap.caught(), 0);
    drop(trap);
    assert_eq!(
        client(DEVELOPMENT)
            .connect(&literal, ConnectTime::Usual)
            .await
            .unwrap_err()
            .error,
        Some("connection refused")
    );
}

#[tokio::test]
async fn localhost_is_allowed_by_the_setting_only() {
    let peer = Peer::answering(status("200 OK")).await;
    let endpoint = url(format!("http://localhost:{}/", peer.address.port()));
    assert_eq!(outcome(&endpoint).await, (Some(200), None));
    assert_eq!(
        post(&client(STRICT), &endpoint).await.error,
        Some("address not allowed")
    );
}
