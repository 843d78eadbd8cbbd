//! `/webhooks/endpoints/{id}`: the deliveries to one endpoint of the user, with their attempts. Its
//! forms send events again.

use askama::Template;
use bellbird_domain::{DeliveryState, EndpointId, EventId, EventType};
use bellbird_management::refusal::EVENT;
use bellbird_management::{Refusal, deliveries};
use bellbird_storage::{
    AttemptRecord, DeliveryPosition, DeliveryRecord, Endpoint, Storage, StorageError,
};
use http::{StatusCode, Uri};
use jiff::SignedDuration;

use super::endpoint::find_own;
use crate::error_page::{Failure, PageResult};
use crate::list_query::{ListQuery, Pages};
use crate::pages::{Done, LocalTime, SignedInFrame, page_response};
use crate::rows::linked::load_all;
use crate::session::{OwnForm, PathText, Session, id_of};

/// Deliveries on one page.
const PAGE_ROWS: u32 = 20;
/// What a query chooses. What is no id of an event finds nothing.
const FILTERS: [&str; 2] = ["state", "event"];
/// How far back failed events are sent again: the value of the form, its text, and the hours.
/// Events are kept no longer than the last one.
const SINCE: [(&str, &str, i64); 4] = [
    ("hour", "the last hour", 1),
    ("day", "the last day", 24),
    ("3-days", "the last 3 days", 3 * 24),
    ("all", "the last 90 days", 90 * 24),
];

#[derive(Template)]
#[template(path = "webhook_log.html")]
struct LogPage<'a> {
    frame: &'a SignedInFrame<'a>,
    zone: LocalTime,
    endpoint: &'a Endpoint,
    /// Of the endpoint, as on the page of all. None: there is no other.
    number: Option<u32>,
    rows: Vec<DeliveryRow>,
    query: &'a ListQuery,
    pages: Pages,
    not_sent: Option<NotSent>,
}

/// Why events are not sent again.
struct NotSent {
    /// None: it is about more than one event.
    event: Option<EventId>,
    why: &'static str,
}

/// A delivery to an endpoint, also on the page of an operator.
pub(crate) struct DeliveryRow {
    pub(crate) delivery: DeliveryRecord,
    pub(crate) attempts: Vec<AttemptRecord>,
    /// The bank that the event is about; for an operator, the user. Empty: none.
    pub(crate) about: String,
    /// Whether that bank is simulated.
    pub(crate) is_sandbox: bool,
}

impl DeliveryRow {
    /// Whether its event can be sent to this endpoint again.
    pub(crate) fn can_redeliver(&self, endpoint: &Endpoint) -> bool {
        !endpoint.is_disabled()
            && self.delivery.event_type != EventType::Ping
            && self.delivery.state != DeliveryState::Waiting
    }
}

impl LogPage<'_> {
    /// Why the event of a row is not sent again, or the events, of the form for many.
    fn not_sent(&self, event: Option<&EventId>) -> Option<&'static str> {
        let not_sent = self.not_sent.as_ref()?;
        (not_sent.event.as_ref() == event).then_some(not_sent.why)
    }
}

pub(super) fn path(id: EndpointId) -> String {
    format!("/webhooks/endpoints/{id}")
}

/// `GET /webhooks/endpoints/{id}`
pub(crate) async fn show(session: Session, id: PathText, uri: Uri) -> PageResult {
    let endpoint = find_own(&session, id_of(id)?).await?;
    page(&session, &endpoint, &uri, None).await
}

async fn page(
    session: &Session,
    endpoint: &Endpoint,
    uri: &Uri,
    not_sent: Option<NotSent>,
) -> PageResult {
    let query = ListQuery::parse(uri.query(), &FILTERS);
    let (mut rows, pages) = list(session.storage(), endpoint, &query, PAGE_ROWS).await?;
    let (connections, _, names) = load_all(session).await?;
    for row in &mut rows {
        let Some(id) = row.delivery.connection_id else {
            continue;
        };
        let bank = names.find(id).unwrap_or("a bank that was removed");
        bank.clone_into(&mut row.about);
        let connection = connections.iter().find(|connection| connection.id == id);
        row.is_sandbox = connection.is_some_and(|connection| {
            let providers = &session.frame.providers;
            providers.is_sandbox(&connection.provider)
        });
    }
    let own = session.storage().endpoints().list(session.user()).await?;
    let found = (1..).zip(&own).find(|(_, one)| one.id == endpoint.id);
    let status = match not_sent {
        Some(_) => StatusCode::CONFLICT,
        None => StatusCode::OK,
    };
    let page = LogPage {
        frame: &session.frame("/webhooks"),
        zone: session.zone(),
        endpoint,
        number: found.filter(|_| own.len() > 1).map(|(number, _)| number),
        rows,
        query: &query,
        pages,
        not_sent,
    };
    Ok(page_response(status, &page))
}

/// A page of the deliveries to an endpoint, newest first.
pub(crate) async fn list(
    storage: &Storage,
    endpoint: &Endpoint,
    query: &ListQuery,
    rows_max: u32,
) -> Result<(Vec<DeliveryRow>, Pages), StorageError> {
    let deliveries = storage.deliveries();
    let (user, id) = (endpoint.user_id, endpoint.id);
    let before = query.start().map(|DeliveryPosition(at, event)| (at, event));
    let mut found = match (query.get("event"), query.parsed("event")) {
        ("", _) => {
            let state = query.parsed("state");
            let found = deliveries.list_before(before, (user, id), state, rows_max + 1);
            found.await?
        }
        (_, Some(event)) => {
            let found = deliveries.find(user, id, event).await?;
            found.into_iter().collect()
        }
        (_, None) => Vec::new(),
    };
    let pages = query.cut(&mut found, rows_max, DeliveryRecord::position);
    let mut rows = Vec::with_capacity(found.len());
    for delivery in found {
        let attempts = deliveries.list_attempts(delivery.user_id, id, delivery.event_id);
        rows.push(DeliveryRow {
            attempts: attempts.await?,
            delivery,
            about: String::new(),
            is_sandbox: false,
        });
    }
    Ok((rows, pages))
}

