//! Events of one row and of 500, from the claim of the first sync to the last delivery, storing included.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::ensure;
use bellbird_webhooks::outbox::Outbox;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::feed::Feed;
use super::stage::{Database, Kind, Stage};
use super::{LOOK_EVERY, Receiver, alone, receiver, rows, webhooks};
use crate::WebhooksArgs;
use crate::figures::{Figure, Report, progress};

const SUBSCRIBERS: usize = 20;
/// Of each user: what is remembered of one connection's rows does not grow beyond what real ones have.
const CONNECTIONS: usize = 5;
/// Without a delivery, a round is given up after this.
const PATIENCE: Duration = Duration::from_secs(20);
const MEASURE: &str = "events a second";
const ALONE: &str = "sent alone";

/// Events of one size.
struct Size {
    name: &'static str,
    rows: usize,
    events: usize,
    /// Events that may wait: bodies of about 30 MB at most.
    ahead_max: usize,
    /// A second, on PostgreSQL.
    least: f64,
}

const SIZES: [Size; 2] = [
    Size { name: "events of one row", rows: 1, events: 10_000, ahead_max: 2_000, least: 1_000.0 },
    Size { name: "events of 500 rows", rows: 500, events: 1_200, ahead_max: 100, least: 120.0 },
];

/// Each size on each database.
pub(super) async fn run(args: &WebhooksArgs, report: &mut Report) -> anyhow::Result<()> {
    for kind in [Kind::Postgres, Kind::Sqlite] {
        for size in &SIZES {
            let name = format!("{}, {}", size.name, kind.name());
            if !args.wants(&name) {
                continue;
            }
            if !kind.is_here() {
                report.leave_out(format!("{name}: BELLBIRD_TEST_POSTGRES_URL is not set"));
                continue;
            }
            let (ours, theirs) = take_turns(args, kind, size).await?;
            let least = (kind == Kind::Postgres).then_some(size.least);
            report.add(Figure::rate(&name, MEASURE, ALONE, &ours, &theirs, least));
        }
    }
    Ok(())
}

/// Events a second, and messages a second of the client alone.
async fn take_turns(args: &WebhooksArgs, kind: Kind, size: &Size) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let (rows, events) = (rows::rows(size.rows)?, size.events * args.size as usize / 100);
    for round in 1..=args.rounds {
        let database = Database::make(kind).await?;
        let outcome = one_round(&database, &rows, events, size.ahead_max).await;
        database.remove().await?;
        let (our, their) = outcome?;
        progress(&format!("{}, {}, round {round}: {our:.0} a second, alone {their:.0}", size.name, kind.name()));
        ours.push(our);
        theirs.push(their);
    }
    Ok((ours, theirs))
}

async fn one_round(
    database: &Database,
    rows: &[Vec<u8>],
    events: usize,
    ahead_max: usize,
) -> anyhow::Result<(f64, f64)> {
    let mut receiver = Receiver::start().await?;
    let stage = Stage::set(database, receiver.address(), &[receiver::QUICK; SUBSCRIBERS], CONNECTIONS).await?;
    let theirs = alone::run(&stage.subscribers, rows, events).await?;
    receiver.expect(events).await?;
    receiver.reset().await?;
    let ours = ours(&stage, &mut receiver, rows, events, ahead_max).await?;
    receiver.expect(events).await?;
    stage.storage.close().await;
    Ok((ours, theirs))
}

async fn ours(
    stage: &Stage,
    receiver: &mut Receiver,
    rows: &[Vec<u8>],
    events: usize,
    ahead_max: usize,
) -> anyhow::Result<f64> {
    let outbox = Outbox::default();
    let (webhooks, stop) = (webhooks(&stage.storage, &outbox)?, CancellationToken::new());
    let feed = Arc::new(Feed::new(stage.storage.clone(), outbox, rows.to_vec(), ahead_max));
    let delivering = tokio::spawn({
        let stop = stop.clone();
        async move { webhooks.deliver(stop).await }
    });
    let started = Instant::now();
    let (feeding, waiting) = (feed.run(&stage.subscribers, events), arrive(receiver, &feed, events));
    tokio::try_join!(feeding, waiting)?;
    // What has arrived is not delivered before that is written down.
    stop.cancel();
    delivering.await?;
    let took = started.elapsed().as_secs_f64();
    let left = stage.storage.delivery_overview(Timestamp::now()).await?;
    ensure!(left.pending + left.waiting == 0, "not all is delivered: {left:?}");
    Ok(events as f64 / took)
}

/// Tells the feed what has arrived, until all has.
async fn arrive(receiver: &mut Receiver, feed: &Feed, events: usize) -> anyhow::Result<()> {
    let (mut before, mut since) = (0, Instant::now());
    loop {
        let arrived = receiver.counts().await?.answered;
        feed.arrived.store(arrived, Ordering::Relaxed);
        if arrived >= events {
            return Ok(());
        }
        if arrived > before {
            (before, since) = (arrived, Instant::now());
        }
        ensure!(since.elapsed() < PATIENCE, "only {arrived} of {events} events arrived");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
