//! Instances behind a pooler in transaction mode that does not track prepared statements: Debian's
//! PgBouncer.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use bellbird_storage::{PostgresOptions, Sealer, Storage};
use reqwest::Url;

use crate::support::deployment::{Deployment, EMAIL};
use crate::support::harness::Database;
use crate::support::port::free_port;
use crate::support::process::{get, get_list};

struct Pooler {
    child: Child,
    /// The URL of the database through the pooler.
    url: String,
}

impl Pooler {
    fn start(database: &str) -> Self {
        let mut url: Url = database.parse().unwrap();
        let port = free_port();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/test-server");
        let mut command = Command::new(script);
        command
            .args(["pgbouncer", &port.to_string()])
            .arg(url.port().unwrap().to_string())
            .stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert_eq!(child.try_wait().unwrap(), None, "the pooler ended");
            std::thread::yield_now();
        }
        url.set_port(Some(port)).unwrap();
        Self {
            child,
            url: url.into(),
        }
    }

    fn stop(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pooler_without_prepared_statements_is_found_and_worked_with() {
    let mut deployment = Deployment::start_on(Database::Postgres, 50, &[]).await;
    let database = deployment.database.clone();
    let pooler = Pooler::start(&database);
    deployment.set("DATABASE__URL", &pooler.url);
    let error = deployment.workdir.error("user list", 1);
    let remedy = "set database.prepared_statements = false";
    assert!(error.contains(remedy), "{error}");
    for _ in 0..20 {
        let options = PostgresOptions::default();
        let opened = Storage::open_existing(&pooler.url, Sealer::random(), options).await;
        assert!(opened.is_err(), "each time");
        let opened = Storage::open_existing(&database, Sealer::random(), options).await;
        assert!(opened.is_ok(), "PostgreSQL itself");
    }

    deployment.set("DATABASE__PREPARED_STATEMENTS", "false");
    deployment.set("LIMITS__METADATA_PER_MINUTE", "0");
    deployment.set("LIMITS__LIVE_PER_MINUTE", "0");
    let key = deployment.add_user(EMAIL);
    deployment.import_at_all(EMAIL);
    // A sync writes its results by one batch of statements.
    let synced = deployment.workdir.json("connection sync --all");
    let mut runs = synced.as_array().unwrap().iter();
    let has_rows = runs.any(|run| run["newCount"].as_u64() > Some(0));
    assert!(has_rows, "{synced}");

    let services = [deployment.serve(), deployment.serve()];
    let url = |number: usize, path: &str| format!("{}{path}", services[number % 2].api);
    let connections = get_list(&url(0, "/v1/connections"), &key).await;
    assert_eq!(connections.len(), 5);
    for _ in 0..10 {
        let reads = (0..30).map(|number| {
            let path = ["/v1/connections", "/v1/accounts", "/v1/me"][number % 3];
            let (url, key) = (url(number, path), key.clone());
            async move { get(&url, Some(&key)).await.0 }
        });
        assert_eq!(futures_util::future::join_all(reads).await, [200; 30]);
    }
    for service in services {
        service.stop();
    }
    deployment.stop();
    pooler.stop();
}
