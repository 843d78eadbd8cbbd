//! What needs the user.

use bellbird_connections::LinkableProvider;
use bellbird_domain::{Connection, ConnectionId, ConnectionStatus, EndpointStatus};
use bellbird_storage::{DISABLED_BY_USER, Endpoint};

use crate::pages::{BankNames, BankTrouble, ends_soon, is_linkable, why_disabled};
use crate::session::Session;

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
}

impl Attention {
    /// Whether anything does not work.
    pub(super) fn is_needed(&self) -> bool {
        !self.troubles.is_empty() || !self.endpoints.is_empty()
    }

    /// `linkable` are the providers that users can link themselves.
    pub(super) fn of(
        connections: &[Connection],
        names: &BankNames,
        endpoints: &[Endpoint],
        linkable: &[LinkableProvider],
        session: &Session,
    ) -> Self {
        let zone = session.zone();
        // What the plan does not read cannot be reconnected either.
        let plan = session.caller.plan;
        let connections = || {
            let connections = connections.iter();
            connections.filter(move |connection| plan.reads(connection.category))
        };
        let troubles = connections()
            .filter_map(|connection| BankTrouble::of_status(connection, linkable))
            .map(|trouble| trouble.among(names));
        let active =
            connections().filter(|connection| connection.status == ConnectionStatus::Active);
        let ending = active.filter_map(|connection| {
            let end = connection.consent_expires_at?;
            ends_soon(end, session.now).then(|| EndingConsent {
                id: connection.id,
                name: names.of(connection),
                end: zone.day(end),
                can_renew: is_linkable(connection, linkable),
            })
        });
        let disabled = endpoints.iter().filter(|endpoint| {
            let is_wanted = endpoint.disabled_reason.as_deref() == Some(DISABLED_BY_USER);
            endpoint.status == EndpointStatus::Disabled && !is_wanted
        });
        let sentence = |endpoint: &Endpoint| {
            let why = why_disabled(endpoint.disabled_reason.as_deref());
            format!(
                "Your webhook endpoint {} gets no events. {why}",
                endpoint.url
            )
        };
        Self {
            troubles: troubles.collect(),
            ending: ending.collect(),
            endpoints: disabled.map(sentence).collect(),
        }
    }
}
