//! Balances of 100 accounts at three providers, beside one call to the slowest of them.

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

/// The providers, and of how many accounts at each balances are asked for: a hundred in all.
const SHARES: [(&str, usize); 3] = [("fiskil", 33), ("akahu", 33), ("snaptrade", 34)];
/// One request may ask for no more.
const ACCOUNTS: usize = 100;
/// How long every call to the slowest provider takes, and to the others.
const SLOW_MS: u64 = 200;
const QUICK_MS: u64 = 50;
/// What Bellbird may take beyond one call.
const BEYOND_MS: f64 = 20.0;
/// Of the busiest account: rows are not asked for.
const ROWS: u32 = 200;

/// A provider of the sandbox.
struct Site {
    name: &'static str,
    address: SocketAddr,
    credentials: Value,
    /// A call that stands for any: the provider's own list of balances, where that needs no signature.
    call: Vec<u8>,
}

/// The service, with a user who has accounts at all three.
struct Setup {
    _folder: TempDir,
    _sandbox: Server,
    service: Server,
    sites: Vec<Site>,
    /// Asks for a hundred balances.
    request: Vec<u8>,
}

/// Each provider is the slowest once.
pub(crate) async fn run(args: &HttpArgs, report: &mut Report) -> anyhow::Result<()> {
    let name = |slowest: &str| format!("balances of {ACCOUNTS} accounts, {slowest} slowest");
    let wanted: Vec<&str> =
        SHARES.iter().map(|(slowest, _)| *slowest).filter(|slowest| args.is_selected(&name(slowest))).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let setup = Setup::create(&service::binary(&args.program)?).await?;
    for slowest in setup.sites.iter().filter(|site| wanted.contains(&site.name)) {
        let (subject, baseline) = setup.run_alternating(slowest, args.rounds).await?;
        report.add(Figure::difference(&name(slowest.name), "one request, ms", "one call", &subject, &baseline, Some(BEYOND_MS)));
    }
    Ok(())
}

impl Setup {
    async fn create(binary: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("bellbird-bench-").tempdir()?;
        let (sandbox, description) = recording::start_with_description(binary, ROWS)?;
        let access = Access::read(&description)?;
        let sites = sites(&description, &access).await?;
        let workdir = Workdir::new(binary, folder.path().to_owned(), access).with_settings(settings(&description)?);
        workdir.add_user()?;
        let mut connections = Vec::new();
        for (site, (_, share)) in sites.iter().zip(SHARES) {
            site.add_accounts(share).await?;
            connections.push((workdir.import(&site.credentials)?, share));
        }
        let key = workdir.keys(1)?.remove(0);
        let (service, _) = workdir.serve().await?;
        let ids = share_out(service.address, &key, &connections).await?.join(",");
        let request = client::get(&format!("/v1/balances?accountIds={ids}"), Some(&key));
        Ok(Self { _folder: folder, _sandbox: sandbox, service, sites, request })
    }

    /// Milliseconds of the service's requests and of calls to the slowest provider, one of each a round.
    async fn run_alternating(&self, slowest: &Site, rounds: u32) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
        for site in &self.sites {
            site.delay(if site.name == slowest.name { SLOW_MS } else { QUICK_MS }).await?;
        }
        let mut service = Connection::open(self.service.address).await?;
        let mut direct = Connection::open(slowest.address).await?;
        // The connections of all calls, and Fiskil's token.
        self.check(&mut service).await?;
        timed(&mut direct, &slowest.call).await?;
        let (mut subject, mut baseline) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            baseline.push(timed(&mut direct, &slowest.call).await?);
            subject.push(timed(&mut service, &self.request).await?);
        }
        self.check(&mut service).await?;
        Ok((subject, baseline))
    }

    /// A whole answer, asked of the providers.
    async fn check(&self, service: &mut Connection) -> anyhow::Result<()> {
        let answer = service.ask(&self.request).await?;
        let head = answer.head.to_ascii_lowercase();
        ensure!(answer.status == 200 && head.contains("x-cache: bypass"), "the answer to balances is {head}");
        let body: Value = serde_json::from_slice(answer.body)?;
        let balances = body["data"].as_array().context("no balances")?;
        let known = balances.iter().filter(|balance| !balance["currentBalance"].is_null()).count();
        ensure!(known == ACCOUNTS, "{known} of {ACCOUNTS} balances are known");
        Ok(())
    }
}

