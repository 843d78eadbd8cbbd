//! Measures delivery to good receivers, alone and beside three bad ones: one never responds, two
//! drip bytes forever.

use bellbird_domain::Fingerprints;
use bellbird_storage::in_tx;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::ensure;
use bellbird_webhooks::Webhooks;
use bellbird_webhooks::event::buffer::WebhookEventBuffer;
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
const PATHS: [&str; GOOD + 3] = [
    QUICK,
    QUICK,
    QUICK,
    QUICK,
    QUICK,
    QUICK,
    QUICK,
    QUICK,
    SILENT,
    DRIPPING_HEAD,
    DRIPPING_BODY,
];
/// Events queued per bad receiver and round: more than it accepts in that time.
const EVENTS_PER_BAD_RECEIVER: usize = 300;
/// Measured time of a round: longer than one exchange with a bad receiver.
const ROUND: Duration = Duration::from_secs(20);
/// Before the measurement, so that syncs and deliveries run at their usual rate.
const WARM_UP: Duration = Duration::from_secs(2);
const UNSENT_MAX: usize = 1_000;
/// Target: the share of their rate that the good receivers keep.
const RATIO_MIN: f64 = 0.9;
/// Growth that still counts as flat, because the allocator does not return every page at once.
const FLAT_MB: f64 = 10.0;

struct Round {
    /// Events per second to the good receivers.
    rate: f64,
    /// Most memory during the round.
    memory_mb: f64,
}

pub(super) async fn run(args: &WebhooksArgs, report: &mut Report) -> anyhow::Result<()> {
    for kind in [Kind::Postgres, Kind::Sqlite] {
        let name = format!(
            "{GOOD} good receivers beside 3 bad receivers, {}",
            kind.name()
        );
        if !args.is_selected(&name) {
            continue;
        }
        if !kind.is_available() {
            report.leave_out(format!("{name}: BELLBIRD_TEST_POSTGRES_URL is not set"));
            continue;
        }
        let database = Database::create(kind).await?;
        let outcome = run_alternating(args, &database).await;
        database.remove().await?;
        let (alone, beside) = outcome?;
        let rates = |rounds: &[Round]| rounds.iter().map(|round| round.rate).collect::<Vec<_>>();
        report.add(Figure::ratio_at_least(
            &name,
            "events a second",
            "alone",
            &rates(&beside),
            &rates(&alone),
            RATIO_MIN,
        ));
        let memory = |rounds: &[Round]| {
            rounds
                .iter()
                .map(|round| round.memory_mb)
                .collect::<Vec<_>>()
        };
        let growth = Some(FLAT_MB);
        report.add(Figure::difference(
            &name,
            "memory, MB",
            "alone",
            &memory(&beside),
            &memory(&alone),
            growth,
        ));
        let last = beside.last().map_or(0.0, |round| round.memory_mb);
        let grown = last - beside.first().map_or(0.0, |round| round.memory_mb);
        report.add(Figure::single(
            &name,
            "memory, last round less first, MB",
            &[grown],
            growth,
        ));
    }
    Ok(())
}

/// Returns the rounds with good receivers alone, and those with all receivers.
async fn run_alternating(
    args: &WebhooksArgs,
    database: &Database,
) -> anyhow::Result<(Vec<Round>, Vec<Round>)> {
    let mut receiver = Receiver::start().await?;
    let setup = Setup::create(database, receiver.address(), &PATHS, CONNECTIONS).await?;
    let (event_buffer, rows) = (WebhookEventBuffer::default(), rows::rows(1)?);
    let webhooks = webhooks(&setup.storage, &event_buffer)?;
    let (good, bad) = setup.subscribers.split_at(GOOD);
    let feed = Arc::new(Feed::new(
        setup.storage.clone(),
        event_buffer,
        rows,
        UNSENT_MAX,
    ));
    let round = ROUND * args.size / 100;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    // Not counted: the first round fills the memory that holds bodies.
    run_round(&webhooks, &feed, good, &mut receiver, round).await?;
    for number in 1..=args.rounds {
        // The order alternates, because tables grow from round to round.
        let beside_first = number % 2 == 0;
        if !beside_first {
            alone.push(run_round(&webhooks, &feed, good, &mut receiver, round).await?);
        }
        for subscriber in bad {
            in_tx!(
                setup.storage,
                endpoints::enable((subscriber.user, subscriber.endpoint), Timestamp::now())
            )
            .await?;
        }
        queue_for_bad_receivers(&feed, bad).await?;
        beside.push(run_round(&webhooks, &feed, good, &mut receiver, round).await?);
        let unanswered = receiver.counts().await?.unanswered;
        ensure!(unanswered > 0, "the bad receivers got no request");
        for subscriber in bad {
            let (user, endpoint) = (subscriber.user, subscriber.endpoint);
            in_tx!(
                setup.storage,
                endpoints::disable((user, endpoint), "by command", Timestamp::now())
            )
            .await?;
        }
        if beside_first {
            alone.push(run_round(&webhooks, &feed, good, &mut receiver, round).await?);
        }
        let Some((alone, beside)) = alone.last().zip(beside.last()) else {
            continue;
        };
        progress(&format!(
            "round {number}: alone {:.0} per second, {:.0} MB; beside bad receivers ({unanswered} requests): \
             {:.0} per second, {:.0} MB",
            alone.rate, alone.memory_mb, beside.rate, beside.memory_mb
        ));
    }
    setup.storage.close().await;
    Ok((alone, beside))
}

/// Queues events that need no provider to be sent again.
async fn queue_for_bad_receivers(feed: &Feed, bad: &[Subscriber]) -> anyhow::Result<()> {
    for number in 0..EVENTS_PER_BAD_RECEIVER {
        for subscriber in bad {
            let connection = subscriber.connections[number % CONNECTIONS];
            let target = (subscriber.user, connection);
            rows::sync(
                &feed.storage,
                &feed.event_buffer,
                target,
                &feed.rows,
                &mut Fingerprints::default(),
                true,
            )
            .await?;
        }
    }
    Ok(())
}

/// Measures the rate of the good receivers while syncs run, and the most memory of this process.
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
    // Requests to the bad receivers end at their deadline. The next round starts after that.
    stop.cancel();
    delivering.await?;
    round
}

async fn watch(feed: &Feed, receiver: &mut Receiver, time: Duration) -> anyhow::Result<Round> {
    let warm = poll(feed, receiver, WARM_UP).await?;
    let started = Instant::now();
    let done = poll(feed, receiver, time).await?;
    let received = done.received.saturating_sub(warm.received);
    Ok(Round {
        rate: received as f64 / started.elapsed().as_secs_f64(),
        memory_mb: done.memory_mb,
    })
}

struct Polled {
    /// Events received when the polling ended.
    received: usize,
    /// Most memory while polling.
    memory_mb: f64,
}

async fn poll(feed: &Feed, receiver: &mut Receiver, time: Duration) -> anyhow::Result<Polled> {
    let (until, mut memory_mb) = (Instant::now() + time, 0.0_f64);
    loop {
        let received = receiver.counts().await?.answered;
        feed.received.store(received, Ordering::Relaxed);
        memory_mb = memory_mb.max(resident_mb(std::process::id())?);
        if Instant::now() >= until {
            return Ok(Polled {
                received,
                memory_mb,
            });
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
