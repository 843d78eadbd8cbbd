//! Figures without a baseline: time to the first response, memory, and provider calls.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::HttpArgs;
use crate::client::{self, ClientPool, Connection};
use crate::compare::Setup;
use crate::figures::{Figure, Report, progress};
use crate::process::resident_mb;
use crate::provider;
use crate::recording::{self, Access};
use crate::service::{self, Workdir};

const START: &str = "first response after start, ms";
const MEMORY: &str = "memory, MB";
/// Wait before memory at rest is read.
const IDLE_TIME: Duration = Duration::from_secs(2);
const STARTS: usize = 11;
/// Rows of the walk whose memory is measured.
const MANY_ROWS: u32 = 100_000;
/// From this row on, memory must stay flat.
const WARM_ROWS: u32 = 10_000;
/// Growth that still counts as flat, because the allocator does not return every page at once.
const FLAT_MB: f64 = 3.0;
/// Rows of the walk whose provider calls are counted.
const FEW_ROWS: u32 = 5_000;

/// Measures the time from process start to the first response, and memory at rest.
pub(crate) async fn start(args: &HttpArgs, report: &mut Report) -> anyhow::Result<()> {
    let names = ["start, new database", "start", "memory at rest"];
    if !names.iter().any(|name| args.is_selected(name)) {
        return Ok(());
    }
    let binary = service::binary(&args.program)?;
    // Nothing listens on this port: without requests the service makes no provider call.
    let no_provider = Access {
        address: ([127, 0, 0, 1], 9).into(),
        client_id: "id".to_owned(),
        client_secret: "secret".to_owned(),
        credentials: Value::Null,
    };
    let (mut new, mut known, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let folder = tempfile::Builder::new()
            .prefix("bellbird-bench-")
            .tempdir()?;
        let workdir = Workdir::new(&binary, folder.path().to_owned(), no_provider.clone());
        new.push(workdir.serve().await?.1);
        let (server, took) = workdir.serve().await?;
        known.push(took);
        if rest.len() < 3 {
            tokio::time::sleep(IDLE_TIME).await;
            rest.push(resident_mb(server.id())?);
        }
    }
    report.add(Figure::single("start", START, &known, Some(100.0)));
    report.add(Figure::single(
        "start, new database",
        START,
        &new,
        Some(100.0),
    ));
    report.add(Figure::single("memory at rest", MEMORY, &rest, Some(40.0)));
    Ok(())
}

/// Reads an account of the real sandbox window by window: counts provider calls in a short walk,
/// memory in a long one.
pub(crate) async fn walk(args: &HttpArgs, report: &mut Report) -> anyhow::Result<()> {
    if args.is_selected("provider calls") {
        let walk = Walk::run(args, FEW_ROWS).await?;
        report.add(Figure::single(
            "provider calls, 5,000 rows in windows of 200",
            "calls",
            &[walk.calls],
            Some(40.0),
        ));
    }
    if args.is_selected("memory walking") {
        let walk = Walk::run(args, MANY_ROWS).await?;
        let growth = walk.later_mb - walk.warm_mb;
        let most = walk.later_mb.max(walk.warm_mb);
        report.add(Figure::single(
            "memory walking 100,000 rows, most",
            MEMORY,
            &[most],
            None,
        ));
        report.add(Figure::single(
            "memory walking, growth after row 10,000",
            MEMORY,
            &[growth],
            Some(FLAT_MB),
        ));
    }
    Ok(())
}

struct Walk {
    /// Provider calls for transactions.
    calls: f64,
    /// Most memory up to [`WARM_ROWS`].
    warm_mb: f64,
    /// Most memory from there on.
    later_mb: f64,
}

impl Walk {
    async fn run(args: &HttpArgs, rows: u32) -> anyhow::Result<Self> {
        let binary = service::binary(&args.program)?;
        progress(&format!("walking {rows} rows of the sandbox"));
        let (sandbox, access) = recording::start_sandbox(&binary, rows)?;
        let folder = tempfile::Builder::new()
            .prefix("bellbird-bench-")
            .tempdir()?;
        let (workdir, connection_id) =
            Workdir::with_user(&binary, folder.path().to_owned(), access)?;
        let keys = workdir.keys(2)?;
        // The search for the path has its own key, so the walk starts with an empty page map.
        let [finder, walker] = &keys[..] else {
            anyhow::bail!("two keys are needed")
        };
        let (server, _) = workdir.serve().await?;
        let least = u64::from(rows.min(FEW_ROWS));
        let path = service::path_to_rows(server.address, finder, &connection_id, least).await?;
        let before = transaction_calls(sandbox.address).await?;
        let mut walk = Self {
            calls: 0.0,
            warm_mb: 0.0,
            later_mb: 0.0,
        };
        let mut connection = Connection::open(server.address).await?;
        let mut offset = 0;
        loop {
            let request = client::get(&format!("{path}&offset={offset}"), Some(walker));
            let response = connection.ask(&request).await?;
            ensure!(response.status == 200, "a window got {}", response.status);
            let page: Value = serde_json::from_slice(response.body)?;
            let given = page["data"].as_array().map_or(0, Vec::len);
            offset += u32::try_from(given)?;
            let most = if offset <= WARM_ROWS {
                &mut walk.warm_mb
            } else {
                &mut walk.later_mb
            };
            *most = most.max(resident_mb(server.id())?);
            if page["pagination"]["hasMore"] != Value::Bool(true) {
                break;
            }
            ensure!(given == 200, "a window of {given} rows");
        }
        ensure!(offset == rows, "{offset} rows of {rows} were seen");
        walk.calls = transaction_calls(sandbox.address).await? - before;
        Ok(walk)
    }
}

async fn transaction_calls(sandbox: SocketAddr) -> anyhow::Result<f64> {
    let counts = client::json(sandbox, &client::get("/__control/calls", None)).await?;
    let calls = counts["calls"]
        .as_array()
        .context("the sandbox reported no calls")?;
    let of_transactions = calls
        .iter()
        .find(|call| call["path"] == provider::TRANSACTIONS);
    Ok(of_transactions
        .and_then(|call| call["count"].as_f64())
        .unwrap_or(0.0))
}

/// Measures memory while many keep-alive clients read transactions, with the provider near and 20
/// ms away.
pub(crate) async fn many_clients(args: &HttpArgs, report: &mut Report) -> anyhow::Result<()> {
    let clients = args.clients as usize;
    let near = format!("memory, {clients} clients");
    let distant = format!("{near}, distant provider (20 ms)");
    if !args.is_selected(&distant) {
        return Ok(());
    }
    let setup = Setup::create(&service::binary(&args.program)?, clients).await?;
    let mut client_pool = setup
        .client_pool(setup.endpoint("transactions")?, clients)
        .await?;
    for (name, delay) in [(near, 0), (distant, 20)] {
        provider::set_delay(setup.provider.address, Duration::from_millis(delay)).await?;
        let most = most_memory(&setup, &mut client_pool, 40 * args.clients).await?;
        report.add(Figure::single(&name, MEMORY, &[most], Some(100.0)));
    }
    Ok(())
}

/// The most memory of the service while the clients send requests, read every 5 ms.
async fn most_memory(
    setup: &Setup,
    client_pool: &mut ClientPool,
    requests: u32,
) -> anyhow::Result<f64> {
    let service = setup.service.id();
    let mut most = resident_mb(service)?;
    let load = client_pool.run(requests);
    tokio::pin!(load);
    loop {
        tokio::select! {
            done = &mut load => return done.map(|_| most),
            () = tokio::time::sleep(Duration::from_millis(5)) => most = most.max(resident_mb(service)?),
        }
    }
}