/// One request, in milliseconds.
async fn timed(connection: &mut Connection, request: &[u8]) -> anyhow::Result<f64> {
    let started = Instant::now();
    let answer = connection.ask(request).await?;
    let took = started.elapsed().as_secs_f64() * 1e3;
    ensure!(answer.status == 200, "answered {}: {}", answer.status, String::from_utf8_lossy(answer.body));
    Ok(took)
}

/// What the service is told beside Fiskil; nothing is kept, so that every request is a live one.
fn settings(description: &Value) -> anyhow::Result<Vec<(&'static str, String)>> {
    let (akahu, snaptrade) = (&description["akahu"], &description["snaptrade"]);
    Ok(vec![
        ("BELLBIRD_AKAHU__BASE_URL", recording::text(&akahu["baseUrl"])?),
        ("BELLBIRD_AKAHU__APP_TOKEN", recording::text(&akahu["appToken"])?),
        ("BELLBIRD_AKAHU__APP_SECRET", recording::text(&akahu["appSecret"])?),
        ("BELLBIRD_SNAPTRADE__BASE_URL", recording::text(&snaptrade["baseUrl"])?),
        ("BELLBIRD_SNAPTRADE__CLIENT_ID", recording::text(&snaptrade["clientId"])?),
        ("BELLBIRD_SNAPTRADE__CONSUMER_KEY", recording::text(&snaptrade["consumerKey"])?),
        ("BELLBIRD_CACHE__BALANCES_SECONDS", "0".to_owned()),
    ])
}

/// The three, each with its first credentials.
async fn sites(description: &Value, fiskil: &Access) -> anyhow::Result<Vec<Site>> {
    let mut sites = Vec::new();
    for (name, _) in SHARES {
        let credentials = description["credentials"].as_array().context("no credentials")?;
        let credentials = credentials.iter().find(|credentials| credentials["provider"] == name).context("a provider without credentials")?;
        let base_url = recording::text(&description[name]["baseUrl"])?;
        let origin = base_url.trim_start_matches("http://").split('/').next().unwrap_or_default();
        let call = match name {
            "fiskil" => fiskil.page(&fiskil.token().await?, "/v1/banking/balances", "")?,
            "akahu" => {
                let get = client::get("/v1/accounts", credentials["userToken"].as_str());
                client::with_header(get, &format!("x-akahu-id: {}", recording::text(&description[name]["appToken"])?))
            }
            // Its lists are for signed requests; this one is open.
            _ => client::get("/", None),
        };
        sites.push(Site { name, address: origin.parse()?, credentials: credentials.clone(), call });
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
                other => bail!("how accounts are added at {other} is not known"),
            };
            client::text(self.address, &client::post("/__control/accounts", &account)).await?;
        }
        Ok(())
    }

    /// From now on, how long the provider waits before each answer.
    async fn delay(&self, ms: u64) -> anyhow::Result<()> {
        client::text(self.address, &client::delete("/__control/faults")).await?;
        let fault = json!({ "match": "", "kind": "delay", "delayMs": ms });
        client::text(self.address, &client::post("/__control/faults", &fault)).await?;
        Ok(())
    }
}

/// So many ids of accounts of each connection.
async fn share_out(address: SocketAddr, key: &str, connections: &[(String, usize)]) -> anyhow::Result<Vec<String>> {
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
        let its = accounts.iter().filter(|account| account["connectionId"] == connection_id.as_str());
        let its = its.filter_map(|account| account["id"].as_str().map(str::to_owned));
        ids.extend(its.take(*share));
    }
    ensure!(ids.len() == ACCOUNTS, "only {} accounts", ids.len());
    Ok(ids)
}
