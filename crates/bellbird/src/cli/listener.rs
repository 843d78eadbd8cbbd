//! One request to a listener of this machine.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::config::on_this_machine;

/// Longer than `/ready` takes when the database does not respond.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Longer than the responses that are asked for.
const RESPONSE_BYTES_MAX: u64 = 4096;

/// The status and body of a `GET`.
pub(super) async fn get(address: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let asked = async {
        let mut stream = TcpStream::connect(on_this_machine(address)).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = String::new();
        stream
            .take(RESPONSE_BYTES_MAX)
            .read_to_string(&mut response)
            .await?;
        let parts = response
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.split_once("\r\n\r\n"));
        let found =
            parts.and_then(|(head, body)| Some((head.get(..3)?.parse().ok()?, body.to_owned())));
        found.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it does not speak HTTP"))
    };
    tokio::time::timeout(TIMEOUT, asked).await?
}
