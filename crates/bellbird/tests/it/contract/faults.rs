//! Providers that fail, reject calls or are slow.

use std::time::Duration;

use bellbird_providers::{CallContext, Cause, Error};
use bellbird_sandbox::{Fault, FaultKind};
use futures_util::future::join_all;
use tokio::time::Instant;

use super::fixture::{Fixture, Operation, ReadRequest, call_context, now, read, walk};
use crate::support::provider_spec::ProviderSpec;

const TIMEOUT: Duration = Duration::from_secs(20);
/// For bodies that would take longer than a test.
const DRIP_TIMEOUT: Duration = Duration::from_secs(2);
/// The same, with time for a second attempt that succeeds.
const DRIP_ONCE_TIMEOUT: Duration = Duration::from_secs(5);

/// All transient failures.
fn faults() -> [Fault; 8] {
    [
        Fault::status(500),
        Fault::status(502),
        Fault::new(FaultKind::Cut),
        Fault::new(FaultKind::Malformed),
        Fault::new(FaultKind::ContentType),
        Fault::new(FaultKind::Huge),
        Fault::new(FaultKind::Reset),
        Fault::new(FaultKind::Drip).delayed_ms(3_600_000),
    ]
}

fn timeout(fault: &Fault, drip_timeout: Duration) -> Duration {
    if fault.kind == FaultKind::Drip {
        drip_timeout
    } else {
        TIMEOUT
    }
}

/// Asserts that every read gives a transient error while all calls fail.
async fn fail_always(spec: &'static ProviderSpec, fault: Fault) {
    let fixture = Fixture::start(spec).await;
    let link = fixture.links().await.remove(0);
    let accounts = [fixture.account_with_rows(&link, 20)];
    let request = ReadRequest::all(&link.credentials, &accounts, 100);
    let provider = fixture.adapter(timeout(&fault, DRIP_TIMEOUT)).await;
    fixture.bank().add_fault(fault.clone());
    let mut operations = fixture.operations();
    if fault.kind == FaultKind::Huge {
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
            .unwrap_or_else(|| panic!("{operation:?} succeeds despite {fault:?}"));
        assert!(error.is_transient(), "{fault:?} {operation:?}: {error:?}");
    }
}

promise! {
    async fn failing_provider_gives_transient_error_and_no_row(fixture) {
        // Concurrently, because most of the time is spent between attempts.
        join_all(faults().map(|fault| fail_always(fixture.spec, fault))).await;
    }
}

/// Asserts that all rows come, each once, when one call fails.
async fn fail_once(spec: &'static ProviderSpec, fault: Fault) {
    let fixture = Fixture::start(spec).await;
    let link = fixture.links().await.remove(0);
    let accounts = [fixture.account_with_rows(&link, 20)];
    let request = ReadRequest::all(&link.credentials, &accounts, 100);
    let expected = walk(&*fixture.provider, &request).await.expect("rows");
    assert_eq!(expected.len(), 20);
    let provider = fixture.adapter(timeout(&fault, DRIP_ONCE_TIMEOUT)).await;
    fixture.bank().add_fault(fault.clone().times(1));
    assert_eq!(
        walk(&*provider, &request).await.as_ref(),
        Ok(&expected),
        "{fault:?}"
    );
    assert!(fixture.calls().values().sum::<u64>() > 1, "{fault:?}");
}

promise! {
    async fn single_failure_is_retried(fixture) {
        join_all(faults().map(|fault| fail_once(fixture.spec, fault))).await;
    }
}

promise! {
    rejections_are_final_and_calls_have_a_deadline:

    async fn rate_limited_call_is_not_repeated(fixture) {
        let link = fixture.links().await.remove(0);
        let accounts = [fixture.account_with_rows(&link, 1)];
        let request = ReadRequest::all(&link.credentials, &accounts, 100);
        for operation in fixture.operations() {
            let provider = fixture.adapter(TIMEOUT).await;
            fixture.bank().add_fault(Fault::status(429).retry_after(30));
            let outcome = read(&*provider, &call_context(), &request, operation).await;
            assert_eq!(
                outcome,
                Err(Error::RateLimited { retry_after: Some(Duration::from_secs(30)) }),
                "{operation:?}"
            );
            assert!(fixture.calls().values().all(|count| *count == 1), "{operation:?} is not repeated");
            fixture.bank().clear_faults();
        }
    }

    async fn rejection_is_not_retried(fixture) {
        let link = fixture.links().await.remove(0);
        let accounts = [fixture.account_with_rows(&link, 1)];
        let request = ReadRequest::all(&link.credentials, &accounts, 100);
        let provider = fixture.adapter(TIMEOUT).await;
        for status in [400, 403, 404, 410, 422] {
            fixture.bank().add_fault(Fault::status(status));
            for operation in fixture.operations() {
                fixture.bank().reset_calls();
                match read(&*provider, &call_context(), &request, operation).await {
                    Err(error) => assert!(!error.is_transient(), "{status} {operation:?}: {error:?}"),
                    // A consent that does not exist is a valid result of this read.
                    Ok(()) => assert!(operation == Operation::ConsentStatus && status == 404, "{status} {operation:?}"),
                }
                // An adapter may look up the reason, but makes no call twice.
                let calls = fixture.calls();
                assert!(
                    !calls.is_empty() && calls.values().all(|count| *count == 1),
                    "{status} {operation:?}: {calls:?}"
                );
            }
            fixture.bank().clear_faults();
        }
    }

    async fn no_call_outlives_its_deadline(fixture) {
        let link = fixture.links().await.remove(0);
        let accounts = [fixture.account_with_rows(&link, 1)];
        let request = ReadRequest::all(&link.credentials, &accounts, 100);
        let provider = fixture.adapter(TIMEOUT).await;
        // Far longer than a test may take.
        fixture.bank().add_fault(Fault::delay_ms(3_600_000));
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
