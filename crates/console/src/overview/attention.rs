//! What needs the user.

use bellbird_domain::{Connection, ConnectionId, ConnectionStatus, EndpointStatus};
use bellbird_storage::{DISABLED_BY_USER, Endpoint};

use crate::pages::{BankNames, BankTrouble, ends_soon, why_disabled};
use crate::session::Session;

#[derive(Default)]
pub(super) struct Attention {
    /// Those whose consent has ended.
    pub(super) troubles: Vec<BankTrouble>,
    pub(super) ending: Vec<EndingConsent>,
    /// What the page of webhooks mends, as sentences.
    pub(super) endpoints: Vec<String>,
}

/// A consent that ends soon.
pub(super) struct EndingConsent {
    pub(super) id: ConnectionId,
    pub(super) name: String,
    pub(super) end: String,
    pub(super) can_renew: bool,
    pub(super) is_sandbox: bool,
}

impl Attention {
    pub(super) fn of(
        connections: &[Connection],
        names: &BankNames,
        endpoints: &[Endpoint],
        session: &Session,
    ) -> Self {
        let mut attention = Self::default();
        // What the plan does not read cannot be reconnected either.
        let plan = session.caller.plan;
        for connection in connections.iter().filter(|one| plan.reads(one.category)) {
            let bank = session.asked(connection, names);
            attention.troubles.extend(bank.broken());
            let is_active = connection.status == ConnectionStatus::Active;
            let end = connection.consent_expires_at.filter(|_| is_active);
            if let Some(end) = end.filter(|end| ends_soon(*end, session.now)) {
                attention.ending.push(EndingConsent {
                    id: connection.id,
                    name: names.of(connection),
                    end: session.zone().day(end),
                    can_renew: bank.is_linkable(),
                    is_sandbox: bank.is_sandbox,
                });
            }
        }
        for Endpoint {
            url,
            status,
            disabled_reason,
            ..
        } in endpoints
        {
            let reason = disabled_reason.as_deref();
            if *status == EndpointStatus::Disabled && reason != Some(DISABLED_BY_USER) {
                let why = why_disabled(reason);
                let text = format!("Your webhook endpoint {url} gets no events. {why}");
                attention.endpoints.push(text);
            }
        }
        attention
    }
}
