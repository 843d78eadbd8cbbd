mod answers;
mod names;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::*;

const STRICT: Rules = Rules {
    allow_loopback: false,
};
const DEVELOPMENT: Rules = Rules {
    allow_loopback: true,
};
/// No test takes this long unless it pauses time.
const TIMEOUT: Duration = Duration::from_secs(15);
const SENT_AT: i64 = 1_800_000_000;

/// An endpoint on loopback.
struct Peer {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// Notified when a connection has been served to its end.
    ended: Arc<Notify>,
}

impl Peer {
    async fn new<F: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let peer = Self {
            address,
            connections: Arc::default(),
            ended: Arc::default(),
        };
        let (connections, ended) = (Arc::clone(&peer.connections), Arc::clone(&peer.ended));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.fetch_add(1, Ordering::SeqCst);
                let serving = serve(stream);
                let ended = Arc::clone(&ended);
                tokio::spawn(async move {
                    serving.await;
                    ended.notify_one();
                });
            }
        });
        peer
    }

    /// Gives every request the same response.
    async fn answering(response: impl Into<String>) -> Self {
        let response: Arc<str> = response.into().into();
        Self::new(move |mut stream| {
            let response = Arc::clone(&response);
            async move {
                while request_of(&mut stream).await.is_some() {
                    if stream.write_all(response.as_bytes()).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await
    }

    fn url(&self, scheme: &str) -> Url {
        format!("{scheme}://{}/hook?x=1", self.address)
            .parse()
            .unwrap()
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Reads one request, head and body. `None` if the connection ends.
async fn request_of(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut read = Vec::new();
    loop {
        if let Some((head, body)) = std::str::from_utf8(&read).unwrap().split_once("\r\n\r\n") {
            let mut lines = head.lines();
            let length = lines.find_map(|line| line.strip_prefix("content-length: "));
            if body.len() == length.unwrap().parse::<usize>().unwrap() {
                return Some(String::from_utf8(read).unwrap());
            }
        }
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
}

fn status(line: &str) -> String {
    format!("HTTP/1.1 {line}\r\ncontent-length: 0\r\n\r\n")
}

fn client(rules: Rules) -> Client {
    let unused_address = SocketAddr::from(([127, 0, 0, 1], 9));
    let resolver = Resolver::with_name_servers(&[unused_address], rules).unwrap();
    Client::new(resolver, rules, TIMEOUT).unwrap()
}

fn message(body: impl Into<Bytes>) -> Message {
    Message {
        id: "0191e7a0-7c3b-7def-8000-00aabbccddee".parse().unwrap(),
        timestamp: SENT_AT,
        signature: "v1,one v1,two".to_owned(),
        endpoint: "0191e7a0-7c3b-7def-8000-00aabbccddff".parse().unwrap(),
        body: body.into(),
    }
}

async fn post(client: &Client, url: &Url) -> Exchange {
    let ping = message(r#"{"type":"endpoint.ping"}"#);
    client.send(url, ping, ConnectTime::Usual).await
}

async fn assert_fails(url: &Url, error: &str) {
    assert_eq!(outcome(url).await, (None, Some(error)), "{url}");
}

/// Posts a ping with loopback allowed. Returns status and error.
async fn outcome(url: &Url) -> (Option<u16>, Option<&'static str>) {
    let exchange = post(&client(DEVELOPMENT), url).await;
    assert_eq!(exchange.is_success(), exchange.error.is_none());
    (exchange.status, exchange.error)
}
