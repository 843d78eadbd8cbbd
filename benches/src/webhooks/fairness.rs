//! Good receivers alone, and the same beside one that never answers and two that drip bytes for ever.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::ensure;
use bellbird_webhooks::Webhooks;
use bellbird_webhooks::outbox::Outbox;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::feed::Feed;
use super::receiver::{DRIPPING_BODY, DRIPPING_HEAD, QUICK, SILENT};
use super::stage::{Database, Kind, Stage, Subscriber};
use super::{LOOK_EVERY, Receiver, rows, webhooks};
use crate::WebhooksArgs;
use crate::figures::{Figure, Report, progress};
use crate::process::resident_mb;

const GOOD: usize = 8;
const CONNECTIONS: usize = 5;
const PATHS: [&str; GOOD + 3] =
    [QUICK, QUICK, QUICK, QUICK, QUICK, QUICK, QUICK, QUICK, SILENT, DRIPPING_HEAD, DRIPPING_BODY];
/// Events that each of the bad ones is to get in a round: more than it can.
const FOR_THE_BAD: usize = 300;
/// What is measured of a round: longer than one exchange with a bad one takes.
const ROUND: Duration = Duration::from_secs(20);
/// Before that, so that all is under way.
const WARM_UP: Duration = Duration::from_secs(2);
const AHEAD_MAX: usize = 1_000;
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
        if !args.wants(&name) {
            continue;
        }
        if !kind.is_here() {
            report.leave_out(format!("{name}: BELLBIRD_TEST_POSTGRES_URL is not set"));
            continue;
        }
        let database = Database::make(kind).await?;
        let outcome = take_turns(args, &database).await;
        database.remove().await?;
        let (alone, beside) = outcome?;
        let rates = |rounds: &[Round]| rounds.iter().map(|round| round.rate).collect::<Vec<_>>();
        report.add(Figure::kept(&name, "events a second", "alone", &rates(&beside), &rates(&alone), LEAST));
        let memory = |rounds: &[Round]| rounds.iter().map(|round| round.memory_mb).collect::<Vec<_>>();
        let growth = Some(FLAT_MB);
        report.add(Figure::beyond(&name, "memory, MB", "alone", &memory(&beside), &memory(&alone), growth));
        let last = beside.last().map_or(0.0, |round| round.memory_mb);
        let grown = last - beside.first().map_or(0.0, |round| round.memory_mb);
        report.add(Figure::alone(&name, "memory, last round less first, MB", &[grown], growth));
    }
    Ok(())
}

/// Rounds of the good ones alone, and of all.
async fn take_turns(args: &WebhooksArgs, database: &Database) -> anyhow::Result<(Vec<Round>, Vec<Round>)> {
    let mut receiver = Receiver::start().await?;
    let stage = Stage::set(database, receiver.address(), &PATHS, CONNECTIONS).await?;
    let (outbox, rows) = (Outbox::default(), rows::rows(1)?);
    let webhooks = webhooks(&stage.storage, &outbox)?;
    let (good, bad) = stage.subscribers.split_at(GOOD);
    let feed = Arc::new(Feed::new(stage.storage.clone(), outbox, rows, AHEAD_MAX));
    let round = ROUND * args.size / 100;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    // The first one fills the memory that is kept for bodies, and does not count.
    one_round(&webhooks, &feed, good, &mut receiver, round).await?;
    for number in 1..=args.rounds {
        // In turn, as tables grow from round to round.
        let beside_first = number % 2 == 0;
        if !beside_first {
            alone.push(one_round(&webhooks, &feed, good, &mut receiver, round).await?);
        }
        for subscriber in bad {
            stage.storage.enable_endpoint(subscriber.user, subscriber.endpoint).await?;
        }
        give_to_the_bad(&feed, bad).await?;
        beside.push(one_round(&webhooks, &feed, good, &mut receiver, round).await?);
        let held = receiver.counts().await?.held;
        ensure!(held > 0, "the bad receivers got nothing");
        for subscriber in bad {
            let (user, endpoint) = (subscriber.user, subscriber.endpoint);
            stage.storage.disable_endpoint(user, endpoint, "by command", Timestamp::now()).await?;
        }
        if beside_first {
            alone.push(one_round(&webhooks, &feed, good, &mut receiver, round).await?);
        }
        let Some((alone, beside)) = alone.last().zip(beside.last()) else { continue };
        progress(&format!(
            "round {number}: alone {:.0} a second, {:.0} MB; beside bad ones, which got {held}: {:.0} a second, {:.0} MB",
            alone.rate, alone.memory_mb, beside.rate, beside.memory_mb
        ));
    }
    stage.storage.close().await;
    Ok((alone, beside))
}

/// Events that are sent again without asking a provider.
async fn give_to_the_bad(feed: &Feed, bad: &[Subscriber]) -> anyhow::Result<()> {
    for number in 0..FOR_THE_BAD {
        for subscriber in bad {
            let connection = subscriber.connections[number % CONNECTIONS];
            let place = (subscriber.user, connection);
            rows::sync(&feed.storage, &feed.outbox, place, &feed.rows, true).await?;
        }
    }
    Ok(())
}

/// The rate of the good ones while syncs go on, and the most memory of this process.
async fn one_round(
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
    let warm = look(feed, receiver, WARM_UP).await?;
    let started = Instant::now();
    let done = look(feed, receiver, time).await?;
    let came = done.0.saturating_sub(warm.0);
    Ok(Round { rate: came as f64 / started.elapsed().as_secs_f64(), memory_mb: done.1 })
}

/// For a while: what has arrived in the end, and the most memory meanwhile.
async fn look(feed: &Feed, receiver: &mut Receiver, time: Duration) -> anyhow::Result<(usize, f64)> {
    let (until, mut most) = (Instant::now() + time, 0.0_f64);
    loop {
        let arrived = receiver.counts().await?.answered;
        feed.arrived.store(arrived, Ordering::Relaxed);
        most = most.max(resident_mb(std::process::id())?);
        if Instant::now() >= until {
            return Ok((arrived, most));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
