//! `/webhooks/endpoints/{id}`: the deliveries to one endpoint of the user, with their attempts. Its
//! forms send events again, and change the endpoint.

use std::convert::Infallible;

use askama::Template;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use bellbird_domain::{DeliveryState, EndpointId, EndpointStatus, EventId, EventType};
use bellbird_management::endpoints::{self, EndpointChange};
use bellbird_management::{Refusal, deliveries};
use bellbird_storage::{AttemptRecord, DeliveryPosition, DeliveryRecord, Endpoint, StorageError};
use bellbird_webhooks::endpoint::EndpointUrl;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use jiff::SignedDuration;
use serde::Deserialize;

use super::endpoint::{EndpointFields, find_own};
use crate::error_page;
use crate::pages::{LocalTime, SignedInFrame, page_response, why_disabled};
use crate::session::{OwnForm, Session};
use crate::state::Console;

/// Deliveries on one page.
const PAGE_ROWS: u32 = 20;
const DISABLED: &str = "The endpoint is disabled. Enable it first.";
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
    query: &'a LogQuery,
    /// The query of the next page, if there are older deliveries.
    older: Option<String>,
    done: Option<&'a Done>,
    fields: EndpointFields,
}

struct DeliveryRow {
    event_id: EventId,
    event: &'static str,
    created: String,
    state: &'static str,
    is_failed: bool,
    /// Such as `part 1 of 2`. Empty: there is one part.
    part: String,
    next_attempt: Option<String>,
    attempts: Vec<AttemptRow>,
    can_redeliver: bool,
}

struct AttemptRow {
    at: String,
    outcome: String,
}

/// What a form has done.
struct Done {
    text: String,
    status: StatusCode,
}

impl Done {
    fn ok(text: String) -> Self {
        Self {
            text,
            status: StatusCode::OK,
        }
    }

    fn conflict(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            status: StatusCode::CONFLICT,
        }
    }
}

#[derive(Deserialize, Default)]
struct RawQuery {
    #[serde(default)]
    state: String,
    #[serde(default)]
    before: String,
}

/// Which deliveries a page shows.
#[derive(Default)]
pub(crate) struct LogQuery {
    pub(crate) state: Option<DeliveryState>,
    pub(crate) before: Option<DeliveryPosition>,
}

impl<S: Send + Sync> FromRequestParts<S> for LogQuery {
    type Rejection = Infallible;

    /// What cannot be parsed chooses nothing.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let raw = Query::<RawQuery>::try_from_uri(&parts.uri)
            .map(|Query(raw)| raw)
            .unwrap_or_default();
        Ok(Self {
            state: raw.state.parse().ok(),
            before: raw.before.parse().ok(),
        })
    }
}

impl LogQuery {
    /// The query of the page that begins there.
    pub(crate) fn at(&self, before: Option<DeliveryPosition>) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if let Some(state) = self.state {
            query.append_pair("state", state.as_str());
        }
        if let Some(before) = before {
            query.append_pair("before", &before.to_string());
        }
        query.finish()
    }
}

pub(super) fn path(id: EndpointId) -> String {
    format!("/webhooks/endpoints/{id}")
}

type IdInPath = Result<Path<String>, PathRejection>;

/// `GET /webhooks/endpoints/{id}`
pub(crate) async fn show(
    State(console): State<Console>,
    headers: HeaderMap,
    session: Session,
    id: IdInPath,
    query: LogQuery,
) -> Response {
    match find(&console, &session, id).await {
        Ok(Some(endpoint)) => page(&console, &session, &endpoint, &query, None, None).await,
        Ok(None) => error_page::not_found(&console, &headers),
        Err(error) => error_page::storage_error(&console, &error),
    }
}

async fn find(
    console: &Console,
    session: &Session,
    id: IdInPath,
) -> Result<Option<Endpoint>, StorageError> {
    let Some(id) = id.ok().and_then(|Path(id)| id.parse().ok()) else {
        return Ok(None);
    };
    find_own(console, session, id).await
}

