//! Servers of a test's own, because the test stops them.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

fn script(name: &str) -> Command {
    Command::new(format!("{}/../../scripts/{name}", env!("CARGO_MANIFEST_DIR")))
}

pub(crate) struct Valkey {
    pub(crate) url: String,
    port: u16,
    child: Option<Child>,
}

impl Valkey {
    pub(crate) fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut valkey = Self { url: format!("redis://127.0.0.1:{port}"), port, child: None };
        valkey.start_again();
        valkey
    }

    pub(crate) fn start_again(&mut self) {
        let mut command = script("test-valkey");
        self.child = Some(command.arg(self.port.to_string()).stdin(Stdio::piped()).spawn().unwrap());
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            std::thread::yield_now();
        }
    }

    pub(crate) fn stop(&mut self) {
        let mut child = self.child.take().unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    pub(crate) async fn empty(&self) {
        let client = redis::Client::open(self.url.as_str()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await.unwrap();
    }
}

/// A PostgreSQL server.
pub(crate) struct Postgres {
    pub(crate) url: String,
    folder: PathBuf,
}

impl Postgres {
    pub(crate) fn start() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("bellbird-server-{}-{number}", std::process::id()));
        let mut server = Self { url: String::new(), folder };
        server.url = server.script("start");
        server
    }

    /// What `scripts/test-postgres` prints.
    pub(crate) fn script(&self, verb: &str) -> String {
        let done = script("test-postgres").arg(verb).env("BELLBIRD_TEST_POSTGRES_DIR", &self.folder).output().unwrap();
        assert!(done.status.success(), "{verb}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.script("stop");
    }
}
