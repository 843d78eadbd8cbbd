//! Providers that fail, reject calls or are slow.

use std::time::Duration;

use bellbird_providers::{CallContext, Cause, Error};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::fixture::{Fixture, Operation, ReadRequest, call_context, now, read, walk};
use crate::support::provider_spec::ProviderSpec;

const TIMEOUT: Duration = Duration::from_secs(20);
/// For bodies that would take longer than a test.
const DRIP_TIMEOUT: Duration = Duration::from_millis(300);
/// The same, with time for a second attempt that succeeds.
const DRIP_ONCE_TIMEOUT: Duration = Duration::from_secs(1);

/// All transient failures.
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

fn timeout(fault: &Value, drip_timeout: Duration) -> Duration {
    if fault["kind"] == "drip" {
        drip_timeout
    } else {
        TIMEOUT
    }
}

/// Asserts that every read gives a transient error while all calls fail.
async fn fail_always(spec: &'static ProviderSpec, fault: Value) {
    let fixture = Fixture::start(spec).await;
    let link = fixture.links().await.remove(0);
    let accounts = [fixture.account_with_rows(&link, 20).await];
    let request = ReadRequest::all(&link.credentials, &accounts, 100);
    let provider = fixture.adapter(timeout(&fault, DRIP_TIMEOUT)).await;
    fixture.fault(fault.clone()).await;
    let mut operations = fixture.operations();
    if fault["kind"] == "huge" {
        // Each read of a huge body is slow.
        operations.retain(|operation| matches!(operation, Operation::Rows | Operation::Accounts));
    }
    let provider = &*provider;
    let reads = operations.into_iter().map(async |operation| {
        (
            operation,
            read(provider, &call_context(), &request, operation).await,
        )
    });
    for (operation, outcome) in join_all(reads).await {
        let error = outcome
            .err()
            .unwrap_or_else(|| panic!("{operation:?} succeeds despite {fault}"));
        assert!(error.is_transient(), "{fault} {operation:?}: {error:?}");
    }
}

promise! {
    async fn failing_provider_gives_transient_error_and_no_row(fixture) {
        // Concurrently, because most of the time is spent between attempts.
        join_all(faults().map(|fault| fail_always(fixture.spec, fault))).await;
    }
}

/// Asserts that all rows come, each once, when one call fails.
async fn fail_once(spec: &'static ProviderSpec, mut fault: Value) {
    let fixture = Fixture::start(spec).await;
    let link = fixture.links().await.remove(0);
    let accounts = [fixture.account_with_rows(&link, 20).await];
    let request = ReadRequest::all(&link.credentials, &accounts, 100);
    let expected = walk(&*fixture.provider, &request).await.expect("rows");
    assert_eq!(expected.len(), 20);
    let provider = fixture.adapter(timeout(&fault, DRIP_ONCE_TIMEOUT)).await;
    fault["times"] = json!(1);
    fixture.fault(fault.clone()).await;
    assert_eq!(
        walk(&*provider, &request).await.as_ref(),
        Ok(&expected),
        "{fault}"
    );
    assert!(fixture.calls().await.values().sum::<u64>() > 1, "{fault}");
}

promise! {
    async fn single_failure_is_retried(fixture) {
        join_all(faults().map(|fault| fail_once(fixture.spec, fault))).await;
    }
}

promise! {
    async fn rate_limited_call_is_not_repeated(fixture) {
        let link = fixture.links().await.remove(0);
        let accounts = [fixture.account_with_rows(&link, 1).await];
        let request = ReadRequest::all(&link.credentials, &accounts, 100);
        for operation in fixture.operations() {
            let provider = fixture.adapter(TIMEOUT).await;
            fixture.fault(json!({"kind": "status", "status": 429, "retryAfter": 30})).await;
            let outcome = read(&*provider, &call_context(), &request, operation).await;
            assert_eq!(
                outcome,
                Err(Error::RateLimited { retry_after: Some(Duration::from_secs(30)) }),
                "{operation:?}"
            );
            assert!(fixture.calls().await.values().all(|count| *count == 1), "{operation:?} is not repeated");
            fixture.clear_faults().await;
        }
    }
}

promise! {
    async fn rejection_is_not_retried(fixture) {
        let link = fixture.links().await.remove(0);
        let accounts = [fixture.account_with_rows(&link, 1).await];
        let request = ReadRequest::all(&link.credentials, &accounts, 100);
        let provider = fixture.adapter(TIMEOUT).await;
        for status in [400, 403, 404, 410, 422] {
            fixture.fault(json!({"kind": "status", "status": status})).await;
            for operation in fixture.operations() {
                fixture.reset_calls().await;
                match read(&*provider, &call_context(), &request, operation).await {
                    Err(error) => assert!(!error.is_transient(), "{status} {operation:?}: {error:?}"),
                    // A consent that does not exist is a valid result of this read.
                    Ok(()) => assert!(operation == Operation::ConsentStatus && status == 404, "{status} {operation:?}"),
                }
                // An adapter may look up the reason, but makes no call twice.
                let calls = fixture.calls().await;
                assert!(
                    !calls.is_empty() && calls.values().all(|count| *count == 1),
                    "{status} {operation:?}: {calls:?}"
                );
            }
            fixture.clear_faults().await;
        }
    }
}

promise! {
    async fn no_call_outlives_its_deadline(fixture) {
        let link = fixture.links().await.remove(0);
        let accounts = [fixture.account_with_rows(&link, 1).await];
        let request = ReadRequest::all(&link.credentials, &accounts, 100);
        let provider = fixture.adapter(TIMEOUT).await;
        // Far longer than a test may take.
        fixture.fault(json!({"kind": "delay", "delayMs": 3_600_000})).await;
        let short = || CallContext::new(Instant::now() + Duration::from_millis(200), now(), Cause::Schedule);
        let provider = &*provider;
        let reads = join_all(
            fixture.operations().into_iter().map(async |operation| read(provider, &short(), &request, operation).await),
        );
        for outcome in reads.await {
            assert!(outcome.as_ref().is_err_and(Error::is_transient), "{outcome:?}");
        }
        let withdrawn = provider.withdraw(&short(), &link.credentials).await;
        assert!(withdrawn.as_ref().is_err_and(Error::is_transient), "{withdrawn:?}");
    }
}
