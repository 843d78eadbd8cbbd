//! Sets up and runs `bellbird` as an operator does: through its command line, in a separate
//! process.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::ProgramArgs;
use crate::client::{self, Connection};
use crate::process::{Server, unused_address};
use crate::recording::Access;

const EMAIL: &str = "bench@example.com";
pub(crate) const MASTER_KEY: &str = "main:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
/// No rate limits, balances cached for the whole run, and one log line per request as in
/// production.
const SETTINGS: [(&str, &str); 10] = [
    ("BELLBIRD_SECRETS__KEY", MASTER_KEY),
    ("BELLBIRD_LIMITS__METADATA_PER_MINUTE", "0"),
    ("BELLBIRD_LIMITS__BALANCES_PER_MINUTE", "0"),
    ("BELLBIRD_LIMITS__LIVE_PER_MINUTE", "0"),
    ("BELLBIRD_LIMITS__LIVE_IN_FLIGHT", "0"),
    ("BELLBIRD_LIMITS__PROVIDER_CALLS_PER_MINUTE", "0"),
    ("BELLBIRD_LIMITS__FAILED_AUTH_PER_MINUTE", "0"),
    ("BELLBIRD_CACHE__BALANCES_SECONDS", "3600"),
    ("BELLBIRD_SYNC__CHANGES_MAX_AGE_SECONDS", "86400"),
    ("BELLBIRD_LOG__LEVEL", "info"),
];

pub(crate) fn binary(args: &ProgramArgs) -> anyhow::Result<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/bellbird");
    let binary = args.binary.clone().unwrap_or(default);
    let found = binary.canonicalize();
    found.with_context(|| {
        format!(
            "{} does not exist: run cargo build --release -p bellbird",
            binary.display()
        )
    })
}

/// A folder with a database, and the settings of the programs that use it.
pub(crate) struct Workdir {
    binary: PathBuf,
    folder: PathBuf,
    access: Access,
    /// Added to [`SETTINGS`]; the same name overrides.
    more: Vec<(&'static str, String)>,
}

impl Workdir {
    /// Expects that `folder` exists and is empty.
    pub(crate) fn new(binary: &Path, folder: PathBuf, access: Access) -> Self {
        Self {
            binary: binary.to_owned(),
            folder,
            access,
            more: Vec::new(),
        }
    }

    pub(crate) fn with_settings(self, more: Vec<(&'static str, String)>) -> Self {
        Self { more, ..self }
    }

    /// A workdir with a user and one imported connection; returns the connection's id.
    pub(crate) fn with_user(
        binary: &Path,
        folder: PathBuf,
        access: Access,
    ) -> anyhow::Result<(Self, String)> {
        let workdir = Self::new(binary, folder, access);
        workdir.add_user()?;
        let id = workdir.import(&workdir.access.credentials)?;
        Ok((workdir, id))
    }

    /// Creates the database and the user.
    pub(crate) fn add_user(&self) -> anyhow::Result<()> {
        self.command_line(&["migrate"], "")?;
        self.command_line(
            &[
                "user",
                "add",
                "--email",
                EMAIL,
                "--plan",
                "professional",
                "--json",
            ],
            "",
        )?;
        Ok(())
    }

    /// Imports credentials, and returns the connection's id.
    pub(crate) fn import(&self, credentials: &Value) -> anyhow::Result<String> {
        let import = [
            "connection",
            "import",
            "--user",
            EMAIL,
            "--credentials",
            "-",
            "--json",
        ];
        let imported: Value =
            serde_json::from_str(&self.command_line(&import, &credentials.to_string())?)?;
        imported[0]["id"]
            .as_str()
            .map(str::to_owned)
            .context("no connection was imported")
    }

    /// Adds a webhook endpoint of the user.
    pub(crate) fn add_endpoint(&self, url: &str) -> anyhow::Result<()> {
        self.command_line(
            &["webhook", "add", "--user", EMAIL, "--url", url, "--json"],
            "",
        )
        .map(drop)
    }

    /// Creates API keys.
    pub(crate) fn keys(&self, count: usize) -> anyhow::Result<Vec<String>> {
        let create = |_| {
            let text = self.command_line(
                &[
                    "key", "create", "--user", EMAIL, "--name", "bench", "--json",
                ],
                "",
            )?;
            let created: Value = serde_json::from_str(&text)?;
            created["key"]
                .as_str()
                .map(str::to_owned)
                .context("no key was printed")
        };
        (0..count).map(create).collect()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.current_dir(&self.folder).env_clear().envs(SETTINGS);
        // Settings of the allocator and of the runtime's threads can be tried from outside.
        let is_inherited =
            |name: &str| name.starts_with("MIMALLOC_") || name == "TOKIO_WORKER_THREADS";
        command.envs(std::env::vars().filter(|(name, _)| is_inherited(name)));
        command.env(
            "BELLBIRD_DATABASE__URL",
            format!("sqlite:{}", self.folder.join("bellbird.db").display()),
        );
        command.env(
            "BELLBIRD_FISKIL__BASE_URL",
            format!("http://{}", self.access.address),
        );
        command.env("BELLBIRD_FISKIL__CLIENT_ID", &self.access.client_id);
        command.env("BELLBIRD_FISKIL__CLIENT_SECRET", &self.access.client_secret);
        command.envs(self.more.iter().map(|(name, value)| (name, value)));
        command
    }

    fn command_line(&self, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        let mut command = self.command();
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let written = child
            .stdin
            .take()
            .map_or(Ok(()), |mut pipe| pipe.write_all(input.as_bytes()));
        let output = child.wait_with_output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "bellbird {}: {errors}",
            arguments.join(" ")
        );
        written?;
        Ok(String::from_utf8(output.stdout)?)
    }