async fn page(
    console: &Console,
    session: &Session,
    endpoint: &Endpoint,
    query: &LogQuery,
    done: Option<&Done>,
    fields: Option<EndpointFields>,
) -> Response {
    let (rows, older) = match load(console, session, endpoint, query).await {
        Ok(found) => found,
        Err(error) => return error_page::storage_error(console, &error),
    };
    let fields =
        fields.unwrap_or_else(|| EndpointFields::of(console, endpoint, session.caller.plan));
    let status = if fields.problem.is_some() {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::OK
    };
    let page = LogPage {
        frame: &session.frame(console, "/webhooks"),
        id: endpoint.id,
        url: &endpoint.url,
        disabled: is_disabled(endpoint).then(|| why_disabled(endpoint.disabled_reason.as_deref())),
        rows,
        query,
        older,
        done,
        fields,
    };
    page_response(done.map_or(status, |done| done.status), &page)
}

fn is_disabled(endpoint: &Endpoint) -> bool {
    endpoint.status == EndpointStatus::Disabled
}

/// The deliveries of a page, and the query of the next one.
async fn load(
    console: &Console,
    session: &Session,
    endpoint: &Endpoint,
    query: &LogQuery,
) -> Result<(Vec<DeliveryRow>, Option<String>), StorageError> {
    let zone = session.zone();
    let (user, deliveries) = (session.user(), console.storage().deliveries());
    let before = query.before.map(|DeliveryPosition(at, event)| (at, event));
    let mut found = deliveries
        .list_before(before, (user, endpoint.id), query.state, PAGE_ROWS + 1)
        .await?;
    let has_older = found.len() > PAGE_ROWS as usize;
    found.truncate(PAGE_ROWS as usize);
    let older = found
        .last()
        .filter(|_| has_older)
        .map(|last| query.at(Some(last.position())));
    let mut rows = Vec::with_capacity(found.len());
    for delivery in found {
        let attempts = deliveries
            .list_attempts(user, endpoint.id, delivery.event_id)
            .await?;
        rows.push(row(&delivery, &attempts, endpoint, &zone));
    }
    Ok((rows, older))
}

fn row(
    delivery: &DeliveryRecord,
    attempts: &[AttemptRecord],
    endpoint: &Endpoint,
    zone: &LocalTime,
) -> DeliveryRow {
    let has_parts = delivery.total_chunks > 1;
    let part = || format!(", part {} of {}", delivery.chunk, delivery.total_chunks);
    DeliveryRow {
        event_id: delivery.event_id,
        event: delivery.event_type.as_str(),
        created: zone.at(delivery.created_at),
        state: state_text(delivery.state),
        is_failed: delivery.state == DeliveryState::Failed,
        part: has_parts.then(part).unwrap_or_default(),
        next_attempt: delivery.next_attempt_at.map(|at| zone.at(at)),
        attempts: attempts
            .iter()
            .map(|attempt| attempt_row(attempt, zone))
            .collect(),
        can_redeliver: !is_disabled(endpoint)
            && delivery.event_type != EventType::Ping
            && delivery.state != DeliveryState::Waiting,
    }
}

fn attempt_row(attempt: &AttemptRecord, zone: &LocalTime) -> AttemptRow {
    let answer = attempt.status.map_or_else(
        || "no answer".to_owned(),
        |status| format!("answer {status}"),
    );
    let error = attempt
        .error
        .as_deref()
        .map(|error| format!(" ({error})"))
        .unwrap_or_default();
    AttemptRow {
        at: zone.at(attempt.at),
        outcome: format!("{answer} after {} ms{error}", attempt.duration_ms),
    }
}

pub(crate) fn state_text(state: DeliveryState) -> &'static str {
    match state {
        DeliveryState::Pending => "is being sent",
        DeliveryState::Waiting => "waits for an earlier event",
        DeliveryState::Delivered => "delivered",
        DeliveryState::Failed => "failed",
    }
}

