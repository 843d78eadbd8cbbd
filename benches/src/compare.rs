//! The service beside something else: a round of one, a round of the other, and again.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use crate::HttpArgs;
use crate::bare::{self, Fixed};
use crate::client::{self, Connection, Crowd};
use crate::figures::{Figure, Report, percentile};
use crate::nginx;
use crate::process::{Clock, Server};
use crate::provider;
use crate::recording::{self, Access, PAGE_ROWS};
use crate::service::{self, Place};

const CPU: &str = "processor time a request, µs";
const P50: &str = "p50, µs";
const P99: &str = "p99, µs";
const BARE: &str = "bare handler";
const NGINX: &str = "nginx";
/// After a round: lines of log gather this long before they are written, and that belongs to the round.
const SETTLE: Duration = Duration::from_millis(30);
/// How far away the distant provider is.
const DISTANCE: Duration = Duration::from_millis(20);
/// Balances of so many accounts.
const BALANCES: usize = 20;

/// An endpoint to compare with the bare handler.
pub(crate) struct Endpoint {
    pub(crate) name: &'static str,
    pub(crate) path: String,
    /// Must be in the head of the service's answers.
    pub(crate) header: Option<&'static str>,
    target: Option<f64>,
}

/// The service, with a user, keys, a provider of fixed bytes, and an account with one page of rows.
pub(crate) struct Stage {
    pub(crate) folder: TempDir,
    pub(crate) service: Server,
    pub(crate) provider: Server,
    pub(crate) keys: Vec<String>,
    pub(crate) endpoints: Vec<Endpoint>,
}

impl Stage {
    /// Sets everything up.
    pub(crate) async fn set(binary: &Path, keys: usize) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("bellbird-bench-").tempdir()?;
        let (answers, access) = recording::record(binary).await?;
        let provider = provider::start(folder.path(), &answers)?;
        let access = Access { address: provider.address, ..access };
        let (place, connection_id) = Place::with_user(binary, folder.path().to_owned(), access)?;
        let keys = place.keys(keys)?;
        let (service, _) = place.serve().await?;
        let first_key = keys.first().context("at least one key")?;
        let accounts = service::account_ids(service.address, first_key).await?;
        ensure!(accounts.len() >= recording::ACCOUNTS, "only {} accounts", accounts.len());
        let rows = service::path_to_rows(service.address, first_key, &connection_id, PAGE_ROWS.into()).await?;
        let endpoints = endpoints(&accounts, rows);
        Ok(Self { folder, service, provider, keys, endpoints })
    }

    pub(crate) fn endpoint(&self, name: &str) -> anyhow::Result<&Endpoint> {
        let known = || self.endpoints.iter().map(|endpoint| endpoint.name).collect::<Vec<_>>().join(", ");
        let found = self.endpoints.iter().find(|endpoint| endpoint.name == name);
        found.with_context(|| format!("the endpoints are {}", known()))
    }

    /// Clients that ask the service for `endpoint`, each with a key of its own: equal questions of one key at the same
    /// time would be answered together.
    pub(crate) async fn crowd(&self, endpoint: &Endpoint, clients: usize) -> anyhow::Result<Crowd> {
        ensure!(clients <= self.keys.len(), "more clients than keys");
        let requests = self.keys.iter().take(clients).map(|key| client::get(&endpoint.path, Some(key))).collect();
        let mut crowd = Crowd::open(self.service.address, requests).await?;
        crowd.warm_up(endpoint.header).await?;
        Ok(crowd)
    }

    /// What the service answers, for the bare handler to answer too.
    async fn fixed(&self) -> anyhow::Result<Vec<Fixed>> {
        let mut fixed = Vec::new();
        for endpoint in &self.endpoints {
            let request = client::get(&endpoint.path, self.keys.first().map(String::as_str));
            let body = client::text(self.service.address, &request).await?;
            let path = endpoint.path.split('?').next().unwrap_or_default().to_owned();
            fixed.push(Fixed { path, content_type: "application/json".to_owned(), body });
        }
        Ok(fixed)
    }
}

fn endpoints(accounts: &[String], rows: String) -> Vec<Endpoint> {
    let twenty = accounts[..BALANCES].join(",");
    let endpoint = |name, path: &str, header, target| Endpoint { name, path: path.to_owned(), header, target };
    vec![
        endpoint("health", "/health", None, Some(1.6)),
        endpoint("connections", "/v1/connections", None, Some(2.0)),
        endpoint("categories", "/v1/categories", None, Some(2.0)),
        endpoint("balances", &format!("/v1/balances?accountIds={twenty}"), Some("x-cache: hit"), Some(2.5)),
        endpoint("accounts", "/v1/accounts?limit=50", None, Some(10.0)),
        endpoint("transactions", &rows, None, None),
    ]
}

/// All comparisons that are wanted.
pub(crate) async fn run(args: &HttpArgs, report: &mut Report) -> anyhow::Result<()> {
    let names = ["health", "connections", "categories", "balances", "accounts", "transactions", "distant provider"];
    if !names.iter().any(|name| args.wants(name)) {
        return Ok(());
    }
    let stage = Stage::set(&service::binary(&args.program)?, args.connections as usize).await?;
    let bare = bare::start(stage.folder.path(), &stage.fixed().await?)?;
    for endpoint in &stage.endpoints {
        if args.wants(endpoint.name) {
            with_bare(args, &stage, endpoint, &bare, report).await?;
        }
    }
    drop(bare);
    with_nginx(args, &stage, report).await
}

