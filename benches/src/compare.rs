//! Compares the service with the bare handler and with nginx. Rounds of the two sides alternate, so
//! that what disturbs one disturbs the other.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use crate::HttpArgs;
use crate::bare::{self, Fixed};
use crate::client::{self, ClientPool, Connection};
use crate::figures::{Figure, Report, percentile};
use crate::nginx;
use crate::process::{Clock, Server};
use crate::provider;
use crate::recording::{self, Access, PAGE_ROWS};
use crate::service::{self, Workdir};

const CPU: &str = "processor time a request, µs";
const P50: &str = "p50, µs";
const P99: &str = "p99, µs";
const BARE: &str = "bare handler";
const NGINX: &str = "nginx";
/// Wait after a round: the service buffers log lines this long, and writing them belongs to the
/// round.
pub(crate) const LOG_FLUSH_WAIT: Duration = Duration::from_millis(30);
/// Delay of the distant provider.
const DISTANCE: Duration = Duration::from_millis(20);
/// Accounts of a request for balances.
pub(crate) const BALANCES: usize = 20;

/// An API endpoint to compare with the bare handler.
pub(crate) struct Endpoint {
    pub(crate) name: &'static str,
    pub(crate) path: String,
    /// A header that the service's responses must have.
    pub(crate) header: Option<&'static str>,
    target: Option<f64>,
}

/// A running service with a user, keys, a provider of fixed bytes, and an account with one page of
/// rows.
pub(crate) struct Setup {
    pub(crate) folder: TempDir,
    pub(crate) service: Server,
    pub(crate) provider: Server,
    pub(crate) keys: Vec<String>,
    pub(crate) endpoints: Vec<Endpoint>,
}

