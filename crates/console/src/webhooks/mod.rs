//! `/webhooks`: the user's webhook endpoints. A secret is shown once, on the response to the form
//! that makes it.

mod endpoint;
pub(crate) mod log;
mod ping;

use askama::Template;
use bellbird_domain::{EndpointId, EventType};
use bellbird_management::Refusal;
use bellbird_management::endpoints::{self, EndpointChange, NewEndpoint};
use bellbird_storage::{DeliveryRecord, Endpoint};
use bellbird_webhooks::endpoint::ENDPOINTS_MAX;
use bellbird_webhooks::target::Rules;
use http::StatusCode;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use self::endpoint::{EndpointFields, find_own};
use self::ping::Pinged;
use crate::error_page::{Failure, PageResult};
use crate::pages::{Done, LocalTime, SignedInFrame, page_response};
use crate::plan;
use crate::session::{OwnForm, Session, newest_of};

const PATH: &str = "/webhooks";

#[derive(Template)]
#[template(path = "webhooks.html")]
struct WebhooksPage<'a> {
    frame: &'a SignedInFrame<'a>,
    /// Where events may go.
    rules: Rules,
    zone: LocalTime,
    rows: Vec<EndpointRow>,
    shown: &'a Shown,
    /// The newest endpoint, for the form that makes one. Empty without endpoints.
    newest: String,
}

/// What the page shows beside the endpoints, because of the form that led to it.
enum Shown {
    Nothing,
    /// A secret, shown now and never again.
    Secret {
        id: EndpointId,
        secret: SecretString,
        kind: SecretKind,
    },
    Pinged(EndpointId, Pinged),
    /// With what is wrong with them.
    Fields(EndpointFields),
}

struct EndpointRow {
    endpoint: Endpoint,
    /// The last test event. None: none was sent.
    test: Option<DeliveryRecord>,
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
    /// Of the form of an endpoint. None: of the form that makes one.
    fn fields(&self, endpoint: Option<&Endpoint>) -> EndpointFields {
        match self.shown {
            Shown::Fields(fields) if fields.id == endpoint.map(|endpoint| endpoint.id) => {
                fields.clone()
            }
            _ => EndpointFields::of(endpoint),
        }
    }
}

/// `GET /webhooks`
pub(crate) async fn show(session: Session) -> PageResult {
    page(&session, Shown::Nothing).await
}

async fn page(session: &Session, shown: Shown) -> PageResult {
    let (storage, user) = (session.storage(), session.user());
    let mut rows = Vec::new();
    for endpoint in storage.endpoints().list(user).await? {
        let test = storage.deliveries().find_last_ping(user, endpoint.id);
        rows.push(EndpointRow {
            test: test.await?,
            endpoint,
        });
    }
    let status = match &shown {
        Shown::Nothing | Shown::Secret { .. } => StatusCode::OK,
        Shown::Pinged(_, pinged) => pinged.status,
        Shown::Fields(_) => StatusCode::BAD_REQUEST,
    };
    let page = WebhooksPage {
        frame: &session.frame(PATH),
        rules: session.site.webhooks.rules(),
        zone: session.zone(),
        newest: newest_of(rows.iter().map(|row| row.endpoint.id)),
        rows,
        shown: &shown,
    };
    Ok(page_response(status, &page))
}

/// The last test event, for the form that sends one: one that is sent again has another.
fn tested(ping: Option<&DeliveryRecord>) -> String {
    newest_of(ping.map(|ping| ping.event_id))
}

/// The same for the form that makes a new secret: when the previous one ends.
fn rotated(old_secret_expires_at: Option<Timestamp>) -> String {
    newest_of(old_secret_expires_at.map(Timestamp::as_microsecond))
}

/// `POST /webhooks`, with the fields of an endpoint that is new or, with `edit`, changed, or with a
/// field that says what to do, whose value is the endpoint's id.
pub(crate) async fn change(form: OwnForm) -> PageResult {
    let Some(fields) = EndpointFields::submitted(&form) else {
        let (action, id) = chosen(&form).ok_or(Failure::InvalidForm)?;
        let endpoint = find_own(&form.session, id).await?;
        return act(&form, action, &endpoint).await;
    };
    match plan::refuse_form(&form.session) {
        Some(refused) => Ok(refused),
        None => save(&form, fields).await,
    }
}

