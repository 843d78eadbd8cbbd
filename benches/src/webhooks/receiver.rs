//! A webhook receiver that costs as little processor time as possible. It counts ids and responds
//! at once, on one thread, without an HTTP library and without verification. Other paths behave
//! badly on purpose.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::client::content_length;
use crate::provider::print_address_until_stdin_closes;

/// Loopback addresses with a shared port. To a sender each is a different host.
pub(super) const LOOPBACK_ADDRESSES: u8 = 24;
/// Path that responds at once.
pub(super) const QUICK: &str = "/quick";
/// Path that never responds.
pub(super) const SILENT: &str = "/silent";
/// Path that sends a header one byte at a time, forever.
pub(super) const DRIPPING_HEAD: &str = "/dripping-head";
/// Path that sends a body one byte at a time, forever.
pub(super) const DRIPPING_BODY: &str = "/dripping-body";
/// Path that returns the [`Counts`].
pub(super) const COUNTS: &str = "/counts";
/// Path that resets the [`Counts`].
pub(super) const RESET: &str = "/reset";

const DRIP: Duration = Duration::from_millis(100);
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const HEAD_OF_DRIPS: &[u8] = b"HTTP/1.1 200 OK\r\nx-drip: ";
const BODY_OF_DRIPS: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n";
/// Room for a head and much of a body.
const BUFFER_BYTES: usize = 128 * 1024;

/// Requests since the last reset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    /// Requests to [`QUICK`].
    pub(super) answered: usize,
    /// Different webhook ids among them.
    pub(super) distinct: usize,
    /// Bytes of their bodies.
    pub(super) bytes: usize,
    /// Requests to the paths that behave badly.
    pub(super) unanswered: usize,
}

/// The address with this number, from 0.
pub(super) fn loopback_address(number: usize) -> IpAddr {
    let number = u8::try_from(number % usize::from(LOOPBACK_ADDRESSES)).unwrap_or(0);
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1 + number))
}

#[derive(Default)]
struct State {
    ids: HashSet<Vec<u8>>,
    counts: Counts,
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let listeners = listen()
        .await
        .context("could not find a port that is free on all loopback addresses")?;
    let state = Arc::new(Mutex::new(State::default()));
    let address = listeners.first().context("no listener")?.local_addr()?;
    print_address_until_stdin_closes(address);
    let accepting = listeners
        .into_iter()
        .map(|listener| tokio::spawn(accept(listener, Arc::clone(&state))));
    for each in accepting.collect::<Vec<_>>() {
        each.await??;
    }
    Ok(())
}

async fn listen() -> io::Result<Vec<TcpListener>> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..20 {
        match listen_on_one_port().await {
            Ok(listeners) => return Ok(listeners),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn listen_on_one_port() -> io::Result<Vec<TcpListener>> {
    let mut listeners = vec![TcpListener::bind((loopback_address(0), 0)).await?];
    let port = listeners[0].local_addr()?.port();
    for number in 1..LOOPBACK_ADDRESSES {
        listeners.push(TcpListener::bind((loopback_address(number.into()), port)).await?);
    }
    Ok(listeners)
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            // A sender may disconnect at any time.
            let _ = converse(stream, &state).await;
        });
    }
}

async fn converse(mut stream: TcpStream, state: &Mutex<State>) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let Some((head_end, mut filled)) = read_head(&mut stream, &mut buffer).await? else {
            return Ok(());
        };
        let head = &buffer[..head_end];
        let length = content_length(head).unwrap_or(0);
        let path = path_of(head).to_owned();
        let id = header(head, b"webhook-id:").unwrap_or_default().to_vec();
        while filled < head_end + length {
            let room = buffer.len().min(head_end + length - filled);
            let count = stream.read(&mut buffer[..room]).await?;
            anyhow::ensure!(count > 0, "the sender disconnected");
            filled += count;
        }
        let response = respond(&path, id, length, state)?;
        stream.write_all(&response).await?;
        match path.as_str() {
            SILENT => return hold(&mut stream).await,
            DRIPPING_HEAD | DRIPPING_BODY => return drip(&mut stream).await,
            _ => {}
        }
    }
}

/// The end of the next head, and the number of bytes in the buffer. `None` after the sender has
/// disconnected.
async fn read_head(
    stream: &mut TcpStream,
    buffer: &mut [u8],
) -> io::Result<Option<(usize, usize)>> {
    let mut filled = 0;
    loop {
        let count = stream.read(&mut buffer[filled..]).await?;
        if count == 0 {
            return Ok(None);
        }
        filled += count;
        if let Some(at) = buffer[..filled]
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
        {
            return Ok(Some((at + 4, filled)));
        }
    }
}

/// Counts a request, and returns the bytes to send at once.
fn respond(
    path: &str,
    id: Vec<u8>,
    length: usize,
    state: &Mutex<State>,
) -> anyhow::Result<Vec<u8>> {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    match path {
        COUNTS => return json(&state.counts),
        RESET => {
            *state = State::default();
            return json(&state.counts);
        }
        QUICK => {
            state.ids.insert(id);
            let distinct = state.ids.len();
            let Counts {
                answered,
                bytes,
                unanswered,
                ..
            } = state.counts;
            state.counts = Counts {
                answered: answered + 1,
                distinct,
                bytes: bytes + length,
                unanswered,
            };
            return Ok(ANSWER.to_vec());
        }
        _ => state.counts.unanswered += 1,
    }
    Ok(match path {
        DRIPPING_HEAD => HEAD_OF_DRIPS.to_vec(),
        DRIPPING_BODY => BODY_OF_DRIPS.to_vec(),
        _ => Vec::new(),
    })
}

fn json(counts: &Counts) -> anyhow::Result<Vec<u8>> {
    let body = serde_json::to_string(counts)?;
    Ok(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes())
}

/// Keeps the connection open until the sender disconnects.
async fn hold(stream: &mut TcpStream) -> anyhow::Result<()> {
    while stream.read(&mut [0; 64]).await? > 0 {}
    Ok(())
}

async fn drip(stream: &mut TcpStream) -> anyhow::Result<()> {
    loop {
        tokio::time::sleep(DRIP).await;
        stream.write_all(b"x").await?;
    }
}

fn path_of(head: &[u8]) -> &str {
    let target = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    std::str::from_utf8(target).unwrap_or_default()
}

fn header<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut lines = head.split(|byte| *byte == b'\n');
    let line = lines
        .find(|line| line.len() > name.len() && line[..name.len()].eq_ignore_ascii_case(name))?;
    Some(line[name.len()..].trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_id() {
        let head = b"POST /quick HTTP/1.1\r\nWebhook-Id: evt_1\r\ncontent-length: 2\r\n\r\n";
        assert_eq!(path_of(head), QUICK);
        assert_eq!(header(head, b"webhook-id:"), Some(b"evt_1".as_slice()));
        let state = Mutex::default();
        for id in [b"a", b"b", b"a"] {
            assert_eq!(respond(QUICK, id.to_vec(), 5, &state).unwrap(), ANSWER);
        }
        respond(SILENT, Vec::new(), 5, &state).unwrap();
        let counts = state.lock().unwrap().counts;
        let expected = Counts {
            answered: 3,
            distinct: 2,
            bytes: 15,
            unanswered: 1,
        };
        assert_eq!(counts, expected);
    }
}
