//! Compares two instances over PostgreSQL and Valkey with one on SQLite: how many requests a second
//! of a core does.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::bail;

use crate::HttpArgs;
use crate::client::{self, ClientPool, Connection};
use crate::compare::{BALANCES, LOG_FLUSH_WAIT};
use crate::figures::{Figure, Report};
use crate::process::{Clock, Server, named, unused_address};
use crate::provider;
use crate::recording::{self, Access, PAGE_ROWS};
use crate::service::{self, Workdir};
use crate::webhooks::setup::{Database, Kind};

const BASELINE: &str = "one on SQLite";
const OWN: &str = "requests a core-second of the instances";
const ALL: &str = "requests a core-second, with the database's and Valkey's";
/// The least that each should be of one on SQLite.
const OWN_LEAST: f64 = 0.6;
const ALL_LEAST: f64 = 0.5;
const VALKEY: [&str; 2] = ["valkey-server", "redis-server"];
/// Limits are counted, and reached by nobody.
const LIMITS: [(&str, &str); 3] = [
    ("BELLBIRD_LIMITS__BALANCES_PER_MINUTE", "1000000"),
    ("BELLBIRD_LIMITS__LIVE_PER_MINUTE", "1000000"),
    ("BELLBIRD_LIMITS__LIVE_IN_FLIGHT", "4"),
];

/// Instances that run, with keys for their clients.
struct Deployment {
    instances: Vec<Server>,
    keys: Vec<String>,
    cached: String,
    live: String,
}

impl Deployment {
    async fn start(
        args: &HttpArgs,
        folder: &Path,
        access: &Access,
        settings: Vec<(&'static str, String)>,
        instances: usize,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir(folder)?;
        let limits = LIMITS.map(|(name, value)| (name, value.to_owned()));
        let settings = settings.into_iter().chain(limits).collect();
        let workdir = Workdir::new(
            &service::binary(&args.program)?,
            folder.to_owned(),
            access.clone(),
        );
        let workdir = workdir.with_settings(settings);
        workdir.add_user()?;
        let connection = workdir.import(&access.credentials)?;
        let keys = workdir.keys(args.connections as usize)?;
        let mut running = Vec::new();
        for _ in 0..instances {
            running.push(workdir.serve().await?.0);
        }
        let (address, key) = (running[0].address, &keys[0]);
        let accounts = service::account_ids(address, key).await?;
        let cached = format!("/v1/balances?accountIds={}", accounts[..BALANCES].join(","));
        let live = service::path_to_rows(address, key, &connection, PAGE_ROWS.into()).await?;
        Ok(Self {
            instances: running,
            keys,
            cached,
            live,
        })
    }

    /// Clients that use the instances in turn.
    async fn clients(&self, path: &str) -> anyhow::Result<ClientPool> {
        let addresses: Vec<SocketAddr> = self
            .instances
            .iter()
            .map(|instance| instance.address)
            .collect();
        let clients = self.keys.iter().zip(addresses.iter().cycle());
        let mut opened = Vec::new();
        for (key, address) in clients {
            opened.push((
                Connection::open(*address).await?,
                client::get(path, Some(key)),
            ));
        }
        let mut clients = ClientPool::of(opened);
        clients.warm_up(None).await?;
        Ok(clients)
    }

    fn processes(&self) -> Vec<u32> {
        self.instances.iter().flat_map(Server::ids).collect()
    }
}

/// Runs a round. Returns the requests a core-second of these processes, and of these and `others`.
async fn round(
    clients: &mut ClientPool,
    processes: &[u32],
    others: &[u32],
    requests: u32,
) -> anyhow::Result<(f64, f64)> {
    let start = (Clock::read(processes)?, Clock::read(others)?);
    let done = clients.run(requests).await?.len() as f64;
    tokio::time::sleep(LOG_FLUSH_WAIT).await;
    let own = Clock::read(processes)?.since(&start.0);
    // A worker of PostgreSQL may have ended.
    let living: Vec<u32> = others
        .iter()
        .copied()
        .filter(|id| Path::new(&format!("/proc/{id}")).exists())
        .collect();
    let all = own + Clock::read(&living)?.since(&start.1);
    Ok((done * 1e6 / own, done * 1e6 / all))
}

pub(crate) async fn run(args: &HttpArgs, report: &mut Report) -> anyhow::Result<()> {
    let kinds = [
        "two instances, cached balances",
        "two instances, live transactions",
    ];
    if !kinds.iter().any(|name| args.is_selected(name)) {
        return Ok(());
    }
    let valkey = VALKEY
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok());
    let (Some(valkey), true) = (valkey, Kind::Postgres.is_available()) else {
        report.leave_out(
            "two instances: needs BELLBIRD_TEST_POSTGRES_URL, and valkey-server or redis-server"
                .to_owned(),
        );
        return Ok(());
    };
    let folder = tempfile::Builder::new()
        .prefix("bellbird-bench-")
        .tempdir()?;
    let (answers, access) = recording::record(&service::binary(&args.program)?).await?;
    let provider = provider::start(folder.path(), &answers)?;
    let access = Access {
        address: provider.address,
        ..access
    };
    let redis = start_valkey(valkey).await?;
    let database = Database::create(Kind::Postgres).await?;
    let shared = vec![
        ("BELLBIRD_DATABASE__URL", database.url()?),
        ("BELLBIRD_REDIS__URL", format!("redis://{}", redis.address)),
    ];
    let one = Deployment::start(args, &folder.path().join("one"), &access, Vec::new(), 1).await?;
    let two = Deployment::start(args, &folder.path().join("two"), &access, shared, 2).await?;
    for (name, one_path, two_path, requests) in [
        (kinds[0], &one.cached, &two.cached, args.requests),
        (kinds[1], &one.live, &two.live, args.requests.div_ceil(10)),
    ] {
        if !args.is_selected(name) {
            continue;
        }
        let (mut of_one, mut of_two) = (one.clients(one_path).await?, two.clients(two_path).await?);
        of_one.run(requests.div_ceil(4)).await?;
        of_two.run(requests.div_ceil(4)).await?;
        let others = [named("postgres"), vec![redis.id()]].concat();
        let (mut baseline, mut own, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            baseline.push(round(&mut of_one, &one.processes(), &[], requests).await?.0);
            let (of_instances, of_all) =
                round(&mut of_two, &two.processes(), &others, requests).await?;
            own.push(of_instances);
            all.push(of_all);
        }
        report.add(Figure::ratio_at_least(
            name, OWN, BASELINE, &own, &baseline, OWN_LEAST,
        ));
        report.add(Figure::ratio_at_least(
            name, ALL, BASELINE, &all, &baseline, ALL_LEAST,
        ));
    }
    drop((one, two));
    database.remove().await
}

async fn start_valkey(program: &str) -> anyhow::Result<Server> {
    let address = unused_address()?;
    let mut command = Command::new(program);
    command.args([
        "--bind",
        "127.0.0.1",
        "--port",
        &address.port().to_string(),
        "--save",
        "",
        "--appendonly",
        "no",
    ]);
    let server = Server::start(command.stdin(Stdio::null()).stdout(Stdio::null()), address)?;
    for _ in 0..100 {
        if Connection::open(address).await.is_ok() {
            return Ok(server);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("{program} does not listen")
}
