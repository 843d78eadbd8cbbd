//! `/operator/deliveries/{id}`: the deliveries to one endpoint. Its forms send an event again, and
//! enable the endpoint.

use askama::Template;
use bellbird_domain::{DeliveryState, EndpointId, EventId, UserId};
use bellbird_management::{deliveries, endpoints};
use bellbird_storage::Endpoint;
use http::{StatusCode, Uri};

use super::deliveries::EndpointRow;
use super::{Emails, Operator, OperatorForm, PAGE_ROWS};
use crate::error_page::{Failure, PageResult};
use crate::list_query::{Chip, ListQuery, Pages};
use crate::pages::{Done, LocalTime, SignedInFrame, page_response};
use crate::session::{PathText, Session, id_of};
use crate::state::Console;
use crate::webhooks::log::{DeliveryRow, list, why_not_sent_again};

/// What a query chooses.
const FILTERS: [&str; 1] = ["state"];

#[derive(Template)]
#[template(path = "operator_endpoint.html")]
struct EndpointPage<'a> {
    frame: &'a SignedInFrame<'a>,
    zone: LocalTime,
    of: EndpointRow,
    /// One, of the states.
    chips: Vec<Chip>,
    rows: Vec<DeliveryRow>,
    pages: Pages,
    problem: Option<&'static str>,
}

/// `GET /operator/deliveries/{id}`
pub(super) async fn show(Operator(session): Operator, id: PathText, uri: Uri) -> PageResult {
    page(&session, id_of(id)?, uri.query(), None).await
}

async fn find(console: &Console, id: EndpointId) -> Result<Endpoint, Failure> {
    let found = console.storage().endpoints().find_any(id).await?;
    found.ok_or(Failure::NotFound)
}

async fn page(
    session: &Session,
    id: EndpointId,
    query: Option<&str>,
    problem: Option<&'static str>,
) -> PageResult {
    let endpoint = find(session, id).await?;
    let query = ListQuery::parse(query, &FILTERS);
    let storage = session.storage();
    let (mut rows, pages) = list(storage, &endpoint, &query, PAGE_ROWS).await?;
    let mut emails = Emails::default();
    let email = emails.find(storage, Some(endpoint.user_id)).await?;
    // Otherwise it is known from the endpoint.
    if endpoint.user_id == UserId::INSTALLATION {
        for row in &mut rows {
            let email = emails.find(storage, Some(row.delivery.user_id)).await?;
            row.about = email.unwrap_or_default();
        }
    }
    let states = DeliveryState::ALL.iter().map(|state| (state, state));
    let page = EndpointPage {
        frame: &session.frame("/operator/deliveries"),
        zone: session.zone(),
        of: EndpointRow { endpoint, email },
        chips: vec![query.menu("state", "All states", states)],
        rows,
        pages,
        problem,
    };
    let status = problem.map_or(StatusCode::OK, |_| StatusCode::CONFLICT);
    Ok(page_response(status, &page))
}

/// `POST /operator/deliveries/{id}`, with the fields `redeliver` and `user`, or `enable`.
pub(super) async fn change(id: PathText, OperatorForm(form): OperatorForm) -> PageResult {
    let (id, session) = (id_of(id)?, &form.session);
    let owner = find(session, id).await?.user_id;
    let changed = async {
        let mut change = session.begin_as_operator().await?;
        let (done, place) = match (
            form.parsed::<EventId>("redeliver"),
            form.parsed::<UserId>("user"),
            form.field("enable"),
        ) {
            (Some(event), Some(user), None) => {
                // Only an endpoint of the installation has events of several users.
                let user = (owner == UserId::INSTALLATION).then_some(user);
                deliveries::redeliver(&mut change, id, user, event).await?;
                (Done::EventRequested, event.to_string())
            }
            (None, None, Some(_)) => {
                endpoints::enable(&mut change, id).await?;
                (Done::EndpointEnabled, "endpoint".to_owned())
            }
            _ => return Err(Failure::InvalidForm),
        };
        change.commit().await?;
        let path = format!("/operator/deliveries/{id}");
        Ok(done.redirect(session, &path, place))
    };
    match changed.await {
        Ok(response) => Ok(response),
        Err(failure) => match why_not_sent_again(&failure) {
            Some(why) => page(session, id, None, Some(why)).await,
            None => Err(failure),
        },
    }
}
