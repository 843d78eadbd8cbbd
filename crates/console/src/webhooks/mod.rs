//! `/webhooks`: the user's webhook endpoints. A secret is shown once, on the response to the form
//! that makes it.

mod endpoint;
pub(crate) mod log;

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use bellbird_domain::{EndpointId, EndpointStatus};
use bellbird_management::Refusal;
use bellbird_management::endpoints::{self, CreatedEndpoint, NewEndpoint};
use bellbird_storage::{Endpoint, StorageError};
use bellbird_webhooks::endpoint::{ENDPOINTS_MAX, EndpointUrl};
use bellbird_webhooks::{PingError, PingOutcome};
use http::{HeaderMap, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};

use self::endpoint::{EndpointFields, find_own, sentence};
use crate::error_page;
use crate::pages::{LocalTime, SignedInFrame, page_response, why_disabled};
use crate::plan;
use crate::session::{OwnForm, Session};
use crate::state::Console;

#[derive(Template)]
#[template(path = "webhooks.html")]
struct WebhooksPage<'a> {
    frame: &'a SignedInFrame<'a>,
    rows: Vec<EndpointRow>,
    done: Option<&'a Done>,
    fields: &'a EndpointFields,
}

struct EndpointRow {
    id: EndpointId,
    url: String,
    events: Vec<&'static str>,
    /// Why it is disabled, and what to do.
    disabled: Option<&'static str>,
    failing_since: Option<String>,
    /// None: never.
    delivered: Option<String>,
}

