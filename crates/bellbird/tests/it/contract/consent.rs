//! Consents that were revoked, have expired or are withdrawn.

use bellbird_domain::ConnectionStatus;
use bellbird_providers::{ConsentStatus, Error};
use bellbird_sandbox::ConsentState;

use super::fixture::{Fixture, Operation, ReadRequest, call_context, read, walk};

const REVOKED: Error = Error::ReconnectNeeded(ConnectionStatus::Revoked);

promise! {
    async fn every_read_detects_a_lost_consent(fixture) {
        for revocation in fixture.spec.revocations {
            // A new sandbox, because the previous revocation left no active consent.
            let fixture = Fixture::start(fixture.spec).await;
            let link = fixture.links().await.remove(0);
            let accounts = [fixture.account_with_rows(&link, 3)];
            let request = ReadRequest::all(&link.credentials, &accounts, 100);
            fixture.spec.revoke(fixture.bank(), &link.members, *revocation);
            for operation in fixture.operations() {
                let expected = match operation {
                    // Providers differ: they find nothing for revoked credentials, or report the
                    // lost consent.
                    Operation::Discover => continue,
                    Operation::ConsentStatus => Ok(()),
                    _ => Err(REVOKED),
                };
                assert_eq!(
                    read(&*fixture.provider, &call_context(), &request, operation).await,
                    expected,
                    "{operation:?}"
                );
            }
            let consent = fixture.provider.consent(&call_context(), &link.credentials).await;
            assert_eq!(consent.map(|consent| consent.status), Ok(ConsentStatus::Broken(ConnectionStatus::Revoked)));
        }
    }
}

promise! {
    async fn expired_consent_is_reported_as_expired(fixture) {
        let links = fixture.links().await;
        fixture.spec.set_consent(fixture.bank(), &links[0].members, ConsentState::Expired);
        let consent_status = async |at: usize| {
            fixture.provider.consent(&call_context(), &links[at].credentials).await.map(|consent| consent.status)
        };
        assert_eq!(consent_status(0).await, Ok(ConsentStatus::Broken(ConnectionStatus::Invalidated)));
        assert_eq!(consent_status(1).await, Ok(ConsentStatus::Active), "the other consent of the user stays active");
    }
}

promise! {
    async fn withdrawal_ends_consent_and_is_idempotent(fixture) {
        let links = fixture.links().await;
        let mut accounts = Vec::new();
        for link in &links[..2] {
            accounts.push([fixture.account_with_rows(link, 3)]);
        }
        assert_eq!(fixture.provider.withdraw(&call_context(), &links[0].credentials).await, Ok(()));
        fixture.advance_clock();
        let consent_status = async |at: usize| {
            fixture.provider.consent(&call_context(), &links[at].credentials).await.map(|consent| consent.status)
        };
        assert_eq!(consent_status(0).await, Ok(ConsentStatus::Broken(ConnectionStatus::Revoked)));
        let rows = async |at: usize| {
            walk(&*fixture.provider, &ReadRequest::all(&links[at].credentials, &accounts[at], 100)).await
        };
        assert_eq!(rows(0).await, Err(REVOKED));
        assert_eq!(fixture.provider.withdraw(&call_context(), &links[0].credentials).await, Ok(()), "withdrawn");
        // The other consent of the user stays active.
        assert_eq!(consent_status(1).await, Ok(ConsentStatus::Active));
        assert_eq!(rows(1).await.map(|rows| rows.len()), Ok(3));
    }
}
