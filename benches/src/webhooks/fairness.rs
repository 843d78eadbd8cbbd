//! Good receivers alone, and the same beside one that never answers and two that drip bytes for ever.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::ensure;
use bellbird_webhooks::Webhooks;
use bellbird_webhooks::webhook_events::WebhookEventBuffer;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::feed::Feed;
use super::receiver::{DRIPPING_BODY, DRIPPING_HEAD, QUICK, SILENT};
use super::setup::{Database, Kind, Setup, Subscriber};
use super::{POLL_INTERVAL, Receiver, rows, webhooks};
use crate::WebhooksArgs;
use crate::figures::{Figure, Report, progress};
use crate::process::resident_mb;

const GOOD: usize = 8;
const CONNECTIONS: usize = 5;
const PATHS: [&str; GOOD + 3] =
    [QUICK, QUICK, QUICK, QUICK, QUICK, QUICK, QUICK, QUICK, SILENT, DRIPPING_HEAD, DRIPPING_BODY];
/// Events that each of the bad ones is to get in a round: more than it can.
const EVENTS_PER_BAD_RECEIVER: usize = 300;
/// What is measured of a round: longer than one exchange with a bad one takes.
const ROUND: Duration = Duration::from_secs(20);
/// Before that, so that all is under way.
const WARM_UP: Duration = Duration::from_secs(2);
const UNSENT_MAX: usize = 1_000;
/// The good ones keep so much of their rate.
const LEAST: f64 = 0.9;
/// What "flat" allows for: the allocator does not give every page back at once.
const FLAT_MB: f64 = 10.0;

/// What a round came to.
struct Round {
    /// Of the good ones, a second.
    rate: f64,
    /// The most memory.
    memory_mb: f64,
}

/// On PostgreSQL, and on SQLite.
pub(super) async fn run(args: &WebhooksArgs, report: &mut Report) -> anyhow::Result<()> {
    for kind in [Kind::Postgres, Kind::Sqlite] {
        let name = format!("{GOOD} good receivers beside 3 bad receivers, {}", kind.name());
        if !args.is_selected(&name) {
            continue;
        }
        if !kind.is_here() {
            report.leave_out(format!("{name}: BELLBIRD_TEST_POSTGRES_URL is not set"));
            continue;
        }
        let database = Database::make(kind).await?;
        let outcome = run_alternating(args, &database).await;
        database.remove().await?;
        let (alone, beside) = outcome?;
        let rates = |rounds: &[Round]| rounds.iter().map(|round| round.rate).collect::<Vec<_>>();
        report.add(Figure::ratio_at_least(&name, "events a second", "alone", &rates(&beside), &rates(&alone), LEAST));
        let memory = |rounds: &[Round]| rounds.iter().map(|round| round.memory_mb).collect::<Vec<_>>();
        let growth = Some(FLAT_MB);
        report.add(Figure::difference(&name, "memory, MB", "alone", &memory(&beside), &memory(&alone), growth));
        let last = beside.last().map_or(0.0, |round| round.memory_mb);
        let grown = last - beside.first().map_or(0.0, |round| round.memory_mb);
        report.add(Figure::single(&name, "memory, last round less first, MB", &[grown], growth));
    }
    Ok(())
}

