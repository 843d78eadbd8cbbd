//! Handles OAuth callbacks. Each one starts to poll its link session while the browser waits.

use std::time::Duration;

use bellbird_domain::{Account, Connection, LinkOutcome, LinkPhase};
use bellbird_providers::linking;
use bellbird_storage::LinkSession;
use tracing::Instrument as _;

use super::outcome::Conclusion;
use super::poll::{self, LEASE, seal_params};
use crate::{Connections, ConnectionsError};

/// Lease while a code is exchanged. It is short because the code is valid for a minute
/// (docs/providers/akahu.md#redirects): after a crash, another instance must still be in time to exchange it.
const EXCHANGE_LEASE: Duration = Duration::from_secs(25);
/// How long a browser waits for the outcome.
const BROWSER_WAIT_MAX: Duration = Duration::from_secs(12);

/// What the callback page shows.
#[derive(Debug)]
pub enum CallbackOutcome {
    /// No open session has this `state`: the URL is forged, incomplete or too old.
    UnknownState,
    /// The callback was handled before. Holds its outcome if the session has ended.
    AlreadyUsed(Option<LinkOutcome>),
    /// The provider has not confirmed the consent yet. The session continues without the browser.
    Pending,
    Finished {
        outcome: LinkOutcome,
        /// The connections that the session created, repaired or renewed.
        connections: Vec<Connection>,
        /// The accounts of these connections that have appeared so far.
        accounts: Vec<Account>,
        /// Why the session failed, as a sentence for the user.
        reason: Option<&'static str>,
    },
}

impl Connections {
    /// Handles a callback with these decoded query parameters. Each `state` works once.
    ///
    /// Polls the provider for up to twelve seconds, then returns the outcome or [`CallbackOutcome::Pending`].
    pub async fn handle_callback(&self, params: &[(String, String)]) -> Result<CallbackOutcome, ConnectionsError> {
        let (state, params) = split_state(params);
        let Some(state) = state else { return Ok(CallbackOutcome::UnknownState) };
        let Some(session) = self.unverified_read(self.storage.find_link_session(&state)).await? else {
            return Ok(CallbackOutcome::UnknownState);
        };
        // Providers that register users send no code to exchange.
        let exchanges_code = self.linking_for(&session.provider).is_ok_and(|linking| !linking.registers_users());
        let (now, lease) = self.lease(if exchanges_code { EXCHANGE_LEASE } else { LEASE });
        let Some(claim) = self.storage.receive_link_callback(&state, &seal_params(&params), now, lease).await? else {
            return Ok(match self.storage.find_link_session(&state).await? {
                None | Some(LinkSession { phase: LinkPhase::Started, .. }) => CallbackOutcome::UnknownState,
                Some(session) => CallbackOutcome::AlreadyUsed(
                    session.outcome.map(|outcome| outcome.parse().unwrap_or(LinkOutcome::Failed)),
                ),
            });
        };
        let this = self.clone();
        // In a task of its own, which neither a closed browser nor the timeout below cancels.
        let task = async move {
            let job = claim.job.clone();
            this.run_claimed(&poll::KIND, &job, this.run_session(claim, BROWSER_WAIT_MAX)).await
        };
        let task = tokio::spawn(task.in_current_span());
        match tokio::time::timeout(BROWSER_WAIT_MAX, task).await {
            Ok(Ok(Ok(Some(Conclusion { outcome, connections, reason })))) => {
                let mut accounts = Vec::new();
                for connection in &connections {
                    accounts.extend(self.storage.list_connection_accounts(connection.user_id, connection.id).await?);
                }
                Ok(CallbackOutcome::Finished { outcome, connections, accounts, reason })
            }
            Ok(Ok(Err(failed))) => Err(failed.error),
            Ok(Ok(Ok(None)) | Err(_)) | Err(_) => Ok(CallbackOutcome::Pending),
        }
    }
}

/// Separates `state` from the other callback parameters. A repeated `state` is invalid: Bellbird sends it once.
fn split_state(params: &[(String, String)]) -> (Option<String>, Vec<(String, String)>) {
    let (mut states, rest): (Vec<_>, Vec<_>) =
        linking::untangle_params(params).into_iter().partition(|(name, _)| name == "state");
    let state = states.pop().map(|(_, state)| state);
    (state.filter(|_| states.is_empty()), rest)
}
