//! Checks the ports of the listeners. What uses one should be a service on the database of the settings.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bellbird_storage::Instance;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Checks, Verdict};
use crate::config::Settings;
use bellbird_api::serve;

/// Limit for a listener of this machine to respond.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Longer than the response of a Bellbird.
const RESPONSE_BYTES_MAX: u64 = 4096;
/// The body of `/health` and `/live`.
const ALIVE: &str = r#"{"status":"ok"}"#;

/// `running` are the instances on this machine and the database of the settings, if they are known.
pub(super) async fn check(checks: &mut Checks, settings: &Settings, running: Option<&[Instance]>) {
    let is_api = |instance: &Instance| port(&instance.api_url) == Some(settings.api.listen.port());
    let has_api = running.is_none_or(|running| running.iter().any(is_api));
    // No row has the port of the ops listener.
    let has_ops = running.is_none_or(|running| !running.is_empty());
    for (name, address, path, is_known) in [
        ("api.listen", settings.api.listen, Some("/health"), has_api),
        ("console.listen", settings.console.listen, None, true),
        ("ops.listen", settings.ops_listen, Some("/live"), has_ops),
    ] {
        match serve::listen(address).await {
            Ok(_) => checks.add(name, Verdict::Ok, format!("{address} is free")),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                let is_other = match path.filter(|_| !is_known) {
                    Some(path) => is_bellbird(address, path).await,
                    None => false,
                };
                if is_other {
                    let detail = format!(
                        "the Bellbird at {address} uses another database than this command: give both the same \
                         database.url, as in bellbird.toml"
                    );
                    checks.add(name, Verdict::Wrong, detail);
                } else {
                    let (verdict, why) = match running {
                        Some([]) => (
                            Verdict::Wrong,
                            ", but no instance of this database runs on this machine: another program has it",
                        ),
                        Some(_) => (Verdict::Ok, "; expected while the service runs"),
                        None => (Verdict::Note, ""),
                    };
                    checks.add(name, verdict, format!("{address} is in use{why}"));
                }
            }
            Err(error) => checks.add(name, Verdict::Wrong, format!("{address}: {error}")),
        }
    }
}

/// The port of a URL such as `http://127.0.0.1:8080`.
fn port(url: &str) -> Option<u16> {
    url.parse::<http::Uri>().ok()?.port_u16()
}

/// Whether a service of this program listens there. Asks over loopback only.
async fn is_bellbird(mut address: SocketAddr, path: &str) -> bool {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    if !address.ip().is_loopback() {
        return false;
    }
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = String::new();
        stream.take(RESPONSE_BYTES_MAX).read_to_string(&mut response).await?;
        Ok::<_, std::io::Error>(response)
    };
    let Ok(Ok(response)) = tokio::time::timeout(TIMEOUT, asked).await else { return false };
    response.starts_with("HTTP/1.1 200 ") && response.ends_with(ALIVE)
}