/// Rounds of the good ones alone, and of all.
async fn run_alternating(args: &WebhooksArgs, database: &Database) -> anyhow::Result<(Vec<Round>, Vec<Round>)> {
    let mut receiver = Receiver::start().await?;
    let setup = Setup::create(database, receiver.address(), &PATHS, CONNECTIONS).await?;
    let (event_buffer, rows) = (WebhookEventBuffer::default(), rows::rows(1)?);
    let webhooks = webhooks(&setup.storage, &event_buffer)?;
    let (good, bad) = setup.subscribers.split_at(GOOD);
    let feed = Arc::new(Feed::new(setup.storage.clone(), event_buffer, rows, UNSENT_MAX));
    let round = ROUND * args.size / 100;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    // The first one fills the memory that is kept for bodies, and does not count.
    run_round(&webhooks, &feed, good, &mut receiver, round).await?;
    for number in 1..=args.rounds {
        // In turn, as tables grow from round to round.
        let beside_first = number % 2 == 0;
        if !beside_first {
            alone.push(run_round(&webhooks, &feed, good, &mut receiver, round).await?);
        }
        for subscriber in bad {
            setup.storage.enable_endpoint(subscriber.user, subscriber.endpoint).await?;
        }
        queue_for_bad_receivers(&feed, bad).await?;
        beside.push(run_round(&webhooks, &feed, good, &mut receiver, round).await?);
        let unanswered = receiver.counts().await?.unanswered;
        ensure!(unanswered > 0, "the bad receivers got nothing");
        for subscriber in bad {
            let (user, endpoint) = (subscriber.user, subscriber.endpoint);
            setup.storage.disable_endpoint(user, endpoint, "by command", Timestamp::now()).await?;
        }
        if beside_first {
            alone.push(run_round(&webhooks, &feed, good, &mut receiver, round).await?);
        }
        let Some((alone, beside)) = alone.last().zip(beside.last()) else { continue };
        progress(&format!(
            "round {number}: alone {:.0} a second, {:.0} MB; beside bad ones, which got {unanswered}: {:.0} a second, {:.0} MB",
            alone.rate, alone.memory_mb, beside.rate, beside.memory_mb
        ));
    }
    setup.storage.close().await;
    Ok((alone, beside))
}

/// Events that are sent again without asking a provider.
async fn queue_for_bad_receivers(feed: &Feed, bad: &[Subscriber]) -> anyhow::Result<()> {
    for number in 0..EVENTS_PER_BAD_RECEIVER {
        for subscriber in bad {
            let connection = subscriber.connections[number % CONNECTIONS];
            let target = (subscriber.user, connection);
            rows::sync(&feed.storage, &feed.event_buffer, target, &feed.rows, true).await?;
        }
    }
    Ok(())
}

/// The rate of the good ones while syncs go on, and the most memory of this process.
async fn run_round(
    webhooks: &Webhooks,
    feed: &Arc<Feed>,
    good: &[Subscriber],
    receiver: &mut Receiver,
    time: Duration,
) -> anyhow::Result<Round> {
    receiver.reset().await?;
    feed.restart();
    let stop = CancellationToken::new();
    let delivering = tokio::spawn({
        let (webhooks, stop) = (webhooks.clone(), stop.clone());
        async move { webhooks.deliver(stop).await }
    });
    let watching = async {
        let round = watch(feed, receiver, time).await;
        feed.stop();
        round
    };
    let round = tokio::try_join!(feed.run(good, usize::MAX), watching).map(|((), round)| round);
    // What is under way to the bad ones ends with its deadline; the next round begins behind it.
    stop.cancel();
    delivering.await?;
    round
}

async fn watch(feed: &Feed, receiver: &mut Receiver, time: Duration) -> anyhow::Result<Round> {
    let warm = poll(feed, receiver, WARM_UP).await?;
    let started = Instant::now();
    let done = poll(feed, receiver, time).await?;
    let came = done.0.saturating_sub(warm.0);
    Ok(Round { rate: came as f64 / started.elapsed().as_secs_f64(), memory_mb: done.1 })
}

/// For a while: what has arrived in the end, and the most memory meanwhile.
async fn poll(feed: &Feed, receiver: &mut Receiver, time: Duration) -> anyhow::Result<(usize, f64)> {
    let (until, mut most) = (Instant::now() + time, 0.0_f64);
    loop {
        let received = receiver.counts().await?.answered;
        feed.received.store(received, Ordering::Relaxed);
        most = most.max(resident_mb(std::process::id())?);
        if Instant::now() >= until {
            return Ok((received, most));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