/// What a form has done.
enum Done {
    /// A secret, shown now and never again.
    Secret {
        url: String,
        secret: SecretString,
        kind: SecretKind,
    },
    Pinged {
        url: String,
        text: String,
        is_delivered: bool,
    },
    NotPinged {
        text: String,
        status: StatusCode,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SecretKind {
    OfNewEndpoint,
    /// The old one works for a day.
    Rotated,
    /// The old one cannot be read, so it signs nothing.
    Replaced,
}

/// What the buttons of an endpoint do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Ping,
    Rotate,
    Enable,
    Disable,
    Delete,
}

impl Done {
    fn status(&self) -> StatusCode {
        match self {
            Self::Secret { .. } | Self::Pinged { .. } => StatusCode::OK,
            Self::NotPinged { status, .. } => *status,
        }
    }
}

/// `GET /webhooks`
pub(crate) async fn show(State(console): State<Console>, session: Session) -> Response {
    page(
        &console,
        &session,
        None,
        &EndpointFields::of_new(&console, session.caller.plan),
    )
    .await
}

async fn page(
    console: &Console,
    session: &Session,
    done: Option<&Done>,
    fields: &EndpointFields,
) -> Response {
    let endpoints = match console.storage().endpoints().list(session.user()).await {
        Ok(endpoints) => endpoints,
        Err(error) => return error_page::storage_error(console, &error),
    };
    let zone = session.zone();
    let rows = endpoints
        .into_iter()
        .map(|endpoint| row(endpoint, &zone))
        .collect();
    let frame = session.frame(console, "/webhooks");
    let status = if fields.problem.is_some() {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::OK
    };
    let status = done.map_or(status, Done::status);
    page_response(
        status,
        &WebhooksPage {
            frame: &frame,
            rows,
            done,
            fields,
        },
    )
}

fn row(endpoint: Endpoint, zone: &LocalTime) -> EndpointRow {
    let is_disabled = endpoint.status == EndpointStatus::Disabled;
    EndpointRow {
        id: endpoint.id,
        url: endpoint.url,
        events: endpoint
            .event_types
            .iter()
            .map(|event| event.as_str())
            .collect(),
        disabled: is_disabled.then(|| why_disabled(endpoint.disabled_reason.as_deref())),
        failing_since: endpoint.failing_since.map(|at| zone.at(at)),
        delivered: endpoint.delivered_at.map(|at| zone.at(at)),
    }
}

/// `POST /webhooks`, with the fields of a new endpoint, or with one field: what to do, and the
/// endpoint's id.
pub(crate) async fn change(
    State(console): State<Console>,
    headers: HeaderMap,
    form: OwnForm,
) -> Response {
    if let Some(fields) = EndpointFields::submitted(&console, &form) {
        if let Some(refused) = plan::refuse_form(&console, &form.session) {
            return refused;
        }
        return create(&console, &form.session, fields).await;
    }
    let Some((action, id)) = chosen(&form) else {
        return error_page::invalid_form(&console);
    };
    match act(&console, &form.session, action, id).await {
        Ok(Some(response)) => response,
        // Also if the endpoint was deleted meanwhile.
        Ok(None) | Err(Refusal::NotFound(_)) => error_page::not_found(&console, &headers),
        Err(refusal) => error_page::refused(&console, refusal),
    }
}

fn chosen(form: &OwnForm) -> Option<(Action, EndpointId)> {
    let [(name, id)] = form.fields() else {
        return None;
    };
    let action = match name.as_str() {
        "ping" => Action::Ping,
        "rotate" => Action::Rotate,
        "enable" => Action::Enable,
        "disable" => Action::Disable,
        "delete" => Action::Delete,
        _ => return None,
    };
    Some((action, id.parse().ok()?))
}

fn too_many() -> String {
    format!("You have {ENDPOINTS_MAX} endpoints, which is the limit. Delete one first.")
}

/// The URL in its normal form, or what is wrong. Asks no name server for an endpoint that would be
/// one too many.
async fn check_new(
    console: &Console,
    session: &Session,
    fields: &EndpointFields,
) -> Result<Result<EndpointUrl, String>, StorageError> {
    if console
        .storage()
        .endpoints()
        .list(session.user())
        .await?
        .len()
        >= ENDPOINTS_MAX as usize
    {
        return Ok(Err(too_many()));
    }
    Ok(fields.check().await)
}

async fn create(console: &Console, session: &Session, mut fields: EndpointFields) -> Response {
    let url = match check_new(console, session, &fields).await {
        Ok(Ok(url)) => url,
        Ok(Err(problem)) => {
            fields.problem = Some(problem);
            return page(console, session, None, &fields).await;
        }
        Err(error) => return error_page::storage_error(console, &error),
    };
    match insert(console, session, &url, &fields).await {
        Ok(created) => {
            let done = Done::Secret {
                url: created.endpoint.url,
                secret: created.secret,
                kind: SecretKind::OfNewEndpoint,
            };
            page(
                console,
                session,
                Some(&done),
                &EndpointFields::of_new(console, session.caller.plan),
            )
            .await
        }
        Err(Refusal::TooManyEndpoints) => {
            fields.problem = Some(too_many());
            page(console, session, None, &fields).await
        }
        Err(refusal) => error_page::refused(console, refusal),
    }
}

async fn insert(
    console: &Console,
    session: &Session,
    url: &EndpointUrl,
    fields: &EndpointFields,
) -> Result<CreatedEndpoint, Refusal> {
    let mut change = session.begin(console).await?;
    let new = NewEndpoint {
        user_id: session.user(),
        url,
        events: Some(&fields.events),
        api_version: None,
    };
    let created = endpoints::create(&mut change, new).await?;
    session.commit(change).await?;
    Ok(created)
}

/// None: the user has no such endpoint.
async fn act(
    console: &Console,
    session: &Session,
    action: Action,
    id: EndpointId,
) -> Result<Option<Response>, Refusal> {
    let Some(endpoint) = find_own(console, session, id).await? else {
        return Ok(None);
    };
    let done = match action {
        Action::Ping => ping(console, session, &endpoint).await?,
        Action::Rotate => Some(rotate(console, session, &endpoint).await?),
        Action::Enable | Action::Disable | Action::Delete => {
            change_state(console, session, action, id).await?;
            // What was missed meanwhile can be sent again there.
            let next = if action == Action::Enable {
                log::path(id)
            } else {
                "/webhooks".to_owned()
            };
            return Ok(Some(Redirect::to(&console.path(&next)).into_response()));
        }
    };
    let Some(done) = done else { return Ok(None) };
    Ok(Some(
        page(
            console,
            session,
            Some(&done),
            &EndpointFields::of_new(console, session.caller.plan),
        )
        .await,
    ))
}

async fn change_state(
    console: &Console,
    session: &Session,
    action: Action,
    id: EndpointId,
) -> Result<(), Refusal> {
    let mut change = session.begin(console).await?;
    match action {
        Action::Enable => endpoints::enable(&mut change, id).await?,
        Action::Delete => endpoints::remove(&mut change, id).await?,
        _ if endpoints::disable(&mut change, id).await?.is_none() => return Ok(()),
        _ => {}
    }
    session.commit(change).await
}

async fn rotate(
    console: &Console,
    session: &Session,
    endpoint: &Endpoint,
) -> Result<Done, Refusal> {
    let mut change = session.begin(console).await?;
    let rotated = endpoints::rotate_secret(&mut change, endpoint.id).await?;
    session.commit(change).await?;
    let is_broken = endpoint.disabled_reason.as_deref() == Some("secret broken");
    let kind = if is_broken {
        SecretKind::Replaced
    } else {
        SecretKind::Rotated
    };
    Ok(Done::Secret {
        url: rotated.endpoint.url,
        secret: rotated.secret,
        kind,
    })
}

async fn ping(
    console: &Console,
    session: &Session,
    endpoint: &Endpoint,
) -> Result<Option<Done>, StorageError> {
    if let Some(limit) = &console.inner.ping_limit
        && !limit.take(session.user(), session.now).await.allowed
    {
        let text = "You have sent many test events. Wait a minute before the next one.".to_owned();
        return Ok(Some(Done::NotPinged {
            text,
            status: StatusCode::TOO_MANY_REQUESTS,
        }));
    }
    let text = match console.inner.site.webhooks.ping(endpoint).await {
        Ok(outcome) => {
            let (text, is_delivered) = (outcome_text(&outcome), outcome.exchange.is_success());
            return Ok(Some(Done::Pinged {
                url: endpoint.url.clone(),
                text,
                is_delivered,
            }));
        }
        Err(PingError::NotFound) => return Ok(None),
        Err(PingError::Storage(error)) => return Err(error),
        Err(PingError::Secret) => {
            "Its secret cannot be read any more. Give it a new one.".to_owned()
        }
        Err(PingError::Target(error)) => sentence(&error.to_string()),
    };
    Ok(Some(Done::NotPinged {
        text,
        status: StatusCode::CONFLICT,
    }))
}

fn outcome_text(outcome: &PingOutcome) -> String {
    let (exchange, ms) = (outcome.exchange, outcome.exchange.duration.as_millis());
    match (exchange.status, exchange.shown()) {
        (Some(status), _) if exchange.is_success() => {
            format!("It answered {status} after {ms} ms.")
        }
        (Some(status), _) => {
            format!(
                "It answered {status} after {ms} ms. An event is delivered when the answer is from 200 to 299."
            )
        }
        (None, Some(error)) => format!("It did not answer: {error}, after {ms} ms."),
        (None, None) => format!("It did not answer within {ms} ms."),
    }
}
