//! Where names and literals lead.

use super::*;
use crate::resolver::peer::{Known, NameServer};

/// A listener that shows whether anybody has connected to it.
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

    /// How many have connected since it was asked last.
    fn caught(&self) -> usize {
        std::iter::from_fn(|| self.0.accept().ok()).count()
    }
}

fn url(text: String) -> Url {
    text.parse().unwrap()
}

fn asking(server: &NameServer, rules: Rules) -> Client {
    Client::new(Resolver::asking(&[server.address], rules).unwrap(), rules, TIMEOUT).unwrap()
}

async fn problem_with(known: Known, rules: Rules, trap: &Trap) -> Option<&'static str> {
    let server = NameServer::new(move |_| known.clone()).await;
    let exchange = post(&asking(&server, rules), &url(format!("https://hooks.example.com:{}/", trap.port()))).await;
    assert_eq!(exchange.status, None);
    exchange.problem
}

#[tokio::test]
async fn a_name_that_changes_its_answer_after_the_check_is_refused() {
    let trap = Trap::new();
    let server = NameServer::new(|number| Known::addresses(&[["93.184.216.34", "127.0.0.1"][number.min(1)]])).await;
    let resolver = Resolver::asking(&[server.address], STRICT).unwrap();
    let client = Client::new(resolver.clone(), STRICT, TIMEOUT).unwrap();
    let endpoint = url(format!("https://rebind.example.com:{}/", trap.port()));
    assert!(check_url(endpoint.as_str(), STRICT).is_ok());
    assert!(resolver.vet("rebind.example.com").await.is_ok());
    for attempt in 1..=3 {
        assert_eq!(post(&client, &endpoint).await.problem, Some("address not allowed"));
        assert_eq!(server.lookups(), 1 + attempt);
    }
    assert_eq!(trap.caught(), 0);
}

#[tokio::test]
async fn a_connection_goes_where_the_one_look_up_said() {
    let trap = Peer::new(|stream| async move { stream.readable().await.unwrap() }).await;
    let server = NameServer::new(|number| Known::addresses(&[["127.0.0.1", "10.0.0.1"][number.min(1)]])).await;
    let client = asking(&server, DEVELOPMENT);
    let endpoint = url(format!("https://hooks.example.com:{}/", trap.address.port()));
    assert_eq!(post(&client, &endpoint).await.problem, Some("TLS failed"));
    assert_eq!((server.lookups(), trap.connections()), (1, 1));
    assert_eq!(post(&client, &endpoint).await.problem, Some("address not allowed"));
    assert_eq!((server.lookups(), trap.connections()), (2, 1));
}

#[tokio::test]
async fn no_connection_is_made_to_addresses_that_are_not_allowed() {
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
        let problem = problem_with(Known::addresses(list), STRICT, &trap).await;
        assert_eq!(problem, Some("address not allowed"), "{list:?}");
    }
    assert_eq!(trap.caught(), 0);
    let problem = problem_with(Known::addresses(&["127.0.0.1", "10.0.0.1"]), DEVELOPMENT, &trap).await;
    assert_eq!((problem, trap.caught()), (Some("address not allowed"), 0));
}

#[tokio::test]
async fn a_name_without_an_address_says_so() {
    let trap = Trap::new();
    for (known, problem) in [
        (Known::Nothing, "name not found"),
        (Known::Addresses(Vec::new()), "name not found"),
        (Known::Trouble, "name not looked up"),
    ] {
        assert_eq!(problem_with(known, STRICT, &trap).await, Some(problem));
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_server_that_is_silent_costs_less_than_the_deadline() {
    let started = Instant::now();
    assert_eq!(problem_with(Known::Silence, STRICT, &Trap::new()).await, Some("name not looked up"));
    assert!(started.elapsed() < TIMEOUT / 2, "{:?}", started.elapsed());
}

#[tokio::test]
async fn an_address_that_was_never_checked_is_refused() {
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
        assert_eq!((exchange.status, exchange.problem), (None, Some("address not allowed")), "{text}");
    }
    for text in ["http://10.0.0.1/", "https://10.0.0.1/", "https://93.184.216.34/"] {
        assert_eq!(outcome(&url(text.to_owned())).await, (None, Some("address not allowed")), "{text}");
    }
    assert_eq!(trap.caught(), 0);
}

#[tokio::test]
async fn localhost_is_this_machine_where_that_is_allowed() {
    let peer = Peer::answering(status("200 OK")).await;
    let endpoint = url(format!("http://localhost:{}/", peer.address.port()));
    assert_eq!(outcome(&endpoint).await, (Some(200), None));
    assert_eq!(post(&client(STRICT), &endpoint).await.problem, Some("address not allowed"));
}
