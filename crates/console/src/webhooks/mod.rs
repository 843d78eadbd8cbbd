//! `/webhooks`: the user's webhook endpoints. A secret is shown once, on the response to the form
//! that makes it.

mod endpoint;
pub(crate) mod log;
mod ping;

use askama::Template;
use bellbird_api::docs::{EventExample, event_examples};
use bellbird_domain::{EndpointId, EndpointStatus, EventType};
use bellbird_management::Refusal;
use bellbird_management::endpoints::{self, CreatedEndpoint, EndpointChange, NewEndpoint};
use bellbird_storage::{DeliveryRecord, Endpoint, StorageError};
use bellbird_webhooks::endpoint::{ENDPOINTS_MAX, EndpointUrl};
use http::StatusCode;
use secrecy::{ExposeSecret as _, SecretString};

use self::endpoint::{EndpointFields, description, find_own, is_in_plan};
use self::log::outcome;
use self::ping::Pinged;
use crate::error_page::{Failure, PageResult};
use crate::pages::{Done, SignedInFrame, When, page_response, why_disabled};
use crate::plan;
use crate::session::{OwnForm, Session, newest_of};

#[derive(Template)]
#[template(path = "webhooks.html")]
struct WebhooksPage<'a> {
    frame: &'a SignedInFrame<'a>,
    rows: Vec<EndpointRow>,
    shown: &'a Shown,
    new: EndpointFields,
    /// The newest endpoint, for the form that makes one. Empty without endpoints.
    newest: String,
}

/// What the page shows beside the endpoints, because of the form that led to it.
enum Shown {
    Nothing,
    /// A secret, shown now and never again.
    Secret {
        url: String,
        secret: SecretString,
        kind: SecretKind,
    },
    Pinged(EndpointId, Pinged),
    /// What is wrong with the fields.
    Fields(Box<EndpointFields>),
}

struct EndpointRow {
    id: EndpointId,
    url: String,
    events: Vec<&'static str>,
    /// Why it is disabled, and what to do.
    disabled: Option<&'static str>,
    failing_since: Option<When>,
    /// None: never.
    delivered: Option<When>,
    /// When a test event was last sent, and what came of it.
    test: Option<(When, String)>,
    /// The id of that event, for the form that sends one: one that is sent again has another.
    tested: String,
    /// The same for the form that makes a new secret: when the previous one ends.
    rotated: String,
    fields: EndpointFields,
    is_edited: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SecretKind {
    OfNewEndpoint,
    /// The old one works for a day.
    Rotated,
    /// The old one cannot be read, so it signs nothing.
    Replaced,
}

/// What the buttons of an endpoint do, as their names.
const ACTIONS: [&str; 6] = ["ping", "rotate", "enable", "disable", "delete", "example"];

impl WebhooksPage<'_> {
    /// What came of the test event that was just sent to an endpoint.
    fn pinged(&self, row: &EndpointRow) -> Option<&Pinged> {
        match self.shown {
            Shown::Pinged(id, pinged) if *id == row.id => Some(pinged),
            _ => None,
        }
    }

    /// The events that the user's endpoints can get, and the test event.
    fn catalogue(&self) -> impl Iterator<Item = (&'static EventExample, &'static str)> {
        let plan = self.frame.plan;
        let is_offered = move |example: &&EventExample| {
            example.event_type != EventType::UserRemoved && is_in_plan(example.event_type, plan)
        };
        let examples = event_examples().iter().filter(is_offered);
        examples.map(|example| (example, description(example.event_type)))
    }
}

/// `GET /webhooks`
pub(crate) async fn show(session: Session) -> PageResult {
    page(&session, Shown::Nothing).await
}

async fn page(session: &Session, shown: Shown) -> PageResult {
    let rows = rows(session, &shown).await?;
    let status = match &shown {
        Shown::Nothing | Shown::Secret { .. } => StatusCode::OK,
        Shown::Pinged(_, pinged) => pinged.status,
        Shown::Fields(_) => StatusCode::BAD_REQUEST,
    };
    let new = match &shown {
        Shown::Fields(fields) if fields.id.is_none() => EndpointFields::clone(fields),
        _ => EndpointFields::of(session, None),
    };
    let page = WebhooksPage {
        frame: &session.frame("/webhooks"),
        newest: newest_of(rows.iter().map(|row| row.id)),
        rows,
        shown: &shown,
        new,
    };
    Ok(page_response(status, &page))
}

