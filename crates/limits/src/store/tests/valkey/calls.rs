//! Calls to providers, counted for all instances.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use uuid::Uuid;

use super::{Server, UNSHARED, now};
use crate::call_window::RefusedBy;
use crate::{CallBudgets, CallKind, CallWindow};

/// The same calls, counted by the server for three instances and by one alone, and taken out of a
/// budget, with credit and without.
#[tokio::test]
async fn calls_and_budgets_are_counted_as_one_instance_does() {
    let server = Server::start();
    let stores = [server.store(), server.store(), server.store()];
    let instances = stores
        .each_ref()
        .map(|store| CallWindow::new("test", 40, Some(store)));
    let alone = CallWindow::new("test", 40, None);
    let users: Vec<Uuid> = std::iter::repeat_with(Uuid::new_v4).take(3).collect();
    let request = |begins, has_share| CallKind::Request { begins, has_share };
    let kinds = [
        CallKind::Job,
        CallKind::Sync,
        request(true, true),
        request(false, true),
        UNSHARED,
        CallKind::SyncRefresh,
        CallKind::Sync,
    ];
    let (mut allowed, mut refused) = (0, 0);
    for step in 0..120 {
        let (instance, kind) = (&instances[step % 3], kinds[step * 5 % 7]);
        let user = users.get(step * 5 % 4).copied();
        if step == 60 {
            // Others made calls that the provider has counted for another fifty seconds.
            instances
                .iter()
                .for_each(|other| other.correct(50, 50, Duration::ZERO));
            instance.correct(50, 5, Duration::from_secs(50));
            alone.correct(50, 5, Duration::from_secs(50));
        }
        let began = Instant::now();
        match (
            instance.take(kind, user).await,
            alone.take(kind, user).await,
        ) {
            (Ok(()), Ok(())) => allowed += 1,
            (Err(there), Err(here)) => {
                let apart = there.wait.abs_diff(here.wait);
                assert!(
                    there.by == here.by && apart < Duration::from_secs(5) + began.elapsed(),
                    "{step}: {there:?} {here:?}"
                );
                refused += 1;
            }
            decided => panic!("{step}: {kind:?} {decided:?}"),
        }
    }
    assert!(allowed > 30 && refused > 30, "{allowed} {refused}");

    let instances = stores
        .each_ref()
        .map(|store| CallBudgets::new("test", Some(store)));
    let alone = CallBudgets::new("test", None);
    let (user, mut allowed) = ("a".to_owned(), 0);
    for step in 0..60 {
        let is_first = step % 4 == 0;
        let at = now();
        let there = instances[step % 3].take(&user, 10, is_first, at).await;
        // At the time when the server decided.
        let at = Timestamp::from_microsecond(stores[step % 3].server_us(at)).unwrap();
        let here = alone.take(&user, 10, is_first, at).await;
        match (there, here) {
            (Ok(()), Ok(())) => allowed += 1,
            (Err(there), Err(here)) => assert!(
                there.abs_diff(here) < Duration::from_secs(5),
                "{there:?} {here:?}"
            ),
            decided => panic!("{step}: {decided:?}"),
        }
    }
    assert!(
        (20..25).contains(&allowed),
        "a budget and as much on credit: {allowed}"
    );
    let other = CallBudgets::new("another provider", Some(&stores[0]));
    assert_eq!(other.take(&user, 10, true, now()).await, Ok(()));

    server.stop().await;
    assert!(
        instances[0].take(&user, 10, true, now()).await.is_err(),
        "what it knows outlives the server"
    );
    let taken = instances[0].take(&"b".to_owned(), 10, true, now()).await;
    assert_eq!(taken, Ok(()));
}

/// Each instance decides by what it knows, while the others call too.
#[tokio::test(flavor = "multi_thread")]
async fn instances_together_call_a_provider_as_often_as_it_allows() {
    let server = Server::start();
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let window = Arc::new(CallWindow::new("test", 250, Some(&server.store())));
        for _ in 0..4 {
            let window = Arc::clone(&window);
            tasks.push(tokio::spawn(async move {
                let mut made = 0;
                while window.take(UNSHARED, Some(Uuid::new_v4())).await.is_ok() {
                    made += 1;
                }
                made
            }));
        }
    }
    let mut made = 0;
    for task in tasks {
        made += task.await.unwrap();
    }
    assert_eq!(made, 175, "up to the part of jobs");
}

/// The others made calls since, which are no reason to correct anything.
#[tokio::test]
async fn count_of_the_provider_is_compared_with_the_calls_of_all() {
    let server = Server::start();
    let stores = [server.store(), server.store()];
    let [here, there] = stores
        .each_ref()
        .map(|store| CallWindow::new("test", 10, Some(store)));
    assert_eq!(here.take(CallKind::Job, None).await, Ok(()));
    for _ in 0..4 {
        assert_eq!(there.take(CallKind::Job, None).await, Ok(()));
    }
    here.correct(10, 5, Duration::from_secs(60));
    assert_eq!(here.take(CallKind::Job, None).await, Ok(()));
    // Now others made a seventh.
    here.correct(10, 3, Duration::from_secs(60));
    assert_eq!(here.take(CallKind::Job, None).await, Ok(()));
    for _ in 0..2 {
        assert_eq!(there.take(UNSHARED, None).await, Ok(()));
    }
    let refused = there.take(UNSHARED, None).await.unwrap_err();
    assert!(refused.by == RefusedBy::All && refused.wait > Duration::from_secs(50));
}