    fn log(&self) -> anyhow::Result<File> {
        Ok(OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join("log"))?)
    }

    /// Starts the service and waits for its first response. Also returns that time in milliseconds.
    pub(crate) async fn serve(&self) -> anyhow::Result<(Server, f64)> {
        let address = unused_address()?;
        let mut command = self.command();
        command.args([
            "serve",
            "--log-format",
            "json",
            "--api-listen",
            &address.to_string(),
        ]);
        command.args([
            "--console-listen",
            "127.0.0.1:0",
            "--ops-listen",
            "127.0.0.1:0",
        ]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(self.log()?);
        let started = Instant::now();
        let server = Server::start(&mut command, address)?;
        let request = client::get("/health", None);
        loop {
            if let Ok(mut connection) = Connection::open(address).await {
                let status = connection.ask(&request).await?.status;
                ensure!(status == 200, "/health got {status}");
                return Ok((server, started.elapsed().as_secs_f64() * 1e3));
            }
            ensure!(
                started.elapsed() < Duration::from_secs(20),
                "bellbird did not start listening: {}",
                self.log_text()
            );
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn log_text(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

/// Ids of the user's accounts, at most 100.
pub(crate) async fn account_ids(address: SocketAddr, key: &str) -> anyhow::Result<Vec<String>> {
    let page = client::json(address, &client::get("/v1/accounts?limit=100", Some(key))).await?;
    let ids = page["data"]
        .as_array()
        .context("the response has no accounts")?
        .iter();
    Ok(ids
        .filter_map(|account| account["id"].as_str().map(str::to_owned))
        .collect())
}

/// The path of a window of 200 rows, for the first account with at least `rows` rows.
pub(crate) async fn path_to_rows(
    address: SocketAddr,
    key: &str,
    connection_id: &str,
    rows: u64,
) -> anyhow::Result<String> {
    for id in account_ids(address, key).await? {
        let path = format!(
            "/v1/transactions?connectionId={connection_id}&accountId={id}&from=2000-01-01&limit=200"
        );
        let response = client::json(address, &client::get(&path, Some(key))).await?;
        if response["pagination"]["total"].as_u64() >= Some(rows) {
            return Ok(path);
        }
    }
    anyhow::bail!("no account has {rows} rows")
}

/// The path of a request for changes that finds none: with the cursor of a whole first copy.
pub(crate) async fn path_to_no_changes(
    address: SocketAddr,
    key: &str,
    connection_id: &str,
) -> anyhow::Result<String> {
    let base = format!("/v1/transactions/changes?connectionId={connection_id}");
    let mut path = base.clone();
    loop {
        let response = client::json(address, &client::get(&path, Some(key))).await?;
        let cursor = response["cursor"]
            .as_str()
            .with_context(|| format!("no cursor: {}", response["error"]))?;
        path = format!("{base}&cursor={cursor}");
        if response["hasMore"] == false {
            return Ok(path);
        }
    }
}
