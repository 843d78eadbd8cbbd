//! `/operator/deliveries`: how many webhook events are to be delivered, and the endpoints at which
//! that fails.

use askama::Template;
use bellbird_domain::UserId;
use bellbird_storage::{DeliveryOverview, Endpoint};
use http::{StatusCode, Uri};

use super::{Emails, Operator, PAGE_ROWS};
use crate::error_page::PageResult;
use crate::list_query::{Chip, ListQuery, Pages};
use crate::pages::names::sanitized;
use crate::pages::{LocalTime, SignedInFrame, page_response};

/// What a query chooses. Without it, endpoints are listed too that somebody has paused.
const FILTERS: [&str; 1] = ["only"];
/// The value of what nobody has paused.
const ATTENTION: &str = "attention";

#[derive(Template)]
#[template(path = "operator_deliveries.html")]
struct DeliveriesPage<'a> {
    frame: &'a SignedInFrame<'a>,
    zone: LocalTime,
    overview: DeliveryOverview,
    /// One.
    chips: Vec<Chip>,
    /// Disabled or failing.
    rows: Vec<EndpointRow>,
    of_all: Vec<EndpointRow>,
    pages: Pages,
}

/// An endpoint, for an operator.
pub(super) struct EndpointRow {
    pub(super) endpoint: Endpoint,
    /// Of its user. None: it receives the events of all users.
    pub(super) email: Option<String>,
}

impl EndpointRow {
    pub(super) fn status(&self, zone: &LocalTime) -> String {
        match (&self.endpoint.disabled_reason, self.endpoint.failing_since) {
            (Some(reason), _) if self.endpoint.is_paused() => format!("paused {reason}"),
            (Some(reason), _) => format!("disabled: {}", sanitized(reason)),
            (None, Some(since)) => format!("failing, first failure {}", zone.when(since).text),
            (None, None) => "enabled".to_owned(),
        }
    }

    /// `good`, `attention`, or nothing if somebody has disabled it on purpose.
    pub(super) fn class(&self) -> &'static str {
        match (&self.endpoint.disabled_reason, self.endpoint.failing_since) {
            _ if self.endpoint.is_paused() => "",
            (None, None) => "good",
            _ => "attention",
        }
    }
}

/// `GET /operator/deliveries`
pub(super) async fn show(Operator(session): Operator, uri: Uri) -> PageResult {
    let query = ListQuery::parse(uri.query(), &FILTERS);
    let (storage, zone) = (session.storage(), session.zone());
    let overview = storage.deliveries().overview(zone.now).await?;
    let mut endpoints = storage
        .endpoints()
        .list_troubled_after(query.start(), query.get("only") != ATTENTION, PAGE_ROWS + 1)
        .await?;
    let pages = query.cut(&mut endpoints, PAGE_ROWS, |endpoint| endpoint.id);
    let mut emails = Emails::default();
    let mut rows = Vec::new();
    for endpoint in endpoints {
        let email = emails.find(storage, Some(endpoint.user_id)).await?;
        rows.push(EndpointRow { endpoint, email });
    }
    let of_all = storage.endpoints().list(UserId::INSTALLATION).await?;
    let of_all = of_all.into_iter().map(|endpoint| EndpointRow {
        endpoint,
        email: None,
    });
    let page = DeliveriesPage {
        frame: &session.frame("/operator/deliveries"),
        zone,
        overview,
        chips: vec![query.toggle("only", ATTENTION, "Needs attention")],
        rows,
        of_all: of_all.collect(),
        pages,
    };
    Ok(page_response(StatusCode::OK, &page))
}
