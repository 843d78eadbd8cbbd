//! Measures webhook events of 1 and of 500 rows, from the claim of the first sync to the last
//! stored delivery result.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::ensure;
use bellbird_webhooks::event::buffer::WebhookEventBuffer;
use bellbird_webhooks::event::payload::RowJson;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::feed::Feed;
use super::setup::{Database, Kind, Setup};
use super::{POLL_INTERVAL, Receiver, receiver, rows, send_only, webhooks};
use crate::WebhooksArgs;
use crate::figures::{Figure, Report, progress};

const SUBSCRIBERS: usize = 20;
/// Connections per user: enough that the fingerprints of one stay as few as those of a real
/// connection.
const CONNECTIONS: usize = 5;
/// A round without a delivery for this long fails.
const STALL_TIMEOUT: Duration = Duration::from_secs(20);
const MEASURE: &str = "events a second";
const ALONE: &str = "sent alone";

/// A series of events with the same number of rows.
struct Size {
    name: &'static str,
    rows: usize,
    events: usize,
    /// Events that may wait at once. It bounds the waiting bodies to about 30 MB.
    unsent_max: usize,
    /// Target on PostgreSQL, in events per second.
    rate_min: f64,
}

const SIZES: [Size; 2] = [
    Size {
        name: "events of one row",
        rows: 1,
        events: 10_000,
        unsent_max: 2_000,
        rate_min: 3_000.0,
    },
    Size {
        name: "events of 500 rows",
        rows: 500,
        events: 1_200,
        unsent_max: 100,
        rate_min: 120.0,
    },
];

pub(super) async fn run(args: &WebhooksArgs, report: &mut Report) -> anyhow::Result<()> {
    for kind in [Kind::Postgres, Kind::Sqlite] {
        for size in &SIZES {
            let name = format!("{}, {}", size.name, kind.name());
            if !args.is_selected(&name) {
                continue;
            }
            if !kind.is_available() {
                report.leave_out(format!("{name}: BELLBIRD_TEST_POSTGRES_URL is not set"));
                continue;
            }
            let (subject, baseline) = run_alternating(args, kind, size).await?;
            let least = (kind == Kind::Postgres).then_some(size.rate_min);
            report.add(Figure::rate(
                &name, MEASURE, ALONE, &subject, &baseline, least,
            ));
        }
    }
    Ok(())
}

/// Returns events per second of the service, and messages per second of the client alone.
async fn run_alternating(
    args: &WebhooksArgs,
    kind: Kind,
    size: &Size,
) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let (mut subject, mut baseline) = (Vec::new(), Vec::new());
    let (rows, events) = (
        rows::rows(size.rows)?,
        size.events * args.size as usize / 100,
    );
    for round in 1..=args.rounds {
        let database = Database::create(kind).await?;
        let outcome = run_round(&database, &rows, events, size.unsent_max).await;
        database.remove().await?;
        let (subject_rate, baseline_rate) = outcome?;
        progress(&format!(
            "{}, {}, round {round}: {subject_rate:.0} per second, sent alone {baseline_rate:.0}",
            size.name,
            kind.name()
        ));
        subject.push(subject_rate);
        baseline.push(baseline_rate);
    }
    Ok((subject, baseline))
}

async fn run_round(
    database: &Database,
    rows: &[RowJson],
    events: usize,
    unsent_max: usize,
) -> anyhow::Result<(f64, f64)> {
    let mut receiver = Receiver::start().await?;
    let setup = Setup::create(
        database,
        receiver.address(),
        &[receiver::QUICK; SUBSCRIBERS],
        CONNECTIONS,
    )
    .await?;
    let baseline = send_only::run(&setup.subscribers, rows, events).await?;
    receiver.expect(events).await?;
    receiver.reset().await?;
    let subject = subject(&setup, &mut receiver, rows, events, unsent_max).await?;
    receiver.expect(events).await?;
    setup.storage.close().await;
    Ok((subject, baseline))
}

async fn subject(
    setup: &Setup,
    receiver: &mut Receiver,
    rows: &[RowJson],
    events: usize,
    unsent_max: usize,
) -> anyhow::Result<f64> {
    let event_buffer = WebhookEventBuffer::default();
    let (webhooks, stop) = (
        webhooks(&setup.storage, &event_buffer)?,
        CancellationToken::new(),
    );
    let feed = Arc::new(Feed::new(
        setup.storage.clone(),
        event_buffer,
        rows.to_vec(),
        unsent_max,
    ));
    let delivering = tokio::spawn({
        let stop = stop.clone();
        async move { webhooks.deliver(stop).await }
    });
    let started = Instant::now();
    let (feeding, waiting) = (
        feed.run(&setup.subscribers, events),
        wait_for_deliveries(receiver, &feed, events),
    );
    tokio::try_join!(feeding, waiting)?;
    // A received event counts as delivered once its result is stored.
    stop.cancel();
    delivering.await?;
    let took = started.elapsed().as_secs_f64();
    let left = setup
        .storage
        .deliveries()
        .overview(Timestamp::now())
        .await?;
    ensure!(
        left.pending + left.waiting == 0,
        "some deliveries are left: {left:?}"
    );
    Ok(events as f64 / took)
}

/// Reports the number of received events to the feed, until all are received.
async fn wait_for_deliveries(
    receiver: &mut Receiver,
    feed: &Feed,
    events: usize,
) -> anyhow::Result<()> {
    let (mut before, mut since) = (0, Instant::now());
    loop {
        let received = receiver.counts().await?.answered;
        feed.received.store(received, Ordering::Relaxed);
        if received >= events {
            return Ok(());
        }
        if received > before {
            (before, since) = (received, Instant::now());
        }
        ensure!(
            since.elapsed() < STALL_TIMEOUT,
            "only {received} of {events} events were received"
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
