//! An endpoint of the user, and the fields of the forms that say where it is and what it receives.

use bellbird_domain::{EndpointId, EventType, Plan};
use bellbird_storage::Endpoint;
use bellbird_webhooks::endpoint::{DEFAULT_EVENTS, EndpointUrl, EndpointUrlError, in_order};
use bellbird_webhooks::target::Rules;

use crate::error_page::Failure;
use crate::pages::sentence;
use crate::session::{OwnForm, Session};

/// Another user's endpoint looks like a missing one, and so does one of the installation.
pub(super) async fn find_own(session: &Session, id: EndpointId) -> Result<Endpoint, Failure> {
    let found = session.storage().endpoints().find_any(id).await?;
    let own = found.filter(|endpoint| endpoint.user_id == session.user());
    own.ok_or(Failure::NotFound)
}

/// What a form shows, or what it has submitted.
#[derive(Clone)]
pub(super) struct EndpointFields {
    pub(super) url: String,
    pub(super) events: Vec<EventType>,
    pub(super) problem: Option<String>,
    /// The endpoint that the fields are of. None: it is not made yet.
    pub(super) id: Option<EndpointId>,
}

impl EndpointFields {
    /// None: of an endpoint that is not made yet.
    pub(super) fn of(endpoint: Option<&Endpoint>) -> Self {
        let events = endpoint.map_or(DEFAULT_EVENTS, |endpoint| endpoint.event_types.as_slice());
        Self {
            url: endpoint.map_or_else(String::new, |endpoint| endpoint.url.clone()),
            events: events.to_vec(),
            problem: None,
            id: endpoint.map(|endpoint| endpoint.id),
        }
    }

    /// None: the form is another one. With the field `edit`, it changes the endpoint of this id.
    pub(super) fn submitted(form: &OwnForm) -> Option<Self> {
        let url = form.field("url")?.trim().to_owned();
        let events = form.fields.iter().filter(|(name, _)| name == "event");
        let events = events.filter_map(|(_, event)| event.parse().ok());
        let events: Vec<EventType> = events
            .filter(|event| EventType::SUBSCRIBABLE_BY_USERS.contains(event))
            .collect();
        Some(Self {
            url,
            events: in_order(&events),
            problem: None,
            id: form.parsed("edit"),
        })
    }

    /// Keeps the types of the endpoint that the form does not show, because they are beyond the
    /// plan of now.
    pub(super) fn keep_hidden(&mut self, endpoint: &Endpoint, plan: Plan) {
        let types = endpoint.event_types.iter();
        self.events
            .extend(types.filter(|event| event.plan_min() > plan));
        self.events = in_order(&self.events);
    }

    /// The URL, checked, or what is wrong. Which private names the operator's name
    /// servers know is nothing for users, so an unknown name and one with a private address get the
    /// same text.
    pub(super) async fn check(&self, rules: Rules) -> Result<EndpointUrl, String> {
        const NOT_PUBLIC: &str = "The host name has no public address, or is not known at this moment. Correct it, or \
            try again in a minute.";
        if self.events.is_empty() {
            return Err("Choose at least one kind of event.".to_owned());
        }
        match EndpointUrl::check(&self.url, rules).await {
            Ok(checked) if checked.unresolved.is_none() => Ok(checked),
            Ok(_) | Err(EndpointUrlError::PrivateAddress) => Err(NOT_PUBLIC.to_owned()),
            Err(EndpointUrlError::Resolver(error)) => {
                tracing::error!(%error, "could not set up name resolution");
                Err("The URL could not be checked. Try again in a moment.".to_owned())
            }
            Err(error) => Err(sentence(&error.to_string())),
        }
    }

    /// What the ids of the fields end with, because a page has several forms of this kind.
    pub(super) fn suffix(&self) -> String {
        self.id.map(|id| format!("-{id}")).unwrap_or_default()
    }
}

/// When an event is sent.
pub(super) fn description(event: EventType) -> &'static str {
    match event {
        EventType::TransactionsSynced => "A sync found new or changed transactions.",
        EventType::TradesSynced => "A sync found new or changed trades.",
        EventType::ConnectionCreated => "A bank or broker was linked.",
        EventType::ConnectionUpdated => "A bank stopped working, or works again.",
        EventType::ConnectionExpiring => {
            "A bank's consent ends within 14 days, and again within 3."
        }
        EventType::ConnectionRemoved => "The removal of a bank began.",
        EventType::UserRemoved => "A user was removed.",
        EventType::Ping => "You sent a test event.",
    }
}
