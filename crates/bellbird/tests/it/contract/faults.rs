//! Providers that fail, refuse, or take their time.

use std::time::Duration;

use bellbird_providers::{Call, Error};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::stage::{Asked, Stage, What, call, now, read, walk};
use super::subjects::Subject;

const TIMEOUT: Duration = Duration::from_secs(20);
/// For bodies that would not come to their end within a test.
const DRIP_TIMEOUT: Duration = Duration::from_millis(300);
/// The same where another attempt shall succeed.
const DRIP_ONCE_TIMEOUT: Duration = Duration::from_secs(1);

/// Every way of failing that may pass.
fn faults() -> [Value; 8] {
    [
        json!({"kind": "status", "status": 500}),
        json!({"kind": "status", "status": 502}),
        json!({"kind": "cut"}),
        json!({"kind": "malformed"}),
        json!({"kind": "content_type"}),
        json!({"kind": "huge"}),
        json!({"kind": "reset"}),
        json!({"kind": "drip", "delayMs": 3_600_000}),
    ]
}

fn timeout(fault: &Value, of_drip: Duration) -> Duration {
    if fault["kind"] == "drip" { of_drip } else { TIMEOUT }
}

/// Everything fails in one way.
async fn fail(subject: Subject, fault: Value) {
    let stage = Stage::start(subject).await;
    let link = stage.links().await.remove(0);
    let accounts = [stage.account_with_rows(&link, 20).await];
    let asked = Asked::all(&link.grant, &accounts, 100);
    let provider = stage.adapter(timeout(&fault, DRIP_TIMEOUT)).await;
    stage.fault(fault.clone()).await;
    let mut whats = stage.whats();
    if fault["kind"] == "huge" {
        // Each of these takes its time.
        whats.retain(|what| matches!(what, What::Rows | What::Accounts));
    }
    let provider = &*provider;
    let reads = whats.into_iter().map(async |what| (what, read(provider, &call(), &asked, what).await));
    for (what, outcome) in join_all(reads).await {
        let error = outcome.err().unwrap_or_else(|| panic!("{what:?} succeeds in spite of {fault}"));
        assert!(error.is_transient(), "{fault} {what:?}: {error:?}");
    }
}

promise! {
    async fn a_failing_provider_gives_a_passing_error_and_no_row(stage) {
        // At the same time, as most of it is waiting between attempts.
        join_all(faults().map(|fault| fail(stage.subject, fault))).await;
    }
}

/// One call fails in one way, and the rows come nevertheless, each once.
async fn fail_once(subject: Subject, mut fault: Value) {
    let stage = Stage::start(subject).await;
    let link = stage.links().await.remove(0);
    let accounts = [stage.account_with_rows(&link, 20).await];
    let asked = Asked::all(&link.grant, &accounts, 100);
    let expected = walk(&*stage.provider, &asked).await.expect("rows");
    assert_eq!(expected.len(), 20);
    let provider = stage.adapter(timeout(&fault, DRIP_ONCE_TIMEOUT)).await;
    fault["times"] = json!(1);
    stage.fault(fault.clone()).await;
    assert_eq!(walk(&*provider, &asked).await.as_ref(), Ok(&expected), "{fault}");
    assert!(stage.calls().await.values().sum::<u64>() > 1, "{fault}");
}

promise! {
    async fn what_fails_once_is_mended_by_repeating(stage) {
        join_all(faults().map(|fault| fail_once(stage.subject, fault))).await;
    }
}

promise! {
    async fn a_provider_that_asks_for_patience_gets_it(stage) {
        let link = stage.links().await.remove(0);
        let accounts = [stage.account_with_rows(&link, 1).await];
        let asked = Asked::all(&link.grant, &accounts, 100);
        for what in stage.whats() {
            let provider = stage.adapter(TIMEOUT).await;
            stage.fault(json!({"kind": "status", "status": 429, "retryAfter": 30})).await;
            let outcome = read(&*provider, &call(), &asked, what).await;
            assert_eq!(outcome, Err(Error::RateLimited { retry_after: Some(Duration::from_secs(30)) }), "{what:?}");
            assert!(stage.calls().await.values().all(|count| *count == 1), "{what:?} is not repeated");
            stage.clear_faults().await;
        }
    }
}

promise! {
    async fn a_refusal_is_not_repeated(stage) {
        let link = stage.links().await.remove(0);
        let accounts = [stage.account_with_rows(&link, 1).await];
        let asked = Asked::all(&link.grant, &accounts, 100);
        let provider = stage.adapter(TIMEOUT).await;
        for status in [400, 403, 404, 410, 422] {
            stage.fault(json!({"kind": "status", "status": status})).await;
            for what in stage.whats() {
                stage.forget_calls().await;
                match read(&*provider, &call(), &asked, what).await {
                    Err(error) => assert!(!error.is_transient(), "{status} {what:?}: {error:?}"),
                    // To be told that there is none is an answer to this.
                    Ok(()) => assert!(what == What::Standing && status == 404, "{status} {what:?}"),
                }
                // An adapter may look up why, but asks for nothing twice.
                let calls = stage.calls().await;
                assert!(!calls.is_empty() && calls.values().all(|count| *count == 1), "{status} {what:?}: {calls:?}");
            }
            stage.clear_faults().await;
        }
    }
}

promise! {
    async fn nothing_is_waited_for_past_the_deadline(stage) {
        let link = stage.links().await.remove(0);
        let accounts = [stage.account_with_rows(&link, 1).await];
        let asked = Asked::all(&link.grant, &accounts, 100);
        let provider = stage.adapter(TIMEOUT).await;
        // Far longer than a test may take.
        stage.fault(json!({"kind": "delay", "delayMs": 3_600_000})).await;
        let short = || Call::new(Instant::now() + Duration::from_millis(200), now());
        let provider = &*provider;
        let reads = join_all(stage.whats().into_iter().map(async |what| read(provider, &short(), &asked, what).await));
        for outcome in reads.await {
            assert!(outcome.as_ref().is_err_and(Error::is_transient), "{outcome:?}");
        }
        let withdrawn = provider.withdraw(&short(), &link.grant).await;
        assert!(withdrawn.as_ref().is_err_and(Error::is_transient), "{withdrawn:?}");
    }
}