/// Such as `3 new, 1 changed`. Empty: the event has no rows.
fn counts(delivery: &DeliveryRecord) -> String {
    let counts = [
        (delivery.new_count, "new"),
        (delivery.updated_count, "changed"),
        (delivery.removed_count, "gone"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let mut texts: Vec<_> = counts
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    if delivery.total_chunks > 1 {
        texts.push(format!(
            "part {} of {}",
            delivery.chunk, delivery.total_chunks
        ));
    }
    texts.join(", ")
}

/// How often an event was tried. After somebody has sent it again, the count begins again.
pub(crate) fn tried(since_asked: u32, all: usize) -> String {
    let times = |count: usize| match count {
        0 => "not tried".to_owned(),
        1 => "tried once".to_owned(),
        many => format!("tried {many} times"),
    };
    let since_asked = usize::try_from(since_asked).unwrap_or(all);
    match all.saturating_sub(since_asked) {
        0 => times(since_asked),
        before if since_asked == 0 => format!("{} before", times(before)),
        before => format!("{}, and {before} before", times(since_asked)),
    }
}

/// What came of the last attempt to deliver an event. Empty: there was none.
pub(crate) fn outcome(delivery: &DeliveryRecord) -> String {
    let error = delivery.last_error.as_deref();
    outcome_of(delivery.last_status, delivery.last_duration_ms, error)
}

fn outcome_of(status: Option<u16>, ms: Option<u32>, error: Option<&str>) -> String {
    let status = status.map(|status| status.to_string());
    // The status says it all.
    let error = error
        .filter(|error| *error != "rejected")
        .map(str::to_owned);
    let ms = ms.map(|ms| format!("{ms} ms"));
    [status, error, ms]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" · ")
}

/// `POST /webhooks/endpoints/{id}`, with the field `redeliver` or `recover`.
pub(crate) async fn change(id: PathText, uri: Uri, form: OwnForm) -> PageResult {
    let session = &form.session;
    let endpoint = find_own(session, id_of(id)?).await?;
    let hours = form
        .field("recover")
        .and_then(|value| SINCE.iter().find(|(name, ..)| *name == value))
        .map(|(.., hours)| SignedDuration::from_hours(*hours));
    let event = form.parsed::<EventId>("redeliver");
    let path = path(endpoint.id);
    let sent = async {
        let mut change = session.begin().await?;
        let done = match (event, hours) {
            (Some(event), None) => {
                deliveries::redeliver(&mut change, endpoint.id, None, event).await?;
                Done::EventRequested.redirect(session, &format!("{path}?event={event}"), event)
            }
            (None, Some(_)) if endpoint.is_disabled() => {
                return Err(Refusal::EndpointDisabled.into());
            }
            (None, Some(hours)) => {
                let (user, since) = (session.user(), session.now - hours);
                if deliveries::recover(&mut change, &endpoint, user, since).await? == 0 {
                    // Nothing to commit, so the audit has no row either.
                    return Ok(Done::NoFailedEvents.redirect(session, &path, "recover"));
                }
                Done::EventsRequested.redirect(session, &path, "recover")
            }
            _ => return Err(Failure::InvalidForm),
        };
        session.commit(change).await?;
        Ok(done)
    };
    match sent.await {
        Ok(response) => Ok(response),
        Err(failure) => match why_not_sent_again(&failure) {
            Some(why) => page(session, &endpoint, &uri, Some(NotSent { event, why })).await,
            None => Err(failure),
        },
    }
}

/// Why an event is not sent again, if that is all that is wrong.
pub(crate) fn why_not_sent_again(failure: &Failure) -> Option<&'static str> {
    const GONE: &str =
        "This event cannot be sent again: it is not stored any more, or its bank is being removed.";
    let Failure::Refused(refusal) = failure else {
        return None;
    };
    Some(match **refusal {
        Refusal::NotFound(EVENT) => GONE,
        Refusal::PingRedelivered => "A test event is not sent again. Send another one.",
        Refusal::EndpointDisabled => "The endpoint is disabled. Enable it first.",
        Refusal::EventWaits => {
            "This event waits for an earlier one of the same sync. Send that one again."
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use bellbird_management::refusal::ENDPOINT;

    use super::*;

    #[test]
    fn only_an_event_of_an_endpoint_cannot_be_sent_again() {
        let why = |gone| why_not_sent_again(&Refusal::NotFound(gone).into());
        assert!(why(EVENT).is_some());
        assert_eq!(why(ENDPOINT), None, "its page is missing");
    }

    #[test]
    fn attempts_are_counted_since_the_event_was_asked_for() {
        assert_eq!(tried(0, 0), "not tried");
        assert_eq!(tried(1, 1), "tried once");
        assert_eq!(tried(3, 3), "tried 3 times");
        assert_eq!(tried(1, 11), "tried once, and 10 before");
        assert_eq!(tried(0, 3), "tried 3 times before");
    }

    #[test]
    fn outcome_has_what_is_known() {
        assert_eq!(outcome_of(Some(204), Some(12), None), "204 · 12 ms");
        assert_eq!(
            outcome_of(Some(500), Some(3), Some("rejected")),
            "500 · 3 ms"
        );
        assert_eq!(
            outcome_of(None, Some(15_000), Some("no response in time")),
            "no response in time · 15000 ms"
        );
        assert_eq!(outcome_of(None, None, None), "");
    }
}