fn chosen(form: &OwnForm) -> Option<(&'static str, EndpointId)> {
    let actions = ACTIONS.into_iter();
    let mut chosen = actions.filter_map(|action| Some((action, form.parsed(action)?)));
    chosen.next().filter(|_| chosen.next().is_none())
}

fn too_many() -> String {
    format!("You have {ENDPOINTS_MAX} endpoints, which is the limit. Delete one first.")
}

/// The form with its fields, and what is wrong with them.
async fn show_again(session: &Session, mut fields: EndpointFields, problem: String) -> PageResult {
    fields.problem = Some(problem);
    page(session, Shown::Fields(fields)).await
}

/// Makes an endpoint, or changes the one that the fields are of. Asks no name server for one that
/// is not the user's, or would be one too many.
async fn save(form: &OwnForm, mut fields: EndpointFields) -> PageResult {
    let session = &form.session;
    let user_id = session.user();
    if let Some(id) = fields.id {
        let endpoint = find_own(session, id).await?;
        fields.keep_hidden(&endpoint, session.caller.plan);
    } else {
        let own = session.storage().endpoints().list(user_id).await?;
        if own.len() >= ENDPOINTS_MAX as usize {
            return show_again(session, fields, too_many()).await;
        }
    }
    let url = match fields.check(session.site.webhooks.rules()).await {
        Ok(url) => url,
        Err(problem) => return show_again(session, fields, problem).await,
    };
    let mut change = session.begin().await?;
    if let Some(id) = fields.id {
        let to = EndpointChange {
            url: Some(&url),
            events: Some(&fields.events),
            ..EndpointChange::default()
        };
        endpoints::update(&mut change, id, to).await?;
        session.commit(change).await?;
        return Ok(Done::Saved.redirect(session, PATH, id));
    }
    let newest = endpoints::newest(&mut change, user_id).await?;
    if form.is_sent_again(newest) {
        return Ok(Done::SecretShownBefore.redirect(session, PATH, "endpoints"));
    }
    let new = NewEndpoint {
        user_id,
        url: &url,
        events: Some(&fields.events),
        api_version: None,
    };
    let created = endpoints::create(&mut change, new).await;
    let created = match created {
        // Another browser has made one meanwhile.
        Err(Refusal::TooManyEndpoints) => {
            drop(change);
            return show_again(session, fields, too_many()).await;
        }
        created => created?,
    };
    session.commit(change).await?;
    let shown = Shown::Secret {
        id: created.endpoint.id,
        secret: created.secret,
        kind: SecretKind::OfNewEndpoint,
    };
    page(session, shown).await
}

async fn act(form: &OwnForm, action: &str, endpoint: &Endpoint) -> PageResult {
    let (session, id) = (&form.session, endpoint.id);
    let redirect = |done: Done| Ok(done.redirect(session, PATH, id));
    match action {
        "ping" => {
            let last = session.storage().deliveries();
            let last = tested(last.find_last_ping(session.user(), id).await?.as_ref());
            if form.field("tested").is_some_and(|known| known != last) {
                return redirect(Done::TestShownBefore);
            }
            let pinged = ping::send(session, endpoint).await?;
            return page(session, Shown::Pinged(id, pinged)).await;
        }
        "example" => {
            let event_type = form.parsed("type").ok_or(Failure::NotFound)?;
            return redirect(ping::send_example(session, endpoint, event_type).await?);
        }
        _ => {}
    }
    let mut change = session.begin().await?;
    match action {
        "rotate" => {
            let new = endpoints::rotate_secret(&mut change, id).await?;
            let before = rotated(new.endpoint.old_secret_expires_at);
            if form.field("rotated").is_some_and(|known| known != before) {
                return redirect(Done::SecretShownBefore);
            }
            session.commit(change).await?;
            let shown = Shown::Secret {
                id,
                secret: new.secret,
                kind: match endpoint.disabled_reason.as_deref() {
                    Some("secret broken") => SecretKind::Replaced,
                    _ => SecretKind::Rotated,
                },
            };
            page(session, shown).await
        }
        "enable" => {
            endpoints::enable(&mut change, id).await?;
            session.commit(change).await?;
            redirect(Done::EndpointEnabled)
        }
        "disable" => {
            if endpoints::disable(&mut change, id).await?.is_some() {
                session.commit(change).await?;
            }
            redirect(Done::EndpointDisabled)
        }
        _ => {
            endpoints::remove(&mut change, id).await?;
            session.commit(change).await?;
            Ok(Done::EndpointDeleted.redirect(session, PATH, "endpoints"))
        }
    }
}
