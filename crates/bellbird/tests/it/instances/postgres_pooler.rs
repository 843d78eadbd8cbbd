//! Instances behind a pooler in transaction mode that does not track prepared statements: Debian's
//! PgBouncer.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use bellbird_storage::{PostgresOptions, Sealer, Storage};
use reqwest::Url;

use crate::support::harness::{Database, simulated_providers};
use crate::support::process::{ANY_PORTS, RunningCommand, Workdir, get, new_deployment, text};

struct Pooler {
    child: Child,
    /// The URL of the database through the pooler.
    url: String,
}

impl Pooler {
    fn start(database: &str) -> Self {
        let mut url: Url = database.parse().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/test-pgbouncer");
        let mut command = Command::new(script);
        command
            .arg(port.to_string())
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

fn start(workdir: &Workdir) -> RunningCommand {
    RunningCommand::start(workdir, &format!("serve --json {ANY_PORTS}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn pooler_without_prepared_statements_is_found_and_worked_with() {
    let (mut workdir, sandbox, database) = new_deployment(Database::Postgres).await;
    let pooler = Pooler::start(&database);
    workdir.set("BELLBIRD_DATABASE__URL", &pooler.url);
    let error = workdir.error("user list", 1);
    assert!(
        error.contains("set database.prepared_statements = false"),
        "{error}"
    );
    for _ in 0..20 {
        let options = PostgresOptions::default();
        assert!(
            Storage::open_existing(&pooler.url, Sealer::random(), options)
                .await
                .is_err(),
            "each time"
        );
        let opened = Storage::open_existing(&database, Sealer::random(), options).await;
        assert!(opened.is_ok(), "PostgreSQL itself");
    }

    workdir.set("BELLBIRD_DATABASE__PREPARED_STATEMENTS", "false");
    workdir.set("BELLBIRD_LIMITS__METADATA_PER_MINUTE", "0");
    workdir.set("BELLBIRD_LIMITS__LIVE_PER_MINUTE", "0");
    workdir.json("user add --email me@example.com --plan professional");
    let key = text(
        &workdir.json("key create --user me@example.com --name test"),
        "key",
    )
    .to_owned();
    for provider in simulated_providers() {
        let sandbox = sandbox.json();
        let mut credentials = sandbox["credentials"].as_array().unwrap().iter();
        let credentials = credentials
            .find(|credentials| credentials["provider"] == provider)
            .unwrap();
        let import = "connection import --user me@example.com --credentials - --json";
        assert!(
            workdir
                .run_with_input(import, &credentials.to_string())
                .status
                .success()
        );
    }
    // A sync writes its results by one batch of statements.
    let synced = workdir.json("connection sync --all");
    assert!(
        synced
            .as_array()
            .unwrap()
            .iter()
            .any(|run| run["newCount"].as_u64() > Some(0)),
        "{synced}"
    );

    let services = [start(&workdir), start(&workdir)];
    let url = |number: usize, path: &str| {
        format!("{}{path}", text(&services[number % 2].json(), "apiUrl"))
    };
    let (_, connections) = get(&url(0, "/v1/connections"), Some(&key)).await;
    let ids: Vec<String> = connections["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|connection| text(connection, "id").to_owned())
        .collect();
    assert_eq!(ids.len(), 3);
    for _ in 0..10 {
        let reads = (0..30).map(|number| {
            let path = match number % 3 {
                0 => "/v1/connections".to_owned(),
                1 => "/v1/accounts".to_owned(),
                _ => "/v1/me".to_owned(),
            };
            let (url, key) = (url(number, &path), key.clone());
            async move { get(&url, Some(&key)).await.0 }
        });
        assert_eq!(futures_util::future::join_all(reads).await, [200; 30]);
    }
    for service in services {
        assert_eq!(service.stop("-TERM").0, Some(0));
    }
    sandbox.stop("-TERM");
    pooler.stop();
}
