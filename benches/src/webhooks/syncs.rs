//! Measures `bellbird serve` while it syncs a connection of the sandbox and delivers the events:
//! the first sync, one that finds nothing new, and those after many rows have vanished.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bellbird_domain::{ConnectionId, UserId};
use bellbird_storage::{JobKey, Sealer, Storage, job_kinds};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Receiver, receiver};
use crate::WebhooksArgs;
use crate::client::{self, Connection};
use crate::figures::{Figure, Report, progress};
use crate::process::{Clock, Server, peak_resident_mb};
use crate::recording::{self, Access};
use crate::service::{self, Workdir};

const FIRST: &str = "first sync, events of 500 rows, sqlite";
const UNCHANGED: &str = "unchanged sync of 20,000 rows, sqlite";
const VANISHED: &str = "10,000 rows vanished, events of 500 rows, sqlite";
/// Rows of the account that is measured. Other accounts of the connection have some hundred.
const ROWS: usize = 20_000;
const VANISHED_ROWS: usize = 10_000;
/// Each of these syncs finds as many rows as an event holds.
const LATER_SYNCS: usize = 10;
const EVENT_ROWS: usize = 500;
/// Target: milliseconds of processor time an event.
const MILLISECONDS_MAX: f64 = 5.0;
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const TIME_MAX: Duration = Duration::from_secs(120);

/// One value for each round.
#[derive(Default)]
struct Values {
    first_ms: Vec<f64>,
    first_rate: Vec<f64>,
    peak_mb: Vec<f64>,
    unchanged_ms: Vec<f64>,
    vanished_ms: Vec<f64>,
}

pub(super) async fn run(args: &WebhooksArgs, report: &mut Report) -> anyhow::Result<()> {
    if ![FIRST, UNCHANGED, VANISHED]
        .iter()
        .any(|name| args.is_selected(name))
    {
        return Ok(());
    }
    let binary = service::binary(&args.program)?;
    let mut values = Values::default();
    for round in 1..=args.rounds {
        run_round(&binary, &mut values).await?;
        let last = |values: &[f64]| values.last().copied().unwrap_or(f64::NAN);
        progress(&format!(
            "syncs, round {round}: first {:.2} ms an event, {:.0} a second, {:.0} MB; unchanged {:.0} ms; rows \
             vanished {:.2} ms an event",
            last(&values.first_ms),
            last(&values.first_rate),
            last(&values.peak_mb),
            last(&values.unchanged_ms),
            last(&values.vanished_ms),
        ));
    }
    let an_event = "processor time an event, ms";
    report.add(Figure::single(
        FIRST,
        an_event,
        &values.first_ms,
        Some(MILLISECONDS_MAX),
    ));
    report.add(Figure::single(
        FIRST,
        "events a second, first to last delivery",
        &values.first_rate,
        None,
    ));
    report.add(Figure::single(
        FIRST,
        "peak memory, MB",
        &values.peak_mb,
        None,
    ));
    report.add(Figure::single(
        UNCHANGED,
        "processor time, ms",
        &values.unchanged_ms,
        None,
    ));
    report.add(Figure::single(
        VANISHED,
        an_event,
        &values.vanished_ms,
        None,
    ));
    Ok(())
}

async fn run_round(binary: &Path, values: &mut Values) -> anyhow::Result<()> {
    let mut side = Side::start(binary).await?;
    // All of the process, so its start counts too: some milliseconds.
    let (events, first) = side.deliver(Clock::read(&[])?).await?;
    values.first_ms.push(first.processor_ms / events as f64);
    values.first_rate.push(events as f64 / first.seconds);
    values.peak_mb.push(peak_resident_mb(side.service.id())?);

    let before = Clock::read(&side.service.ids())?;
    side.sync().await?;
    values
        .unchanged_ms
        .push(Clock::read(&side.service.ids())?.since(&before) / 1e3);

    side.remove_rows(VANISHED_ROWS).await?;
    side.sync().await?;
    let mut spent = 0.0;
    for _ in 0..LATER_SYNCS {
        side.add_rows(EVENT_ROWS).await?;
        side.receiver.reset().await?;
        let before = Clock::read(&side.service.ids())?;
        side.request_sync().await?;
        let (events, spent_here) = side.deliver(before).await?;
        ensure!(events == 1, "{events} events for {EVENT_ROWS} rows");
        spent += spent_here.processor_ms;
    }
    values.vanished_ms.push(spent / LATER_SYNCS as f64);
    Ok(())
}

struct Spent {
    processor_ms: f64,
    /// From the first delivery to the last.
    seconds: f64,
}

/// A service with a connection, of which one account has many rows.
struct Side {
    service: Server,
    storage: Storage,
    user: UserId,
    connection: ConnectionId,
    receiver: Receiver,
    control: Connection,
    account: String,
    /// The ids of the account's rows at the provider, as its simulation addresses them.
    rows: Vec<String>,
    added: usize,
    _sandbox: Server,
    _folder: TempDir,
}

