//! Runs nginx as a reverse proxy in front of the provider, as the baseline for transactions.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::process::{Server, unused_address};

pub(crate) const MISSING: &str = "the comparison with nginx: nginx is not installed; on Debian: \
    apt-get install -y --no-install-recommends nginx-light";

pub(crate) fn program() -> Option<PathBuf> {
    let places = [
        "/usr/sbin/nginx",
        "/usr/local/sbin/nginx",
        "/usr/local/nginx/sbin/nginx",
        "/usr/bin/nginx",
    ];
    places
        .into_iter()
        .map(PathBuf::from)
        .find(|place| place.is_file())
}

pub(crate) async fn start(
    program: &Path,
    folder: &Path,
    provider: SocketAddr,
) -> anyhow::Result<Server> {
    let address = unused_address()?;
    let settings = folder.join("nginx.conf");
    fs::write(&settings, configuration(folder, address, provider))?;
    let log = folder.join("nginx.log");
    let mut command = Command::new(program);
    command
        .arg("-c")
        .arg(&settings)
        .arg("-e")
        .arg(&log)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let server = Server::start(command.stderr(Stdio::null()), address)?;
    let until = Instant::now() + Duration::from_secs(5);
    while tokio::net::TcpStream::connect(address).await.is_err() {
        ensure!(
            Instant::now() < until,
            "nginx did not start listening: {}",
            fs::read_to_string(&log).unwrap_or_default()
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(server)
}

/// Two workers, keep-alive on both sides, no access log. The buffers hold a whole page, so nginx
/// never writes to disk.
fn configuration(folder: &Path, address: SocketAddr, provider: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        "daemon off;
worker_processes 2;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/nginx-body;
    proxy_temp_path {folder}/nginx-proxy;
    fastcgi_temp_path {folder}/nginx-fastcgi;
    uwsgi_temp_path {folder}/nginx-uwsgi;
    scgi_temp_path {folder}/nginx-scgi;
    upstream provider {{
        server {provider};
        keepalive 300;
        keepalive_requests 1000000000;
        keepalive_timeout 600s;
    }}
    server {{
        listen {address};
        location / {{
            proxy_pass http://provider;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_buffering on;
            proxy_buffer_size 16k;
            proxy_buffers 16 16k;
            proxy_busy_buffers_size 128k;
            proxy_max_temp_file_size 0;
        }}
    }}
}}
"
    )
}
