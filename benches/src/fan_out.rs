//! Compares live balances of 100 accounts at three providers with one call to the slowest provider.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::HttpArgs;
use crate::client::{self, Connection};
use crate::figures::{Figure, Report};
use crate::process::Server;
use crate::recording::{self, Access};
use crate::service::{self, Workdir};

/// The providers, each with the number of its accounts in the request: 100 in total.
const SHARES: [(&str, usize); 3] = [("fiskil", 33), ("akahu", 33), ("snaptrade", 34)];
/// The most that one request may list.
const ACCOUNTS: usize = 100;
/// Delay of every call to the slowest provider, and of every call to the others.
const SLOW_MS: u64 = 200;
const QUICK_MS: u64 = 50;
/// Target: the time of a request beyond that of one call.
const BEYOND_MS: f64 = 20.0;
/// Rows of the sandbox's busiest account. This figure reads none, so the number does not matter.
const ROWS: u32 = 200;

/// One provider of the sandbox.
struct Site {
    name: &'static str,
    address: SocketAddr,
    credentials: Value,
    /// The call for comparison, and its status: the provider's own list of balances, or where lists
    /// need a signature, an unknown path, which is delayed as well.
    call: Vec<u8>,
    status: u16,
}

/// A running service with a user who has accounts at all three providers.
struct Setup {
    _folder: TempDir,
    _sandbox: Server,
    service: Server,
    sites: Vec<Site>,
    request: Vec<u8>,
}

/// Measures three times, with each provider once the slowest.
pub(crate) async fn run(args: &HttpArgs, report: &mut Report) -> anyhow::Result<()> {
    let name = |slowest: &str| format!("balances of {ACCOUNTS} accounts, {slowest} slowest");
    let selected: Vec<&str> = SHARES
        .iter()
        .map(|(slowest, _)| *slowest)
        .filter(|slowest| args.is_selected(&name(slowest)))
        .collect();
    if selected.is_empty() {
        return Ok(());
    }
    let setup = Setup::create(&service::binary(&args.program)?).await?;
    for slowest in setup
        .sites
        .iter()
        .filter(|site| selected.contains(&site.name))
    {
        let (subject, baseline) = setup.run_alternating(slowest, args.rounds).await?;
        report.add(Figure::difference(
            &name(slowest.name),
            "one request, ms",
            "one call",
            &subject,
            &baseline,
            Some(BEYOND_MS),
        ));
    }
    Ok(())
}

impl Setup {
    async fn create(binary: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("bellbird-bench-")
            .tempdir()?;
        let (sandbox, description) = recording::start_with_description(binary, ROWS)?;
        let access = Access::read(&description)?;
        let sites = sites(&description, &access).await?;
        let workdir = Workdir::new(binary, folder.path().to_owned(), access)
            .with_settings(settings(&description)?);
        workdir.add_user()?;
        let mut connections = Vec::new();
        for (site, (_, share)) in sites.iter().zip(SHARES) {
            site.add_accounts(share).await?;
            connections.push((workdir.import(&site.credentials)?, share));
        }
        let key = workdir.keys(1)?.remove(0);
        let (service, _) = workdir.serve().await?;
        let ids = account_ids_of(service.address, &key, &connections)
            .await?
            .join(",");
        let request = client::get(&format!("/v1/balances?accountIds={ids}"), Some(&key));
        Ok(Self {
            _folder: folder,
            _sandbox: sandbox,
            service,
            sites,
            request,
        })
    }

    /// Milliseconds of requests to the service and of calls to the slowest provider, one of each
    /// per round.
    async fn run_alternating(
        &self,
        slowest: &Site,
        rounds: u32,
    ) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
        for site in &self.sites {
            site.delay(if site.name == slowest.name {
                SLOW_MS
            } else {
                QUICK_MS
            })
            .await?;
        }
        let mut service = Connection::open(self.service.address).await?;
        let mut direct = Connection::open(slowest.address).await?;
        // Not counted: these open all connections and fetch Fiskil's token.
        self.check(&mut service).await?;
        timed(&mut direct, &slowest.call, slowest.status).await?;
        let (mut subject, mut baseline) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            baseline.push(timed(&mut direct, &slowest.call, slowest.status).await?);
            subject.push(timed(&mut service, &self.request, 200).await?);
        }
        self.check(&mut service).await?;
        Ok((subject, baseline))
    }

    /// Checks that a response is uncached and has all 100 balances.
    async fn check(&self, service: &mut Connection) -> anyhow::Result<()> {
        let response = service.ask(&self.request).await?;
        let head = response.head.to_ascii_lowercase();
        ensure!(
            response.status == 200 && head.contains("x-cache: bypass"),
            "balances got {head}"
        );
        let body: Value = serde_json::from_slice(response.body)?;
        let balances = body["data"]
            .as_array()
            .context("the response has no balances")?;
        let known = balances
            .iter()
            .filter(|balance| !balance["currentBalance"].is_null())
            .count();
        ensure!(
            known == ACCOUNTS,
            "only {known} of {ACCOUNTS} balances have an amount"
        );
        Ok(())
    }
}

