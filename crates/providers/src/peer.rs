//! For tests: a provider on loopback that answers as it is told, and remembers what it was asked.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::Call;

/// A request.
#[derive(Clone)]
pub(crate) struct Asked {
    /// Method and path with its query.
    pub(crate) line: String,
    head: String,
    /// Its body.
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut pairs = self.head.lines().filter_map(|line| line.split_once(": "));
        pairs.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Its body, as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Status and body; none where the connection ends without an answer.
pub(crate) type Answered = Option<(u16, String)>;

pub(crate) fn answered(status: u16, body: &str) -> Answered {
    Some((status, body.to_owned()))
}

pub(crate) struct Peer {
    pub(crate) base_url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Peer {
    /// One that answers by the request; the number is that of the request, from 0.
    pub(crate) async fn new(answer: impl Fn(usize, &Asked) -> Answered + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read(&mut stream).await;
                let number = seen.lock().len();
                seen.lock().push(request.clone());
                let Some((status, body)) = answer(number, &request) else { continue };
                let (kind, length) = (if body.starts_with('<') { "text/html" } else { "application/json" }, body.len());
                let answer = format!(
                    "HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Self { base_url, asked }
    }

    pub(crate) async fn always(status: u16, body: &str) -> Self {
        let body = body.to_owned();
        Self::new(move |_, _| answered(status, &body)).await
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.asked.lock().iter().map(|asked| asked.line.clone()).collect()
    }
}

async fn read(stream: &mut TcpStream) -> Asked {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(char::from(stream.read_u8().await.unwrap()));
    }
    let line = head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
    let mut asked = Asked { line, head, body: String::new() };
    let mut body = vec![0; asked.header("content-length").map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.unwrap();
    asked.body = String::from_utf8(body).unwrap();
    asked
}

/// A call on 21 November 2026.
pub(crate) fn call() -> Call {
    Call::new(Instant::now() + Duration::from_secs(20), "2026-11-21T00:00:00Z".parse().unwrap())
}

/// The parameters of an answer.
pub(crate) fn parameters(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
