//! One process of the service: the lanes of its jobs, its deliveries and the row that says that it
//! lives.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bellbird_domain::{Clock, TimestampExt as _};
use bellbird_providers::{Provider, Registry};
use bellbird_storage::{DatabaseSimulation, DatabaseStep, Instance, Storage};
use bellbird_webhooks::Webhooks;
use bellbird_webhooks::delivery::schedule::Schedule;
use bellbird_webhooks::delivery::send::Client;
use bellbird_webhooks::event::buffer::WebhookEventBuffer;
use bellbird_webhooks::target::Rules;
use bellbird_webhooks::target::resolver::Resolver;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::scene::{self, Condition, Process, Scene};
use super::{audit, provider, receiver};
use crate::runner::Jobs;
use crate::{Connections, SyncSettings, refresh, removal, sync};

/// Rows of one event: so few that most syncs have several.
pub(super) const CHUNK_ROWS: usize = 3;
const RENEW_INTERVAL: Duration = Duration::from_secs(5);

/// What lies between a process and the database.
struct Wire {
    scene: Scene,
    process: Process,
    database: Storage,
    is_of_deliveries: bool,
}

impl DatabaseSimulation for Wire {
    fn wait(&self, step: DatabaseStep) -> BoxFuture<'static, bool> {
        if step == DatabaseStep::Committed {
            let claims = self.database.claims().expect("a read");
            audit::check_commit(&mut self.scene.state.lock(), self.process, claims);
        }
        let what = match step {
            DatabaseStep::Read => "reads",
            DatabaseStep::Begin => "begins",
            DatabaseStep::Commit => "commits",
            DatabaseStep::Committed => "hears of its commit",
        };
        self.scene.wait(self.process, what)
    }

    fn statement(&self, text: &'static str) -> &'static str {
        let fault = self.scene.state.lock().fault;
        let fault = fault.filter(|fault| self.is_of_deliveries || !fault.is_of_deliveries());
        fault.map_or(text, |fault| fault.statement(text))
    }
}

pub(super) struct Running {
    pub(super) process: Process,
    /// Dropping it kills the process at whatever it waits for.
    _tasks: JoinSet<()>,
}

/// The database as other programs than the instances reach it.
pub(super) fn outside(scene: &Scene, database: &Storage) -> Storage {
    let process = scene::OUTSIDE;
    let (stands_still_until, is_late_until) = (Instant::now(), Instant::now());
    scene.state.lock().living.push(Condition {
        process,
        clock: 0,
        stands_still_until,
        is_late_until,
    });
    database.simulated_by(Arc::new(Wire {
        scene: scene.clone(),
        process,
        database: database.clone(),
        is_of_deliveries: false,
    }))
}

pub(super) fn settings() -> SyncSettings {
    SyncSettings {
        interval: Duration::from_secs(40),
        ..SyncSettings::default()
    }
}

/// Starts a process whose clock begins at `start`.
pub(super) fn start(
    scene: &Scene,
    process: Process,
    database: &Storage,
    start: Timestamp,
) -> Running {
    static CLIENT: LazyLock<Client> = LazyLock::new(|| {
        let rules = Rules {
            allow_loopback: false,
        };
        let resolver = Resolver::with_name_servers(&[], rules).expect("a resolver");
        Client::new(resolver, rules, receiver::TIMEOUT).expect("a client")
    });
    let storage_of = |is_of_deliveries| {
        let wire = Wire {
            scene: scene.clone(),
            process,
            database: database.clone(),
            is_of_deliveries,
        };
        database.simulated_by(Arc::new(wire)).held_by(process.id)
    };
    let storage = storage_of(false);
    let link = |name| -> Arc<dyn Provider> {
        Arc::new(provider::Link {
            name,
            scene: scene.clone(),
            process,
        })
    };
    let providers = Registry::of(provider::NAMES.map(link).into());
    let clock = Clock::manual(start);
    let buffer = WebhookEventBuffer::new(CHUNK_ROWS);
    let connections = Connections::new(storage.clone(), providers.clone(), clock.clone())
        .with_syncs(settings(), buffer.clone());
    let webhooks = Webhooks::with_client(
        storage_of(true),
        providers,
        clock.clone(),
        buffer,
        bellbird_webhooks::Settings {
            timeout: receiver::TIMEOUT,
            // Enough attempts for every outage of an endpoint.
            schedule: Schedule::new(
                [1, 2, 5, 10]
                    .into_iter()
                    .chain([20; 200])
                    .map(Duration::from_secs)
                    .collect(),
            ),
            chunk_rows: CHUNK_ROWS as u32,
            ..bellbird_webhooks::Settings::default()
        },
        CLIENT.received_by(Arc::new(receiver::Link {
            scene: scene.clone(),
            process,
        })),
    );
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    for kind in [&sync::KIND, &refresh::KIND, &removal::KIND] {
        for name in provider::NAMES {
            let (state, stop) = (Arc::clone(&connections.0), stop.clone());
            tasks.spawn(async move { Jobs(&state).run_lane(kind, name, stop).await });
        }
    }
    tasks.spawn(async move { webhooks.deliver(stop).await });
    tasks.spawn(live(storage, clock, process));
    Running {
        process,
        _tasks: tasks,
    }
}

/// As `crates/bellbird/src/instances` does it.
async fn live(storage: Storage, clock: Clock, process: Process) {
    let instance = Instance {
        id: process.id,
        version: String::new(),
        host: String::new(),
        api_url: process.number.to_string(),
        roles: Vec::new(),
        boot_id: String::new(),
        console_url: String::new(),
        key_ids: Vec::new(),
        settings: std::collections::BTreeMap::new(),
        allow_loopback: false,
        started_at: clock.now(),
        last_seen_at: clock.now(),
        clock_ahead_ms: 0,
        provider_calls: Default::default(),
    };
    loop {
        let _ = storage.instances().renew(&instance, clock.now()).await;
        let _ = storage
            .instances()
            .delete_dead(clock.now().minus(SKEW_MAX))
            .await;
        tokio::time::sleep(RENEW_INTERVAL).await;
    }
}

/// On PostgreSQL, all instances judge this by one clock.
pub(super) const SKEW_MAX: Duration = Duration::from_secs(4);
