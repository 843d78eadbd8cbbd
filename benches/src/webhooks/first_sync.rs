//! Measures the processor time of `bellbird serve` while it reads many new rows from the sandbox and delivers them.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bellbird_storage::{JobKey, Sealer, Storage, job_kinds};
use jiff::{SignedDuration, Timestamp};

use super::{Receiver, receiver};
use crate::WebhooksArgs;
use crate::figures::{Figure, Report, progress};
use crate::process::Clock;
use crate::recording;
use crate::service::{self, Workdir};

const NAME: &str = "first sync, events of 500 rows, sqlite";
/// Rows of the sandbox's busiest account: some 50,000 of them lie in the longest range that a first sync reads.
const ROWS: u32 = 73_500;
const RANGE_DAYS: &str = "730";
/// Target: milliseconds of processor time an event.
const MILLISECONDS_MAX: f64 = 5.0;
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const TIME_MAX: Duration = Duration::from_secs(120);

pub(super) async fn run(args: &WebhooksArgs, report: &mut Report) -> anyhow::Result<()> {
    if !args.is_selected(NAME) {
        return Ok(());
    }
    let mut values = Vec::new();
    for round in 1..=args.rounds {
        let (events, milliseconds) = run_round(args).await?;
        progress(&format!("{NAME}, round {round}: {events} events, {milliseconds:.2} ms each"));
        values.push(milliseconds);
    }
    report.add(Figure::single(NAME, "processor time an event, ms", &values, Some(MILLISECONDS_MAX)));
    Ok(())
}

/// Returns the number of events, and the processor time of each in milliseconds.
async fn run_round(args: &WebhooksArgs) -> anyhow::Result<(usize, f64)> {
    let binary = service::binary(&args.program)?;
    let (_sandbox, access) = recording::start_sandbox(&binary, ROWS)?;
    let mut receiver = Receiver::start().await?;
    let folder = tempfile::Builder::new().prefix("bellbird-bench-").tempdir()?;
    let workdir = Workdir::new(&binary, folder.path().to_owned(), access.clone()).with_settings(vec![
        ("BELLBIRD_SYNC__FIRST_DAYS", RANGE_DAYS.to_owned()),
        ("BELLBIRD_WEBHOOKS__ALLOW_LOOPBACK", "true".to_owned()),
    ]);
    workdir.add_user()?;
    let connection = workdir.import(&access.credentials)?;
    workdir.add_endpoint(&format!("http://{}{}", receiver.address(), receiver::QUICK))?;
    let database = format!("sqlite:{}", folder.path().join("bellbird.db").display());
    let storage = Storage::open(&database, Sealer::parse(service::MASTER_KEY)?).await?;
    request_sync(&storage, &connection).await?;
    let (service, _) = workdir.serve().await?;
    let started = Instant::now();
    let events = loop {
        ensure!(started.elapsed() < TIME_MAX, "the deliveries did not end");
        tokio::time::sleep(POLL_INTERVAL).await;
        let left = storage.deliveries().overview(Timestamp::now()).await?;
        let received = receiver.counts().await?.distinct;
        if received > 0 && left.pending + left.waiting == 0 {
            break received;
        }
    };
    // All of the process, so its start counts too: some milliseconds.
    let spent = Clock::read(&service.ids())?.since(&Clock::read(&[])?);
    Ok((events, spent / 1e3 / events as f64))
}

/// Requests the sync that an import plans for ten minutes later.
async fn request_sync(storage: &Storage, connection: &str) -> anyhow::Result<()> {
    let user = storage.users().list().await?.first().context("no user")?.id;
    let key = JobKey::new(job_kinds::SYNC, user, connection);
    ensure!(storage.jobs().request(&key, Timestamp::now(), SignedDuration::ZERO).await?, "no sync was requested");
    Ok(())
}
