//! A cheap load generator: HTTP/1.1 over plain keep-alive sockets, one request at a time on each.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// A keep-alive connection.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// A response that borrows the connection's buffer.
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) head: &'a str,
    pub(crate) body: &'a [u8],
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("could not connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: vec![0; 16 * 1024],
        })
    }

    /// Sends a request and reads its response, which must have a `Content-Length` unless it is a
    /// 204.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> anyhow::Result<Answer<'_>> {
        self.stream.write_all(request).await?;
        let mut filled = 0;
        let head_end = loop {
            filled += self.read(filled).await?;
            if let Some(at) = find(&self.buffer[..filled], b"\r\n\r\n") {
                break at + 4;
            }
        };
        let status = status(&self.buffer[..head_end]).context("no status line")?;
        let length = content_length(&self.buffer[..head_end]).or((status == 204).then_some(0));
        let length = length.context("the response has no Content-Length")?;
        let end = head_end + length;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        while filled < end {
            filled += self.read(filled).await?;
        }
        ensure!(filled == end, "the server sent more than the response");
        let head = std::str::from_utf8(&self.buffer[..head_end])?;
        Ok(Answer {
            status,
            head,
            body: &self.buffer[head_end..end],
        })
    }

    async fn read(&mut self, filled: usize) -> anyhow::Result<usize> {
        ensure!(
            filled < self.buffer.len(),
            "the head of the response is too large"
        );
        let count = self.stream.read(&mut self.buffer[filled..]).await?;
        ensure!(count > 0, "the server closed the connection");
        Ok(count)
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

fn status(head: &[u8]) -> Option<u16> {
    std::str::from_utf8(head.get(9..12)?).ok()?.parse().ok()
}

pub(crate) fn content_length(head: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length:";
    let mut lines = head.split(|byte| *byte == b'\n');
    let line = lines
        .find(|line| line.len() > NAME.len() && line[..NAME.len()].eq_ignore_ascii_case(NAME))?;
    std::str::from_utf8(&line[NAME.len()..])
        .ok()?
        .trim()
        .parse()
        .ok()
}

pub(crate) fn get(path: &str, token: Option<&str>) -> Vec<u8> {
    let authorization = token
        .map(|token| format!("authorization: Bearer {token}\r\n"))
        .unwrap_or_default();
    format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: */*\r\n{authorization}\r\n")
        .into_bytes()
}

pub(crate) fn delete(path: &str) -> Vec<u8> {
    format!("DELETE {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").into_bytes()
}

/// Adds a header to a request that has no body.
pub(crate) fn with_header(mut request: Vec<u8>, header: &str) -> Vec<u8> {
    request.truncate(request.len() - 2);
    request.extend_from_slice(format!("{header}\r\n\r\n").as_bytes());
    request
}

pub(crate) fn post(path: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n");
    format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Sends one request on a new connection and returns the body. Any status but 2xx is an error.
pub(crate) async fn text(address: SocketAddr, request: &[u8]) -> anyhow::Result<String> {
    let mut connection = Connection::open(address).await?;
    let response = connection.ask(request).await?;
    let body = String::from_utf8_lossy(response.body).into_owned();
    let first_line = String::from_utf8_lossy(
        request
            .split(|byte| *byte == b'\r')
            .next()
            .unwrap_or_default(),
    );
    ensure!(
        (200..300).contains(&response.status),
        "{first_line} got {} {body}",
        response.status
    );
    Ok(body)
}

/// As [`text`], with the body parsed as JSON.
pub(crate) async fn json(address: SocketAddr, request: &[u8]) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&text(address, request).await?)?)
}

/// Clients, each with its own connection and the one request that it repeats.
pub(crate) struct ClientPool {
    clients: Vec<(Connection, Vec<u8>)>,
}

impl ClientPool {
    pub(crate) fn of(clients: Vec<(Connection, Vec<u8>)>) -> Self {
        Self { clients }
    }

    pub(crate) async fn open(address: SocketAddr, requests: Vec<Vec<u8>>) -> anyhow::Result<Self> {
        let mut clients = Vec::with_capacity(requests.len());
        for request in requests {
            clients.push((Connection::open(address).await?, request));
        }
        Ok(Self { clients })
    }

    /// Sends two requests per client. The second must get 200, with `header` in its head if one is
    /// given.
    pub(crate) async fn warm_up(&mut self, header: Option<&str>) -> anyhow::Result<()> {
        for (connection, request) in &mut self.clients {
            connection.ask(request).await?;
            let response = connection.ask(request).await?;
            let body = String::from_utf8_lossy(response.body);
            ensure!(response.status == 200, "got {}: {body}", response.status);
            if let Some(header) = header {
                ensure!(
                    response.head.to_ascii_lowercase().contains(header),
                    "no {header} in {}",
                    response.head
                );
            }
        }
        Ok(())
    }

    /// Sends at least `count` requests over all clients. Returns the time of each in microseconds,
    /// sorted.
    pub(crate) async fn run(&mut self, count: u32) -> anyhow::Result<Vec<f64>> {
        let each = (count as usize).div_ceil(self.clients.len());
        let mut running = JoinSet::new();
        for client in self.clients.drain(..) {
            running.spawn(repeat(client, each));
        }
        let mut took = Vec::with_capacity(count as usize);
        while let Some(done) = running.join_next().await {
            let (client, times) = done??;
            self.clients.push(client);
            took.extend(times);
        }
        took.sort_by(f64::total_cmp);
        Ok(took)
    }
}

type Client = (Connection, Vec<u8>);

async fn repeat(
    (mut connection, request): Client,
    count: usize,
) -> anyhow::Result<(Client, Vec<f64>)> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let started = Instant::now();
        let response = connection.ask(&request).await?;
        if response.status != 200 {
            bail!(
                "got {}: {}",
                response.status,
                String::from_utf8_lossy(response.body)
            );
        }
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    Ok(((connection, request), times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_parsed() {
        assert_eq!(
            content_length(b"HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n"),
            Some(17)
        );
        assert_eq!(
            content_length(b"HTTP/1.1 200 OK\r\nx-content-length: 17\r\n\r\n"),
            None
        );
        assert_eq!(status(b"HTTP/1.1 204 No Content\r\n\r\n"), Some(204));
        assert_eq!(status(b"HTTP/1.1 "), None);
        assert_eq!(find(b"ab\r\n\r\nc", b"\r\n\r\n"), Some(2));
    }
}
