//! Servers of a test's own, because the test stops them.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use reqwest::Url;

use super::network::Network;
use super::port::free_port;

fn script(name: &str, network: Option<&Arc<Network>>) -> Command {
    let path = format!("{}/../../scripts/{name}", env!("CARGO_MANIFEST_DIR"));
    network.map_or_else(|| Command::new(&path), |network| network.command(&path))
}

fn with_host(url: &str, host: &str) -> String {
    let mut url: Url = url.parse().unwrap();
    url.set_host(Some(host)).unwrap();
    url.into()
}

pub(crate) struct Valkey {
    pub(crate) url: String,
    port: u16,
    network: Option<Arc<Network>>,
    child: Option<Child>,
}

impl Valkey {
    pub(crate) fn start() -> Self {
        Self::start_at(None)
    }

    pub(crate) fn start_in(network: &Arc<Network>) -> Self {
        Self::start_at(Some(Arc::clone(network)))
    }

    fn start_at(network: Option<Arc<Network>>) -> Self {
        let port = free_port();
        let mut valkey = Self {
            url: String::new(),
            port,
            network,
            child: None,
        };
        valkey.url = format!("redis://{}:{port}", valkey.host());
        valkey.start_again();
        valkey
    }

    fn host(&self) -> &str {
        let network = self.network.as_ref();
        network.map_or("127.0.0.1", |network| network.address(0))
    }

    /// The URL by another address of its network.
    pub(crate) fn url_at(&self, host: &str) -> String {
        with_host(&self.url, host)
    }

    pub(crate) fn start_again(&mut self) {
        let mut command = script("test-server", self.network.as_ref());
        command.args(["valkey", &self.port.to_string()]);
        command.stdin(Stdio::piped());
        self.child = Some(command.spawn().unwrap());
        while TcpStream::connect((self.host(), self.port)).is_err() {
            std::thread::yield_now();
        }
    }

    pub(crate) fn stop(&mut self) {
        let mut child = self.child.take().unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        // The script kills the server, and does not wait for its end.
        while TcpStream::connect((self.host(), self.port)).is_ok() {
            std::thread::yield_now();
        }
    }

    pub(crate) async fn empty(&self) {
        let client = redis::Client::open(self.url.as_str()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        redis::cmd("FLUSHALL")
            .query_async::<()>(&mut connection)
            .await
            .unwrap();
    }
}

/// A PostgreSQL server.
pub(crate) struct Postgres {
    pub(crate) url: String,
    folder: PathBuf,
    network: Option<Arc<Network>>,
}

impl Postgres {
    pub(crate) fn start() -> Self {
        Self::start_at(None)
    }

    pub(crate) fn start_in(network: &Arc<Network>) -> Self {
        Self::start_at(Some(Arc::clone(network)))
    }

    /// The URL by another address of its network.
    pub(crate) fn url_at(&self, host: &str) -> String {
        with_host(&self.url, host) + "?sslmode=disable"
    }

    fn start_at(network: Option<Arc<Network>>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("bellbird-server-{}-{number}", std::process::id()));
        let mut server = Self {
            url: String::new(),
            folder,
            network,
        };
        server.url = server.script("start");
        server
    }

    /// What `scripts/test-postgres` prints.
    pub(crate) fn script(&self, verb: &str) -> String {
        let mut command = script("test-postgres", self.network.as_ref());
        let done = command
            .arg(verb)
            .env("BELLBIRD_TEST_POSTGRES_DIR", &self.folder)
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "{verb}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.script("stop");
    }
}