/// Time of one request, in milliseconds.
async fn timed(connection: &mut Connection, request: &[u8], status: u16) -> anyhow::Result<f64> {
    let started = Instant::now();
    let response = connection.ask(request).await?;
    let took = started.elapsed().as_secs_f64() * 1e3;
    ensure!(
        response.status == status,
        "got {}: {}",
        response.status,
        String::from_utf8_lossy(response.body)
    );
    Ok(took)
}

/// Settings for the other two providers. The cache is off, so that every request is live.
pub(crate) fn settings(description: &Value) -> anyhow::Result<Vec<(&'static str, String)>> {
    let (akahu, snaptrade) = (&description["akahu"], &description["snaptrade"]);
    Ok(vec![
        (
            "BELLBIRD_AKAHU__BASE_URL",
            recording::text(&akahu["baseUrl"])?,
        ),
        (
            "BELLBIRD_AKAHU__APP_TOKEN",
            recording::text(&akahu["appToken"])?,
        ),
        (
            "BELLBIRD_AKAHU__APP_SECRET",
            recording::text(&akahu["appSecret"])?,
        ),
        (
            "BELLBIRD_SNAPTRADE__BASE_URL",
            recording::text(&snaptrade["baseUrl"])?,
        ),
        (
            "BELLBIRD_SNAPTRADE__CLIENT_ID",
            recording::text(&snaptrade["clientId"])?,
        ),
        (
            "BELLBIRD_SNAPTRADE__CONSUMER_KEY",
            recording::text(&snaptrade["consumerKey"])?,
        ),
        ("BELLBIRD_CACHE__BALANCES_SECONDS", "0".to_owned()),
    ])
}

/// The three providers, each with its first credentials.
async fn sites(description: &Value, fiskil: &Access) -> anyhow::Result<Vec<Site>> {
    let mut sites = Vec::new();
    for (name, _) in SHARES {
        let credentials = description["credentials"]
            .as_array()
            .context("no credentials")?;
        let credentials = credentials
            .iter()
            .find(|credentials| credentials["provider"] == name)
            .context("a provider has no credentials")?;
        let base_url = recording::text(&description[name]["baseUrl"])?;
        let origin = base_url
            .trim_start_matches("http://")
            .split('/')
            .next()
            .unwrap_or_default();
        let call = match name {
            "fiskil" => fiskil.page(&fiskil.token().await?, "/v1/banking/balances", "")?,
            "akahu" => {
                let get = client::get("/v1/accounts", credentials["userToken"].as_str());
                client::with_header(
                    get,
                    &format!(
                        "x-akahu-id: {}",
                        recording::text(&description[name]["appToken"])?
                    ),
                )
            }
            _ => client::get("/", None),
        };
        let status = if name == "snaptrade" { 404 } else { 200 };
        sites.push(Site {
            name,
            address: origin.parse()?,
            credentials: credentials.clone(),
            call,
            status,
        });
    }
    Ok(sites)
}

impl Site {
    async fn add_accounts(&self, count: usize) -> anyhow::Result<()> {
        for _ in 0..count {
            let account = match self.name {
                "fiskil" => json!({
                    "endUserId": self.credentials["endUserId"], "arrangementId": self.credentials["arrangementId"],
                }),
                "akahu" => json!({
                    "userToken": self.credentials["userToken"], "authorisation": self.credentials["authorisation"],
                }),
                "snaptrade" => json!({ "authorizationId": self.credentials["authorizationId"] }),
                other => bail!("accounts cannot be added at {other}"),
            };
            client::text(self.address, &client::post("/__control/accounts", &account)).await?;
        }
        Ok(())
    }

    /// Makes the provider wait before each response from now on.
    async fn delay(&self, ms: u64) -> anyhow::Result<()> {
        client::text(self.address, &client::delete("/__control/faults")).await?;
        let fault = json!({ "match": "", "kind": "delay", "delayMs": ms });
        client::text(self.address, &client::post("/__control/faults", &fault)).await?;
        Ok(())
    }
}

/// The requested number of account ids of each connection.
async fn account_ids_of(
    address: SocketAddr,
    key: &str,
    connections: &[(String, usize)],
) -> anyhow::Result<Vec<String>> {
    let mut accounts = Vec::new();
    loop {
        let path = format!("/v1/accounts?limit=100&offset={}", accounts.len());
        let mut page = client::json(address, &client::get(&path, Some(key))).await?;
        match page["data"].as_array_mut() {
            Some(data) if !data.is_empty() => accounts.append(data),
            _ => break,
        }
    }
    let mut ids = Vec::new();
    for (connection_id, share) in connections {
        let matching = accounts
            .iter()
            .filter(|account| account["connectionId"] == connection_id.as_str());
        let matching = matching.filter_map(|account| account["id"].as_str().map(str::to_owned));
        ids.extend(matching.take(*share));
    }
    ensure!(ids.len() == ACCOUNTS, "only {} accounts", ids.len());
    Ok(ids)
}