/// `POST /webhooks/endpoints/{id}`, with the field `redeliver` or `recover`, or with the fields of
/// the endpoint.
pub(crate) async fn change(
    State(console): State<Console>,
    headers: HeaderMap,
    id: IdInPath,
    query: LogQuery,
    form: OwnForm,
) -> Response {
    let session = &form.session;
    let endpoint = match find(&console, session, id).await {
        Ok(Some(endpoint)) => endpoint,
        Ok(None) => return error_page::not_found(&console, &headers),
        Err(error) => return error_page::storage_error(&console, &error),
    };
    if let Some(fields) = EndpointFields::submitted(&console, &form) {
        return update(&console, session, &endpoint, fields).await;
    }
    let since = form
        .field("recover")
        .and_then(|value| SINCE.iter().find(|(name, ..)| *name == value));
    let done = match (form.parsed::<EventId>("redeliver"), since) {
        (Some(event), None) => redeliver(&console, session, &endpoint, event).await,
        (None, Some((_, text, hours))) => recover(&console, session, &endpoint, text, *hours)
            .await
            .map(Some),
        _ => return error_page::invalid_form(&console),
    };
    match done {
        Ok(Some(done)) => page(&console, session, &endpoint, &query, Some(&done), None).await,
        Ok(None) => {
            let path = format!("{}?{}", path(endpoint.id), query.at(query.before));
            Redirect::to(&console.path(path.trim_end_matches('?'))).into_response()
        }
        Err(refusal) => error_page::refused(&console, refusal),
    }
}

async fn update(
    console: &Console,
    session: &Session,
    endpoint: &Endpoint,
    mut fields: EndpointFields,
) -> Response {
    let query = LogQuery {
        state: None,
        before: None,
    };
    let url = match fields.check().await {
        Ok(url) => url,
        Err(problem) => {
            fields.problem = Some(problem);
            return page(console, session, endpoint, &query, None, Some(fields)).await;
        }
    };
    match save(console, session, endpoint, &url, &fields).await {
        Ok(()) => Redirect::to(&console.path("/webhooks")).into_response(),
        Err(refusal) => error_page::refused(console, refusal),
    }
}

async fn save(
    console: &Console,
    session: &Session,
    endpoint: &Endpoint,
    url: &EndpointUrl,
    fields: &EndpointFields,
) -> Result<(), Refusal> {
    let mut change = session.begin(console).await?;
    let to = EndpointChange {
        url: Some(url),
        events: Some(&fields.events),
        ..EndpointChange::default()
    };
    endpoints::update(&mut change, endpoint.id, to).await?;
    session.commit(change).await
}

/// None: the event is due. Otherwise why it is not.
async fn redeliver(
    console: &Console,
    session: &Session,
    endpoint: &Endpoint,
    event: EventId,
) -> Result<Option<Done>, Refusal> {
    let mut change = session.begin(console).await?;
    let why = match deliveries::redeliver(&mut change, endpoint.id, None, event).await {
        Ok(()) => {
            session.commit(change).await?;
            return Ok(None);
        }
        Err(Refusal::NotFound(_)) => {
            "This event cannot be sent again: it is not stored any more, or its connection is being removed."
        }
        Err(Refusal::PingRedelivered) => "A test event is not sent again. Send another one.",
        Err(Refusal::EndpointDisabled) => DISABLED,
        Err(Refusal::EventWaits) => {
            "This event waits for an earlier one of the same sync. Send that one again."
        }
        Err(other) => return Err(other),
    };
    Ok(Some(Done::conflict(why)))
}

async fn recover(
    console: &Console,
    session: &Session,
    endpoint: &Endpoint,
    text: &str,
    hours: i64,
) -> Result<Done, Refusal> {
    if is_disabled(endpoint) {
        return Ok(Done::conflict(DISABLED));
    }
    let since = session.now - SignedDuration::from_hours(hours);
    let mut change = session.begin(console).await?;
    let user = session.user();
    let recovered = deliveries::recover(&mut change, endpoint, user, since).await?;
    session.commit(change).await?;
    Ok(Done::ok(match recovered {
        0 => format!("No event of {text} has failed."),
        1 => "1 event is sent again.".to_owned(),
        many => format!("{many} events are sent again."),
    }))
}
