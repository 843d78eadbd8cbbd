//! `/webhooks/endpoints/{id}`: the deliveries to one endpoint of the user, with their attempts. Its
//! forms send events again.

use askama::Template;
use bellbird_domain::{DeliveryState, EndpointId, EndpointStatus, EventId, EventType};
use bellbird_management::{Refusal, deliveries};
use bellbird_storage::{AttemptRecord, DeliveryPosition, DeliveryRecord, Endpoint, StorageError};
use http::{StatusCode, Uri};
use jiff::SignedDuration;

use super::endpoint::find_own;
use crate::error_page::{Failure, PageResult};
use crate::list_query::{ListQuery, Pages};
use crate::pages::{BankNames, Done, SignedInFrame, When, page_response, why_disabled};
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
    id: EndpointId,
    url: &'a str,
    /// Why it is disabled, and what to do.
    disabled: Option<&'static str>,
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

struct DeliveryRow {
    event_id: EventId,
    event: &'static str,
    /// The bank that the event is about. Empty: none.
    bank: String,
    /// Such as `3 new, 1 changed`. Empty: the event has no rows.
    rows: String,
    created: When,
    state: &'static str,
    tone: &'static str,
    outcome: String,
    tried: String,
    next_attempt: Option<When>,
    attempts: Vec<AttemptRow>,
    can_redeliver: bool,
}

struct AttemptRow {
    at: When,
    /// The value of the header `webhook-timestamp`. None: no request was sent.
    timestamp: Option<i64>,
    outcome: String,
}

impl LogPage<'_> {
    /// Why the event of a row is not sent again, or the events, of the form for many.
    fn not_sent(&self, event: Option<&EventId>) -> Option<&'static str> {
        let not_sent = self.not_sent.as_ref()?;
        (not_sent.event.as_ref() == event).then_some(not_sent.why)
    }

    fn enabled(&self) -> bool {
        self.disabled.is_none()
    }
}

pub(super) fn path(id: EndpointId) -> String {
    format!("/webhooks/endpoints/{id}")
}

/// `GET /webhooks/endpoints/{id}`
pub(crate) async fn show(session: Session, id: PathText, uri: Uri) -> PageResult {
    let query = ListQuery::parse(uri.query(), &FILTERS);
    let endpoint = find_own(&session, id_of(id)?).await?;
    page(&session, &endpoint, &query, None).await
}

async fn page(
    session: &Session,
    endpoint: &Endpoint,
    query: &ListQuery,
    not_sent: Option<NotSent>,
) -> PageResult {
    let (rows, pages) = load(session, endpoint, query).await?;
    let status = match not_sent {
        Some(_) => StatusCode::CONFLICT,
        None => StatusCode::OK,
    };
    let page = LogPage {
        frame: &session.frame("/webhooks"),
        id: endpoint.id,
        url: &endpoint.url,
        disabled: is_disabled(endpoint).then(|| why_disabled(endpoint.disabled_reason.as_deref())),
        rows,
        query,
        pages,
        not_sent,
    };
    Ok(page_response(status, &page))
}

fn is_disabled(endpoint: &Endpoint) -> bool {
    endpoint.status == EndpointStatus::Disabled
}

async fn load(
    session: &Session,
    endpoint: &Endpoint,
    query: &ListQuery,
) -> Result<(Vec<DeliveryRow>, Pages), StorageError> {
    let (storage, user) = (session.storage(), session.user());
    let deliveries = storage.deliveries();
    let before = query.start().map(|DeliveryPosition(at, event)| (at, event));
    let mut found = match query.get("event") {
        "" => {
            let (of, state) = ((user, endpoint.id), query.parsed("state"));
            deliveries
                .list_before(before, of, state, PAGE_ROWS + 1)
                .await?
        }
        event => match event.parse::<EventId>() {
            Ok(event) => {
                let found = deliveries.find(user, endpoint.id, event).await?;
                found.into_iter().collect()
            }
            Err(_) => Vec::new(),
        },
    };
    let pages = query.cut(&mut found, PAGE_ROWS, DeliveryRecord::position);
    let (connections, (accounts, _)) = tokio::try_join!(
        storage.connections().list(user),
        storage.accounts().list(user, u32::MAX, 0),
    )?;
    let names = BankNames::new(&connections, &accounts, &session.zone());
    let mut rows = Vec::with_capacity(found.len());
    for delivery in found {
        let attempts = deliveries
            .list_attempts(user, endpoint.id, delivery.event_id)
            .await?;
        rows.push(row(&delivery, &attempts, endpoint, &names, session));
    }
    Ok((rows, pages))
}