impl Side {
    /// Starts the service with a first sync that is due.
    async fn start(binary: &Path) -> anyhow::Result<Self> {
        let (sandbox, access) = recording::start_sandbox(binary, 500)?;
        let account = account_id(&access).await?;
        let receiver = Receiver::start().await?;
        let folder = tempfile::Builder::new()
            .prefix("bellbird-bench-")
            .tempdir()?;
        let workdir =
            Workdir::new(binary, folder.path().to_owned(), access.clone()).with_settings(vec![
                ("BELLBIRD_SYNC__FIRST_DAYS", "90".to_owned()),
                ("BELLBIRD_SYNC__OVERLAP_DAYS", "90".to_owned()),
                ("BELLBIRD_WEBHOOKS__ALLOW_LOOPBACK", "true".to_owned()),
            ]);
        workdir.add_user()?;
        let connection = workdir.import(&access.credentials)?.parse()?;
        workdir.add_endpoint(&format!("http://{}{}", receiver.address(), receiver::QUICK))?;
        let database = format!("sqlite:{}", folder.path().join("bellbird.db").display());
        let storage = Storage::open(&database, Sealer::parse(service::MASTER_KEY)?).await?;
        let user = storage.users().list().await?.first().context("no user")?.id;
        request_sync(&storage, user, connection).await?;
        let mut control = Connection::open(access.address).await?;
        let (mut rows, mut added) = (Vec::new(), 0);
        add_rows(&mut control, &account, &mut rows, &mut added, ROWS).await?;
        let (service, _) = workdir.serve().await?;
        Ok(Self {
            service,
            storage,
            user,
            connection,
            receiver,
            control,
            account,
            rows,
            added,
            _sandbox: sandbox,
            _folder: folder,
        })
    }

    /// Waits until all events are delivered. Returns their number, and what was spent since
    /// `before`.
    async fn deliver(&mut self, before: Clock) -> anyhow::Result<(usize, Spent)> {
        let (started, mut first, mut last, mut received) =
            (Instant::now(), None, Instant::now(), 0);
        loop {
            ensure!(started.elapsed() < TIME_MAX, "the deliveries did not end");
            tokio::time::sleep(POLL_INTERVAL).await;
            let counts = self.receiver.counts().await?;
            if counts.distinct > received {
                (received, last) = (counts.distinct, Instant::now());
                first.get_or_insert(last);
            }
            let left = self.storage.deliveries().overview(Timestamp::now()).await?;
            if received > 0 && left.pending + left.waiting == 0 {
                let processor_ms = Clock::read(&self.service.ids())?.since(&before) / 1e3;
                let seconds = first.map_or(0.0, |first| last.duration_since(first).as_secs_f64());
                return Ok((
                    received,
                    Spent {
                        processor_ms,
                        seconds,
                    },
                ));
            }
        }
    }

    async fn request_sync(&self) -> anyhow::Result<()> {
        request_sync(&self.storage, self.user, self.connection).await
    }

    /// Syncs, and waits for the end.
    async fn sync(&self) -> anyhow::Result<()> {
        let synced_at = async || {
            let state = self
                .storage
                .syncs()
                .find(self.user, self.connection)
                .await?;
            anyhow::Ok(state.context("the connection is gone")?.synced_at)
        };
        let (before, started) = (synced_at().await?, Instant::now());
        self.request_sync().await?;
        while synced_at().await? == before {
            ensure!(started.elapsed() < TIME_MAX, "the sync did not end");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    async fn add_rows(&mut self, count: usize) -> anyhow::Result<()> {
        add_rows(
            &mut self.control,
            &self.account,
            &mut self.rows,
            &mut self.added,
            count,
        )
        .await
    }

    async fn remove_rows(&mut self, count: usize) -> anyhow::Result<()> {
        for id in self.rows.drain(..count) {
            let response = self
                .control
                .ask(&client::delete(&format!("/__control/transactions/{id}")))
                .await?;
            ensure!(
                response.status == 204,
                "removing a row got {}",
                response.status
            );
        }
        Ok(())
    }
}

/// An account of the connection that is measured.
async fn account_id(access: &Access) -> anyhow::Result<String> {
    let token = access.token().await?;
    let page = client::json(
        access.address,
        &access.page(&token, "/v1/banking/accounts", "")?,
    )
    .await?;
    let arrangement = &access.credentials["arrangementId"];
    let mut accounts = page["accounts"]
        .as_array()
        .context("the response has no accounts")?
        .iter();
    let account = accounts
        .rfind(|account| account["arrangement_id"] == *arrangement)
        .context("no account")?;
    recording::text(&account["account_id"])
}

/// Adds rows of the last 80 days.
async fn add_rows(
    control: &mut Connection,
    account: &str,
    rows: &mut Vec<String>,
    added: &mut usize,
    count: usize,
) -> anyhow::Result<()> {
    let now = Timestamp::now();
    for _ in 0..count {
        *added += 1;
        let minutes = i64::try_from(*added * 7 % (80 * 24 * 60))?;
        let posted = now - SignedDuration::from_mins(minutes + 60);
        let row = json!({
            "account_id": account,
            "amount": format!("-{}.{:02}", *added % 900, *added % 100),
            "description": format!("BENCH GROCER {added} PARRAMATTA NSW"),
            "posting_date_time": posted.to_string(),
            "execution_date_time": posted.to_string(),
        });
        let response = control
            .ask(&client::post("/__control/transactions", &row))
            .await?;
        let body: Value = serde_json::from_slice(response.body)?;
        ensure!(
            response.status == 201,
            "adding a row got {}: {body}",
            response.status
        );
        rows.push(recording::text(&body["fiskil_id"])?);
    }
    Ok(())
}

/// Requests the sync now that is planned for later.
async fn request_sync(
    storage: &Storage,
    user: UserId,
    connection: ConnectionId,
) -> anyhow::Result<()> {
    let key = JobKey::new(job_kinds::SYNC, user, connection);
    ensure!(
        storage
            .jobs()
            .request(&key, Timestamp::now(), SignedDuration::ZERO)
            .await?,
        "no sync was requested"
    );
    Ok(())
}