async fn rows(session: &Session, shown: &Shown) -> Result<Vec<EndpointRow>, StorageError> {
    let (storage, user, zone) = (session.storage(), session.user(), session.zone());
    let mut rows = Vec::new();
    for endpoint in storage.endpoints().list(user).await? {
        let ping = storage.deliveries().find_last_ping(user, endpoint.id);
        let ping = ping.await?;
        let edited = match shown {
            Shown::Fields(fields) if fields.id == Some(endpoint.id) => Some(&**fields),
            _ => None,
        };
        let is_disabled = endpoint.status == EndpointStatus::Disabled;
        let events = endpoint.event_types.iter();
        rows.push(EndpointRow {
            id: endpoint.id,
            events: events.map(|event| event.as_str()).collect(),
            disabled: is_disabled.then(|| why_disabled(endpoint.disabled_reason.as_deref())),
            failing_since: endpoint.failing_since.map(|at| zone.when(at)),
            delivered: endpoint.delivered_at.map(|at| zone.when(at)),
            tested: tested(ping.as_ref()),
            test: ping.map(|ping| (zone.moment(ping.created_at), outcome(&ping))),
            rotated: rotation(endpoint.old_secret_expires_at),
            fields: edited.map_or_else(
                || EndpointFields::of(session, Some(&endpoint)),
                EndpointFields::clone,
            ),
            is_edited: edited.is_some(),
            url: endpoint.url,
        });
    }
    Ok(rows)
}

fn tested(ping: Option<&DeliveryRecord>) -> String {
    ping.map(|ping| ping.event_id.to_string())
        .unwrap_or_default()
}

fn rotation(old_secret_expires_at: Option<jiff::Timestamp>) -> String {
    old_secret_expires_at
        .map(|at| at.as_microsecond().to_string())
        .unwrap_or_default()
}

/// `POST /webhooks`, with the fields of an endpoint that is new or, with `edit`, changed, or with a
/// field that says what to do, whose value is the endpoint's id.
pub(crate) async fn change(form: OwnForm) -> PageResult {
    let session = &form.session;
    let changed = if let Some(fields) = EndpointFields::submitted(&form) {
        if let Some(refused) = plan::refuse_form(session) {
            return Ok(refused);
        }
        match fields.id {
            Some(id) => update(session, id, fields).await,
            None => create(&form, fields).await,
        }
    } else {
        let (action, id) = chosen(&form).ok_or(Failure::InvalidForm)?;
        act(&form, action, id).await
    };
    match changed {
        // The endpoint was deleted meanwhile.
        Err(Failure::Refused(refusal)) if matches!(*refusal, Refusal::NotFound(_)) => {
            Err(Failure::NotFound)
        }
        changed => changed,
    }
}

fn chosen(form: &OwnForm) -> Option<(&str, EndpointId)> {
    let find = |(name, value): &(String, String)| {
        let action = ACTIONS.into_iter().find(|action| action == name)?;
        Some((action, value.parse().ok()?))
    };
    let mut chosen = form.fields().iter().filter_map(find);
    chosen.next().filter(|_| chosen.next().is_none())
}

fn too_many() -> String {
    format!("You have {ENDPOINTS_MAX} endpoints, which is the limit. Delete one first.")
}

async fn wrong(session: &Session, mut fields: EndpointFields, problem: String) -> PageResult {
    fields.problem = Some(problem);
    page(session, Shown::Fields(Box::new(fields))).await
}

/// Asks no name server for an endpoint that would be one too many.
async fn create(form: &OwnForm, fields: EndpointFields) -> PageResult {
    let session = &form.session;
    let count = session.storage().endpoints().list(session.user()).await?;
    if count.len() >= ENDPOINTS_MAX as usize {
        return wrong(session, fields, too_many()).await;
    }
    let url = match fields.check().await {
        Ok(url) => url,
        Err(problem) => return wrong(session, fields, problem).await,
    };
    match insert(form, &url, &fields).await {
        Ok(Some(created)) => {
            let shown = Shown::Secret {
                url: created.endpoint.url,
                secret: created.secret,
                kind: SecretKind::OfNewEndpoint,
            };
            page(session, shown).await
        }
        Ok(None) => Ok(Done::SecretShownBefore.redirect(session, "/webhooks", "endpoints")),
        Err(Refusal::TooManyEndpoints) => wrong(session, fields, too_many()).await,
        Err(refusal) => Err(refusal.into()),
    }
}