fn row(
    delivery: &DeliveryRecord,
    attempts: &[AttemptRecord],
    endpoint: &Endpoint,
    names: &BankNames,
    session: &Session,
) -> DeliveryRow {
    let zone = session.zone();
    let bank = delivery.connection_id.map(|id| names.find(id));
    DeliveryRow {
        event_id: delivery.event_id,
        event: delivery.event_type.as_str(),
        bank: bank.map_or_else(String::new, |bank| {
            bank.unwrap_or("a bank that was removed").to_owned()
        }),
        rows: counts(delivery),
        created: zone.moment(delivery.created_at),
        state: delivery.state.as_str(),
        tone: match delivery.state {
            DeliveryState::Delivered => "good",
            DeliveryState::Failed => "attention",
            DeliveryState::Pending | DeliveryState::Waiting => "",
        },
        outcome: outcome(delivery),
        tried: tried(delivery.attempts, attempts.len()),
        next_attempt: delivery.next_attempt_at.map(|at| zone.moment(at)),
        attempts: attempts
            .iter()
            .map(|attempt| AttemptRow {
                at: zone.moment(attempt.at),
                timestamp: attempt.status.map(|_| attempt.at.as_second()),
                outcome: outcome_of(
                    attempt.status,
                    Some(attempt.duration_ms),
                    attempt.error.as_deref(),
                ),
            })
            .collect(),
        can_redeliver: !is_disabled(endpoint)
            && delivery.event_type != EventType::Ping
            && delivery.state != DeliveryState::Waiting,
    }
}

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
    let since = form
        .field("recover")
        .and_then(|value| SINCE.iter().find(|(name, ..)| *name == value));
    let event = form.parsed::<EventId>("redeliver");
    if event.is_some() == since.is_some() {
        return Err(Failure::InvalidForm);
    }
    let sent = async {
        if since.is_some() && is_disabled(&endpoint) {
            return Err(Refusal::EndpointDisabled);
        }
        let mut change = session.begin().await?;
        let mut done = Done::EventRequested;
        if let Some(event) = event {
            deliveries::redeliver(&mut change, endpoint.id, None, event).await?;
        }
        if let Some((.., hours)) = since {
            let since = session.now - SignedDuration::from_hours(*hours);
            let user = session.user();
            done = match deliveries::recover(&mut change, &endpoint, user, since).await? {
                0 => Done::NoFailedEvents,
                _ => Done::EventsRequested,
            };
        }
        session.commit(change).await?;
        Ok(done)
    };
    let why = match sent.await {
        Ok(done) => {
            let path = path(endpoint.id);
            return Ok(match event {
                Some(event) => done.redirect(session, &format!("{path}?event={event}"), event),
                None => done.redirect(session, &path, "recover"),
            });
        }
        Err(refusal) => why_not_sent_again(&refusal).ok_or(refusal)?,
    };
    let not_sent = Some(NotSent { event, why });
    let query = ListQuery::parse(uri.query(), &FILTERS);
    page(session, &endpoint, &query, not_sent).await
}

/// Why an event is not sent again, if that is all that is wrong.
pub(crate) fn why_not_sent_again(refusal: &Refusal) -> Option<&'static str> {
    Some(match refusal {
        Refusal::NotFound(_) => {
            "This event cannot be sent again: it is not stored any more, or its bank is being removed."
        }
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
    use super::*;

    #[test]
    fn attempts_are_counted_since_the_event_was_asked_for() {
        assert_eq!(tried(0, 0), "not tried");
        assert_eq!(tried(1, 1), "tried once");
        assert_eq!(tried(3, 3), "tried 3 times");
        assert_eq!(tried(1, 11), "tried once, and 10 before");
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
