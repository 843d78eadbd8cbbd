//! Files of transactions, trades and holdings, over HTTP and by command.

mod command;
mod cut;
mod files;
mod partial;

use reqwest::Url;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::harness::{App, Response};
use crate::support::words::assert_starts;

/// Small, so that the service cannot send much more than the client takes.
const RECEIVE_BUFFER_BYTES: u32 = 16 * 1024;

impl App {
    /// A whole file, such as `trades.csv?accountId=...`.
    pub(super) async fn export(&self, key: &str, file: &str) -> Response {
        self.get_as(key, &format!("/v1/export/{file}")).await
    }
}

/// The values of a file of JSON Lines.
fn json_lines(file: &str) -> Vec<Value> {
    let lines = file.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A file that a client takes at its own pace.
pub(crate) struct Download {
    stream: TcpStream,
    /// What was received, with the head and the chunk sizes.
    received: Vec<u8>,
}

impl Download {
    /// Sends the request and reads nothing.
    pub(crate) async fn start(app: &App, key: &str, path: &str) -> Self {
        Self::start_with(app, key, path, "HTTP/1.1").await
    }

    async fn start_with(app: &App, key: &str, path: &str, version: &str) -> Self {
        Self::send(app, &format!("Bearer {key}"), path, version).await
    }

    /// The `Authorization` header is that of another door.
    pub(crate) async fn start_as(app: &App, authorization: &str, path: &str) -> Self {
        Self::send(app, authorization, path, "HTTP/1.1").await
    }

    async fn send(app: &App, authorization: &str, path: &str, version: &str) -> Self {
        let url: Url = app.url.parse().unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES).unwrap();
        let address = url.socket_addrs(|| None).unwrap()[0];
        let mut stream = socket.connect(address).await.unwrap();
        let head = format!(
            "GET {path} {version}\r\nhost: x\r\nauthorization: {authorization}\r\nte: trailers\r\n\
             connection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        Self {
            stream,
            received: Vec::new(),
        }
    }

    /// Reads until the file has begun.
    pub(crate) async fn begin(&mut self) {
        let mut bytes = [0; 1024];
        while !self.text().contains("\r\n\r\n") {
            let count = self.stream.read(&mut bytes).await.unwrap();
            assert!(count > 0, "closed after {:?}", self.text());
            self.received.extend_from_slice(&bytes[..count]);
        }
        assert_starts(&self.text(), "HTTP/1.1 200 OK\r\n");
    }

    /// Reads all that comes. Returns whether the file is whole.
    pub(crate) async fn finish(&mut self) -> bool {
        // A connection that is reset is as broken off as one that is closed.
        let _ = self.stream.read_to_end(&mut self.received).await;
        self.text()
            .rsplit_once("\r\n0\r\n")
            .is_some_and(|(_, trailers)| trailers.ends_with("\r\n"))
    }

    /// The trailer of a whole file.
    pub(crate) fn rows(&self) -> Option<usize> {
        let text = self.text();
        let (_, trailers) = text.rsplit_once("\r\n0\r\n")?;
        trailers
            .strip_prefix("bellbird-rows: ")?
            .strip_suffix("\r\n\r\n")?
            .parse()
            .ok()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.received).into_owned()
    }

    /// What was received of the file, without the sizes of the chunks.
    pub(crate) fn file(&self) -> String {
        let head_end = memchr::memmem::find(&self.received, b"\r\n\r\n").unwrap() + 4;
        let (mut rest, mut file) = (&self.received[head_end..], Vec::new());
        while let Some(line_end) = memchr::memmem::find(rest, b"\r\n") {
            let size =
                usize::from_str_radix(str::from_utf8(&rest[..line_end]).unwrap(), 16).unwrap();
            if size == 0 {
                break;
            }
            let chunk = &rest[line_end + 2..];
            file.extend_from_slice(&chunk[..size.min(chunk.len())]);
            rest = chunk.get(size + 2..).unwrap_or_default();
        }
        // A file that broke off may end in the middle of a letter.
        String::from_utf8_lossy(&file).into_owned()
    }

    /// The number of whole lines that were received.
    fn lines(&self) -> usize {
        self.file().matches('\n').count()
    }
}