/// None: the form was sent before, and has made its endpoint.
async fn insert(
    form: &OwnForm,
    url: &EndpointUrl,
    fields: &EndpointFields,
) -> Result<Option<CreatedEndpoint>, Refusal> {
    let session = &form.session;
    let mut change = session.begin().await?;
    let newest = endpoints::newest(&mut change, session.user()).await?;
    if form.is_sent_again(newest) {
        return Ok(None);
    }
    let new = NewEndpoint {
        user_id: session.user(),
        url,
        events: Some(&fields.events),
        api_version: None,
    };
    let created = endpoints::create(&mut change, new).await?;
    session.commit(change).await?;
    Ok(Some(created))
}

async fn update(session: &Session, id: EndpointId, fields: EndpointFields) -> PageResult {
    find_own(session, id).await?;
    let url = match fields.check().await {
        Ok(url) => url,
        Err(problem) => return wrong(session, fields, problem).await,
    };
    let mut change = session.begin().await?;
    let to = EndpointChange {
        url: Some(&url),
        events: Some(&fields.events),
        ..EndpointChange::default()
    };
    endpoints::update(&mut change, id, to).await?;
    session.commit(change).await?;
    Ok(Done::Saved.redirect(session, "/webhooks", id))
}

async fn act(form: &OwnForm, action: &str, id: EndpointId) -> PageResult {
    let session = &form.session;
    let endpoint = find_own(session, id).await?;
    let row = id.to_string();
    let (done, place) = match action {
        "ping" => {
            let deliveries = session.storage().deliveries();
            let last = deliveries.find_last_ping(session.user(), id).await?;
            let last = tested(last.as_ref());
            if form.field("tested").is_none_or(|known| known == last) {
                let pinged = ping::send(session, &endpoint).await?;
                return page(session, Shown::Pinged(id, pinged)).await;
            }
            (Done::TestShownBefore, row)
        }
        "example" => {
            let event_type = form.parsed("type").ok_or(Failure::NotFound)?;
            let done = ping::send_example(session, &endpoint, event_type).await?;
            (done, format!("example-{event_type}"))
        }
        "rotate" => match rotate(form, &endpoint).await? {
            Some(shown) => return page(session, shown).await,
            None => (Done::SecretShownBefore, row),
        },
        "enable" => {
            let mut change = session.begin().await?;
            endpoints::enable(&mut change, id).await?;
            session.commit(change).await?;
            (Done::EndpointEnabled, row)
        }
        "disable" => {
            let mut change = session.begin().await?;
            if endpoints::disable(&mut change, id).await?.is_some() {
                session.commit(change).await?;
            }
            (Done::EndpointDisabled, row)
        }
        _ => {
            let mut change = session.begin().await?;
            endpoints::remove(&mut change, id).await?;
            session.commit(change).await?;
            (Done::EndpointDeleted, "endpoints".to_owned())
        }
    };
    Ok(done.redirect(session, "/webhooks", place))
}

/// None: the form was sent before, and has made its secret.
async fn rotate(form: &OwnForm, endpoint: &Endpoint) -> Result<Option<Shown>, Refusal> {
    let session = &form.session;
    let mut change = session.begin().await?;
    let rotated = endpoints::rotate_secret(&mut change, endpoint.id).await?;
    let before = rotation(rotated.endpoint.old_secret_expires_at);
    if form.field("rotated").is_some_and(|known| known != before) {
        return Ok(None);
    }
    session.commit(change).await?;
    let is_broken = endpoint.disabled_reason.as_deref() == Some("secret broken");
    let kind = if is_broken {
        SecretKind::Replaced
    } else {
        SecretKind::Rotated
    };
    Ok(Some(Shown::Secret {
        url: rotated.endpoint.url,
        secret: rotated.secret,
        kind,
    }))
}
