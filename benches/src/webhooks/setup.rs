//! Creates a temporary database with users, endpoints and connections.

use std::net::SocketAddr;

use anyhow::Context as _;
use bellbird_domain::{
    ApiVersion, ConnectionCategory, ConnectionId, EndpointId, EventType, Plan, UserId,
};
use bellbird_storage::{NewConnection, NewEndpoint, NewUser, Sealer, Storage, in_tx};
use bellbird_webhooks::delivery::sign::new_secret;
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use tempfile::TempDir;
use tokio_postgres::NoTls;
use uuid::Uuid;

use super::receiver;

const SERVER: &str = "BELLBIRD_TEST_POSTGRES_URL";
const MASTER_KEY: &str = "main:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }

    /// SQLite always is; PostgreSQL needs the URL of a server in the environment.
    pub(crate) fn is_available(self) -> bool {
        self == Self::Sqlite || std::env::var_os(SERVER).is_some()
    }
}

pub(crate) enum Database {
    Sqlite(TempDir),
    Postgres { server: String, name: String },
}

impl Database {
    pub(crate) async fn create(kind: Kind) -> anyhow::Result<Self> {
        if kind == Kind::Sqlite {
            return Ok(Self::Sqlite(
                tempfile::Builder::new()
                    .prefix("bellbird-bench-")
                    .tempdir()?,
            ));
        }
        let server = std::env::var(SERVER).with_context(|| format!("{SERVER} is not set"))?;
        let name = format!("bellbird_bench_{}", Uuid::now_v7().simple());
        execute(&server, &format!("CREATE DATABASE {name}")).await?;
        Ok(Self::Postgres { server, name })
    }

    pub(crate) fn url(&self) -> anyhow::Result<String> {
        match self {
            Self::Sqlite(folder) => Ok(format!(
                "sqlite:{}",
                folder.path().join("bellbird.db").display()
            )),
            Self::Postgres { server, name } => {
                let (before, parameters) = server.split_once('?').unwrap_or((server, ""));
                let (before, _) = before
                    .rsplit_once('/')
                    .context("the URL names no database")?;
                Ok(format!("{before}/{name}?{parameters}"))
            }
        }
    }

    pub(crate) async fn remove(self) -> anyhow::Result<()> {
        match self {
            Self::Sqlite(folder) => Ok(folder.close()?),
            Self::Postgres { server, name } => {
                execute(&server, &format!("DROP DATABASE {name} WITH (FORCE)")).await
            }
        }
    }
}

async fn execute(url: &str, sql: &str) -> anyhow::Result<()> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let driver = tokio::spawn(connection);
    let outcome = client.batch_execute(sql).await;
    drop(client);
    driver.await??;
    Ok(outcome?)
}

/// A user with one endpoint.
pub(super) struct Subscriber {
    pub(super) user: UserId,
    pub(super) endpoint: EndpointId,
    pub(super) connections: Vec<ConnectionId>,
    pub(super) url: String,
    pub(super) secret: SecretString,
}

pub(super) struct Setup {
    pub(super) storage: Storage,
    pub(super) subscribers: Vec<Subscriber>,
}

impl Setup {
    /// Creates one user per path, each with its own loopback address of the receiver.
    pub(super) async fn create(
        database: &Database,
        receiver_address: SocketAddr,
        paths: &[&str],
        connections: usize,
    ) -> anyhow::Result<Self> {
        let storage = Storage::open(&database.url()?, Sealer::parse(MASTER_KEY)?).await?;
        storage.migrate().await?;
        let mut setup = Self {
            storage,
            subscribers: Vec::new(),
        };
        for (number, path) in paths.iter().enumerate() {
            let url = format!(
                "http://{}:{}{path}",
                receiver::loopback_address(number),
                receiver_address.port()
            );
            let subscriber = setup.add(number, url, connections).await?;
            setup.subscribers.push(subscriber);
        }
        Ok(setup)
    }

    async fn add(
        &self,
        number: usize,
        url: String,
        connections: usize,
    ) -> anyhow::Result<Subscriber> {
        let now = Timestamp::now();
        let email = format!("bench{number}@example.com");
        let new = NewUser {
            email: &email,
            plan: Plan::Professional,
            timezone: None,
            reference: None,
            console_sign_in: true,
        };
        let user = in_tx!(self.storage, user::insert(&new, now)).await?.id;
        let secret = new_secret();
        let new = NewEndpoint {
            user_id: user,
            url: &url,
            event_types: &[EventType::TransactionsSynced],
            api_version: ApiVersion::DEFAULT,
            secret: &secret,
        };
        let endpoint = in_tx!(
            self.storage,
            endpoints::insert(self.storage.secrets(), &new, 8, now)
        )
        .await?
        .id;
        let mut ids = Vec::new();
        for consent in 0..connections {
            let consent = format!("consent {number} {consent}");
            ids.push(
                self.storage
                    .connections()
                    .import(&new_connection(user, &consent), &[], now)
                    .await?
                    .id,
            );
        }
        Ok(Subscriber {
            user,
            endpoint,
            connections: ids,
            url,
            secret,
        })
    }
}

/// Its next sync is a day away, so only the benchmark syncs it.
pub(super) fn new_connection<'a>(user_id: UserId, consent: &'a str) -> NewConnection<'a> {
    static CREDENTIALS: std::sync::LazyLock<SecretString> =
        std::sync::LazyLock::new(|| SecretString::from("{}"));
    NewConnection {
        user_id,
        provider: "bench",
        category: ConnectionCategory::Banking,
        provider_connection_id: consent,
        institution_id: "bank_1",
        institution_name: "First Bank",
        institution_logo: None,
        credentials: &CREDENTIALS,
        provider_user_id: None,
        consent_expires_at: None,
        repairs: None,
        next_refresh_at: None,
        backfill_ends_at: None,
        next_sync_at: Timestamp::now() + SignedDuration::from_hours(24),
        first_attempt_at: Timestamp::now(),
        cause: "imported",
    }
}