impl Setup {
    pub(crate) async fn create(binary: &Path, keys: usize) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("bellbird-bench-")
            .tempdir()?;
        let (answers, access) = recording::record(binary).await?;
        let provider = provider::start(folder.path(), &answers)?;
        let access = Access {
            address: provider.address,
            ..access
        };
        let (workdir, connection_id) =
            Workdir::with_user(binary, folder.path().to_owned(), access)?;
        let keys = workdir.keys(keys)?;
        let (service, _) = workdir.serve().await?;
        let first_key = keys.first().context("at least one key is needed")?;
        let accounts = service::account_ids(service.address, first_key).await?;
        ensure!(
            accounts.len() >= recording::ACCOUNTS,
            "only {} accounts",
            accounts.len()
        );
        let rows =
            service::path_to_rows(service.address, first_key, &connection_id, PAGE_ROWS.into())
                .await?;
        let mut endpoints = endpoints(&accounts, rows);
        let path = service::path_to_no_changes(service.address, first_key, &connection_id).await?;
        endpoints.push(Endpoint {
            name: "changes",
            path,
            header: None,
            target: None,
        });
        Ok(Self {
            folder,
            service,
            provider,
            keys,
            endpoints,
        })
    }

    pub(crate) fn endpoint(&self, name: &str) -> anyhow::Result<&Endpoint> {
        let known = || {
            self.endpoints
                .iter()
                .map(|endpoint| endpoint.name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let found = self.endpoints.iter().find(|endpoint| endpoint.name == name);
        found.with_context(|| format!("unknown endpoint {name}: choose one of {}", known()))
    }

    /// Clients that request `endpoint` from the service. Each has its own key, because equal
    /// requests of one key at the same time share one flight.
    pub(crate) async fn client_pool(
        &self,
        endpoint: &Endpoint,
        clients: usize,
    ) -> anyhow::Result<ClientPool> {
        ensure!(clients <= self.keys.len(), "more clients than keys");
        let requests = self
            .keys
            .iter()
            .take(clients)
            .map(|key| client::get(&endpoint.path, Some(key)))
            .collect();
        let mut client_pool = ClientPool::open(self.service.address, requests).await?;
        client_pool.warm_up(endpoint.header).await?;
        Ok(client_pool)
    }

    /// The service's responses, which the bare handler repeats.
    async fn fixed(&self) -> anyhow::Result<Vec<Fixed>> {
        let mut fixed = Vec::new();
        for endpoint in &self.endpoints {
            let request = client::get(&endpoint.path, self.keys.first().map(String::as_str));
            let body = client::text(self.service.address, &request).await?;
            let path = endpoint
                .path
                .split('?')
                .next()
                .unwrap_or_default()
                .to_owned();
            fixed.push(Fixed {
                path,
                content_type: "application/json".to_owned(),
                body,
            });
        }
        Ok(fixed)
    }
}

fn endpoints(accounts: &[String], rows: String) -> Vec<Endpoint> {
    let twenty = accounts[..BALANCES].join(",");
    let endpoint = |name, path: &str, header, target| Endpoint {
        name,
        path: path.to_owned(),
        header,
        target,
    };
    vec![
        endpoint("health", "/health", None, Some(1.6)),
        endpoint("connections", "/v1/connections", None, Some(1.8)),
        endpoint("categories", "/v1/categories", None, Some(1.8)),
        endpoint(
            "balances",
            &format!("/v1/balances?accountIds={twenty}"),
            Some("x-cache: hit"),
            Some(2.0),
        ),
        endpoint("accounts", "/v1/accounts?limit=50", None, Some(2.0)),
        endpoint("transactions", &rows, None, None),
    ]
}

pub(crate) async fn run(args: &HttpArgs, report: &mut Report) -> anyhow::Result<()> {
    let names = [
        "health",
        "connections",
        "categories",
        "balances",
        "accounts",
        "transactions",
        "changes",
        "distant provider",
    ];
    if !names.iter().any(|name| args.is_selected(name)) {
        return Ok(());
    }
    let setup = Setup::create(&service::binary(&args.program)?, args.connections as usize).await?;
    let bare = bare::start(setup.folder.path(), &setup.fixed().await?)?;
    for endpoint in &setup.endpoints {
        if args.is_selected(endpoint.name) {
            with_bare(args, &setup, endpoint, &bare, report).await?;
        }
    }
    drop(bare);
    with_nginx(args, &setup, report).await
}

async fn with_bare(
    args: &HttpArgs,
    setup: &Setup,
    endpoint: &Endpoint,
    bare: &Server,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut subject = Side::new(
        &setup.service,
        setup
            .client_pool(endpoint, args.connections as usize)
            .await?,
    );
    let mut baseline = Side::new(
        bare,
        clients_of(bare.address, &endpoint.path, args.connections, setup).await?,
    );
    let heavy = endpoint.name == "transactions";
    let requests = if heavy {
        args.requests.div_ceil(10)
    } else {
        args.requests
    };
    run_alternating(args.rounds, requests, &mut subject, &mut baseline).await?;
    let figure = |measure, subject: &[f64], baseline: &[f64], target| {
        Figure::compared(endpoint.name, measure, BARE, subject, baseline, target)
    };
    report.add(figure(CPU, &subject.cpu, &baseline.cpu, endpoint.target));
    report.add(figure(P50, &subject.p50, &baseline.p50, None));
    report.add(figure(P99, &subject.p99, &baseline.p99, None));
    Ok(())
}

/// Clients of another server, with the same keys as those of the service.
async fn clients_of(
    address: SocketAddr,
    path: &str,
    clients: u32,
    setup: &Setup,
) -> anyhow::Result<ClientPool> {
    let requests = setup
        .keys
        .iter()
        .take(clients as usize)
        .map(|key| client::get(path, Some(key)))
        .collect();
    let mut client_pool = ClientPool::open(address, requests).await?;
    client_pool.warm_up(None).await?;
    Ok(client_pool)
}

async fn with_nginx(args: &HttpArgs, setup: &Setup, report: &mut Report) -> anyhow::Result<()> {
    if !args.is_selected("transactions") && !args.is_selected("distant provider") {
        return Ok(());
    }
    let Some(program) = nginx::program() else {
        report.leave_out(nginx::MISSING.to_owned());
        return Ok(());
    };
    let nginx = nginx::start(&program, setup.folder.path(), setup.provider.address).await?;
    let path = format!(
        "{}?end_user_id=user&page%5Bsize%5D={PAGE_ROWS}",
        provider::TRANSACTIONS
    );
    let (page, direct) = (
        body(nginx.address, &path).await?,
        body(setup.provider.address, &path).await?,
    );
    ensure!(page == direct, "nginx changed the provider's page");
    let mut subject = Side::new(
        &setup.service,
        setup
            .client_pool(setup.endpoint("transactions")?, args.connections as usize)
            .await?,
    );
    let mut baseline = Side::new(
        &nginx,
        clients_of(nginx.address, &path, args.connections, setup).await?,
    );
    if args.is_selected("transactions") {
        run_alternating(
            args.rounds,
            args.requests.div_ceil(10),
            &mut subject,
            &mut baseline,
        )
        .await?;
        for (measure, subject, baseline, target) in
            measures(&subject, &baseline, [Some(6.0), None, None])
        {
            report.add(Figure::compared(
                "transactions",
                measure,
                NGINX,
                subject,
                baseline,
                target,
            ));
        }
    }
    if args.is_selected("distant provider") {
        (subject, baseline) = (subject.without_rounds(), baseline.without_rounds());
        provider::set_delay(setup.provider.address, DISTANCE).await?;
        run_alternating(
            args.rounds,
            args.requests.div_ceil(20),
            &mut subject,
            &mut baseline,
        )
        .await?;
        for (measure, subject, baseline, target) in
            measures(&subject, &baseline, [None, Some(1.05), Some(1.2)])
        {
            report.add(Figure::compared(
                "distant provider (20 ms)",
                measure,
                NGINX,
                subject,
                baseline,
                target,
            ));
        }
    }
    Ok(())
}

type Measure<'a> = (&'static str, &'a [f64], &'a [f64], Option<f64>);