async fn with_bare(
    args: &HttpArgs,
    stage: &Stage,
    endpoint: &Endpoint,
    bare: &Server,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut ours = Side::new(&stage.service, stage.crowd(endpoint, args.connections as usize).await?);
    let mut theirs = Side::new(bare, same(bare.address, &endpoint.path, args.connections, stage).await?);
    let heavy = endpoint.name == "transactions";
    let requests = if heavy { args.requests.div_ceil(10) } else { args.requests };
    take_turns(args.rounds, requests, &mut ours, &mut theirs).await?;
    let figure = |measure, ours: &[f64], theirs: &[f64], target| {
        Figure::compared(endpoint.name, measure, BARE, ours, theirs, target)
    };
    report.add(figure(CPU, &ours.cpu, &theirs.cpu, endpoint.target));
    report.add(figure(P50, &ours.p50, &theirs.p50, None));
    report.add(figure(P99, &ours.p99, &theirs.p99, None));
    Ok(())
}

/// As many clients elsewhere, with the same requests.
async fn same(address: SocketAddr, path: &str, clients: u32, stage: &Stage) -> anyhow::Result<Crowd> {
    let requests = stage.keys.iter().take(clients as usize).map(|key| client::get(path, Some(key))).collect();
    let mut crowd = Crowd::open(address, requests).await?;
    crowd.warm_up(None).await?;
    Ok(crowd)
}

async fn with_nginx(args: &HttpArgs, stage: &Stage, report: &mut Report) -> anyhow::Result<()> {
    if !args.wants("transactions") && !args.wants("distant provider") {
        return Ok(());
    }
    let Some(program) = nginx::program() else {
        report.leave_out(nginx::MISSING.to_owned());
        return Ok(());
    };
    let nginx = nginx::start(&program, stage.folder.path(), stage.provider.address).await?;
    let path = format!("{}?end_user_id=someone&page%5Bsize%5D={PAGE_ROWS}", provider::TRANSACTIONS);
    let (page, direct) = (body(nginx.address, &path).await?, body(stage.provider.address, &path).await?);
    ensure!(page == direct, "nginx does not hand on the provider's page");
    let mut ours =
        Side::new(&stage.service, stage.crowd(stage.endpoint("transactions")?, args.connections as usize).await?);
    let mut theirs = Side::new(&nginx, same(nginx.address, &path, args.connections, stage).await?);
    if args.wants("transactions") {
        take_turns(args.rounds, args.requests.div_ceil(10), &mut ours, &mut theirs).await?;
        for (measure, ours, theirs, target) in measures(&ours, &theirs, [Some(7.0), None, None]) {
            report.add(Figure::compared("transactions", measure, NGINX, ours, theirs, target));
        }
    }
    if args.wants("distant provider") {
        (ours, theirs) = (ours.anew(), theirs.anew());
        provider::set_delay(stage.provider.address, DISTANCE).await?;
        take_turns(args.rounds, args.requests.div_ceil(20), &mut ours, &mut theirs).await?;
        for (measure, ours, theirs, target) in measures(&ours, &theirs, [None, Some(1.05), Some(1.2)]) {
            report.add(Figure::compared("distant provider (20 ms)", measure, NGINX, ours, theirs, target));
        }
    }
    Ok(())
}

type Measure<'a> = (&'static str, &'a [f64], &'a [f64], Option<f64>);

fn measures<'a>(ours: &'a Side, theirs: &'a Side, targets: [Option<f64>; 3]) -> [Measure<'a>; 3] {
    let [cpu, p50, p99] = targets;
    [(CPU, &ours.cpu, &theirs.cpu, cpu), (P50, &ours.p50, &theirs.p50, p50), (P99, &ours.p99, &theirs.p99, p99)]
}

async fn body(address: SocketAddr, path: &str) -> anyhow::Result<Vec<u8>> {
    let mut connection = Connection::open(address).await?;
    Ok(connection.ask(&client::get(path, None)).await?.body.to_vec())
}

/// One of the two.
struct Side {
    processes: Vec<u32>,
    crowd: Crowd,
    /// One value a round, in microseconds, of these three.
    cpu: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
}

impl Side {
    fn new(server: &Server, crowd: Crowd) -> Self {
        Self { processes: server.ids(), crowd, cpu: Vec::new(), p50: Vec::new(), p99: Vec::new() }
    }

    /// Without the rounds so far.
    fn anew(self) -> Self {
        Self { cpu: Vec::new(), p50: Vec::new(), p99: Vec::new(), ..self }
    }

    async fn round(&mut self, requests: u32) -> anyhow::Result<()> {
        let start = Clock::read(&self.processes)?;
        let took = self.crowd.run(requests).await?;
        tokio::time::sleep(SETTLE).await;
        let spent = Clock::read(&self.processes)?.since(&start);
        self.cpu.push(spent / took.len() as f64);
        self.p50.push(percentile(&took, 0.5));
        self.p99.push(percentile(&took, 0.99));
        Ok(())
    }
}

/// A round that does not count, then the rounds.
async fn take_turns(rounds: u32, requests: u32, ours: &mut Side, theirs: &mut Side) -> anyhow::Result<()> {
    for side in [&mut *ours, &mut *theirs] {
        side.crowd.run(requests.div_ceil(4)).await?;
        tokio::time::sleep(SETTLE).await;
    }
    for _ in 0..rounds {
        ours.round(requests).await?;
        theirs.round(requests).await?;
    }
    Ok(())
}
