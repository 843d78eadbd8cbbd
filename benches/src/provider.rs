//! A provider that costs as little processor time as possible. It serves a few paths with bytes
//! recorded from the sandbox, on one thread and without an HTTP library.

use std::collections::HashMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::client;
use crate::process::Server;

const LIST: &str = "provider.json";
/// The only path that `GET /__delay/<ms>` slows down.
pub(crate) const TRANSACTIONS: &str = "/v1/banking/transactions";
/// `GET /__delay/20` delays [`TRANSACTIONS`] by 20 ms.
const DELAY: &str = "/__delay/";

/// The body of each path.
#[derive(Serialize, Deserialize)]
pub(crate) struct Answers(pub(crate) HashMap<String, String>);

/// Starts the provider as a separate process.
pub(crate) fn start(folder: &Path, answers: &Answers) -> anyhow::Result<Server> {
    fs::write(folder.join(LIST), serde_json::to_vec(answers)?)?;
    Server::start_subcommand("provider", Some(folder))
}

/// Delays the responses to [`TRANSACTIONS`] from now on.
pub(crate) async fn set_delay(address: SocketAddr, delay: Duration) -> anyhow::Result<()> {
    client::json(
        address,
        &client::get(&format!("{DELAY}{}", delay.as_millis()), None),
    )
    .await
    .map(drop)
}

struct State {
    /// Complete HTTP responses by path.
    answers: HashMap<String, Vec<u8>>,
    delay_ms: AtomicU64,
}

pub(crate) async fn run(folder: &Path) -> anyhow::Result<()> {
    let answers: Answers = serde_json::from_slice(
        &fs::read(folder.join(LIST)).context("could not read the recorded responses")?,
    )?;
    let answers = answers
        .0
        .into_iter()
        .map(|(path, body)| (path, response("200 OK", &body)))
        .collect();
    let state = Arc::new(State {
        answers,
        delay_ms: AtomicU64::new(0),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    print_address_until_stdin_closes(listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            // A client may disconnect at any time.
            let _ = converse(&state, stream).await;
        });
    }
}

fn response(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

async fn converse(state: &State, mut stream: TcpStream) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let missing = response("404 Not Found", "{}");
    let mut buffer = vec![0; 64 * 1024];
    let mut filled = 0;
    loop {
        let request_end = loop {
            if let Some(end) = request_end(&buffer[..filled]) {
                break end;
            }
            let count = stream.read(&mut buffer[filled..]).await?;
            anyhow::ensure!(count > 0, "the client disconnected");
            filled += count;
        };
        let path = path_of(&buffer[..request_end]);
        if let Some(delay) = path.strip_prefix(DELAY) {
            state.delay_ms.store(delay.parse()?, Ordering::Relaxed);
            stream.write_all(&response("200 OK", "{}")).await?;
        } else {
            let delay_ms = state.delay_ms.load(Ordering::Relaxed);
            if delay_ms > 0 && path == TRANSACTIONS {
                tokio::time::sleep(Duration::from_millis(delay_ms)).await;
            }
            stream
                .write_all(state.answers.get(path).unwrap_or(&missing))
                .await?;
        }
        buffer.copy_within(request_end..filled, 0);
        filled -= request_end;
    }
}

/// The end of the first request with its body; `None` while it is incomplete.
fn request_end(bytes: &[u8]) -> Option<usize> {
    let head_end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let length = if bytes.starts_with(b"POST") {
        client::content_length(&bytes[..head_end]).unwrap_or(0)
    } else {
        0
    };
    (bytes.len() >= head_end + length).then_some(head_end + length)
}

fn path_of(request: &[u8]) -> &str {
    let target = request
        .split(|byte| *byte == b' ')
        .nth(1)
        .unwrap_or_default();
    let path = target
        .split(|byte| *byte == b'?')
        .next()
        .unwrap_or_default();
    std::str::from_utf8(path).unwrap_or_default()
}

/// Prints the address of a hidden command. When the parent process ends, standard input closes and
/// this process exits.
#[allow(
    clippy::print_stdout,
    reason = "read by the process that started this one"
)]
pub(crate) fn print_address_until_stdin_closes(address: SocketAddr) {
    println!("{address}");
    let _ = std::io::stdout().flush();
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_split_at_their_end() {
        let get = b"GET /a?b=c HTTP/1.1\r\n\r\n";
        assert_eq!(request_end(get), Some(get.len()));
        assert_eq!(path_of(get), "/a");
        let post = b"POST /t HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(request_end(post), Some(post.len()));
        assert_eq!(request_end(&post[..post.len() - 1]), None);
    }
}