fn measures<'a>(
    subject: &'a Side,
    baseline: &'a Side,
    targets: [Option<f64>; 3],
) -> [Measure<'a>; 3] {
    let [cpu, p50, p99] = targets;
    [
        (CPU, &subject.cpu, &baseline.cpu, cpu),
        (P50, &subject.p50, &baseline.p50, p50),
        (P99, &subject.p99, &baseline.p99, p99),
    ]
}

async fn body(address: SocketAddr, path: &str) -> anyhow::Result<Vec<u8>> {
    let mut connection = Connection::open(address).await?;
    Ok(connection
        .ask(&client::get(path, None))
        .await?
        .body
        .to_vec())
}

struct Side {
    processes: Vec<u32>,
    client_pool: ClientPool,
    /// These three hold one value per round, in microseconds.
    cpu: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
}

impl Side {
    fn new(server: &Server, client_pool: ClientPool) -> Self {
        Self {
            processes: server.ids(),
            client_pool,
            cpu: Vec::new(),
            p50: Vec::new(),
            p99: Vec::new(),
        }
    }

    /// The same side without its rounds so far.
    fn without_rounds(self) -> Self {
        Self {
            cpu: Vec::new(),
            p50: Vec::new(),
            p99: Vec::new(),
            ..self
        }
    }

    async fn round(&mut self, requests: u32) -> anyhow::Result<()> {
        let start = Clock::read(&self.processes)?;
        let took = self.client_pool.run(requests).await?;
        tokio::time::sleep(LOG_FLUSH_WAIT).await;
        let spent = Clock::read(&self.processes)?.since(&start);
        self.cpu.push(spent / took.len() as f64);
        self.p50.push(percentile(&took, 0.5));
        self.p99.push(percentile(&took, 0.99));
        Ok(())
    }
}

/// Runs a quarter of a round as warm-up on each side, then the alternating rounds.
async fn run_alternating(
    rounds: u32,
    requests: u32,
    subject: &mut Side,
    baseline: &mut Side,
) -> anyhow::Result<()> {
    for side in [&mut *subject, &mut *baseline] {
        side.client_pool.run(requests.div_ceil(4)).await?;
        tokio::time::sleep(LOG_FLUSH_WAIT).await;
    }
    for _ in 0..rounds {
        subject.round(requests).await?;
        baseline.round(requests).await?;
    }
    Ok(())
}
